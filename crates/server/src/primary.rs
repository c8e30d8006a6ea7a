//! The thread that serves this server's replicas.
//!
//! A worker hands over each connection that asks for the stream ([`ReplicaHandoff`]). The thread turns the journal's units into the
//! stream's bytes (`engine::replication::stream`). It sends each replica the missing bytes, after a snapshot if needed ([`spool`]), and
//! receives their acknowledgements. `engine::replication::serving` decides which bytes are sent. One thread serves all replicas: each costs
//! one system call for all the bytes since the last one.

pub mod backlog_file;
mod handoff;
mod peer;
pub mod spool;

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::{ClientClass, Settings};
use engine::durability::DurabilityTarget;
use engine::inbox::Message;
use engine::maintenance::Announcement;
use engine::pause::PausePurpose;
use engine::replication::failover::{FailoverStage, FailoverVerdict};
use engine::replication::moving::MoveStep;
use engine::replication::peer::Ended;
use engine::replication::serving::{Admitted, Serving, ServingRules};
use engine::snapshots::Purpose;
use engine::state::Engine;

use self::backlog_file::BacklogFile;
use self::peer::{PeerLink, ServedReplica, serve};
use self::spool::SnapshotSpool;
use crate::log;
use crate::poller::{Epoll, Poller, Ready, WakeFd};
use crate::threads;
use crate::time::now_us;

pub use self::handoff::{Arrival, ReplicaHandoff};

/// Time between two looks for new units while some arrive, which is a replica's lag. Each look costs a system call per replica.
const DOZE: Duration = Duration::from_millis(1);
/// Number of looks in a row without a new unit before the thread sleeps until a wake-up.
const DOZES_MAX: u32 = 20;
/// Chunks of units taken before they are sent.
const CHUNKS_AT_ONCE: usize = 8;
/// Interval of timed work and of updates to the replicas' figures.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval of looks during a failover, while writes wait.
const LOOK_EVERY_AT_FAILOVER: Duration = Duration::from_millis(10);
/// Interval of timed work without a replica: then only the end of the stream is due, after `repl-backlog-ttl`.
const LOOK_EVERY_WITHOUT_REPLICAS: Duration = Duration::from_secs(1);
/// Bytes of the stream that memory holds under any limits.
const MEMORY_MIN: u64 = 1 << 20;

/// The thread's state.
struct Primary {
    engine: &'static Engine,
    handoff: Arc<ReplicaHandoff>,
    poller: Epoll,
    serving: Serving<SnapshotSpool, PeerLink>,
    next_token: u64,
    /// Looks in a row without a new unit.
    dozes: u32,
    looked: Instant,
    failover_looked: Instant,
    began: Instant,
}

/// Starts the thread.
///
/// # Errors
/// If no other thread or poller can be created.
pub fn start(engine: &'static Engine, handoff: Arc<ReplicaHandoff>) -> Result<(), String> {
    let cannot = threads::cannot_start;
    let wake = WakeFd::new().map_err(cannot)?;
    engine.replication.stream.set_wake(Box::new(wake.try_clone().map_err(cannot)?));
    let serve = move || match Epoll::new(wake) {
        Ok(poller) => Primary::new(engine, handoff, poller).run(),
        Err(error) => log::warning(format!("No replica can be served: {}", cannot(error))),
    };
    threads::spawn(&threads::REPLICAS, serve).map_err(cannot)?;
    Ok(())
}

impl Primary {
    fn new(engine: &'static Engine, handoff: Arc<ReplicaHandoff>, poller: Epoll) -> Primary {
        let now = Instant::now();
        let serving = Serving::new(&engine.replication, Duration::ZERO);
        Primary {
            engine,
            handoff,
            poller,
            serving,
            next_token: 0,
            dozes: 0,
            looked: now,
            failover_looked: now,
            began: now,
        }
    }

