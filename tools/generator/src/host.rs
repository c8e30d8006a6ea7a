//! Resource use of a server's process on this machine, read from `/proc` (proc(5)), like `top`.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use client::Connection;
use nix::sys::resource::{UsageWho, getrusage};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{getpeername, getsockname};

/// State "established" in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";
/// Time limit for a process to become idle, and the check interval. A Penstock thread polls for some tens of
/// microseconds before it sleeps.
const REST_MAX: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// The kernel updates the time of a running thread at ticks, at least 100 per second. The count of a busy process may
/// be wrong by one tick, so it is only reported from ten ticks on.
const TICK_NS: u64 = 10_000_000;
const CERTAIN_NS: u64 = 10 * TICK_NS;

/// The process that is proven to serve a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
}

/// Resource use of a process, in total or between two measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads, including the kernel's part, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// True if all threads slept at each measurement. The kernel updates a thread's time when it is switched out and at
    /// ticks.
    pub was_at_rest: bool,
}

impl Usage {
    /// Returns the use since an earlier measurement, and the current memory.
    #[must_use]
    pub fn since(&self, before: &Usage) -> Usage {
        let cpu_ns = self.cpu_ns.saturating_sub(before.cpu_ns);
        Usage { cpu_ns, resident_bytes: self.resident_bytes, was_at_rest: self.was_at_rest && before.was_at_rest }
    }

    /// Returns the CPU time if it is reliable. A small value of a busy process is not, because of the ticks.
    #[must_use]
    pub fn known_cpu_ns(&self) -> Option<u64> {
        (self.was_at_rest || self.cpu_ns >= CERTAIN_NS).then_some(self.cpu_ns)
    }
}

impl Process {
    /// Returns the process at the other end of a connection. INFO's process_id alone proves nothing: behind a tunnel or
    /// in a container it may be the number of another process here. The process must also own the other end of the
    /// connection.
    pub fn of(connection: &mut Connection) -> Option<Process> {
        let info = info(connection, "server")?;
        let pid = field(&info, "process_id")?.parse().ok()?;
        owns_other_end(connection, pid).then_some(Process { pid })
    }

    /// Returns the use so far, after waiting for the process to become idle, up to a limit. Returns zeros if the
    /// process has ended.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let began = Instant::now();
        let mut was_at_rest = is_at_rest(self.pid);
        while !was_at_rest && began.elapsed() < REST_MAX {
            thread::sleep(LOOK_EVERY);
            was_at_rest = is_at_rest(self.pid);
        }
        Usage { cpu_ns: cpu_ns(self.pid), resident_bytes: resident_bytes(self.pid), was_at_rest }
    }
}

/// Returns the CPU time of this process so far, including the kernel's part.
#[must_use]
pub fn own_cpu() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec().unsigned_abs()) + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// Returns the average number of running and waiting processes in the last minute.
#[must_use]
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Returns a section of INFO, or `None` if the server refuses.
pub fn info(connection: &mut Connection, section: &str) -> Option<String> {
    let reply = connection.command(&["INFO", section]).ok()?;
    Some(String::from_utf8_lossy(reply.bytes()?).into_owned())
}

/// Returns a field of INFO's text.
#[must_use]
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

fn owns_other_end(connection: &Connection, pid: u32) -> bool {
    let socket = connection.fd();
    let (Ok(ours), Ok(theirs)) = (getsockname(socket), getpeername(socket)) else { return false };
    match (SocketAddr::try_from(ours), theirs.map(SocketAddr::try_from)) {
        (Ok(ours), Some(Ok(theirs))) => owns_socket(pid, &inodes(theirs.port(), ours.port())),
        _ => socket_peercred(socket.as_fd()).is_ok_and(|peer| peer.pid.as_raw_nonzero().get() as u32 == pid),
    }
}

/// Returns the inodes of this machine's established sockets between these ports.
fn inodes(local_port: u16, remote_port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter_map(|line| inode(line, local_port, remote_port)).collect()
}

