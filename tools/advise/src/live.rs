//! Watches a running server through MONITOR for a limited time.

use std::fs;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use advisor::Advisor;
use advisor::client::Client;
use advisor::machine_load::MachineLoad;
use advisor::monitor::{LogCounts, MonitorReader};
use client::{Address, Config, Connection, Proto, Stream, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::run::say;

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;
/// Interval at which a wait checks the limits.
const INTERVAL: Duration = Duration::from_millis(100);

/// Limits of a watch. It ends at the first one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum duration.
    pub time: Duration,
    /// Maximum number of commands.
    pub commands: u64,
}

/// Watches a server until a limit is reached or `is_over` is set.
///
/// # Errors
/// Returns a message for the user if the server is unreachable or refuses a command.
pub fn look(server: &Config, limits: Limits, advisor: &mut Advisor, is_over: &AtomicBool) -> Result<LogCounts, String> {
    let mut config = server.clone();
    config.proto = Proto::Resp2;
    config.fallback_name = Some(b"penstock-advise".to_vec());
    let connect = || Connection::connect(&config).map_err(|error| error.to_string());
    let (mut control, mut monitor) = (connect()?, connect()?);
    let mut reader = MonitorReader::new();
    introduce(&mut control, &mut reader);
    say(&format!(
        "watching {} through MONITOR for {:?} or {} commands. MONITOR slows down a busy server; Ctrl-C stops it",
        config.address, limits.time, limits.commands
    ));
    begin(&mut monitor).map_err(|error| error.to_string())?;
    let (mut stream, rest) = monitor.into_stream();
    reader.feed(&rest, advisor);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let load = is_here(&config.address).then(|| MachineLoad::new(cores));
    let ended = follow(&mut *stream, limits, is_over, (&mut reader, advisor), load);
    // Closed first, because an open MONITOR connection costs the server time.
    drop(stream);
    match ended {
        Ok(true) => {}
        Ok(false) => say("the server has closed the MONITOR connection; its output may have been read too slowly"),
        Err(error) => say(&format!("the connection broke: {error}")),
    }
    // Names the clients that have connected in the meantime, and shows which connections are still open.
    introduce(&mut control, &mut reader);
    reader.end(advisor);
    Ok(reader.counts())
}

/// Starts MONITOR. Penstock's batches and replies are requested first; other servers don't have these options.
fn begin(monitor: &mut Connection) -> Result<(), client::Error> {
    match monitor.command(&["MONITOR", "BATCHES", "REPLIES"]) {
        Err(client::Error::Server(_)) => {}
        Ok(Value::Error(_)) => {}
        other => return other.map(drop),
    }
    monitor.command(&["MONITOR"]).map(drop)
}

/// True if the server's address is one of this machine. Its load then delays server and clients.
fn is_here(address: &Address) -> bool {
    match address {
        Address::Tcp { host, .. } => matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1"),
        Address::Unix(_) => true,
    }
}

