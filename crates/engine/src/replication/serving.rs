//! All replicas of a server: partial and full synchronizations, the snapshots for the latter, and the part of the
//! stream that is kept.
//!
//! This module has no connections and no clocks: the server passes the time, and performs the returned actions. `S` is
//! a snapshot on its way to replicas, `L` is the server's part of a replica's connection.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use journal::order::Position;

use super::failover::{Failover, FailoverStage, FailoverVerdict};
use super::peer::{Ended, Peer, SentSnapshot};
use super::refusals::Refusals;
use super::replicas::{ReplicaFigures, ReplicaStage, Wanted};
use super::{Primary, Replication};

/// The interval of keepalives to a replica that waits for its snapshot.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// The greatest distance in bytes between the stream and a snapshot that another replica joins. The stream keeps and
/// sends these bytes for it.
const JOINED_BYTES_MAX: u64 = 64 << 20;
/// The pause after a failed snapshot. Each further failure doubles it.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// The longest pause after a failed snapshot.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The configuration of replicas.
#[derive(Clone, Copy, Debug)]
pub struct ServingRules {
    /// A link ends after this time of silence (`repl-timeout`).
    pub timeout: Duration,
    /// The greatest number of pending bytes for a replica that takes none; 0 is no limit
    /// (`client-output-buffer-limit`).
    pub waiting_bytes_max: u64,
    /// The interval of keepalives in the stream (`repl-ping-replica-period`).
    pub ping_period: Duration,
    /// The stream ends after this time without a replica; never, if this is zero (`repl-backlog-ttl`).
    pub backlog_ttl: Duration,
    /// Bytes of the stream that are always kept (`repl-backlog-size`).
    pub backlog_bytes: u64,
    /// True if a snapshot is sent while it is made (`repl-diskless-sync`).
    pub sends_early: bool,
    /// Commands that write are refused with fewer good replicas than these (`Settings::good_replicas_wanted`).
    pub good_wanted: u64,
    /// A replica is good if it was heard within this time (`min-replicas-max-lag`).
    pub good_lag: Duration,
}

/// A replica and its connection.
pub struct Served<S, L> {
    /// The replica.
    pub peer: Peer<S>,
    /// The server's part of its connection.
    pub link: L,
}

/// The answer to a replica that asks for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The stream continues after this offset.
    GoesOn(u64),
    /// The replica waits for a snapshot.
    AwaitsSnapshot,
}

/// The actions that the clock makes due.
pub struct Chores<S, L> {
    /// These links have ended.
    pub ended: Vec<(Served<S, L>, Ended)>,
    /// A snapshot for replicas must begin.
    pub wants_snapshot: bool,
    /// No replica is expected back: the stream ends, unless a snapshot for replicas is wanted.
    pub ends_stream: bool,
}

/// See the module's documentation.
pub struct Serving<S, L> {
    /// The replicas.
    pub all: Vec<Served<S, L>>,
    /// The last snapshot, while it is of use.
    snapshot: Option<Arc<S>>,
    /// The number of the stream's history.
    histories: u64,
    pinged: Duration,
    /// The start of the present time without replicas.
    alone_since: Duration,
    /// The number of consecutive failed snapshots, and the time of the last failure.
    failures: u32,
    failed: Option<Duration>,
    refusals: Refusals,
    /// The figures that the engine has.
    noted: Vec<ReplicaFigures>,
}

impl<S: SentSnapshot, L> Serving<S, L> {
    /// The state without replicas.
    #[must_use]
    pub fn new(replication: &Replication, now: Duration) -> Serving<S, L> {
        Serving {
            all: Vec::new(),
            snapshot: None,
            histories: replication.histories(),
            pinged: now,
            alone_since: now,
            failures: 0,
            failed: None,
            refusals: Refusals::default(),
            noted: Vec::new(),
        }
    }

    /// Ends links, and returns them.
    #[must_use]
    pub fn end_where(&mut self, is_over: impl Fn(&Served<S, L>) -> Option<Ended>) -> Vec<(Served<S, L>, Ended)> {
        let mut ended = Vec::new();
        for served in std::mem::take(&mut self.all) {
            match is_over(&served) {
                Some(why) => ended.push((served, why)),
                None => self.all.push(served),
            }
        }
        ended
    }

    /// Notes that a replica has ended its link. Returns the reason to report. A server that has not taken its snapshot
    /// waits longer for the next one. A tool that only reads a snapshot does not wait.
    #[must_use]
    pub fn note_closed(&mut self, is_it: impl Fn(&Served<S, L>) -> bool, why: Ended, now: Duration) -> Ended {
        let peer = self.all.iter().find(|served| is_it(served)).map(|served| &served.peer);
        match peer.filter(|peer| peer.has_yet_to_load() && peer.is_server()).map(Peer::place) {
            Some(place) if matches!(why, Ended::Closed | Ended::Io(_)) => {
                let (times, pause) = self.refusals.note_refused(place, now);
                Ended::NotTaken { times, pause }
            }
            _ => why,
        }
    }

