//! The thread that serves this server's replicas.
//!
//! A worker hands it each connection that asks for the stream ([`Desk`]). It turns the journal's units into the stream's bytes
//! (`engine::replication::stream`), sends each replica what it lacks, a snapshot before if it has to ([`spool`]), and hears how far they
//! are. One thread for all of them: a replica costs it a system call for what has come since the last one.

mod desk;
mod peer;
mod shelf;
pub mod spool;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::config::ClientClass;
use engine::durability::Safety;
use engine::engine::Engine;
use engine::inbox::Message;
use engine::replication::Primary as ReplicationPrimary;
use engine::replication::failover::FailoverStage;
use engine::replication::replicas::{ReplicaFigures, ReplicaStage, Wanted};
use engine::snapshots::Purpose;
use journal::order::Position;
use replication::id::HistoryId;

use self::peer::{Ended, Peer};
use self::shelf::FileShelf;
use self::spool::Spool;
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
/// How often a replica that waits for its snapshot is told that this server lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// Bytes by which the stream may be ahead of a snapshot that another replica joins: more would have to be kept for it, and sent.
const JOINED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the stream that memory has room for, whatever the limits are.
const MEMORY_MIN: u64 = 1 << 20;
/// Snapshots that fail in a row, after each of which the next one waits for so much longer.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// The longest such wait.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// What the thread has.
struct Primary {
    engine: &'static Engine,
    desk: Arc<Desk>,
    poller: Epoll,
    peers: Vec<Peer>,
    next_token: u64,
    /// The last snapshot, while there is use for it.
    spool: Option<Arc<Spool>>,
    /// Which history the stream is.
    histories: u64,
    /// Looks in vain since there was something.
    dozes: u32,
    looked: Instant,
    pinged: Instant,
    /// Since when there is no replica.
    alone_since: Instant,
    /// Snapshots that have failed in a row, and when the last one did.
    failures: u32,
    failed: Option<Instant>,
    /// What has been told to the engine.
    noted: Vec<ReplicaFigures>,
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
        Primary {
            engine,
            desk,
            poller,
            peers: Vec::new(),
            next_token: 0,
            spool: None,
            histories: engine.replication.histories(),
            dozes: 0,
            looked: now,
            pinged: now,
            alone_since: now,
            failures: 0,
            failed: None,
            noted: Vec::new(),
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
        let timeout = if self.dozes < DOZES_MAX && !is_awaited && !self.peers.is_empty() {
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

    /// Ends all links if the history is another one: replicas ask anew where they can go on, and learn its name.
    fn follow_history(&mut self) {
        let histories = self.engine.replication.histories();
        if std::mem::replace(&mut self.histories, histories) != histories {
            self.spool = None;
            // Those that wait for a snapshot get one of the new history.
            self.end_where(|peer| (!peer.awaits_snapshot()).then_some(Ended::Renamed));
        }
    }

    fn take_mail(&mut self) {
        for arrival in self.desk.arrivals.take() {
            self.admit(arrival);
        }
        for client in self.desk.closed.take() {
            self.end_where(|peer| (peer.client.id == client).then_some(Ended::Killed));
        }
        for spool in self.desk.spools.take() {
            self.begin_sending(spool);
        }
    }

    /// Takes a connection over, and sees what it can be sent.
    fn admit(&mut self, arrival: Arrival) {
        let wanted = arrival.wanted;
        let token = self.next_token;
        self.next_token += 1;
        let mut peer = Peer::new(arrival, token);
        if let Err(error) = self.poller.add(peer.fd(), token) {
            return log::warning(format!("can't watch a replica's connection: {error}"));
        }
        self.engine.clients.add(peer.client.clone());
        let replication = &self.engine.replication;
        let from = self.can_go_on(wanted);
        let figures = &replication.replicas;
        match from {
            Some(offset) => {
                figures.change_figures(|figures| figures.partial += 1);
                peer.go_on(replication.history().id, offset);
                log::notice(format!("The replica {} goes on at offset {}", peer.name(), offset + 1));
            }
            None => {
                let is_refused = matches!(wanted, Wanted::Behind(..));
                figures.change_figures(|figures| figures.refused += u64::from(is_refused));
                log::notice(format!("The replica {} asks for all data", peer.name()));
            }
        }
        self.peers.push(peer);
        if from.is_none() {
            self.provide_snapshot();
        }
    }

    /// Where a replica can go on that has everything up to some offset of some history.
    fn can_go_on(&self, wanted: Wanted) -> Option<u64> {
        let Wanted::Behind(id, offset) = wanted else { return None };
        let history = self.engine.replication.history();
        let is_this = history.id == id;
        let is_before = history.before.is_some_and(|(before, next)| before == id && offset < next);
        let is_kept = || self.engine.replication.stream.with_backlog(|backlog| backlog.reaches_back_to(offset));
        (history.is_known && (is_this || is_before) && is_kept() == Some(true)).then_some(offset)
    }

    /// Has the replicas that wait for a snapshot get one: the last one, if it is of use yet, or another one.
    fn provide_snapshot(&mut self) {
        if let Some(spool) = self.spool.clone().filter(|spool| self.is_of_use(spool)) {
            return self.begin_sending(spool);
        }
        let waits = RETRY_MIN.saturating_mul(1 << self.failures.min(8)).min(RETRY_MAX);
        let may_try = self.failed.is_none_or(|failed| failed.elapsed() >= waits);
        let snapshots = &self.engine.snapshots;
        if may_try && self.spool.as_ref().is_none_or(|spool| spool.has_ended()) {
            snapshots.want(Purpose::Replicas);
        }
    }

    fn is_of_use(&self, spool: &Spool) -> bool {
        let stream = &self.engine.replication.stream;
        let is_kept = stream.with_backlog(|backlog| backlog.reaches_back_to(spool.cut)) == Some(true);
        let is_sent = self.peers.iter().any(|peer| peer.receives(spool));
        !spool.has_failed()
            && is_kept
            && (is_sent || !spool.has_ended())
            && stream.end() - spool.cut <= JOINED_BYTES_MAX
    }

    /// Sends a snapshot to those that wait for one.
    fn begin_sending(&mut self, spool: Arc<Spool>) {
        let history = self.engine.replication.history().id;
        let sends_early = self.engine.settings.repl_diskless_sync.get();
        for peer in self.peers.iter_mut().filter(|peer| peer.awaits_snapshot()) {
            self.engine.replication.replicas.change_figures(|figures| figures.full += 1);
            peer.begin_snapshot(history, spool.clone(), sends_early);
        }
        self.spool = Some(spool);
    }

    /// Hears what a replica says.
    fn read(&mut self, event: &Ready) {
        let now_ms = now_us() / 1000;
        let stream_end = self.engine.replication.stream.end();
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.token == event.token) else { return };
        if event.write {
            peer.may_write();
        }
        if event.read
            && let Err(ended) = peer.read(now_ms, stream_end)
        {
            let token = peer.token;
            self.end_where(|peer| (peer.token == token).then_some(ended.clone()));
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
        let stream = &self.engine.replication.stream;
        let mut ended = Vec::new();
        for peer in &mut self.peers {
            match peer.send(stream) {
                Ok(()) => {
                    if let Some(write) = peer.changed_watch()
                        && let Err(error) = self.poller.watch(peer.fd(), peer.token, true, write)
                    {
                        ended.push((peer.token, Ended::Io(error.to_string())));
                    }
                }
                Err(why) => ended.push((peer.token, why)),
            }
        }
        for (token, why) in ended {
            self.end_where(|peer| (peer.token == token).then_some(why.clone()));
        }
        self.trim();
    }

    /// Gives up what no replica needs of the backlog.
    fn trim(&mut self) {
        if self.spool.as_ref().is_some_and(|spool| spool.has_ended() && !self.peers.iter().any(|p| p.receives(spool))) {
            let failed = self.spool.take().is_some_and(|spool| spool.has_failed());
            self.failures = if failed { self.failures + 1 } else { 0 };
            self.failed = failed.then(Instant::now);
        }
        let cut = self.spool.as_ref().map(|spool| spool.cut);
        let needed = self.peers.iter().filter_map(Peer::needs_from).chain(cut).min();
        let stream = &self.engine.replication.stream;
        stream.trim(self.engine.settings.repl_backlog_size.get(), needed.unwrap_or(u64::MAX));
        self.spill();
    }

    /// Has the disk keep what memory has no room for. A replica for which that is too much is left behind: it asks anew, and is sent a
    /// snapshot.
    fn spill(&mut self) {
        let settings = &self.engine.settings;
        let limit = settings.client_output_buffer_limit.get(ClientClass::Replica);
        let memory_max = settings.repl_backlog_size.get().max(limit.soft_bytes as u64).max(MEMORY_MIN);
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
        let end = stream.end();
        let kept = if is_too_much { memory_max + disk_max } else { memory_max };
        self.end_where(|peer| {
            let waiting = peer.needs_from().map_or(0, |from| end.saturating_sub(from));
            (waiting > kept).then_some(Ended::TooFarBehind(waiting))
        });
        if self.spool.as_ref().is_some_and(|spool| end.saturating_sub(spool.cut) > kept) {
            self.spool = None;
        }
    }

    /// What is done by the clock.
    fn look_around(&mut self) {
        self.looked = Instant::now();
        let settings = &self.engine.settings;
        let timeout = Duration::from_secs(settings.repl_timeout_s.get().unsigned_abs());
        let limit = settings.client_output_buffer_limit.get(ClientClass::Replica);
        let end = self.engine.replication.stream.end();
        self.end_where(|peer| peer.is_over(timeout, limit.hard_bytes, end));
        let period = Duration::from_secs(settings.repl_ping_replica_period_s.get().unsigned_abs());
        if self.pinged.elapsed() >= period && !self.peers.is_empty() {
            self.pinged = Instant::now();
            self.engine.replication.stream.ping();
        }
        for peer in &mut self.peers {
            peer.sign_of_life(SIGN_OF_LIFE);
        }
        if self.peers.iter().any(Peer::awaits_snapshot) {
            self.provide_snapshot();
        }
        self.end_stream_if_due();
        self.count_good();
        self.mind_failover();
    }

    /// Ends the stream if no replica has been there for as long as is said.
    fn end_stream_if_due(&mut self) {
        if !self.peers.is_empty() {
            self.alone_since = Instant::now();
        }
        let replication = &self.engine.replication;
        let ttl = Duration::from_secs(self.engine.settings.repl_backlog_ttl_s.get().unsigned_abs());
        let is_awaited = self.engine.durability.is_awaited(Safety::Replicas);
        let is_due = !ttl.is_zero() && self.alone_since.elapsed() >= ttl && !is_awaited;
        if is_due && replication.stream.is_own() && !self.engine.snapshots.is_wanted_for(Purpose::Replicas) {
            let _alone = self.engine.keyspace.gate().close();
            replication.end_stream(&self.engine.journal);
        }
    }

    /// Has the replica take this server's place that has everything, if that was asked for.
    fn mind_failover(&mut self) {
        let replication = &self.engine.replication;
        let Some(failover) = replication.failover().filter(|failover| failover.stage == FailoverStage::AwaitsReplica)
        else {
            return;
        };
        let is_due = failover.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_us() / 1000);
        let is_meant =
            |peer: &&Peer| failover.target.as_ref().is_none_or(|target| peer.is_at(&target.host, target.port));
        let is_ready =
            |peer: &&Peer| is_meant(peer) && peer.is_online() && peer.acknowledged() == replication.stream.end();
        if !self.peers.iter().any(|peer| is_ready(&peer)) && !is_due {
            // A question would be in the stream behind what its answer tells of. Replicas tell by themselves, once a second.
            return;
        }
        let alone = self.engine.keyspace.gate().close();
        while replication.stream.take() {}
        // None has written since, or the failover waits on.
        let forced = |peer: &&Peer| is_due && failover.is_forced && is_meant(peer);
        let target = self.peers.iter().find(|peer| is_ready(peer) || forced(peer)).map(Peer::place);
        match target {
            Some((host, port)) => {
                log::notice(format!("The failover begins: {host}:{port} is to take this server's place"));
                replication.note_failover_follows();
                let stale = self.engine.settings.replica_serve_stale_data.get();
                replication.follow(&self.engine.journal, Some(ReplicationPrimary { host, port }), stale);
                self.engine.follow_durability();
            }
            None if is_due => {
                log::warning("The failover is given up: no replica has had all data in time.");
                self.engine.abort_failover();
            }
            None => {}
        }
        drop(alone);
    }

    fn count_good(&self) {
        let settings = &self.engine.settings;
        let wanted = settings.min_replicas_to_write.get().unsigned_abs();
        let lag_s = settings.min_replicas_max_lag_s.get().unsigned_abs();
        let good = self.peers.iter().filter(|peer| peer.is_good(Duration::from_secs(lag_s))).count() as u64;
        self.engine.replication.replicas.note_good(good, if lag_s == 0 { 0 } else { wanted });
    }

    /// Tells the engine how far the replicas are, and has clients look that wait for that.
    fn note_figures(&mut self) {
        let stream = &self.engine.replication.stream;
        let least = self.peers.iter().map(Peer::acknowledged).min().unwrap_or_else(|| stream.end());
        let figures: Vec<ReplicaFigures> = self.peers.iter().map(|peer| peer.figures(stream, least)).collect();
        if figures == self.noted {
            return;
        }
        let reached = |all: &[ReplicaFigures]| -> Vec<_> {
            all.iter().map(|figures| (figures.position, figures.synced_position, figures.stage)).collect()
        };
        let has_moved = reached(&figures) != reached(&self.noted);
        self.noted.clone_from(&figures);
        let replicas = &self.engine.replication.replicas;
        replicas.note(figures);
        self.note_safe();
        if has_moved && replicas.are_awaited() {
            self.engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
        }
    }

    /// Has replies be sent that wait for as many replicas as have what they tell of.
    fn note_safe(&self) {
        let durability = &self.engine.durability;
        let wanted = usize::try_from(self.engine.settings.durability_replicas.get()).unwrap_or(usize::MAX);
        if wanted == 0 || !durability.is_awaited(Safety::Replicas) {
            return;
        }
        let online = self.noted.iter().filter(|replica| replica.stage == ReplicaStage::Online);
        let mut positions: Vec<Position> = online.map(|replica| replica.position).collect();
        positions.sort_unstable_by_key(|&position| Reverse(position));
        if let Some(&position) = positions.get(wanted - 1) {
            durability.note_safe(Safety::Replicas, position, |thread| self.engine.inboxes[thread].wake());
        }
    }

    /// Ends links.
    fn end_where(&mut self, is_over: impl Fn(&Peer) -> Option<Ended>) {
        let engine = self.engine;
        let poller = &self.poller;
        self.peers.retain(|peer| {
            let Some(why) = is_over(peer) else { return true };
            log::notice(format!("The link to the replica {} ends: {why}", peer.name()));
            poller.remove(peer.fd());
            engine.clients.remove(peer.client.id);
            false
        });
    }
}

/// The line that a stream begins with.
fn continue_line(history: HistoryId, follows_names: bool) -> Vec<u8> {
    if follows_names { format!("+CONTINUE {history}\r\n").into_bytes() } else { b"+CONTINUE\r\n".to_vec() }
}
