//! A test bench for sessions: an engine with one thread and an inactive server, and connections without sockets.

#![allow(clippy::unwrap_used, reason = "a test that is given nonsense should fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use resp::reply::{Output, Proto};
use resp::splitargs::split_args;

use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::host::{Host, Shutdown};
use crate::inbox::Wake;
use crate::migrations::Migration;
use crate::registry::table;
use crate::state::Engine;
use crate::worker::Worker;
use config::{Apply, ConfigHost, Settings};
use statistics::ticks::Ticks;

/// Initial time of a bench, in microseconds of Unix time.
const STARTED_US: u64 = 1_700_000_000_000_000;

/// A server that accepts every call and does nothing.
#[derive(Default)]
struct NoServer {
    used_memory: Arc<AtomicU64>,
}

impl ConfigHost for NoServer {
    fn apply(&self, _: Apply, _: &Settings) -> Result<(), String> {
        Ok(())
    }
}

impl Host for NoServer {
    fn shut_down(&self, _: Shutdown) {}

    fn used_memory(&self) -> u64 {
        self.used_memory.load(Ordering::Relaxed)
    }

    /// Refuses, and names the command that would store the keys.
    fn migrate(&self, migration: Box<Migration>) -> Result<(), (Box<Migration>, String)> {
        let why = format!("keys can't be migrated here by {}", String::from_utf8_lossy(migration.restore()));
        Err((migration, why))
    }
}

impl Wake for NoServer {
    fn wake(&self) {}
}

/// An engine and its one thread.
pub struct Bench {
    /// The thread.
    pub worker: Worker,
    /// The time, in microseconds of Unix time. It stands still until a test moves it.
    pub now_us: u64,
    /// Memory in use as reported to the engine, in bytes.
    pub used_memory: Arc<AtomicU64>,
}

impl Default for Bench {
    fn default() -> Bench {
        Bench::with(Settings::new())
    }
}

impl Bench {
    /// Creates a bench with a configuration.
    #[must_use]
    pub fn with(settings: Settings) -> Bench {
        Bench::with_threads(settings, 1)
    }

    /// Creates a bench with this number of threads; the bench is the first one.
    #[must_use]
    pub fn with_threads(settings: Settings, threads: usize) -> Bench {
        let used_memory = Arc::<AtomicU64>::default();
        let host = NoServer { used_memory: used_memory.clone() };
        let mut bench = Bench::with_host(settings, threads, Box::new(host), STARTED_US, 1);
        bench.used_memory = used_memory;
        bench
    }

    /// Creates a bench with a server, a start time (in microseconds of Unix time), and a seed for its randomness.
    #[must_use]
    pub fn with_host(settings: Settings, threads: usize, host: Box<dyn Host>, now_us: u64, seed: u64) -> Bench {
        let wakes = (0..threads).map(|_| Box::<NoServer>::default() as Box<dyn Wake>).collect();
        let engine = Engine::start(table(), settings, None, wakes, host, now_us / 1000);
        let used_memory = Arc::<AtomicU64>::default();
        let mut bench = Bench { worker: Worker::new(0, engine, seed), now_us, used_memory };
        // On a busy machine, the clock could move by chance.
        bench.worker.clock.stale_ticks = u64::MAX;
        bench
    }

    /// Creates another thread of the engine. Its clock stands still, like the first one's.
    #[must_use]
    pub fn another_worker(&self, id: usize, seed: u64) -> Worker {
        let mut worker = Worker::new(id, self.worker.engine, seed);
        worker.clock.stale_ticks = u64::MAX;
        worker.pace.turn_ticks = self.worker.pace.turn_ticks;
        worker
    }

    /// Lets time pass during a command, like in a server, and not only by `now_us`.
    pub fn let_time_pass(&mut self) {
        self.worker.clock.stale_ticks = 0;
    }

    /// Lets a connection keep the thread until all of its requests have run, so that the result doesn't depend on the
    /// time that they take.
    pub fn never_yield(&mut self) {
        self.worker.pace.turn_ticks = u64::MAX;
    }