/// Reads the output of MONITOR. Returns false if the server ended it.
fn follow(
    stream: &mut dyn Stream,
    limits: Limits,
    is_over: &AtomicBool,
    (reader, advisor): (&mut MonitorReader, &mut Advisor),
    mut load: Option<MachineLoad>,
) -> io::Result<bool> {
    let until = Instant::now() + limits.time;
    let mut buffer = vec![0; READ_BYTES];
    while !is_over.load(Ordering::Relaxed) && reader.counts().commands < limits.commands {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(len) => {
                if let Some(load) = &mut load {
                    look_at_load(load, unix_ns(), advisor, || fs::read_to_string("/proc/loadavg").ok());
                }
                reader.feed(buffer.get(..len).unwrap_or_default(), advisor);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(stream, left.min(INTERVAL))?,
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Tells the advisor if threads of the machine wait for a core. `read` reads the load.
fn look_at_load(load: &mut MachineLoad, now_ns: u64, advisor: &mut Advisor, read: impl FnOnce() -> Option<String>) {
    if load.look(now_ns, read) == Some(true) {
        advisor.note_busy(now_ns);
    }
}

/// The time of the wall clock, as the server shows it.
fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits for input for at most `time`.
fn wait(stream: &dyn Stream, time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).ok();
    match poll(&mut [PollFd::from_borrowed_fd(stream.fd(), PollFlags::IN)], time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Passes the clients of CLIENT LIST to the reader. If the server refuses the command, the clients have no names, and new connections
/// can't be told from old ones.
fn introduce(control: &mut Connection, reader: &mut MonitorReader) {
    let list = match control.command(&["CLIENT", "LIST"]) {
        Ok(Value::Bulk(text)) => text,
        Ok(Value::Verbatim { text, .. }) => text,
        _ => return,
    };
    for line in String::from_utf8_lossy(&list).lines() {
        if let Some((source, client)) = introduced(line) {
            reader.introduce(source.as_bytes(), client);
        }
    }
    reader.note_list();
}

/// Parses a line of CLIENT LIST into the address with its port, and the client's description.
fn introduced(line: &str) -> Option<(&str, Client)> {
    let field = |name: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default()
    };
    let library = format!("{} {}", field("lib-name"), field("lib-ver"));
    let client = Client {
        name: field("name").to_owned(),
        library: library.trim().to_owned(),
        user: field("user").to_owned(),
        address: String::new(),
        in_cluster: false,
    };
    let source = field("addr");
    (!source.is_empty()).then_some((source, client))
}

#[cfg(test)]
mod tests {
    use advisor::findings::Confidence;
    use advisor::{Reply, Trip};
    use resp::request::OwnedArgs;

    use super::*;

    #[test]
    fn a_line_of_client_list_introduces_a_client() {
        let line =
            "id=3 addr=127.0.0.1:60866 laddr=127.0.0.1:6379 name=importer user=app lib-name=redis-py lib-ver=5.0";
        let (source, client) = introduced(line).unwrap();
        assert_eq!((source, client.to_string().as_str()), ("127.0.0.1:60866", "importer (redis-py 5.0, user app)"));
        assert!(introduced("").is_none());
        assert_eq!(introduced("addr=[::1]:5 name=").unwrap().1, Client::default());
    }

    #[test]
    fn only_the_load_of_the_server_s_machine_counts() {
        for (text, expected) in
            [("redis://localhost", true), ("redis://127.0.0.1:7000", true), ("redis://10.0.0.7:6379", false)]
        {
            assert_eq!(is_here(&Config::parse(text).unwrap().address), expected, "{text}");
        }
        assert!(is_here(&Address::Unix("/run/redis.sock".into())));
    }

    /// Returns the confidence in a loop that ends while the machine has this many runnable threads.
    fn confidence(runnable: usize) -> Confidence {
        const NOW_NS: u64 = 1_700_000_000_000_000_000;
        let (mut advisor, mut load) = (Advisor::new(advisor::Config::default()), MachineLoad::new(2));
        let loadavg = || Some(format!("0.20 0.18 0.12 {runnable}/80 11206\n"));
        look_at_load(&mut load, NOW_NS, &mut advisor, loadavg);
        let mut connection = advisor::Connection::new(1, Client::default());
        for number in 0..100 {
            let command = OwnedArgs::new([b"GET".as_slice(), format!("key:{number}").as_bytes()].into_iter());
            let arrived_ns = NOW_NS + number * 100_000;
            let (replied_ns, reply) = (arrived_ns + 5000, Some(Reply::whole(b"$1\r\nx\r\n")));
            let command = command.args();
            let trip =
                Trip { command, key: None, depth: 1, overlaps: false, arrived_ns, replied_ns, reply, redirected: 0 };
            advisor.trip(&mut connection, &trip);
        }
        advisor.closed(&mut connection, NOW_NS + 20_000_000);
        let groups = advisor.findings().groups();
        groups.first().unwrap().total.sums.confidence()
    }

    #[test]
    fn threads_that_wait_for_a_core_lower_the_confidence() {
        assert_eq!((confidence(2), confidence(3)), (Confidence::High, Confidence::Medium));
    }
}
