//! What the server asks of its process and its machine: descriptors, memory, processor time, randomness.
//!
//! Figures of use are read from `/proc` (proc(5)); where it isn't mounted they are 0.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use engine::machine::{CpuTime, Machine, Usage};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::log;

/// Descriptors that the server needs beside those of its clients: Redis's figure, which is enough for [`FEW_THREADS`],
/// and for the few files of replies that wait ([`crate::spill`]).
const DESCRIPTORS_RESERVED: u64 = 32;
const FEW_THREADS: usize = 2;
/// What every other worker thread needs: its poller, the poller's timer, what wakes it, what others wake it with, and
/// one kept for turning clients away.
const DESCRIPTORS_A_THREAD: u64 = 5;

/// Descriptors that are asked for beyond these, and done without where the system has none: of connections that operators have beyond
/// `maxclients`, and of the threads for handshakes.
const DESCRIPTORS_WELCOME: u64 = 64;

/// Descriptors that a server with so many worker threads needs beside those of its clients.
#[must_use]
pub fn descriptors_reserved(threads: usize) -> u64 {
    DESCRIPTORS_RESERVED + DESCRIPTORS_A_THREAD * threads.saturating_sub(FEW_THREADS) as u64
}

/// Raises the limit on descriptors as far as is needed and allowed, and returns how many clients it leaves room for.
#[must_use]
pub fn room_for_clients(wanted: u64, threads: usize) -> u64 {
    let reserved = descriptors_reserved(threads);
    let needed = wanted.saturating_add(reserved).saturating_add(DESCRIPTORS_WELCOME);
    let now = getrlimit(Resource::Nofile);
    let soft = now.current.unwrap_or(u64::MAX);
    if soft >= needed {
        return wanted;
    }
    let target = needed.min(now.maximum.unwrap_or(u64::MAX));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum: now.maximum });
    let soft = if raised.is_ok() { target } else { soft };
    wanted.min(soft.saturating_sub(reserved))
}

/// An unpredictable number from the operating system.
#[must_use]
pub fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Lets the kernel give huge pages where it is told to, which the allocator forbids to the process when it starts
/// (`.cargo/config.toml`).
pub fn permit_huge_pages() {
    // Without, memory is in small pages, which is slower and no more.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
}

/// Has the kernel give memory in small pages from here on. It clears a huge one, 2 MB, in the midst of the command that
/// first touches it: a tenth of a millisecond, and many milliseconds on a virtual machine whose host has yet to find
/// the memory.
pub fn disable_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        log::notice(format!("Transparent huge pages can't be disabled, which may cause short stalls: {error}"));
    }
}

/// Gives the calling thread the lowest priority: no other thread waits for its work.
pub fn stand_back() {
    // On Linux this is of the thread, not of the process. Where it isn't allowed, nothing is lost but some politeness.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Lets the calling thread wait for those that execute commands, where they want all cores, but not for ever: as nice(2) counts, it has a
/// tenth of their share.
pub fn give_way() {
    // As above.
    let _ = rustix::process::setpriority_process(None, 10);
}

/// How many threads to run by default: one per core that the process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// 40 random hexadecimal digits, unique for this run.
fn random_id() -> String {
    let mut id = String::new();
    while id.len() < 40 {
        // Writing to a string can't fail.
        let _ = write!(id, "{:016x}", random_seed());
    }
    id.truncate(40);
    id
}

/// What doesn't change while the server runs.
#[must_use]
pub fn machine() -> Machine {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let memory = rustix::system::sysinfo();
    Machine {
        run_id: random_id(),
        replication_id: random_id(),
        process_id: std::process::id(),
        os: format!("{} {} {}", text(uname.sysname()), text(uname.release()), text(uname.machine())),
        executable: std::env::current_exe().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default(),
        memory_bytes: (memory.totalram as u64).saturating_mul(u64::from(memory.mem_unit)),
        multiplexing_api: "epoll",
        allocator: "mimalloc",
    }
}

/// The processor time that the process has had; `first_worker` is the name of the first worker's thread.
#[must_use]
pub fn usage(first_worker: &str) -> Usage {
    /// The thread stays, and to look for it means to open a file of each thread.
    static FIRST_WORKER: OnceLock<String> = OnceLock::new();
    let [cpu, cpu_children] = cpu_times("/proc/self/stat");
    let path = FIRST_WORKER.get().cloned().or_else(|| task_called(first_worker));
    let [cpu_first_worker, _] = path.as_deref().map(cpu_times).unwrap_or_default();
    if let Some(path) = path {
        let _ = FIRST_WORKER.set(path);
    }
    Usage { cpu, cpu_first_worker, cpu_children }
}

/// Bytes of memory that the process holds.
#[must_use]
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * page_size() as u64
}

/// The `stat` file of the process's thread with this name.
fn task_called(name: &str) -> Option<String> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let mut paths = tasks.flatten().map(|task| task.path());
    let found = paths.find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name))?;
    Some(found.join("stat").to_string_lossy().into_owned())
}

/// The times of a process or thread, and those of its children that have ended, from its `stat` file.
fn cpu_times(path: &str) -> [CpuTime; 2] {
    let stat = fs::read_to_string(path).unwrap_or_default();
    parse_cpu_times(&stat, clock_ticks_per_second())
}

fn parse_cpu_times(stat: &str, ticks_per_second: u64) -> [CpuTime; 2] {
    // The second field is the name, in parentheses, and may itself hold blanks and parentheses.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // utime, stime, cutime and cstime are the fields 14 to 17, the first after the name being the third.
    let mut fields = after_name.split(' ').skip(14 - 3);
    let mut next_us = || {
        let ticks: u64 = fields.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        ticks.saturating_mul(1_000_000) / ticks_per_second.max(1)
    };
    [(); 2].map(|()| CpuTime { user_us: next_us(), system_us: next_us() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 150 20 3 1 20 0 4 0 99";
        let [own, children] = parse_cpu_times(stat, 100);
        assert_eq!((own.user_us, own.system_us), (1_500_000, 200_000));
        assert_eq!((children.user_us, children.system_us), (30_000, 10_000));
        assert_eq!(parse_cpu_times("", 100)[0].user_us, 0);
    }

    #[test]
    fn the_machine_is_known() {
        let machine = machine();
        assert!(machine.memory_bytes > 1 << 20 && machine.os.starts_with("Linux "), "{machine:?}");
        assert!(machine.run_id.len() == 40 && machine.run_id.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(machine.run_id, machine.replication_id);
        assert!(resident_bytes() > 1 << 16);
    }

    #[test]
    fn the_first_workers_time_is_its_own() {
        assert_eq!(usage("no such thread").cpu_first_worker.user_us, 0);
        let ticks = || usage("busy worker").cpu_first_worker;
        let worker = std::thread::Builder::new().name("busy worker".to_owned()).spawn(move || {
            // The kernel counts in hundredths of a second.
            while ticks().user_us + ticks().system_us == 0 {}
        });
        worker.unwrap().join().unwrap();
    }
}