    /// Opens a RESP2 connection.
    pub fn open(&mut self) -> Session {
        self.worker.begin_turn(self.now_us);
        self.worker.open("127.0.0.1:1".into(), "127.0.0.1:6379".into(), 8, 0, true)
    }

    /// Opens a connection with this protocol version.
    pub fn open_with(&mut self, proto: Proto) -> Session {
        let mut session = self.open();
        session.set_proto(proto);
        session
    }

    /// Runs a connection's input; returns its output and the result of the batch.
    pub fn run(&mut self, session: &mut Session, bytes: &[u8]) -> (Vec<u8>, Progress) {
        self.worker.begin_turn(self.now_us);
        let mut out = Output::default();
        let mut at = 0;
        loop {
            let (next, ran) = self.worker.run(session, bytes.into(), at, &mut out);
            at = next;
            // On a busy machine, any batch may use up its turn.
            if ran != Progress::Yielded {
                session.round_trips.note_sent();
                self.worker.note_answered(session, out.len(), Ticks::now());
                return (out.slices().collect::<Vec<_>>().concat(), ran);
            }
        }
    }

    /// Runs a typed command, and returns its reply with `|` for each line end.
    pub fn line(&mut self, session: &mut Session, line: &str) -> String {
        let words = split_args(line.as_bytes()).unwrap();
        let (reply, _) = self.run(session, &request(&words));
        let text = String::from_utf8_lossy(&reply).replace("\r\n", "|");
        text.strip_suffix('|').unwrap_or(&text).to_string()
    }

    /// Returns the messages from others for a connection since the last call, with `|` for each line end.
    pub fn arrived(&mut self, session: &mut Session) -> String {
        let inbox = &self.worker.engine.inboxes[self.worker.id];
        let until = inbox.pushed();
        let pushes = inbox.pushes_for(session.client.id, session.pushes_seen, until);
        session.pushes_seen = until;
        let text =
            pushes.iter().map(|push| String::from_utf8_lossy(&push.bytes).replace("\r\n", "|")).collect::<String>();
        text.strip_suffix('|').unwrap_or(&text).to_string()
    }

    /// Checks the replies to a sequence of commands of one connection.
    pub fn check(&mut self, session: &mut Session, script: &[(&str, &str)]) {
        for (line, expected) in script {
            assert_eq!(self.line(session, line), *expected, "{line}");
        }
    }
}

/// Checks the replies to a sequence of commands of a new RESP2 connection to a new server.
pub fn check(script: &[(&str, &str)]) {
    let mut bench = Bench::default();
    let mut session = bench.open();
    bench.check(&mut session, script);
}

/// Checks the replies to a sequence of commands of a new RESP3 connection to a new server.
pub fn check_resp3(script: &[(&str, &str)]) {
    let mut bench = Bench::default();
    let mut session = bench.open_with(Proto::Resp3);
    bench.check(&mut session, script);
}

/// Runs a connection's reads on this node's own data, whichever node of the cluster has the slots.
pub fn run_here(worker: &mut Worker, session: &mut Session, bytes: &[u8]) -> Vec<u8> {
    let mut out = Output::default();
    worker.set_replays(true);
    worker.run(session, bytes.into(), 0, &mut out);
    worker.set_replays(false);
    out.slices().collect::<Vec<_>>().concat()
}

/// Encodes a request.
#[must_use]
pub fn request<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_session_commands_run() {
        let script = [
            ("set a 1", "+OK"),
            ("multi", "+OK"),
            ("incr a", "+QUEUED"),
            ("exec", "*1|:2"),
            ("exec", "-ERR EXEC without MULTI"),
            ("nosuch x", "-ERR unknown command 'nosuch', with args beginning with: 'x' "),
            ("get b", "$-1"),
        ];
        check(&script);
        check_resp3(&[("get b", "_")]);
    }
}