    fn run(&mut self) {
        let mut ready = Vec::new();
        loop {
            self.wait(&mut ready);
            self.follow_history();
            self.take_mail();
            for event in &ready {
                self.read(event);
            }
            let has_units = self.take_units();
            let is_awaited = has_units && self.engine.durability.is_awaited(DurabilityTarget::Replicas);
            if (self.engine.replication.take_request() || is_awaited) && !self.hands_over() {
                self.engine.replication.stream.ask();
            }
            self.send_all();
            self.dozes = if has_units { 0 } else { self.dozes.saturating_add(1) };
            if self.looked.elapsed() >= LOOK_EVERY {
                self.cron();
            }
            if self.failover_looked.elapsed() >= LOOK_EVERY_AT_FAILOVER {
                self.advance_failover();
            }
            self.note_figures();
        }
    }

    /// Returns true while a replica takes this primary's place in the cluster. It waits for the offset of the last write exactly, so that
    /// no PING or question may follow.
    fn hands_over(&self) -> bool {
        self.engine.pause.holds_for(PausePurpose::ManualFailover, now_us() / 1000)
    }

    /// Waits for work: briefly while units arrive, otherwise until a wake-up.
    fn wait(&mut self, ready: &mut Vec<Ready>) {
        let is_failing_over = self.engine.replication.failover().is_some();
        self.poller.tick_every(match (is_failing_over, self.serving.all.is_empty()) {
            (true, _) => LOOK_EVERY_AT_FAILOVER,
            (false, true) => LOOK_EVERY_WITHOUT_REPLICAS,
            (false, false) => LOOK_EVERY,
        });
        let stream = &self.engine.replication.stream;
        let is_awaited = self.engine.replication.replicas.are_awaited()
            || self.engine.durability.is_awaited(DurabilityTarget::Replicas);
        let timeout = if self.dozes < DOZES_MAX && !is_awaited && !self.serving.all.is_empty() {
            Some(DOZE)
        } else {
            stream.note_sleep(true);
            // Units committed before the new state became visible caused no wake-up.
            if stream.has_units() { Some(Duration::ZERO) } else { None }
        };
        if let Err(error) = self.poller.wait(timeout, ready) {
            log::warning(format!("epoll failed: {error}"));
            std::thread::sleep(DOZE);
        }
        stream.note_sleep(false);
        self.poller.take_wake();
        let _ = self.poller.take_tick();
    }

    /// Ends all links if the history has changed.
    fn follow_history(&mut self) {
        let ended = self.serving.follow_history(&self.engine.replication);
        self.forget(ended);
    }

    fn take_mail(&mut self) {
        for arrival in self.handoff.arrivals.take() {
            self.admit(arrival);
        }
        for client in self.handoff.closed.take() {
            self.end_where(|served| (served.peer.client == client).then_some(Ended::Killed));
        }
        for spool in self.handoff.spools.take() {
            let sends_early = self.engine.settings.repl_diskless_sync.get();
            self.serving.begin_sending(&self.engine.replication, spool, sends_early, self.began.elapsed());
        }
    }

    /// Takes a connection over, and decides on its first data.
    fn admit(&mut self, arrival: Arrival) {
        let token = self.next_token;
        self.next_token += 1;
        let now = self.began.elapsed();
        let (served, wanted) = serve(arrival, token, now);
        if let Err(error) = self.poller.add(served.link.fd(), token) {
            return log::warning(format!("can't watch a replica's connection: {error}"));
        }
        self.engine.clients.add(served.link.client.clone());
        let name = served.peer.name();
        match self.serving.admit(&self.engine.replication, served, wanted, now) {
            Admitted::GoesOn(offset) => log::notice(format!("The replica {name} goes on at offset {}", offset + 1)),
            Admitted::AwaitsSnapshot => {
                log::notice(format!("The replica {name} asks for all data"));
                let sends_early = self.engine.settings.repl_diskless_sync.get();
                if self.serving.provide_snapshot(&self.engine.replication, sends_early, now) {
                    self.engine.snapshots.want(Purpose::Replicas);
                }
            }
        }
    }

    /// Reads a replica's messages.
    fn read(&mut self, event: &Ready) {
        let (now, now_ms) = (self.began.elapsed(), now_us() / 1000);
        let stream_end = self.engine.replication.stream.end();
        let Some(served) = self.serving.all.iter_mut().find(|served| served.link.token == event.token) else { return };
        if event.write {
            served.link.may_write();
        }
        if event.read
            && let Err(ended) = served.link.read(&mut served.peer, now, now_ms, stream_end)
        {
            let ended = self.serving.note_closed(|served| served.link.token == event.token, ended, now);
            self.end_where(|served| (served.link.token == event.token).then_some(ended.clone()));
        }
    }

