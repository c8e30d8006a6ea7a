//! The time slice of a thread, which Linux 6.12 and later let a program choose.
//!
//! A thread with a short slice runs as large a share of the time as others, but earlier: it may interrupt a thread with a
//! longer slice. Clients wait for the threads that execute commands, and nobody waits for a single slice of the others.
//! The earlier kernels accept the request and ignore it. Source: sched(7), sched_setattr(2), and `Documentation/scheduler/sched-eevdf.rst`
//! of Linux.

use nix::errno::Errno;
use nix::libc::{self, sched_attr};

/// The shortest slice that the kernel grants, in nanoseconds. Its default is 0.7 to 3 ms, by the number of cores.
const SHORT_NS: u64 = 100_000;

/// The kernel's own default, as sched_setattr(2) takes it.
const DEFAULT_NS: u64 = 0;

/// Size of the first version of `sched_attr`, in bytes.
const ATTR_BYTES: u32 = 48;

const _: () = assert!(size_of::<sched_attr>() == ATTR_BYTES as usize);

/// Gives the calling thread a short time slice, so that it waits less for threads in the background. Threads that it starts inherit it,
/// unless they call [`reset`].
///
/// A failure leaves the slice unchanged: a sandbox may forbid the call.
pub fn shorten() {
    let _ = set(SHORT_NS);
}

/// Gives the calling thread the kernel's default time slice. A failure leaves the slice unchanged.
pub fn reset() {
    let _ = set(DEFAULT_NS);
}

fn set(slice_ns: u64) -> Result<(), Errno> {
    let mut attr = attributes()?;
    // For other classes the field has other meanings, and an operator chose them.
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&attr.sched_policy.cast_signed())
        || attr.sched_runtime == slice_ns
    {
        return Ok(());
    }
    attr.sched_runtime = slice_ns;
    // SAFETY: the call reads `attr`, which has the size that it names, and affects the calling thread only.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    Errno::result(result).map(|_| ())
}

/// Returns the scheduling attributes of the calling thread.
fn attributes() -> Result<sched_attr, Errno> {
    let mut attr = sched_attr {
        size: ATTR_BYTES,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the call writes at most `ATTR_BYTES` to `attr`, which has this size.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, ATTR_BYTES, 0) };
    Errno::result(result).map(|_| attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice_ns() -> u64 {
        attributes().unwrap().sched_runtime
    }

    /// Runs on a thread of its own, because the test's thread may be used again.
    fn on_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(run).join().unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls the kernel")]
    fn a_slice_is_shortened_and_reset() {
        let (before, short, after) = on_thread(|| {
            let before = slice_ns();
            shorten();
            let short = slice_ns();
            reset();
            (before, short, slice_ns())
        });
        // Kernels before 6.12 always report 0.
        assert_eq!(short, if before == 0 { 0 } else { SHORT_NS });
        assert_eq!(after, before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls the kernel")]
    fn a_slice_keeps_the_priority() {
        let nice = on_thread(|| {
            crate::process::give_way();
            shorten();
            attributes().unwrap().sched_nice
        });
        assert_eq!(nice, 10);
    }
}
