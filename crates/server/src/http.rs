//! Connects the HTTP port to the server: its listeners, and connections to the workers like those of any client.

use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use commands::spec::{fact, flag};
use config::{HttpConsole, LogLevel, Settings};
use engine::registry::table;
use front::history::Sample;
use front::{ConsoleMode, Nature, Terms, Upstream};
use rustls::ServerConfig;

use crate::acceptor::is_protected;
use crate::connection::Socket;
use crate::figures;
use crate::listener::{self, Accepted, Listener};
use crate::log;
use crate::process;
use crate::shared::Shared;

/// The address that CLIENT LIST shows for connections of HTTP requests.
const ADDRESS: &str = "http:0";

/// Opens the listeners of the HTTP port, or none if it is off.
///
/// # Errors
/// Names the address that can't be listened on, and the setting to change.
pub fn open(settings: &Settings) -> Result<Vec<TcpListener>, String> {
    let opened = listener::open_addresses(&settings.http_bind.get(), settings.http_port.get(), settings);
    let opened = opened.map_err(|error| {
        format!("HTTP: {}", error.text.replace("--port", "--http-port").replace("--bind", "--http-bind"))
    })?;
    let tcp = opened.into_iter().filter_map(|listener| match listener {
        Listener::Tcp(listener) => Some(listener),
        Listener::Tls(_) | Listener::Unix(..) => None,
    });
    Ok(tcp.collect())
}

/// Serves HTTP on the listeners, if there are any.
///
/// # Errors
/// If no thread can be started.
pub fn start(listeners: Vec<TcpListener>, shared: Arc<Shared>) -> Result<(), String> {
    if listeners.is_empty() {
        return Ok(());
    }
    let name = if shared.settings().http_tls.get() { "HTTPS" } else { "HTTP" };
    for address in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
        log::notice(format!("Listening on {address} ({name})"));
    }
    let running_max = usize::try_from(shared.settings().http_max_running.get()).unwrap_or(1);
    let within = Within { shared, next: AtomicUsize::new(0) };
    front::start(listeners, running_max, Arc::new(within)).map_err(|e| format!("can't start a thread for HTTP: {e}"))
}

/// The server behind the HTTP port.
struct Within {
    shared: Arc<Shared>,
    /// The worker that gets the next connection.
    next: AtomicUsize,
}

impl Upstream for Within {
    fn give_way(&self) {
        process::give_way();
    }

    fn connect(&self) -> Result<UnixStream, String> {
        let settings = self.shared.settings();
        if self.shared.connected() as i64 >= settings.maxclients.get() {
            return Err("ERR max number of clients reached".into());
        }
        let pair = UnixStream::pair().and_then(|(ours, theirs)| theirs.set_nonblocking(true).map(|()| (ours, theirs)));
        let (ours, theirs) = pair.map_err(|error| format!("ERR no connection to the server: {error}"))?;
        self.shared.note_leaving(false);
        let accepted = Accepted {
            socket: Socket::Unix(theirs),
            addr: ADDRESS.into(),
            laddr: ADDRESS.into(),
            // Requests may come from any machine: none gets the rights of a local connection.
            is_local: false,
            is_on_reserve: false,
            user: None,
        };
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.shared.hand_to(accepted, None, next % self.shared.threads());
        Ok(ours)
    }

    fn edition(&self) -> u64 {
        self.shared.engine.users.edition()
    }

    fn is_open(&self) -> bool {
        self.shared.engine.users.is_default_open()
    }

    fn admits(&self, peer: IpAddr) -> bool {
        peer.is_loopback() || !is_protected(self.shared.engine)
    }

    fn nature(&self, args: &[Vec<u8>]) -> Nature {
        nature_of(args)
    }

    fn encryption(&self) -> Option<Arc<ServerConfig>> {
        self.shared.handshakes.setup().map(|setup| setup.config.clone())
    }

    fn terms(&self) -> Terms {
        let settings = self.shared.settings();
        let files = settings.http_files.get();
        let number = |value: i64| usize::try_from(value).unwrap_or(usize::MAX);
        let bytes = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Terms {
            console: match settings.http_console.get() {
                HttpConsole::No => ConsoleMode::Off,
                HttpConsole::ReadOnly => ConsoleMode::ReadOnly,
                HttpConsole::Yes => ConsoleMode::Full,
            },
            rest: settings.http_rest.get(),
            files: (!files.is_empty()).then(|| settings.in_dir(&files)),
            is_encrypted: settings.http_tls.get(),
            connections_max: number(settings.http_max_connections.get()),
            body_bytes_max: bytes(settings.http_max_body.get()),
            reply_bytes_max: bytes(settings.http_max_reply.get()),
            timeout: Duration::from_secs(settings.http_timeout_s.get().unsigned_abs()),
            unauthenticated_rate: u32::try_from(settings.http_unauthenticated_rate.get()).unwrap_or(u32::MAX),
        }
    }

