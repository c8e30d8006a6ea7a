//! The application of a primary's stream by a worker that also serves clients.

use commands::spec::Scope;
use resp::reply::Output;
use resp::request::{Batch, Framer, Input, Limits};

use super::lanes::{Cutter, LaneMap, StreamSection};
use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::clients::transaction::is_exec;
use crate::execute::lanes::{KEPT_BYTES, failed};
use crate::registry::table;
use crate::replication::Applied;
use crate::worker::Worker;

impl Worker {
    /// Applies whole commands and transactions of a primary's stream, in the runs that end at `cuts`, as far as the log
    /// has room. Nothing expires by the clock, because the primary sends expiries as commands. The function stops when
    /// the server follows another primary than at `version`.
    pub fn apply_stream(&mut self, stream: u64, version: u64, commands: &[u8], cuts: &[usize]) -> Applied {
        let mut session = match self.applying.stream.take() {
            Some((known, session)) if known == (stream, version) => session,
            // The session of another stream may be in the middle of a transaction.
            _ => Box::new(self.stream_session()),
        };
        session.followed.get_or_insert_default().begin(version);
        self.set_replays(true);
        let applied = self.apply_all(&mut session, commands, cuts);
        self.set_replays(false);
        if applied.stopped.is_none() {
            self.applying.stream = Some(((stream, version), session));
        }
        applied
    }

    /// Returns the run if it consists of one command that may leave the gate.
    fn single<'c>(&self, run: &'c [u8]) -> Option<&'c [u8]> {
        let (mut framer, mut batch) = (Framer::default(), Batch::default());
        let input = Input::from(run);
        framer.frame(input, 0, &Limits::UNLIMITED, 1, &mut batch);
        let first = batch.requests().first()?;
        runs_by_itself(batch.args(first, input).get(0)).then_some(run)
    }

    /// Applies all commands, or as many as the log has room for.
    fn apply_all(&mut self, session: &mut Session, commands: &[u8], cuts: &[usize]) -> Applied {
        let mut applied = Applied::default();
        let may_look = commands.len() >= self.applying.round_bounds.stream_bytes_min && session.multi.is_none();
        let map = LaneMap::of(&self.engine.keyspace, self.engine.inboxes.len()).filter(|_| may_look);
        let looks = map.is_some() && session.followed.as_mut().is_some_and(|followed| followed.search.looks());
        if let Some(map) = map.filter(|_| looks) {
            let had_round = self.apply_sections(map, session, commands, cuts, &mut applied);
            session
                .followed
                .iter_mut()
                .for_each(|followed| followed.search.note(had_round, self.applying.round_bounds.rest_max));
        } else {
            self.apply_in_order(session, commands, cuts, &mut applied);
        }
        applied
    }

    /// Applies rounds together with other threads, and the commands between rounds in order. Returns whether there was
    /// a round.
    fn apply_sections(
        &mut self,
        map: LaneMap<'_>,
        session: &mut Session,
        commands: &[u8],
        cuts: &[usize],
        applied: &mut Applied,
    ) -> bool {
        let mut had_round = false;
        let mut cutter =
            Cutter::new(map, (*self.framing_limits(), self.applying.round_bounds), commands, session.database);
        while let Some(section) = cutter.next_section() {
            let (end, round) = match section {
                StreamSection::InOrder { end } => (end, None),
                StreamSection::Lanes { end, lanes, databases } => (end, Some((lanes, databases))),
            };
            let bytes = commands.get(applied.taken..end).unwrap_or_default();
            if let Some((lanes, [before, behind])) = round
                && before == session.database
                && self.apply_round(session, bytes, lanes, behind, applied)
            {
                had_round = true;
                applied.taken = end;
                continue;
            }
            self.apply_in_order(session, commands.get(..end).unwrap_or_default(), cuts, applied);
            if applied.taken < end {
                break;
            }
        }
        had_round
    }

    /// Applies the remaining commands in order, in the runs that end at `cuts`.
    fn apply_in_order(&mut self, session: &mut Session, commands: &[u8], cuts: &[usize], applied: &mut Applied) {
        let mut out = Output::default();
        let mut cuts = cuts.iter().copied().chain([commands.len()]);
        let mut end = 0;
        while applied.taken < commands.len() {
            while end <= applied.taken {
                end = cuts.next().unwrap_or(commands.len()).min(commands.len());
            }
            let run = commands.get(..end).unwrap_or_default();
            if let Some(followed) = &mut session.followed {
                followed.begin_run(self.single(run.get(applied.taken..).unwrap_or_default()));
            }
            let (before, errors) = (applied.taken, self.stats().errors.get());
            let progress;
            (applied.taken, progress) = self.run(session, run.into(), before, &mut out);
            let new = self.stats().errors.get() - errors;
            if new > 0 {
                applied.failures += new;
                let failed = || failed(commands.get(before..).unwrap_or_default(), &out);
                applied.failure = applied.failure.take().or_else(failed);
            }
            if applied.taken == before {
                let is_stopped = progress == Progress::Closing && self.may_go_on(session);
                applied.stopped = is_stopped.then(|| stop_reason(&out));
                break;
            }
            out.clear(KEPT_BYTES);
        }
    }
}

/// Returns the reason that nothing more can be applied, from the last reply.
fn stop_reason(replies: &Output) -> String {
    let text = replies.slices().collect::<Vec<_>>().concat();
    let line = text.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_prefix(b"-").unwrap_or(b"it can't be run here");
    String::from_utf8_lossy(line).into_owned()
}

/// Returns whether a command with this name may run alone behind the gate, so that its thread leaves the gate in the
/// middle.
#[must_use]
pub fn runs_by_itself(name: &[u8]) -> bool {
    let Some(command) = table().find(name) else { return false };
    is_exec(command)
        || matches!(command.info.scope, Scope::Whole | Scope::Script | Scope::ByArgs(_))
        || !command.subcommands.is_empty()
}

#[cfg(test)]
mod tests;