    /// Ends all links after a change of the history: replicas resynchronize and learn its id.
    #[must_use]
    pub fn follow_history(&mut self, replication: &Replication) -> Vec<(Served<S, L>, Ended)> {
        let histories = replication.histories();
        if std::mem::replace(&mut self.histories, histories) == histories {
            return Vec::new();
        }
        self.snapshot = None;
        // Replicas without a snapshot get one of the new history.
        self.end_where(|served| (!served.peer.awaits_snapshot()).then_some(Ended::Renamed))
    }

    /// Takes a replica over. If it needs a snapshot, [`Serving::provide_snapshot`] supplies one.
    pub fn admit(
        &mut self,
        replication: &Replication,
        mut served: Served<S, L>,
        wanted: Wanted,
        now: Duration,
    ) -> Admitted {
        let figures = &replication.replicas;
        let admitted = match replication.can_go_on(wanted) {
            Some(offset) => {
                figures.change_figures(|figures| figures.partial += 1);
                served.peer.go_on(replication.tell_name(), offset, now);
                Admitted::GoesOn(offset)
            }
            None => {
                let is_refused = matches!(wanted, Wanted::Behind(..));
                figures.change_figures(|figures| figures.refused += u64::from(is_refused));
                served.peer.hold_back(self.refusals.pause_of(&served.peer.place()));
                Admitted::AwaitsSnapshot
            }
        };
        self.all.push(served);
        admitted
    }

    /// Gives waiting replicas the last snapshot, if it is still of use. Returns whether another snapshot must begin.
    #[must_use]
    pub fn provide_snapshot(&mut self, replication: &Replication, sends_early: bool, now: Duration) -> bool {
        if let Some(snapshot) = self.snapshot.clone().filter(|snapshot| self.is_of_use(replication, snapshot)) {
            self.begin_sending(replication, snapshot, sends_early, now);
        }
        let Some(next) = self.all.iter().find(|served| served.peer.may_receive(now)) else { return false };
        replication.replicas.want_form(next.peer.form());
        let waits = RETRY_MIN.saturating_mul(1 << self.failures.min(8)).min(RETRY_MAX);
        let may_try = self.failed.is_none_or(|failed| now.saturating_sub(failed) >= waits);
        may_try && self.snapshot.as_ref().is_none_or(|snapshot| snapshot.has_ended())
    }

    fn is_of_use(&self, replication: &Replication, snapshot: &Arc<S>) -> bool {
        let stream = &replication.stream;
        let is_kept = stream.with_backlog(|backlog| backlog.reaches_back_to(snapshot.cut())) == Some(true);
        let is_sent = self.all.iter().any(|served| served.peer.receives(snapshot));
        !snapshot.has_failed()
            && is_kept
            && (is_sent || !snapshot.has_ended())
            && stream.end() - snapshot.cut() <= JOINED_BYTES_MAX
    }

    /// Sends a snapshot to the waiting replicas that read its form.
    pub fn begin_sending(&mut self, replication: &Replication, snapshot: Arc<S>, sends_early: bool, now: Duration) {
        let (history, form) = (replication.tell_name(), snapshot.form());
        let reads = |peer: &Peer<S>| peer.may_receive(now) && peer.form() == form;
        for served in self.all.iter_mut().filter(|served| reads(&served.peer)) {
            replication.replicas.change_figures(|figures| figures.full += 1);
            served.peer.begin_snapshot(history, snapshot.clone(), sends_early, now);
        }
        self.snapshot = Some(snapshot);
    }

    /// Drops the part of the backlog that no replica needs.
    pub fn trim(&mut self, replication: &Replication, backlog_bytes: u64, now: Duration) {
        let is_done =
            |snapshot: &Arc<S>| snapshot.has_ended() && !self.all.iter().any(|served| served.peer.receives(snapshot));
        if self.snapshot.as_ref().is_some_and(is_done) {
            let failed = self.snapshot.take().is_some_and(|snapshot| snapshot.has_failed());
            self.failures = if failed { self.failures + 1 } else { 0 };
            self.failed = failed.then_some(now);
        }
        let cut = self.snapshot.as_ref().map(|snapshot| snapshot.cut());
        let needed = self.all.iter().filter_map(|served| served.peer.needs_from()).chain(cut).min();
        replication.stream.trim(backlog_bytes, needed.unwrap_or(u64::MAX));
    }

    /// Drops replicas that lack more than `kept` bytes: they resynchronize with a snapshot.
    #[must_use]
    pub fn leave_behind(&mut self, replication: &Replication, kept: u64) -> Vec<(Served<S, L>, Ended)> {
        let end = replication.stream.end();
        if self.snapshot.as_ref().is_some_and(|snapshot| end.saturating_sub(snapshot.cut()) > kept) {
            self.snapshot = None;
        }
        self.end_where(|served| {
            let waiting = served.peer.needs_from().map_or(0, |from| end.saturating_sub(from));
            (waiting > kept).then_some(Ended::TooFarBehind(waiting))
        })
    }