    fn sample(&self) -> Sample {
        figures::sample(self.shared.engine, self.shared.connected())
    }

    fn readiness(&self) -> Result<(), &'static str> {
        figures::readiness(self.shared.engine)
    }

    fn warn(&self, text: &str) {
        log::write(LogLevel::Warning, text);
    }
}

/// Returns the properties of a command.
fn nature_of(args: &[Vec<u8>]) -> Nature {
    let Some(container) = args.first().and_then(|name| table().find(name)) else { return Nature::default() };
    let command = args.get(1).and_then(|name| table().subcommand(container, name)).unwrap_or(container);
    let info = command.info;
    let is_either = |fact: u32| container.info.is(fact) || info.is(fact);
    let holds = fact::AT_ONCE | fact::UNCOUNTED | fact::HOLDS_CONNECTION;
    let holds_connection =
        is_either(holds) || info.has(flag::NO_AUTH) || info.may_block(args.iter().map(Vec::as_slice));
    let only_reads = info.has(flag::READONLY) || info.is(fact::TELLS);
    Nature { holds_connection, only_reads: only_reads && !info.has(flag::WRITE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, holds_connection: bool, only_reads: bool) {
        let args: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(nature_of(&args), Nature { holds_connection, only_reads }, "{line}");
    }

    #[test]
    fn commands_that_need_a_connection_of_their_own_are_known() {
        for line in [
            "AUTH x",
            "HELLO 3",
            "RESET",
            "QUIT",
            "SELECT 1",
            "MULTI",
            "EXEC",
            "DISCARD",
            "WATCH k",
            "SUBSCRIBE c",
            "UNSUBSCRIBE",
            "PSUBSCRIBE p",
            "PUNSUBSCRIBE",
            "SSUBSCRIBE c",
            "SUNSUBSCRIBE",
            "MONITOR",
            "BLPOP k 0",
            "BLMOVE a b LEFT LEFT 0",
            "BZPOPMIN k 0",
            "PIPELINE START t",
            "CLIENT REPLY OFF",
            "CLIENT TRACKING ON",
            "CLIENT SETNAME x",
            "CLIENT NO-TOUCH ON",
            "READONLY",
            "ASKING",
        ] {
            let args: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert!(nature_of(&args).holds_connection, "{line}");
        }
        check("XREAD BLOCK 0 STREAMS s $", true, true);
        check("XREAD COUNT 1 STREAMS block 0", false, true);
        check("XREADGROUP GROUP g c block 0 STREAMS s >", true, false);
        check("XREADGROUP GROUP g c STREAMS s >", false, false);
    }

    #[test]
    fn commands_that_only_read_are_known() {
        for line in [
            "GET k",
            "SCAN 0",
            "INFO",
            "CLIENT LIST",
            "SLOWLOG GET",
            "CONFIG GET x",
            "COMMAND DOCS",
            "ADVISE LIST",
            "EVAL_RO x 0",
            "PING",
            "MEMORY USAGE k",
            "OBJECT ENCODING k",
            "ACL WHOAMI",
            "LATENCY HISTOGRAM",
            "TIME",
            "DBSIZE",
            "PUBSUB CHANNELS",
        ] {
            check(line, false, true);
        }
        for line in [
            "SET k v",
            "NOSUCH",
            "EVAL x 0",
            "FCALL f 0",
            "CONFIG SET a b",
            "CLIENT KILL a",
            "CLIENT PAUSE 1",
            "SLOWLOG RESET",
            "SHUTDOWN",
            "FLUSHALL",
            "PUBLISH c m",
            "DEBUG SLEEP 1",
            "ACL SETUSER x",
            "ACL LOG RESET",
            "SCRIPT FLUSH",
            "FUNCTION LOAD x",
            "SAVE",
            "BGSAVE",
            "REPLICAOF NO ONE",
            "LATENCY RESET",
            "ADVISE RESET",
            "MEMORY PURGE",
            "SORT k STORE d",
            "RESTORE k 0 x",
            "CLIENT",
            "ACL",
            "CONFIG",
        ] {
            check(line, false, false);
        }
    }
}
