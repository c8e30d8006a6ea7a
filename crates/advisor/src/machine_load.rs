//! The load of the machine: its runnable threads against the cores of this process. If threads wait for a core, short times say
//! little about the programs that run.

/// Time between two readings of the load.
const READ_EVERY_NS: u64 = 10_000_000;

/// Reads the load at most a hundred times a second.
#[derive(Debug)]
pub struct MachineLoad {
    cores: usize,
    /// Time of the last reading.
    read_ns: u64,
}

impl MachineLoad {
    /// Creates the state for a process that may use this number of cores.
    #[must_use]
    pub fn new(cores: usize) -> MachineLoad {
        MachineLoad { cores, read_ns: 0 }
    }

    /// Returns true if threads wait for a core, and None if no reading is due. `now_ns` is nanoseconds of Unix time, and `read` reads
    /// `/proc/loadavg`. If the system does not tell its load, threads may wait.
    #[inline]
    pub fn look(&mut self, now_ns: u64, read: impl FnOnce() -> Option<String>) -> Option<bool> {
        // A clock that was set back makes the difference large.
        if now_ns.wrapping_sub(self.read_ns) < READ_EVERY_NS {
            return None;
        }
        self.read_ns = now_ns;
        Some(read().and_then(|text| runnable(&text)).is_none_or(|runnable| runnable > self.cores))
    }
}

/// Returns the runnable threads of the machine, from the text of `/proc/loadavg`: "0.20 0.18 0.12 1/80 11206".
fn runnable(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: u64 = 1_700_000_000_000_000_000;

    #[test]
    fn more_runnable_threads_than_cores_are_a_load() {
        for (text, is_busy) in [
            (Some("0.20 0.18 0.12 2/80 11206\n"), false),
            (Some("0.20 0.18 0.12 3/80 11206\n"), true),
            (Some(""), true),
            (None, true),
        ] {
            let read = || text.map(str::to_owned);
            assert_eq!(MachineLoad::new(2).look(START_NS, read), Some(is_busy), "{text:?}");
        }
    }

    #[test]
    fn the_load_is_read_a_hundred_times_a_second_at_most() {
        let mut load = MachineLoad::new(2);
        let mut look = |now_ns| load.look(now_ns, || None);
        assert_eq!(look(START_NS), Some(true));
        assert_eq!(look(START_NS + READ_EVERY_NS - 1), None);
        assert_eq!(look(START_NS + READ_EVERY_NS), Some(true));
        assert_eq!(look(START_NS), Some(true), "the clock was set back");
    }
}