    /// Returns the next step of the requested failover. For a step other than waiting, the caller closes the gate,
    /// takes all units into the stream, and asks again, because something may have been written since.
    #[must_use]
    pub fn judge_failover(&self, replication: &Replication, now_ms: u64) -> FailoverVerdict {
        let failover = replication.failover();
        let Some(failover) = failover.filter(|failover| failover.stage == FailoverStage::AwaitsReplica) else {
            return FailoverVerdict::Waits;
        };
        let is_due = failover.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
        match self.successor(replication, &failover, is_due) {
            Some((to, acknowledged)) => FailoverVerdict::HandsOver { to, acknowledged },
            None if is_due => FailoverVerdict::IsGivenUp,
            None => FailoverVerdict::Waits,
        }
    }

    /// Returns the replica that can take this server's place because it has everything, and its acknowledged offset. A forced failover that is due
    /// accepts any eligible replica.
    fn successor(&self, replication: &Replication, failover: &Failover, is_due: bool) -> Option<(Primary, u64)> {
        let is_meant =
            |peer: &Peer<S>| failover.target.as_ref().is_none_or(|target| peer.is_at(&target.host, target.port));
        // Pings and questions after the last unit change nothing, and an answer doesn't count the question itself.
        let units_end = replication.stream.units_end();
        let has_all = |peer: &Peer<S>| peer.is_online() && peer.acknowledged() >= units_end;
        let is_forced = is_due && failover.is_forced;
        let mut peers = self.all.iter().map(|served| &served.peer);
        let found = peers.find(|peer| is_meant(peer) && (is_forced || has_all(peer)))?;
        let (host, port) = found.place();
        Some((Primary { host, port }, found.acknowledged()))
    }

    /// Returns the last unit that this number of replicas has, by the last figures. Returns `None` if there are fewer
    /// replicas.
    #[must_use]
    pub fn safe_position(&self, replicas: u64) -> Option<Position> {
        let online = self.noted.iter().filter(|replica| replica.stage == ReplicaStage::Online);
        let mut positions: Vec<Position> = online.map(|replica| replica.position).collect();
        positions.sort_unstable_by_key(|&position| Reverse(position));
        let last = usize::try_from(replicas).ok()?.checked_sub(1)?;
        positions.get(last).copied()
    }

    /// Does the periodic work, and returns the actions that are left to the caller.
    #[must_use]
    pub fn cron(&mut self, replication: &Replication, rules: &ServingRules, now: Duration) -> Chores<S, L> {
        let end = replication.stream.end();
        let ended = self.end_where(|served| served.peer.is_over(rules.timeout, rules.waiting_bytes_max, end, now));
        self.forgive();
        if now.saturating_sub(self.pinged) >= rules.ping_period && !self.all.is_empty() {
            self.pinged = now;
            replication.stream.ping();
        }
        for served in &mut self.all {
            served.peer.sign_of_life(SIGN_OF_LIFE, now);
        }
        let awaits = self.all.iter().any(|served| served.peer.awaits_snapshot());
        let wants_snapshot = awaits && self.provide_snapshot(replication, rules.sends_early, now);
        if !self.all.is_empty() {
            self.alone_since = now;
        }
        let is_due = !rules.backlog_ttl.is_zero() && now.saturating_sub(self.alone_since) >= rules.backlog_ttl;
        self.count_good(replication, rules, now);
        Chores { ended, wants_snapshot, ends_stream: is_due && replication.stream.is_own() }
    }

    /// Forgets the refusals of replicas that have taken a snapshot since.
    fn forgive(&mut self) {
        if self.refusals.is_empty() {
            return;
        }
        for served in self.all.iter().filter(|served| served.peer.is_online() && !served.peer.has_yet_to_load()) {
            self.refusals.forget(&served.peer.place());
        }
    }

    /// Counts the replicas for `min-replicas-to-write`.
    pub fn count_good(&self, replication: &Replication, rules: &ServingRules, now: Duration) {
        let good = self.all.iter().filter(|served| served.peer.is_good(rules.good_lag, now)).count() as u64;
        replication.replicas.note_good(good, rules.good_wanted);
    }

    /// Passes the replicas' progress to the engine. Returns `None` if nothing changed; true if clients may wait for
    /// this progress.
    #[must_use]
    pub fn note_figures(&mut self, replication: &Replication) -> Option<bool> {
        let stream = &replication.stream;
        let least = self.all.iter().map(|served| served.peer.acknowledged()).min().unwrap_or_else(|| stream.end());
        let figures: Vec<ReplicaFigures> = self.all.iter().map(|served| served.peer.figures(stream, least)).collect();
        if figures == self.noted {
            return None;
        }
        let reached = |all: &[ReplicaFigures]| -> Vec<_> {
            all.iter().map(|figures| (figures.position, figures.synced_position, figures.stage)).collect()
        };
        let has_moved = reached(&figures) != reached(&self.noted);
        self.noted.clone_from(&figures);
        replication.replicas.note(figures);
        Some(has_moved && replication.replicas.are_awaited())
    }
}

#[cfg(test)]
mod tests;
