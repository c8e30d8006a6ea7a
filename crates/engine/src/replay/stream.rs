//! A primary's stream, applied by a worker that serves clients besides.

use std::sync::Arc;

use resp::reply::Output;
use resp::request::{Batch, Framer, Input, Limits};
use resp::skim::Skimmer;

use super::{KEPT_BYTES, NO_CLIENT};
use commands::spec::Scope;

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::clients::transaction::is_exec;
use crate::machine::ticks::Ticks;
use crate::registry::table;
use crate::replication::Applied;
use crate::worker::Worker;

/// Bytes of a failed command that are told.
const SHOWN_BYTES: usize = 200;

impl Worker {
    /// Applies whole commands and transactions of a primary's stream, as many of them as there is room for in the log, in the runs that end
    /// at `cuts`. Nothing expires by the clock meanwhile: the primary says what has expired. Nothing more is applied once another primary
    /// is followed than with `version`.
    pub fn apply_stream(&mut self, stream: u64, version: u64, commands: &[u8], cuts: &[usize]) -> Applied {
        let mut session = match self.stream.take() {
            Some((known, session)) if known == (stream, version) => session,
            // The session of another stream may be in the midst of a transaction.
            _ => Box::new(self.stream_session()),
        };
        session.followed.get_or_insert_default().begin(version);
        self.set_replays(true);
        let applied = self.apply_all(&mut session, commands, cuts);
        self.set_replays(false);
        self.stream = Some(((stream, version), session));
        applied
    }

    /// A run, if it is of one command that may leave the gate.
    fn single<'c>(&self, run: &'c [u8]) -> Option<&'c [u8]> {
        let (mut framer, mut batch) = (Framer::default(), Batch::default());
        let input = Input::from(run);
        framer.frame(input, 0, &Limits::default(), 1, &mut batch);
        let first = batch.requests().first()?;
        runs_by_itself(batch.args(first, input).get(0)).then_some(run)
    }

    /// Not among the clients: no thread reads its connection.
    fn stream_session(&self) -> Session {
        let client = Client::new(NO_CLIENT, self.id, String::new(), String::new(), -1, self.clock.now_ms, 0);
        let mut session = Session::new(Arc::new(client), true);
        session.select(self.engine.replication.stream_database());
        session
    }

    /// Has keys expire by the clock again, or not.
    fn set_replays(&mut self, replays: bool) {
        self.clock.replays = replays;
        self.clock.set(Ticks::now());
    }

    fn apply_all(&mut self, session: &mut Session, commands: &[u8], cuts: &[usize]) -> Applied {
        let (mut taken, mut failures, mut failure) = (0, 0, None);
        let mut out = Output::default();
        let mut cuts = cuts.iter().copied().chain([commands.len()]);
        let mut end = 0;
        while taken < commands.len() {
            while end <= taken {
                end = cuts.next().unwrap_or(commands.len());
            }
            let run = commands.get(..end).unwrap_or_default();
            if let Some(followed) = &mut session.followed {
                followed.begin_run(self.single(run.get(taken..).unwrap_or_default()));
            }
            let (before, errors) = (taken, self.stats().errors.get());
            (taken, _) = self.run(session, run.into(), taken, &mut out);
            let new = self.stats().errors.get() - errors;
            if new > 0 {
                failures += new;
                failure = failure.or_else(|| failed(commands.get(before..).unwrap_or_default(), &out));
            }
            out.clear(KEPT_BYTES);
            if taken == before {
                break;
            }
        }
        Applied { taken, failures, failure }
    }
}

/// Whether a command of this name may run alone behind the gate, so that a thread that runs it leaves the gate in its midst.
#[must_use]
pub fn runs_by_itself(name: &[u8]) -> bool {
    let Some(command) = table().find(name) else { return false };
    is_exec(command)
        || matches!(command.info.scope, Scope::Whole | Scope::Script | Scope::ByArgs(_))
        || !command.subcommands.is_empty()
}

