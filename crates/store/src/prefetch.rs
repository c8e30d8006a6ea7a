//! Prefetch instructions: hints to the processor that an address will be accessed soon.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Prefetched cache lines of a small form. Its length is unknown until the first line arrives, and by then the hardware
/// prefetcher has detected the direction.
const BLOCK_LINES: usize = 2;

/// The parts of a collection that an operation will read, in the order in which their addresses become known.
#[derive(Clone, Copy, Debug)]
pub enum Ahead<'a> {
    /// The target of the entry's pointer: a small form, or the head of a big one.
    Value,
    /// The bucket of this member or field, in the table of a big form.
    Bucket(&'a [u8]),
    /// The record of this member or field.
    Record(&'a [u8]),
}

/// Prefetches the beginning of a small form.
#[inline]
pub fn prefetch_block(address: *const u8) {
    (0..BLOCK_LINES).for_each(|line| prefetch(address.wrapping_add(line * LINE_BYTES)));
}

/// Prefetches the cache line at `address`. Any address is allowed, because a prefetch never faults.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults at any address, and SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM never faults at any address, and changes no register.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Prefetches the cache line at `address` for a write, which takes it away from other cores. Any address is allowed.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    // The compiler's intrinsic would become a prefetch for reading, because the baseline processor need not have this
    // instruction. Processors without it, older than 2014, ignore it.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults at any address, and changes no register.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
