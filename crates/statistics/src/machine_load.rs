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

impl Default for MachineLoad {
    fn default() -> MachineLoad {
        MachineLoad { cores: std::thread::available_parallelism().map_or(1, usize::from), read_ns: 0 }
    }
}

impl MachineLoad {
    /// Returns whether threads wait for a core, if a reading is due. `now_ns` is nanoseconds of Unix time. If the system does not
    /// tell its load, threads may wait.
    #[inline]
    pub fn read(&mut self, now_ns: u64) -> Option<bool> {
        // A clock that was set back makes the difference large.
        if now_ns.wrapping_sub(self.read_ns) < READ_EVERY_NS {
            return None;
        }
        self.read_ns = now_ns;
        Some(runnable().is_none_or(|runnable| runnable > self.cores))
    }
}

/// Returns the runnable threads of the whole machine, including this one, if the system tells.
#[must_use]
pub fn runnable() -> Option<usize> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_is_runnable() {
        assert!(runnable().is_some_and(|runnable| runnable > 0));
    }

    #[test]
    fn the_load_is_read_a_hundred_times_a_second_at_most() {
        let mut load = MachineLoad { cores: 0, read_ns: 0 };
        let start_ns = 1_700_000_000_000_000_000;
        assert_eq!(load.read(start_ns), Some(true));
        assert_eq!(load.read(start_ns + READ_EVERY_NS - 1), None);
        load.cores = usize::MAX;
        assert_eq!(load.read(start_ns + READ_EVERY_NS), Some(false));
        assert_eq!(load.read(start_ns), Some(false), "the clock was set back");
    }
}
