//! A bench for the tests of sessions: an engine with one thread and a server that does nothing, and connections without
//! sockets.

#![allow(clippy::unwrap_used, reason = "a test that is given nonsense should fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use resp::reply::{Output, Proto};
use resp::splitargs::split_args;

use crate::clients::session::Session;
use crate::config::{Apply, ConfigHost, Settings};
use crate::engine::Engine;
use crate::host::Host;
use crate::inbox::Wake;
use crate::registry::table;
use crate::worker::{Ran, Worker};

/// When a bench begins, in microseconds of Unix time.
const STARTED_US: u64 = 1_700_000_000_000_000;

/// A server that agrees to everything and does nothing.
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
    fn shut_down(&self, _: bool) {}

    fn used_memory(&self) -> u64 {
        self.used_memory.load(Ordering::Relaxed)
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
    /// Bytes of memory that the engine is told are in use.
    pub used_memory: Arc<AtomicU64>,
}

impl Default for Bench {
    fn default() -> Bench {
        Bench::with(Settings::new())
    }
}

impl Bench {
    /// A bench with a configuration.
    #[must_use]
    pub fn with(settings: Settings) -> Bench {
        Bench::with_threads(settings, 1)
    }

    /// The same with so many threads, of which it has the first.
    #[must_use]
    pub fn with_threads(settings: Settings, threads: usize) -> Bench {
        let used_memory = Arc::<AtomicU64>::default();
        let host = NoServer { used_memory: used_memory.clone() };
        let mut bench = Bench::with_host(settings, threads, Box::new(host), STARTED_US, 1);
        bench.used_memory = used_memory;
        bench
    }

    /// The same with a server that does something, that starts at a time (in microseconds of Unix time), and whose randomness follows from
    /// `seed`.
    #[must_use]
    pub fn with_host(settings: Settings, threads: usize, host: Box<dyn Host>, now_us: u64, seed: u64) -> Bench {
        let wakes = (0..threads).map(|_| Box::<NoServer>::default() as Box<dyn Wake>).collect();
        let engine = Engine::start(table(), settings, None, wakes, host, now_us / 1000);
        let used_memory = Arc::<AtomicU64>::default();
        let mut bench = Bench { worker: Worker::new(0, engine, seed), now_us, used_memory };
        // On a busy machine, what is tested would come later by chance.
        bench.worker.clock.stale_ticks = u64::MAX;
        bench
    }

    /// Another thread of the engine. Its clock stands still, as the first one's does.
    #[must_use]
    pub fn another_worker(&self, id: usize, seed: u64) -> Worker {
        let mut worker = Worker::new(id, self.worker.engine, seed);
        worker.clock.stale_ticks = u64::MAX;
        worker.pace.turn_ticks = self.worker.pace.turn_ticks;
        worker
    }

    /// Has the time pass within what is run, as it does in a server, and not only by `now_us`.
    pub fn let_time_pass(&mut self) {
        self.worker.clock.stale_ticks = 0;
    }

    /// Has a connection keep the thread until all that it has sent has run, so that what is run doesn't depend on how
    /// long it takes.
    pub fn never_yield(&mut self) {
        self.worker.pace.turn_ticks = u64::MAX;
    }

    /// A connection in RESP2.
    pub fn open(&mut self) -> Session {
        self.worker.begin_turn(self.now_us);
        self.worker.open("127.0.0.1:1".into(), "127.0.0.1:6379".into(), 8, 0, true)
    }

    /// A connection that speaks this version of the protocol.
    pub fn open_with(&mut self, proto: Proto) -> Session {
        let mut session = self.open();
        session.set_proto(proto);
        session
    }

    /// Runs what a connection sends, and returns what it is sent and how its batch ended.
    pub fn run(&mut self, session: &mut Session, bytes: &[u8]) -> (Vec<u8>, Ran) {
        self.worker.begin_turn(self.now_us);
        let mut out = Output::default();
        let mut at = 0;
        loop {
            let (next, ran) = self.worker.run(session, bytes.into(), at, &mut out);
            at = next;
            // On a busy machine, any batch may use up its turn.
            if ran != Ran::Yielded {
                session.trips.note_sent();
                return (out.slices().collect::<Vec<_>>().concat(), ran);
            }
        }
    }

    /// Runs a command given as one would type it, and returns its reply with `|` for each line end.
    pub fn line(&mut self, session: &mut Session, line: &str) -> String {
        let words = split_args(line.as_bytes()).unwrap();
        let (reply, _) = self.run(session, &request(&words));
        let text = String::from_utf8_lossy(&reply).replace("\r\n", "|");
        text.strip_suffix('|').unwrap_or(&text).to_string()
    }

    /// What has come for a connection from others since it was last looked at, with `|` for each line end.
    pub fn arrived(&mut self, session: &mut Session) -> String {
        let inbox = &self.worker.engine.inboxes[self.worker.id];
        let until = inbox.pushed();
        let pushes = inbox.pushes_for(session.client.id, session.pushes_seen, until);
        session.pushes_seen = until;
        let text =
            pushes.iter().map(|push| String::from_utf8_lossy(&push.bytes).replace("\r\n", "|")).collect::<String>();
        text.strip_suffix('|').unwrap_or(&text).to_string()
    }

    /// Checks a sequence of commands of one connection against their replies.
    pub fn check(&mut self, session: &mut Session, script: &[(&str, &str)]) {
        for (line, expected) in script {
            assert_eq!(self.line(session, line), *expected, "{line}");
        }
    }
}

/// Checks a sequence of commands of a new connection to a server of its own, in RESP2.
pub fn check(script: &[(&str, &str)]) {
    let mut bench = Bench::default();
    let mut session = bench.open();
    bench.check(&mut session, script);
}

/// The same in RESP3.
pub fn check_resp3(script: &[(&str, &str)]) {
    let mut bench = Bench::default();
    let mut session = bench.open_with(Proto::Resp3);
    bench.check(&mut session, script);
}

/// A request in the protocol's form.
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
    fn commands_of_both_kinds_run() {
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
