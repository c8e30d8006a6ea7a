//! The thread that serves this server's replicas.
//!
//! A worker hands it each connection that asks for the stream ([`Desk`]). It turns the journal's units into the stream's bytes
//! (`engine::replication::stream`), sends each replica what it lacks, a snapshot before if it has to ([`spool`]), and hears how far they
//! are. What is to be sent is decided in `engine::replication::serving`. One thread for all of them: a replica costs it a system call for what has come since the last one.

mod desk;
mod peer;
mod shelf;
pub mod spool;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::config::{ClientClass, Settings};
use engine::durability::Safety;
use engine::engine::Engine;
use engine::inbox::Message;
use engine::replication::failover::FailoverVerdict;
use engine::replication::peer::Ended;
use engine::replication::serving::{Admitted, Serving, ServingRules};
use engine::snapshots::Purpose;

use self::peer::{PeerLink, ServedReplica, serve};
use self::shelf::FileShelf;
use self::spool::SnapshotSpool;
use crate::event_loop::now_us;
use crate::log;
use crate::poller::{Epoll, Poller, Ready, WakeFd};

pub use self::desk::{Arrival, Desk};

/// How long the thread waits before it looks for units again, while there are some: so long a replica lags behind. Each look costs a
/// system call a replica.
const DOZE: Duration = Duration::from_millis(1);
/// How many times in a row it looks in vain before it sleeps until it is woken.
const DOZES_MAX: u32 = 20;
/// Chunks of units that are taken before replicas are sent what there is.
const CHUNKS_AT_ONCE: usize = 8;
/// How often the replicas' figures are noted, and looked at by the clock.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of the stream that memory has room for, whatever the limits are.
const MEMORY_MIN: u64 = 1 << 20;

/// What the thread has.
struct Primary {
    engine: &'static Engine,
    desk: Arc<Desk>,
    poller: Epoll,
    serving: Serving<SnapshotSpool, PeerLink>,
    next_token: u64,
    /// Looks in vain since there was something.
    dozes: u32,
    looked: Instant,
    began: Instant,
}

/// Starts the thread.
///
/// # Errors
/// If there can't be another thread, or nothing that it polls with.
pub fn start(engine: &'static Engine, desk: Arc<Desk>) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("can't start a thread: {error}");
    let wake = WakeFd::new().map_err(cannot)?;
    engine.replication.stream.set_wake(Box::new(wake.try_clone().map_err(cannot)?));
    let serve = move || match Epoll::new(wake) {
        Ok(poller) => Primary::new(engine, desk, poller).run(),
        Err(error) => log::warning(format!("No replica can be served: {}", cannot(error))),
    };
    std::thread::Builder::new().name("replicas".into()).spawn(serve).map_err(cannot)?;
    Ok(())
}

