//! What is told of the process and the machine. The engine asks neither: the server fills these in. The one exception
//! is the cycle counter (`ticks.rs`), by which a thread keeps the time that its commands see (`clockwork.rs`).

pub mod clockwork;
pub mod ticks;
pub mod version;

/// What doesn't change while the server runs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// 40 random hexadecimal digits, new for each start.
    pub run_id: String,
    /// The same for the history of the data, as replicas know it.
    pub replication_id: String,
    /// The number of the process.
    pub process_id: u32,
    /// The operating system with its release and architecture, as `uname -srm` says.
    pub os: String,
    /// Path of the program, empty if it isn't known.
    pub executable: String,
    /// Bytes of memory that the machine has.
    pub memory_bytes: u64,
    /// What waits for sockets.
    pub multiplexing_api: &'static str,
    /// What gives out memory.
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
            multiplexing_api: "none",
            allocator: "unknown",
        }
    }
}

/// Processor time, in microseconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct CpuTime {
    /// Spent in the program.
    pub user_us: u64,
    /// Spent in the kernel for it.
    pub system_us: u64,
}

/// Processor time that the process has had so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Of all threads.
    pub cpu: CpuTime,
    /// Of the first worker thread.
    pub cpu_first_worker: CpuTime,
    /// Of processes it started that have ended.
    pub cpu_children: CpuTime,
}
