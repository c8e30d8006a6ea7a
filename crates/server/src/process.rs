//! The server's requests to its process and machine: descriptors, memory, processor time, randomness.
//!
//! Figures of memory and of other threads are read from `/proc` (proc(5)). They are 0 if it isn't mounted.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use engine::machine::{CpuTime, Machine, Usage};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{control_group, log};

/// Descriptors that the server itself needs, in addition to one per client. The number is Redis's, and enough for [`FEW_THREADS`] and the
/// few files of unsent replies ([`crate::spill`]).
const DESCRIPTORS_RESERVED: u64 = 32;
const FEW_THREADS: usize = 2;
/// Descriptors of every further worker thread: its poller, the poller's timer, its waker, the other threads' duplicate of it, and one in
/// reserve for refusing clients.
const DESCRIPTORS_A_THREAD: u64 = 5;

/// Time for which a reading of the resident memory is used again. A reading takes longer than most commands, and dashboards ask for it on
/// every connection. Redis reads it as often.
const RESIDENT_VALID: Duration = Duration::from_millis(100);

/// Descriptors requested beyond these, if the system has them: for connections of operators beyond `maxclients`, and for the threads of
/// handshakes.
const DESCRIPTORS_WELCOME: u64 = 64;

/// Returns the descriptors that a server with that many worker threads needs for itself.
#[must_use]
pub fn descriptors_reserved(threads: usize) -> u64 {
    DESCRIPTORS_RESERVED + DESCRIPTORS_A_THREAD * threads.saturating_sub(FEW_THREADS) as u64
}

/// Raises the limit on descriptors as far as needed and allowed. Returns the number of clients that it allows.
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

/// Permits huge pages where the program requests them. The allocator forbids them to the whole process at its start (`.cargo/config.toml`).
pub fn permit_huge_pages() {
    // A failure leaves memory in small pages, which is only slower.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
}

/// Makes the kernel provide only small pages from here on. It clears a huge page, 2 MB, in the midst of the command that first touches it.
/// That takes a tenth of a millisecond, and many milliseconds on a virtual machine with a host that has to find the memory first.
pub fn disable_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        log::notice(format!("Transparent huge pages can't be disabled, which may cause short stalls: {error}"));
    }
}

/// Gives the calling thread the lowest priority: no other thread waits for its work.
pub fn stand_back() {
    // On Linux the priority is the thread's, not the process's. A failure leaves it unchanged, which does little harm.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Lowers the calling thread's priority below the threads that execute commands, but doesn't starve it: by nice(2), it has a tenth of their
/// share.
pub fn give_way() {
    // On Linux the priority is the thread's, not the process's.
    let _ = rustix::process::setpriority_process(None, 10);
}

/// Returns the default number of threads: one per core that the process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// 40 random hexadecimal digits, unique for this run.
fn random_id() -> String {
    let mut id = String::new();
    while id.len() < 40 {
        // A write to a string can't fail.
        let _ = write!(id, "{:016x}", random_seed());
    }
    id.truncate(40);
    id
}

/// Returns the facts that don't change while the server runs.
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
        memory_limit_bytes: control_group::memory_limit(),
        multiplexing_api: "epoll",
        allocator: "mimalloc",
    }
}

/// Returns the processor time of the process. `first_worker` is the name of the first worker's thread.
#[must_use]
pub fn usage(first_worker: &str) -> Usage {
    /// Cached: the thread stays, and a search opens a file of each thread.
    static FIRST_WORKER: OnceLock<String> = OnceLock::new();
    let [cpu, cpu_children] = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(cpu_time);
    if thread::current().name() == Some(first_worker) {
        return Usage { cpu, cpu_first_worker: cpu_time(UsageWho::RUSAGE_THREAD), cpu_children };
    }
    let path = FIRST_WORKER.get().cloned().or_else(|| task_called(first_worker));
    let cpu_first_worker = path.as_deref().map(cpu_time_of_task).unwrap_or_default();
    if let Some(path) = path {
        let _ = FIRST_WORKER.set(path);
    }
    Usage { cpu, cpu_first_worker, cpu_children }
}

/// Returns the processor time that getrusage(2) knows, which is cheaper than a file.
fn cpu_time(who: UsageWho) -> CpuTime {
    let us = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    getrusage(who)
        .map(|usage| CpuTime { user_us: us(usage.user_time()), system_us: us(usage.system_time()) })
        .unwrap_or_default()
}

/// Returns the text of `/proc/loadavg`: the machine's load averages, and its runnable threads. None if the system has none.
#[must_use]
pub fn load_average() -> Option<String> {
    fs::read_to_string("/proc/loadavg").ok()
}

/// Returns the resident memory of the process in bytes, as of at most a tenth of a second ago.
#[must_use]
pub fn resident_bytes() -> u64 {
    static LAST: Mutex<Option<Reading>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    last.take_if(|reading| now.saturating_duration_since(reading.at) >= RESIDENT_VALID);
    last.get_or_insert_with(|| Reading { at: now, bytes: read_resident_bytes() }).bytes
}

/// A reading of the resident memory.
struct Reading {
    at: Instant,
    bytes: u64,
}

fn read_resident_bytes() -> u64 {
    // Seven numbers of up to twenty digits. A buffer of this size saves the calls for the file's size and for its end.
    let mut statm = [0; 160];
    let read = fs::File::open("/proc/self/statm").and_then(|file| file.read_at(&mut statm, 0)).unwrap_or(0);
    let pages = str::from_utf8(&statm[..read]).ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
    pages.unwrap_or(0u64) * page_size() as u64
}

/// Returns the `stat` file of the process's thread with this name.
fn task_called(name: &str) -> Option<String> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let mut paths = tasks.flatten().map(|task| task.path());
    let found = paths.find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name))?;
    Some(found.join("stat").to_string_lossy().into_owned())
}

/// Returns the time of a thread from its `stat` file.
fn cpu_time_of_task(path: &str) -> CpuTime {
    let stat = fs::read_to_string(path).unwrap_or_default();
    parse_cpu_time(&stat, clock_ticks_per_second())
}

fn parse_cpu_time(stat: &str, ticks_per_second: u64) -> CpuTime {
    // The second field is the name, in parentheses, and may itself contain blanks and parentheses.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // utime and stime are the fields 14 and 15. The first field after the name is the third.
    let mut fields = after_name.split(' ').skip(14 - 3);
    let mut next_us = || {
        let ticks: u64 = fields.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        ticks.saturating_mul(1_000_000) / ticks_per_second.max(1)
    };
    CpuTime { user_us: next_us(), system_us: next_us() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 150 20 3 1 20 0 4 0 99";
        let time = parse_cpu_time(stat, 100);
        assert_eq!((time.user_us, time.system_us), (1_500_000, 200_000));
        assert_eq!(parse_cpu_time("", 100).user_us, 0);
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
            let elsewhere = || thread::spawn(ticks).join().unwrap();
            while elsewhere().user_us + elsewhere().system_us == 0 {}
        });
        worker.unwrap().join().unwrap();
    }
}