impl Primary {
    fn new(engine: &'static Engine, desk: Arc<Desk>, poller: Epoll) -> Primary {
        let now = Instant::now();
        let serving = Serving::new(&engine.replication, Duration::ZERO);
        Primary { engine, desk, poller, serving, next_token: 0, dozes: 0, looked: now, began: now }
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
            let is_awaited = has_units && self.engine.durability.is_awaited(Safety::Replicas);
            if self.engine.replication.take_request() || is_awaited {
                self.engine.replication.stream.ask();
            }
            self.send_all();
            self.dozes = if has_units { 0 } else { self.dozes.saturating_add(1) };
            if self.looked.elapsed() >= LOOK_EVERY {
                self.look_around();
            }
            self.note_figures();
        }
    }

    /// Waits until there is something to do: for a moment, while units come, or until it is woken.
    fn wait(&mut self, ready: &mut Vec<Ready>) {
        let stream = &self.engine.replication.stream;
        let is_awaited =
            self.engine.replication.replicas.are_awaited() || self.engine.durability.is_awaited(Safety::Replicas);
        let timeout = if self.dozes < DOZES_MAX && !is_awaited && !self.serving.all.is_empty() {
            Some(DOZE)
        } else {
            stream.note_sleep(true);
            // What was committed before that was not told of.
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

    /// Ends all links if the history is another one.
    fn follow_history(&mut self) {
        let ended = self.serving.follow_history(&self.engine.replication);
        self.forget(ended);
    }

    fn take_mail(&mut self) {
        for arrival in self.desk.arrivals.take() {
            self.admit(arrival);
        }
        for client in self.desk.closed.take() {
            self.end_where(|served| (served.peer.client == client).then_some(Ended::Killed));
        }
        for spool in self.desk.spools.take() {
            let sends_early = self.engine.settings.repl_diskless_sync.get();
            self.serving.begin_sending(&self.engine.replication, spool, sends_early, self.began.elapsed());
        }
    }

    /// Takes a connection over, and sees what it can be sent.
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

    /// Hears what a replica says.
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

    /// Takes units that there are. Says whether there were any.
    fn take_units(&mut self) -> bool {
        let stream = &self.engine.replication.stream;
        let taken = (0..CHUNKS_AT_ONCE).take_while(|_| stream.take()).count();
        // Their memory is for what comes next.
        taken > 0
    }

    /// Sends each replica what its socket takes.
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

    /// Has the disk keep what memory has no room for. A replica for which that is too much is left behind.
    fn spill(&mut self) {
        let settings = &self.engine.settings;
        let limit = settings.client_output_buffer_limit.get(ClientClass::Replica);
        let memory_max = settings.repl_backlog_size.get().max(limit.soft_bytes).max(MEMORY_MIN);
        let stream = &self.engine.replication.stream;
        let spilled = stream.spill(memory_max, || FileShelf::make(&settings.in_dir("")));
        let bytes = stream.with_backlog(|backlog| backlog.bytes()).unwrap_or(0);
        let disk_max = settings.reply_spill_limit.get();
        let is_too_much = bytes.saturating_sub(memory_max) > disk_max;
        if spilled.is_ok() && !is_too_much {
            return;
        }
        if let Err(error) = spilled {
            log::warning(format!("What replicas are to be sent can't be kept on disk: {error}"));
        }
        let kept = if is_too_much { memory_max + disk_max } else { memory_max };
        let ended = self.serving.leave_behind(&self.engine.replication, kept);
        self.forget(ended);
    }

    /// What is done by the clock.
    fn look_around(&mut self) {
        self.looked = Instant::now();
        let (engine, rules) = (self.engine, serving_rules(&self.engine.settings));
        let chores = self.serving.look_around(&engine.replication, &rules, self.began.elapsed());
        self.forget(chores.ended);
        if chores.wants_snapshot {
            engine.snapshots.want(Purpose::Replicas);
        }
        let is_awaited = engine.durability.is_awaited(Safety::Replicas);
        if chores.ends_stream && !is_awaited && !engine.snapshots.is_wanted_for(Purpose::Replicas) {
            let _alone = engine.keyspace.gate().close();
            engine.replication.end_stream(&engine.journal);
        }
        self.mind_failover();
    }

    /// Has the replica take this server's place that has everything, if that was asked for.
    fn mind_failover(&mut self) {
        let replication = &self.engine.replication;
        let now_ms = now_us() / 1000;
        if self.serving.judge_failover(replication, now_ms) == FailoverVerdict::Waits {
            // A question would be in the stream behind what its answer tells of. Replicas tell by themselves, once a second.
            return;
        }
        let alone = self.engine.keyspace.gate().close();
        while replication.stream.take() {}
        // None has written since, or the failover waits on.
        match self.serving.judge_failover(replication, now_ms) {
            FailoverVerdict::HandsOver(primary) => {
                let (host, port) = (&primary.host, primary.port);
                log::notice(format!("The failover begins: {host}:{port} is to take this server's place"));
                // What it has acknowledged is safe. What waits for others is not, from here on.
                self.note_figures();
                replication.note_failover_follows();
                self.engine.follow(Some(primary), now_ms);
            }
            FailoverVerdict::IsGivenUp => {
                log::warning("The failover is given up: no replica has had all data in time.");
                self.engine.abort_failover();
            }
            FailoverVerdict::Waits => {}
        }
        drop(alone);
    }

    /// Tells the engine how far the replicas are, and has clients look that wait for that.
    fn note_figures(&mut self) {
        let Some(is_awaited) = self.serving.note_figures(&self.engine.replication) else { return };
        self.note_safe();
        if is_awaited {
            self.engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
        }
    }

    /// Has replies be sent that wait for as many replicas as have what they tell of.
    fn note_safe(&self) {
        let durability = &self.engine.durability;
        let wanted = self.engine.settings.durability_replicas.get();
        if wanted > 0
            && durability.is_awaited(Safety::Replicas)
            && let Some(position) = self.serving.safe_position(wanted.unsigned_abs())
        {
            durability.note_safe(Safety::Replicas, position, |thread| self.engine.inboxes[thread].wake());
        }
    }

    /// Ends links.
    fn end_where(&mut self, is_over: impl Fn(&ServedReplica) -> Option<Ended>) {
        let ended = self.serving.end_where(is_over);
        self.forget(ended);
    }

    /// Closes the connections of links that have ended.
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

/// What the configuration says of replicas.
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