/// Returns the inode in a line of `/proc/net/tcp` if it is between these ports.
fn inode(line: &str, local_port: u16, remote_port: u16) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = |at: usize| u16::from_str_radix(fields.get(at)?.rsplit(':').next()?, 16).ok();
    let fits = port(1) == Some(local_port) && port(2) == Some(remote_port) && fields.get(3) == Some(&ESTABLISHED);
    fits.then(|| fields.get(9).map(|inode| (*inode).to_owned())).flatten()
}

fn owns_socket(pid: u32, inodes: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut links = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| wanted.iter().any(|name| link.as_os_str() == name.as_str()))
}

fn cpu_ns(pid: u32) -> u64 {
    of_threads(pid, "schedstat").filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Returns true if no thread of the process runs or is ready. Returns false for a process that has ended.
fn is_at_rest(pid: u32) -> bool {
    let mut states = of_threads(pid, "stat").map(|text| is_running(&text)).peekable();
    states.peek().is_some() && !states.any(|is_running| is_running)
}

/// Returns true if `/proc/PID/task/TID/stat` shows state R. The name before the state may contain any character.
fn is_running(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('R'))
}

/// Returns the contents of a file of each thread.
fn of_threads(pid: u32, name: &'static str) -> impl Iterator<Item = String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(move |task| fs::read_to_string(task.path().join(name)).ok())
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whole() {
        let info = "# Server\r\ntcp_port:1\r\nprocess_id:77\r\nid:3\r\n";
        assert_eq!(field(info, "process_id"), Some("77"));
        assert_eq!(field(info, "id"), Some("3"));
        assert_eq!(field(info, "process"), None);
    }

    #[test]
    fn a_socket_is_found_by_its_ports() {
        let line = "   3: 0100007F:55F0 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 9876 1";
        assert_eq!(inode(line, 22000, 40000), Some("9876".to_owned()));
        assert_eq!(inode(line, 40000, 22000), None);
        assert_eq!(inode("  sl  local_address rem_address   st", 1, 2), None);
    }

    #[test]
    fn a_thread_in_state_r_is_running_whatever_its_name() {
        assert!(is_running("7 (a) S (b)) R 1 7 7 0"));
        assert!(!is_running("7 (R) S 1 7 7 0"));
        assert!(!is_running(""));
    }

    /// Starts a shell that answers each line and continues to work after the answer.
    fn worker(work: &str) -> std::process::Child {
        use std::process::{Command, Stdio};
        let script = format!("while read line; do echo; {work}; done");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn ask(worker: &mut std::process::Child) {
        use std::io::{Read, Write};
        worker.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        worker.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn work_after_an_answer_is_counted_before_the_next_question() {
        let mut child = worker("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done");
        let process = Process { pid: child.id() };
        for _ in 0..20 {
            ask(&mut child);
            let first = process.usage();
            thread::sleep(Duration::from_millis(20));
            let later = process.usage().since(&first);
            assert_eq!((later.cpu_ns, later.known_cpu_ns()), (0, Some(0)), "{first:?}");
        }
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(process.usage().known_cpu_ns(), None);
    }

    #[test]
    fn small_values_of_a_busy_process_are_unknown() {
        let mut child = worker("while :; do :; done");
        ask(&mut child);
        let process = Process { pid: child.id() };
        let first = process.usage();
        assert!(!first.was_at_rest);
        assert_eq!(first.since(&first).known_cpu_ns(), None);
        let later = Usage { cpu_ns: first.cpu_ns + CERTAIN_NS, ..first };
        assert_eq!(later.since(&first).known_cpu_ns(), Some(CERTAIN_NS));
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    #[test]
    fn our_own_use_is_known_and_other_sockets_are_not_ours() {
        let usage = Process { pid: std::process::id() }.usage();
        assert!(usage.resident_bytes > 1 << 16, "{usage:?}");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap();
        let found = inodes(near.peer_addr().unwrap().port(), near.local_addr().unwrap().port());
        // The kernel's table may show a socket twice while others come and go.
        assert!(found.first().is_some_and(|first| found.iter().all(|inode| inode == first)), "{found:?}");
        assert!(owns_socket(std::process::id(), &found));
        assert!(!owns_socket(1, &found) || std::process::id() == 1);
        assert!(!owns_socket(std::process::id(), &["0".to_owned()]));
    }
}
