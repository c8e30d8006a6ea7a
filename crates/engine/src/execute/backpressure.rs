//! Backpressure for publishers: the inboxes that a thread has overfilled with published messages, and the commands that
//! wait for them.
//!
//! A publishing command is never suspended in the middle, because it may hold any lock. The command that overfills an
//! inbox runs to its end, and its connection runs no further command until the inbox has room again. Other publishers
//! to the same inbox wait before they begin, if their target is known in advance: PUBLISH names its channel, and a
//! transaction has it in its queue. Scripts and keyspace notifications are only noticed after the fact. Connections
//! that don't publish never wait.
//!
//! The inbox's owner drains it even while its own publishers wait. Two threads that have filled each other's inboxes
//! therefore make progress.

use commands::spec::Channels;
use resp::request::Args;

use crate::clients::session::Session;
use crate::clients::transaction::is_exec;
use crate::pubsub::ChannelKind;
use crate::worker::Worker;
use commands::table::Command;

/// Returns the kind of channel that a command publishes on.
fn publishes_on(command: &Command) -> Option<ChannelKind> {
    command.info.publishes.map(|channels| match channels {
        Channels::Plain => ChannelKind::Channel,
        Channels::Sharded => ChannelKind::Shard,
    })
}

impl Worker {
    /// Notes that a thread's inbox has room again. The caller resumes the connections that waited for it.
    pub fn note_room(&mut self, inbox: usize) {
        self.full_inboxes.set(inbox, false);
    }

    /// Returns whether a command has to wait for room in an inbox before it runs.
    #[cold]
    pub(crate) fn must_wait_for_room(&self, session: &Session, command: &Command, args: &Args<'_>) -> bool {
        // A monitor does not publish, and any connection must be able to end a busy script.
        if session.is_monitoring() || self.scripts.busy_turn {
            return false;
        }
        if session.overfilled.is_some_and(|inbox| self.full_inboxes.has(inbox)) {
            return true;
        }
        match &session.multi {
            None => self.publishes_beyond_room(command, args),
            Some(multi) if is_exec(command) => {
                multi.queue.iter().any(|queued| self.publishes_beyond_room(queued.command, &queued.args.args()))
            }
            Some(_) => false,
        }
    }

    fn publishes_beyond_room(&self, command: &Command, args: &Args<'_>) -> bool {
        let Some(kind) = publishes_on(command).filter(|_| command.info.accepts(args.len())) else { return false };
        self.engine.pubsub.reaches(kind, args.get(1), |inbox| self.full_inboxes.has(inbox))
    }
}

#[cfg(test)]
mod tests {
    use resp::reply::Proto;

    use super::*;
    use crate::clients::progress::Progress;
    use crate::inbox::Message;
    use crate::testing::{Bench, request};

    const FILLER: usize = 100_000;

    /// Returns a bench with a client that listens to a channel, a key and a shard channel.
    fn listened_to() -> (Bench, Session) {
        let mut bench = Bench::default();
        let mut listener = bench.open_with(Proto::Resp3);
        for line in
            ["subscribe c __keyspace@0__:k", "psubscribe p*", "ssubscribe s", "config set notify-keyspace-events KA"]
        {
            bench.line(&mut listener, line);
        }
        (bench, listener)
    }

    /// Sends a command with a long last argument until its connection has to wait. Returns the number of runs.
    fn fill(bench: &mut Bench, session: &mut Session, words: &[&str]) -> usize {
        let filler = "f".repeat(FILLER);
        let command = request(&[words, &[&filler]].concat());
        (0..1000).take_while(|_| bench.run(session, &command).1 == Progress::Ready).count()
    }

    /// Drains the inbox, and notes that there is room again.
    fn make_room(bench: &mut Bench) {
        let inbox = &bench.worker.engine.inboxes[0];
        let portion = inbox.take_pushes(usize::MAX);
        portion.has_room.iter().for_each(|&thread| inbox.send(Message::Room { inbox: thread }));
        for message in inbox.take() {
            let Message::Room { inbox } = message else { panic!("{message:?}") };
            bench.worker.note_room(inbox);
        }
    }

    #[test]
    fn a_connection_that_overfills_an_inbox_waits_before_its_next_command_until_there_is_room() {
        let script = "return redis.call('publish', 'c', ARGV[1])";
        for words in [&["publish", "c"][..], &["publish", "p1"], &["spublish", "s"], &["eval", script, "0"]] {
            let (mut bench, _listener) = listened_to();
            let mut session = bench.open();
            let ran = fill(&mut bench, &mut session, words);
            assert!((5..100).contains(&ran), "{words:?}: {ran}");
            assert_eq!(bench.run(&mut session, b"get k\r\n").1, Progress::AwaitsRoom);
            make_room(&mut bench);
            bench.check(&mut session, &[("get k", "$-1")]);
            assert_eq!(fill(&mut bench, &mut session, words), ran);
        }
    }

    #[test]
    fn only_publishers_to_a_full_inbox_wait() {
        let (mut bench, mut listener) = listened_to();
        let (mut first, mut other) = (bench.open(), bench.open());
        fill(&mut bench, &mut first, &["publish", "c"]);
        for line in ["publish c x", "publish pattern x", "spublish s x"] {
            assert_eq!(
                bench.run(&mut other, format!("{line}\r\n").as_bytes()),
                (Vec::new(), Progress::AwaitsRoom),
                "{line}"
            );
        }
        bench.check(
            &mut other,
            &[("publish nobody x", ":0"), ("publish c", "-ERR wrong number of arguments for 'publish' command")],
        );
        bench.check(&mut other, &[("multi", "+OK"), ("publish c x", "+QUEUED")]);
        assert_eq!(bench.run(&mut other, b"exec\r\n"), (Vec::new(), Progress::AwaitsRoom));
        bench.check(&mut other, &[("discard", "+OK"), ("set other v", "+OK")]);
        // The messages of a key's change are known only after the change.
        bench.check(&mut other, &[("set k v", "+OK")]);
        assert_eq!(bench.run(&mut other, b"set other v\r\n").1, Progress::AwaitsRoom);
        // A listener may unsubscribe.
        assert!(bench.line(&mut listener, "unsubscribe nothing").ends_with("unsubscribe|$7|nothing|:3"));
        make_room(&mut bench);
        bench.check(
            &mut other,
            &[("set other v", "+OK"), ("multi", "+OK"), ("publish c x", "+QUEUED"), ("exec", "*1|:1")],
        );
    }

    #[test]
    fn monitors_delay_the_commands_they_are_shown_but_not_their_own() {
        let mut bench = Bench::default();
        let (mut monitor, mut other) = (bench.open(), bench.open());
        bench.check(&mut monitor, &[("monitor", "+OK")]);
        assert!(fill(&mut bench, &mut other, &["echo"]) > 5);
        assert!(bench.line(&mut monitor, "ping").starts_with("+PONG"));
        make_room(&mut bench);
        bench.check(&mut other, &[("echo x", "$1|x")]);
    }
}
