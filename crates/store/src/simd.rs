//! Running work with wider vectors on processors that have them.
//!
//! The program is built for the baseline of its architecture. Inside a function with further target features, the
//! compiler turns a loop over words into wider instructions. Its caller must know that the processor has the features.

/// Work on many words at a time.
pub trait WideWork {
    /// Its result.
    type Output;

    /// Does the work. Mark it and the functions that it calls with `#[inline(always)]`: code that is not inlined into
    /// the function with the target features is compiled without them. Closures cannot be marked, and are usually not
    /// inlined.
    fn run(self) -> Self::Output;
}

/// Runs `work` with vectors of 32 bytes, if the processor has them.
#[inline]
pub fn with_wide_vectors<W: WideWork>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the target feature.
        return unsafe { with_avx2(work) };
    }
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<W: WideWork>(work: W) -> W::Output {
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Add<'s>(&'s mut [u64; 64]);

    impl WideWork for Add<'_> {
        type Output = usize;

        #[inline(always)]
        fn run(self) -> usize {
            self.0.iter_mut().enumerate().for_each(|(at, sum)| *sum += at as u64 * 3);
            self.0.len()
        }
    }

    #[test]
    fn work_is_done_once_with_its_result() {
        let mut sums = [0u64; 64];
        let count = with_wide_vectors(Add(&mut sums));
        assert_eq!((count, sums.iter().sum::<u64>()), (64, 3 * 64 * 63 / 2));
    }
}
