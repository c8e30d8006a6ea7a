//! A range outside of the heap where huge pages are filled before they take a block's place.
//!
//! `mremap` moves only the page (`MREMAP_DONTUNMAP`, Linux 5.7) and leaves the range here unchanged and empty. Each block of the heap has
//! its own place here. The kernel then treats neighbouring blocks as one mapping, and a process may have only some 65,000 mappings.
//!
//! `unsafe` for the calls to the kernel. The invariant: **there is no other pointer into the range.**

use std::ffi::c_void;
use std::ptr;

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed};

use super::BLOCK_BYTES;

/// `MREMAP_DONTUNMAP` of linux/mman.h. The crate lacks it on some systems.
const DONT_UNMAP: MremapFlags = MremapFlags::from_bits_retain(4);

/// The range and its filled page.
pub struct Staging {
    start: usize,
    blocks: usize,
    /// The filled block, if any, and whether it was already filled at the last check for idle ones.
    filled: Option<(usize, bool)>,
    /// True if the kernel can't move a block: none needs to be filled.
    is_useless: bool,
}

impl Staging {
    /// Returns a range of that many bytes, a multiple of a block, or `None` if the kernel has none.
    pub fn new(bytes: usize) -> Option<Staging> {
        let (flags, protection) = (MapFlags::PRIVATE | MapFlags::NORESERVE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new range at an address of the kernel's choice.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), bytes + BLOCK_BYTES, protection, flags) }.ok()?;
        let start = mapped.expose_provenance().next_multiple_of(BLOCK_BYTES);
        let staging = Staging { start, blocks: bytes / BLOCK_BYTES, filled: None, is_useless: false };
        // SAFETY: advice changes no byte. A kernel without huge pages returns an error, and small pages are moved.
        let _ = unsafe { madvise(staging.address(0), bytes, Advice::LinuxHugepage) };
        Some(staging)
    }

    fn address(&self, block: usize) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.start + block * BLOCK_BYTES)
    }

    /// Fills a page for the heap's block of that number, unless an unused one is left. Returns true if there is one now: an old kernel
    /// can't fill or move any.
    pub fn fill(&mut self, block: usize) -> bool {
        if self.filled.is_none() && !self.is_useless {
            let at = block % self.blocks;
            // SAFETY: absent pages are filled with zeros, the values that a read would give.
            let filled = unsafe { madvise(self.address(at), BLOCK_BYTES, Advice::LinuxPopulateWrite) };
            self.filled = filled.is_ok().then_some((at, false));
        }
        self.filled.is_some()
    }

    /// Moves the filled page to a block of the heap. Returns true on success. The block is unchanged otherwise.
    ///
    /// # Safety
    /// `to` is a block's address, and the block is unused.
    pub unsafe fn move_to(&mut self, to: usize) -> bool {
        let Some((at, _)) = self.filled else { return false };
        let to = ptr::with_exposed_provenance_mut(to);
        let flags = MremapFlags::MAYMOVE | DONT_UNMAP;
        // SAFETY: the caller's promise, and there is no other pointer to the moved page.
        let moved = unsafe { mremap_fixed(self.address(at), BLOCK_BYTES, BLOCK_BYTES, flags, to) };
        if moved.is_err() {
            self.empty();
            self.is_useless = true;
            return false;
        }
        self.filled = None;
        // A part that is returned later must not become huge on the next touch. SAFETY: advice changes no byte.
        let _ = unsafe { madvise(to, BLOCK_BYTES, Advice::LinuxNoHugepage) };
        true
    }

    /// Returns a page to the system that was filled before the last call and is still unused.
    pub fn trim_idle(&mut self) {
        match &mut self.filled {
            Some((_, true)) => self.empty(),
            Some((_, idle)) => *idle = true,
            None => {}
        }
    }

    fn empty(&mut self) {
        if let Some((at, _)) = self.filled.take() {
            // SAFETY: there is no other pointer into the range.
            let _ = unsafe { madvise(self.address(at), BLOCK_BYTES, Advice::LinuxDontNeed) };
        }
    }

    #[cfg(test)]
    pub fn is_filled(&self) -> bool {
        self.filled.is_some()
    }
}
