//! Facts about the process and the machine. The server provides them; the engine doesn't query the system. The one
//! exception is the cycle counter (`statistics::ticks`), which a thread uses to keep the time for its commands
//! (`clockwork.rs`).

pub mod clockwork;
pub mod version;

const MEGABYTE: u64 = 1 << 20;

/// Facts that are constant while the server runs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// 40 random hexadecimal digits, new for each start.
    pub run_id: String,
    /// 40 random hexadecimal digits that name the data's history for replicas.
    pub replication_id: String,
    /// The process id.
    pub process_id: u32,
    /// The operating system with its release and architecture, like `uname -srm`.
    pub os: String,
    /// Path of the program, empty if unknown.
    pub executable: String,
    /// The machine's memory, in bytes.
    pub memory_bytes: u64,
    /// The memory limit of the process's control group, in bytes; `None` without one.
    pub memory_limit_bytes: Option<u64>,
    /// The mechanism that waits for sockets.
    pub multiplexing_api: &'static str,
    /// The memory allocator.
    pub allocator: &'static str,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            run_id: "0".repeat(40),
            replication_id: "0".repeat(40),
            process_id: 0,
            os: String::new(),
            executable: String::new(),
            memory_bytes: 0,
            memory_limit_bytes: None,
            multiplexing_api: "none",
            allocator: "unknown",
        }
    }
}

/// Returns the largest sensible `maxmemory` for a process with a memory limit: three quarters in whole megabytes, because buffers, scripts
/// and fragmentation need the rest. Both are in bytes.
#[must_use]
pub fn suggested_maxmemory(limit_bytes: u64) -> u64 {
    (limit_bytes / 4 * 3 / MEGABYTE).max(1) * MEGABYTE
}

/// Processor time, in microseconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct CpuTime {
    /// Time in the program.
    pub user_us: u64,
    /// Time in the kernel for the program.
    pub system_us: u64,
}

/// Processor time of the process so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Time of all threads.
    pub cpu: CpuTime,
    /// Time of the first worker thread.
    pub cpu_first_worker: CpuTime,
    /// Time of child processes that have ended.
    pub cpu_children: CpuTime,
}
