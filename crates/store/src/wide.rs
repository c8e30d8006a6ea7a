//! Work that is done with wider vectors, where the processor has them.
//!
//! The program is built for any processor of its kind. A loop over words becomes wider instructions in a function that is built for
//! them, whose caller must know that the processor has them.

/// Runs `work`, with vectors of 32 bytes if the processor has them. What `work` calls must be inlined into it for that.
#[inline]
pub fn with_wide_vectors<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function is built for.
        return unsafe { with_avx2(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_once_with_its_result() {
        let mut sums = [0u64; 64];
        let count = with_wide_vectors(|| {
            sums.iter_mut().enumerate().for_each(|(at, sum)| *sum += at as u64 * 3);
            sums.len()
        });
        assert_eq!((count, sums.iter().sum::<u64>()), (64, 3 * 64 * 63 / 2));
    }
}
