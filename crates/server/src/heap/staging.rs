//! Where huge pages are filled, outside of the heap in use, before they take a block's place in it.
//!
//! `mremap` moves the page alone (`MREMAP_DONTUNMAP`, Linux 5.7) and leaves the range here as it was, empty. Each block
//! has its own place here. The kernel then takes neighbouring blocks for one mapping, and it allows a process only some
//! 65,000 mappings.
//!
//! `unsafe` for the calls to the kernel. The invariant: **there is no other pointer into the range.**

use std::ffi::c_void;
use std::ptr;

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed};

use super::BLOCK_BYTES;

/// `MREMAP_DONTUNMAP` of linux/mman.h, which the crate doesn't have on every system that it knows.
const DONT_UNMAP: MremapFlags = MremapFlags::from_bits_retain(4);

/// See the module's documentation.
pub struct Staging {
    start: usize,
    blocks: usize,
    /// The block that is filled, if there is one, and whether it was when it was last looked for what is idle.
    filled: Option<(usize, bool)>,
    /// Whether the kernel can't move a block, so that none needs to be filled.
    is_useless: bool,
}

impl Staging {
    /// A range of so many bytes, a multiple of a block's. None if the kernel has none.
    pub fn new(bytes: usize) -> Option<Staging> {
        let (flags, protection) = (MapFlags::PRIVATE | MapFlags::NORESERVE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new range, wherever the kernel likes.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), bytes + BLOCK_BYTES, protection, flags) }.ok()?;
        let start = mapped.expose_provenance().next_multiple_of(BLOCK_BYTES);
        let staging = Staging { start, blocks: bytes / BLOCK_BYTES, filled: None, is_useless: false };
        // SAFETY: advice changes no byte. Where the kernel has no huge pages, this is an error, and small ones are
        // moved.
        let _ = unsafe { madvise(staging.address(0), bytes, Advice::LinuxHugepage) };
        Some(staging)
    }

    fn address(&self, block: usize) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.start + block * BLOCK_BYTES)
    }

    /// Fills a block for the heap's block of that number, unless there is one that was not used. Returns whether there
    /// is one now: an old kernel can't fill or move any.
    pub fn fill(&mut self, block: usize) -> bool {
        if self.filled.is_none() && !self.is_useless {
            let at = block % self.blocks;
            // SAFETY: what isn't there yet is filled with the zeros as which it would be read.
            let filled = unsafe { madvise(self.address(at), BLOCK_BYTES, Advice::LinuxPopulateWrite) };
            self.filled = filled.is_ok().then_some((at, false));
        }
        self.filled.is_some()
    }

    /// Moves what is filled to a block of the heap. Returns whether it was; the block is as it was otherwise.
    ///
    /// # Safety
    /// `to` is a block's address, and the block is unused.
    pub unsafe fn move_to(&mut self, to: usize) -> bool {
        let Some((at, _)) = self.filled else { return false };
        let to = ptr::with_exposed_provenance_mut(to);
        let flags = MremapFlags::MAYMOVE | DONT_UNMAP;
        // SAFETY: the caller's promise, and there is no other pointer to what is moved.
        let moved = unsafe { mremap_fixed(self.address(at), BLOCK_BYTES, BLOCK_BYTES, flags, to) };
        if moved.is_err() {
            self.empty();
            self.is_useless = true;
            return false;
        }
        self.filled = None;
        // What is given back of it must not become huge when it is touched again.
        // SAFETY: advice changes no byte.
        let _ = unsafe { madvise(to, BLOCK_BYTES, Advice::LinuxNoHugepage) };
        true
    }

    /// Gives back what has been filled since before the last call of this and not been used.
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