    /// Takes committed units. Returns true if there were any.
    fn take_units(&mut self) -> bool {
        let stream = &self.engine.replication.stream;
        let taken = (0..CHUNKS_AT_ONCE).take_while(|_| stream.take()).count();
        // Their memory is reused.
        taken > 0
    }

    /// Sends each replica as much as its socket takes.
    fn send_all(&mut self) {
        let (stream, now) = (&self.engine.replication.stream, self.began.elapsed());
        let mut ended = Vec::new();
        for served in &mut self.serving.all {
            let token = served.link.token;
            match served.link.send(&mut served.peer, stream, now) {
                Ok(()) => {
                    if let Some(write) = served.link.changed_watch()
                        && let Err(error) = self.poller.watch(served.link.fd(), token, true, write)
                    {
                        ended.push((token, Ended::Io(error.to_string())));
                    }
                }
                Err(why) => ended.push((token, why)),
            }
        }
        for (token, why) in ended {
            let why = self.serving.note_closed(|served| served.link.token == token, why, now);
            self.end_where(|served| (served.link.token == token).then_some(why.clone()));
        }
        self.serving.trim(&self.engine.replication, self.engine.settings.repl_backlog_size.get(), now);
        self.spill();
    }

    /// Moves the part of the stream beyond the memory limit to disk. Replicas that need more than memory and disk hold are dropped.
    fn spill(&mut self) {
        let settings = &self.engine.settings;
        let limit = settings.client_output_buffer_limit.get(ClientClass::Replica);
        let memory_max = settings.repl_backlog_size.get().max(limit.soft_bytes).max(MEMORY_MIN);
        let stream = &self.engine.replication.stream;
        let spilled = stream.spill(memory_max, || BacklogFile::make(&settings.in_dir(""), "backlog"));
        let bytes = stream.with_backlog(|backlog| backlog.bytes()).unwrap_or(0);
        let disk_max = settings.reply_spill_limit.get();
        let is_too_much = bytes.saturating_sub(memory_max) > disk_max;
        if spilled.is_ok() && !is_too_much {
            return;
        }
        if let Err(error) = spilled {
            log::warning(format!("The stream for slow replicas can't be kept on disk: {error}"));
        }
        let kept = if is_too_much { memory_max + disk_max } else { memory_max };
        let ended = self.serving.leave_behind(&self.engine.replication, kept);
        self.forget(ended);
    }

    /// Does the timed work.
    fn cron(&mut self) {
        self.looked = Instant::now();
        let (engine, mut rules) = (self.engine, serving_rules(&self.engine.settings));
        if self.hands_over() {
            rules.ping_period = Duration::MAX;
        }
        let chores = self.serving.cron(&engine.replication, &rules, self.began.elapsed());
        self.forget(chores.ended);
        if chores.wants_snapshot {
            engine.snapshots.want(Purpose::Replicas);
        }
        let is_awaited = engine.durability.is_awaited(DurabilityTarget::Replicas);
        if chores.ends_stream && !is_awaited && !engine.snapshots.is_wanted_for(Purpose::Replicas) {
            let _alone = engine.keyspace.gate().close();
            engine.replication.end_stream(&engine.journal);
        }
    }

    /// Takes the next step of a requested failover.
    fn advance_failover(&mut self) {
        self.failover_looked = Instant::now();
        if self.engine.replication.failover().is_some() {
            self.advance_move();
            self.check_failover();
        }
    }

    /// Takes the next step of a failover that clients are told of.
    fn advance_move(&mut self) {
        let (engine, now_ms) = (self.engine, now_us() / 1000);
        let announce = |news: &Announcement| engine.maintenance.announce(&engine.inboxes, news, now_ms);
        let is_used = || engine.clients.all().iter().any(|client| client.is_moving_late(now_ms));
        match self.serving.judge_move(&engine.replication, engine.maintenance.listeners(), is_used, now_ms) {
            MoveStep::Waits => {}
            MoveStep::AsksReplica(target) => {
                announce(&Announcement::FailingOver);
                engine.replication.ask_for_hold(target, now_ms);
            }
            MoveStep::TellsClients(target) => {
                log::notice(format!("Clients are told to move to {}:{}.", target.host, target.port));
                engine.maintenance.note_moved(Some(target.clone()), now_ms);
                announce(&Announcement::Moving(target));
                engine.replication.note_clients_move(now_ms);
            }
            MoveStep::PausesWrites => engine.pause_for_failover(now_ms),
        }
    }

