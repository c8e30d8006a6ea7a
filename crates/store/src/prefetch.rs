//! Hints to the processor that an address will be read soon.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Cache lines of a small form that are asked for ahead: its length isn't known before the first of them is there, and
/// the processor's own prefetcher has seen the direction then.
const BLOCK_LINES: usize = 2;

/// What of a collection an operation will read, in the order in which it becomes known where that is.
#[derive(Clone, Copy, Debug)]
pub enum Ahead<'a> {
    /// What the key's entry points to: a small form, or the head of a big one.
    Value,
    /// The bucket of a big form's table that this member or field belongs to.
    Bucket(&'a [u8]),
    /// The record of this member or field.
    Record(&'a [u8]),
}

/// Asks for the beginning of a small form.
#[inline]
pub fn prefetch_block(address: *const u8) {
    (0..BLOCK_LINES).for_each(|line| prefetch(address.wrapping_add(line * LINE_BYTES)));
}

/// Asks for the cache line at `address` without waiting for it. Any address will do: a hint reads nothing.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching never faults, whatever the address, and SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM never faults, whatever the address, and changes no register.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Asks for the cache line at `address` to be written, which takes it away from other cores, without waiting for it.
/// Any address will do.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    // The compiler's own hint to write becomes one to read where it doesn't know that the processor has this one. Those
    // that don't have it, which are older than 2014, do nothing instead.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching never faults, whatever the address, and changes no register.
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
