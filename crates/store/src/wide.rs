//! Work that is done with wider vectors, where the processor has them.
//!
//! The program is built for any processor of its kind. A loop over words becomes wider instructions in a function that is built for
//! them, whose caller must know that the processor has them.

/// Work on many words at a time.
pub trait WideWork {
    /// What it gives.
    type Output;

    /// Does it. Write `#[inline(always)]` before it, and before what it calls: what isn't inlined into the function that is built for wide
    /// vectors is built without them. A closure can't be marked so, and mostly isn't inlined.
    fn run(self) -> Self::Output;
}

/// Does `work` with vectors of 32 bytes, if the processor has them.
#[inline]
pub fn with_wide_vectors<W: WideWork>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function is built for.
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