    /// Lets the replica that has everything take this server's place, if a failover was requested.
    fn check_failover(&mut self) {
        let replication = &self.engine.replication;
        let now_ms = now_us() / 1000;
        if self.serving.judge_failover(replication, now_ms) == FailoverVerdict::Waits {
            if replication.failover().is_some_and(|failover| failover.stage == FailoverStage::AwaitsReplica) {
                // Redis's replicas report by themselves only once a second.
                replication.request_answers();
            }
            return;
        }
        let alone = self.engine.keyspace.gate().close();
        while replication.stream.take() {}
        // Checked again: if a command has written since, the failover continues to wait.
        match self.serving.judge_failover(replication, now_ms) {
            FailoverVerdict::HandsOver { to, acknowledged } => {
                let (host, port) = (&to.host, to.port);
                log::notice(format!("The failover begins: {host}:{port} is to take this server's place"));
                // Changes that this replica has acknowledged are safe. Changes that wait for other replicas are not, from here on.
                self.note_figures();
                replication.note_failover_follows(acknowledged);
                self.engine.follow(Some(to), now_ms);
            }
            FailoverVerdict::IsGivenUp => {
                log::warning("The failover is given up: no replica has had all data in time.");
                self.engine.abort_failover(now_ms);
            }
            FailoverVerdict::Waits => {}
        }
        drop(alone);
    }

    /// Reports the replicas' progress to the engine, and has waiting clients check it.
    fn note_figures(&mut self) {
        // The rules are updated before INFO can show a replica as online, because writes are accepted from that moment.
        let rules = serving_rules(&self.engine.settings);
        self.serving.count_good(&self.engine.replication, &rules, self.began.elapsed());
        let Some(is_awaited) = self.serving.note_figures(&self.engine.replication) else { return };
        self.note_safe();
        if is_awaited {
            self.engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
        }
    }

    /// Releases the replies whose changes enough replicas have.
    fn note_safe(&self) {
        let durability = &self.engine.durability;
        let wanted = self.engine.settings.durability_replicas.get();
        if wanted > 0
            && durability.is_awaited(DurabilityTarget::Replicas)
            && let Some(position) = self.serving.safe_position(wanted.unsigned_abs())
        {
            durability.note_safe(DurabilityTarget::Replicas, position, |thread| self.engine.inboxes[thread].wake());
        }
    }

    /// Ends the links for which `is_over` returns true.
    fn end_where(&mut self, is_over: impl Fn(&ServedReplica) -> Option<Ended>) {
        let ended = self.serving.end_where(is_over);
        self.forget(ended);
    }

    /// Closes the connections of ended links.
    fn forget(&self, ended: Vec<(ServedReplica, Ended)>) {
        for (served, why) in ended {
            let text = format!("The link to the replica {} ends: {why}", served.peer.name());
            if matches!(why, Ended::NotTaken { .. }) {
                log::warning(text)
            } else {
                log::notice(text)
            }
            self.poller.remove(served.link.fd());
            self.engine.clients.remove(served.peer.client);
        }
    }
}

/// The settings that concern replicas.
fn serving_rules(settings: &Settings) -> ServingRules {
    let seconds = |seconds: i64| Duration::from_secs(seconds.unsigned_abs());
    ServingRules {
        timeout: seconds(settings.repl_timeout_s.get()),
        waiting_bytes_max: settings.client_output_buffer_limit.get(ClientClass::Replica).hard_bytes,
        ping_period: seconds(settings.repl_ping_replica_period_s.get()),
        backlog_ttl: seconds(settings.repl_backlog_ttl_s.get()),
        backlog_bytes: settings.repl_backlog_size.get(),
        sends_early: settings.repl_diskless_sync.get(),
        good_wanted: settings.good_replicas_wanted(),
        good_lag: seconds(settings.min_replicas_max_lag_s.get()),
    }
}