/// The first of some commands that answered an error, and the error.
fn failed(commands: &[u8], replies: &Output) -> Option<String> {
    let (mut skimmer, mut found) = (Skimmer::new(), None);
    for slice in replies.slices() {
        skimmer
            .feed(slice, |error| {
                found.get_or_insert_with(|| (error.reply, String::from_utf8_lossy(error.text).into_owned()));
            })
            .ok()?;
    }
    let (number, error) = found?;
    let (mut framer, mut batch) = (Framer::default(), Batch::default());
    let input = Input::from(commands);
    framer.frame(input, 0, &Limits::default(), usize::try_from(number).ok()?.saturating_add(1), &mut batch);
    let failed = batch.requests().last()?;
    let words = batch.args(failed, input).from(0).collect::<Vec<_>>().join(&b' ');
    let words = words.get(..words.len().min(SHOWN_BYTES)).unwrap_or_default();
    Some(format!("{error}: {}", words.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::client::client_flag;
    use crate::config::{Loader, Settings};
    use crate::replication::Primary;
    use crate::scripts::busy::Caller;
    use crate::testing::{Bench, request};

    /// A bench that follows a primary, with so many threads.
    fn following(threads: usize) -> Bench {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"busy-reply-threshold".to_vec(), b"1".to_vec()]).unwrap();
        let bench = Bench::with_threads(settings, threads);
        let engine = bench.worker.engine;
        let alone = engine.keyspace.gate().close();
        let primary = Primary { host: "primary".into(), port: 1 };
        assert!(engine.replication.follow(&engine.journal, Some(primary), true));
        drop(alone);
        bench
    }

    /// Applies commands in the runs that the link would have them applied in, as far as they can be applied now.
    fn apply(bench: &mut Bench, commands: &[u8]) -> Applied {
        bench.worker.begin_turn(bench.now_us);
        let mut splitter = replication::stream::Splitter::new(16, runs_by_itself);
        let portion = splitter.portion(commands).unwrap();
        let version = bench.worker.engine.replication.version();
        bench.worker.apply_stream(1, version, commands, &portion.cuts)
    }

    /// A script that takes too long must not cost a replica any of its primary's commands: they wait for it.
    #[test]
    fn the_stream_waits_for_what_a_busy_script_holds() {
        let words = |line: &str| request(&line.split(' ').collect::<Vec<_>>());
        let streams: [&[&str]; 6] = [
            &["set k v"],
            &["ping", "mset k v j v"],
            &["flushall", "set k v"],
            &["multi", "set j v", "set k v", "exec"],
            &["set j v", "eval return(redis.call('set',KEYS[1],'v')) 1 k"],
            &["multi", "flushall", "set k v", "exec"],
        ];
        for script in ["eval while(true)do(function()end)()end 1 k", "eval while(true)do(redis).call('dbsize')end 0"] {
            for stream in streams {
                let mut bench = following(2);
                let engine = bench.worker.engine;
                let commands = stream.iter().flat_map(|line| words(line)).collect::<Vec<_>>();
                let (script, now_us) = (words(script), bench.now_us);
                // What is found in the midst of the script is looked at when it has ended.
                let (mut taken, mut before) = (0, Vec::new());
                std::thread::scope(|scope| {
                    let thread = scope.spawn(move || {
                        let mut worker = Worker::new(1, engine, 2);
                        worker.begin_turn(now_us);
                        let mut session = worker.open("127.0.0.1:2".into(), "127.0.0.1:6379".into(), 9, 0, true);
                        let mut out = Output::default();
                        worker.run(&mut session, script[..].into(), 0, &mut out);
                    });
                    while !engine.busy.any() && !thread.is_finished() {
                        std::thread::yield_now();
                    }
                    for _ in 0..3 {
                        let applied = apply(&mut bench, &commands[taken..]);
                        taken += applied.taken;
                        before.push(applied);
                    }
                    engine.busy.kill(Caller::Eval).unwrap();
                });
                assert!(
                    taken < commands.len() && before.iter().all(|applied| applied.failures == 0),
                    "{stream:?} {before:?}"
                );
                let applied = apply(&mut bench, &commands[taken..]);
                assert_eq!((taken + applied.taken, applied.failures), (commands.len(), 0), "{stream:?}");
                assert_eq!(engine.replication.link().applied, commands.len() as u64, "{stream:?}");
                let mut session = bench.open();
                assert_eq!(bench.line(&mut session, "get k"), "$1|v", "{stream:?}");
                assert!(!bench.worker.stream.as_ref().unwrap().1.client.has(client_flag::BLOCKED));
            }
        }
    }
}
