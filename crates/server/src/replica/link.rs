//! One link to a primary, from its opening to its end.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster::commands::ClusterCommand;
use config::{DisklessLoad, PropagationErrors};
use engine::clients::client::{Client, client_flag};
use engine::inbox::Message;
use engine::replay::{DataBeside, Replay, runs_by_itself};
use engine::replication::failover::HandOver;
use engine::replication::{Applied, LinkState, Primary};
use engine::slots::bus::{Answer, BusRequest};
use engine::snapshots::Purpose;
use engine::snapshots::reading::{ExpiredKeys, LoadOptions, Loaded};
use engine::state::Engine;
use engine::worker::Worker;
use replication::answers::acknowledgement;
use replication::handshake::{Beginning, Handshake, HandshakeStep, Introduction, Refused};
use replication::id::{HistoryId, HistoryPoint};
use replication::stream::{ArrivedStream, Splitter, StreamTask, Unusable};
use replication::transfer::{End, Transfer};

use super::LinkError;
use crate::append_only::AppendOnly;
use crate::peer_socket::PeerSocket;
use crate::time::now_us;
use crate::{log, process, slot_moves};

/// Wait for bytes before the thread checks that the link is still wanted, and sends due messages.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval of acknowledgements to the primary.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);
/// Bytes read and applied at once: a worker takes less than a millisecond for them.
const PART_BYTES: usize = 64 << 10;
/// Bytes of a snapshot written to a file or read from it at once.
const STORED_BYTES: usize = 256 << 10;
/// Longest line of a handshake.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Wait for room in the log before a worker gets the rest of a part again.
const ROOM_WAIT: Duration = Duration::from_millis(1);
/// The worker that applies the stream.
const APPLIES: usize = 0;

/// A link to the primary, and its progress.
pub(super) struct Link<'f> {
    engine: &'static Engine,
    append_only: &'f Arc<AppendOnly>,
    /// The version of the replication setting that it belongs to, and the number of its stream, counted by snapshots.
    version: u64,
    stream_number: u64,
    was_up: bool,
    hand_over: HandOver,
    /// Bytes of the history that have arrived.
    read: u64,
    acknowledged: Instant,
    /// The durable offset last sent to the primary.
    told_synced: Option<u64>,
}

impl<'f> Link<'f> {
    pub(super) fn new(
        engine: &'static Engine,
        append_only: &'f Arc<AppendOnly>,
        version: u64,
        stream_number: u64,
        hand_over: HandOver,
    ) -> Link<'f> {
        Link {
            engine,
            append_only,
            version,
            stream_number,
            was_up: false,
            hand_over,
            read: 0,
            acknowledged: Instant::now(),
            told_synced: None,
        }
    }

    /// Returns true if the stream has begun.
    pub(super) fn was_up(&self) -> bool {
        self.was_up
    }

    /// The number of snapshots loaded so far.
    pub(super) fn stream_number(&self) -> u64 {
        self.stream_number
    }

    /// Follows the primary until the link ends, always with an error.
    pub(super) fn follow(&mut self, primary: &Primary) -> Result<(), LinkError> {
        self.note(|link| link.state = LinkState::Connecting)?;
        let timeout = self.timeout();
        let settings = &self.engine.settings;
        let encryption = settings.tls_replication.get().then_some(settings);
        let address = (primary.host.as_str(), primary.port);
        let mut socket = Patient {
            socket: PeerSocket::open(address, &settings.bind_source_addr.get(), encryption, timeout, LOOK_EVERY)?,
            link: Wanted::of(self),
            heard: Instant::now(),
            ended: None,
            listed: None,
        };
        self.note(|link| link.state = LinkState::Handshake)?;
        let (beginning, rest) = self.introduce(&mut socket)?;
        if self.hand_over == HandOver::Verifies && matches!(beginning, Beginning::Snapshot { .. }) {
            return Err(LinkError::NotTaken);
        }
        // The other server is the primary from here on, even with data missing after a forced failover. A failover aborted now would leave
        // two primaries.
        self.engine.end_failover(self.version);
        let rest = match beginning {
            Beginning::Snapshot { history, offset } => self.load(&mut socket, rest, history, offset)?,
            Beginning::GoesOn { history } => {
                self.go_on(history);
                rest
            }
        };
        self.was_up = true;
        self.note(|link| {
            (link.state, link.snapshot_bytes) = (LinkState::Up, None);
            link.ups += 1;
        })?;
        socket.listed = Some(ListedLink::new(self.engine, &socket.socket));
        self.acknowledge(&mut socket)?;
        self.stream(&mut socket, rest)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.engine.settings.repl_timeout_s.get().unsigned_abs())
    }

    /// Updates the link's figures. Fails if the link isn't wanted any more.
    fn note(&self, note: impl FnOnce(&mut engine::replication::LinkFigures)) -> Result<(), LinkError> {
        let stale = self.engine.settings.replica_serve_stale_data.get();
        let heard = |link: &mut engine::replication::LinkFigures| {
            link.heard_s = now_us() / 1_000_000;
            note(link);
        };
        if self.engine.replication.note_link(self.version, stale, heard) { Ok(()) } else { Err(LinkError::Changed) }
    }

    /// Returns this server's description of itself.
    fn introduction(&self) -> Introduction {
        let settings = &self.engine.settings;
        let text = |text: Arc<str>| (!text.is_empty()).then(|| text.as_bytes().to_vec());
        let announced = settings.replica_announce_port.get();
        let own = if settings.tls_replication.get() { settings.tls_port.get() } else { settings.port.get() };
        let port = if announced == 0 { own } else { announced };
        let address = settings.replica_announce_ip.get();
        Introduction {
            user: text(settings.masteruser.get()),
            password: text(settings.masterauth.get()),
            port: u16::try_from(port).unwrap_or_default(),
            address: (!address.is_empty()).then(|| address.to_string()),
            version: engine::machine::version::VALKEY_VERSION.to_owned(),
            node: self.engine.slots.view().and_then(|view| view.node(view.me).map(|me| me.id.to_string())),
            known: self.engine.continues_from(),
            hands_over: self.hand_over == HandOver::Asks,
        }
    }

    /// Performs the handshake. Returns the beginning of the stream, and the bytes read after it.
    fn introduce(&mut self, socket: &mut Patient) -> Result<(Beginning, Vec<u8>), LinkError> {
        let (mut handshake, first) = Handshake::begin(self.introduction());
        socket.write_all(&first)?;
        let mut read = Vec::new();
        loop {
            let line = socket.line(&mut read)?;
            let step = handshake.line(&line).map_err(|refused| match refused {
                Refused { is_primary: true, .. } => LinkError::IsPrimary,
                Refused { is_for_now: true, text, .. } => LinkError::NotNow(text),
                Refused { text, .. } => LinkError::Refused(text),
            })?;
            match step {
                HandshakeStep::Send(bytes) => socket.write_all(&bytes)?,
                HandshakeStep::Wait => {}
                HandshakeStep::Begin(beginning) => return Ok((beginning, read)),
            }
        }
    }

    /// Continues the stream at this server's offset.
    fn go_on(&mut self, renamed: Option<HistoryId>) {
        self.engine.replication.go_on(renamed);
        self.read = self.applied();
        log::notice(format!("The primary goes on at offset {} of its history", self.read + 1));
        // The end of the link reports a link that isn't wanted any more.
        let _ = self.note(|link| link.partial += 1);
    }

    /// Replaces all data by the primary's snapshot. Returns the bytes read after it.
    fn load(
        &mut self,
        socket: &mut Patient,
        mut read: Vec<u8>,
        history: HistoryId,
        offset: u64,
    ) -> Result<Vec<u8>, LinkError> {
        if self.engine.replication.keeps_data() {
            return Err(kept());
        }
        self.note(|link| (link.state, link.snapshot_read) = (LinkState::Receiving, 0))?;
        let end = loop {
            // The primary sends empty lines as a sign of life until its snapshot begins.
            let line = socket.line(&mut read)?;
            if !line.is_empty() {
                let bad = || LinkError::Refused(format!("no snapshot comes, but \"{}\"", line.escape_ascii()));
                break End::parse(&line).ok_or_else(bad)?;
            }
        };
        self.note(|link| link.snapshot_bytes = end.bytes())?;
        let mut transfer = Transfer::new(socket, end, &read);
        let point =
            |loaded: &Loaded| HistoryPoint { id: history, offset, database: loaded.stream_database.unwrap_or(0) };
        match self.engine.settings.repl_diskless_load.get() {
            DisklessLoad::Swapdb => self.load_beside(&mut transfer, point)?,
            DisklessLoad::Disabled | DisklessLoad::OnEmptyDb if self.has_data() => {
                let (file, bytes) = self.store(&mut transfer)?;
                let held_bytes_max = self.engine.settings.loading_process_events_interval_bytes.get().unsigned_abs();
                let holds = bytes <= held_bytes_max;
                self.load_in_place(file, Some(bytes), holds, point)?;
            }
            DisklessLoad::Disabled | DisklessLoad::OnEmptyDb | DisklessLoad::FlushBeforeLoad => {
                self.load_in_place(&mut transfer, end.bytes(), false, point)?;
            }
        }
        Ok(transfer.into_rest())
    }

    /// Returns false if there has never been a key.
    fn has_data(&self) -> bool {
        let keyspace = &self.engine.keyspace;
        (0..keyspace.databases()).any(|database| keyspace.had_keys(database))
    }

    /// Stores a snapshot in a file without a name. Returns the file at its beginning, and its size. Meanwhile this server keeps its data, so that
    /// they survive the end of the primary.
    fn store(&self, transfer: &mut Transfer<&mut Patient>) -> Result<(BufReader<File>, u64), LinkError> {
        let path = self.engine.settings.in_dir(&format!("temp-primary-{}.rdb", std::process::id()));
        let open = || File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let mut file = open().map_err(|error| cannot_store(&error))?;
        fs::remove_file(&path).map_err(|error| cannot_store(&error))?;
        let (mut part, mut stored, mut said) = (vec![0; STORED_BYTES], 0, Instant::now());
        loop {
            let len = transfer.read(&mut part)?;
            if len == 0 {
                break;
            }
            file.write_all(part.get(..len).unwrap_or_default()).map_err(|error| cannot_store(&error))?;
            stored += len as u64;
            if said.elapsed() >= LOOK_EVERY {
                said = Instant::now();
                self.note(|link| link.snapshot_read = stored)?;
            }
        }
        file.rewind().map_err(|error| cannot_store(&error))?;
        Ok((BufReader::with_capacity(STORED_BYTES, file), stored))
    }

    /// Empties the keyspace and loads a snapshot of this size, if known, into it. Clients' commands wait meanwhile if the load `holds` them,
    /// and are refused otherwise.
    fn load_in_place(
        &mut self,
        from: impl Read,
        bytes: Option<u64>,
        holds: bool,
        point: impl Fn(&Loaded) -> HistoryPoint,
    ) -> Result<(), LinkError> {
        let (engine, now) = (self.engine, now_us());
        if holds {
            engine.begin_reloading(now / 1000);
        } else {
            engine.begin_loading(now / 1_000_000);
        }
        engine.snapshots.loading.expect(bytes.unwrap_or_default());
        let loaded = self.give_data_up().and_then(|()| {
            let loaded = self.unrecorded(|| self.load_from(from, bytes));
            self.begin_data(loaded.as_ref().ok().map(|loaded| (loaded, point(loaded))));
            loaded
        });
        if holds {
            engine.end_reloading();
        } else {
            engine.end_loading();
        }
        loaded.map(|_| ())
    }

    /// Loads a snapshot while clients are served the old data, and then replaces these. If it can't be read, nothing changes, and the
    /// history continues.
    fn load_beside(
        &mut self,
        transfer: &mut Transfer<&mut Patient>,
        point: impl Fn(&Loaded) -> HistoryPoint,
    ) -> Result<(), LinkError> {
        let engine = self.engine;
        engine.begin_loading_beside(now_us() / 1_000_000);
        engine.snapshots.loading.expect(transfer.snapshot_bytes().unwrap_or_default());
        let mut worker = self.loader();
        let read = self.read_beside(&mut worker, transfer);
        engine.end_loading_beside();
        let (data, loaded) = read?;
        engine.begin_reloading(now_us() / 1000);
        let exchanged = self.give_data_up().and_then(|()| {
            let exchanged = self.unrecorded(|| {
                let exchanged = Replay::begin(&mut worker, now_us()).exchange(data);
                if exchanged.is_err() {
                    let _ = Replay::begin(&mut worker, now_us()).empty();
                }
                exchanged
            });
            self.begin_data(exchanged.is_ok().then(|| (&loaded, point(&loaded))));
            exchanged.map_err(LinkError::Refused)
        });
        engine.end_reloading();
        exchanged
    }

    fn read_beside(
        &self,
        worker: &mut Worker,
        transfer: &mut Transfer<&mut Patient>,
    ) -> Result<(DataBeside, Loaded), LinkError> {
        let began = Instant::now();
        let options = self.options(transfer.snapshot_bytes());
        let read = Replay::begin(worker, now_us()).read_beside(&mut *transfer, options, self.progress());
        let read = read.map_err(unloadable)?;
        transfer.skip_to_end()?;
        tell_loaded(&read.1, began);
        Ok(read)
    }

    /// From here on the data belong to no history and no file. Fails if the primary has changed meanwhile: every command that runs while
    /// commands are refused or held has ended here, including REPLICAOF. Fails as well if this node may win an election.
    fn give_data_up(&self) -> Result<(), LinkError> {
        let engine = self.engine;
        drop(engine.keyspace.gate().close());
        self.note(|_| {})?;
        if !engine.replication.lose_history() {
            return Err(kept());
        }
        slot_moves::forget_followed(engine);
        self.append_only.turn_off();
        self.append_only.wait_until_off();
        Ok(())
    }

    /// Sets the beginning of the stream, if the primary's data are loaded now.
    fn begin_data(&mut self, data: Option<(&Loaded, HistoryPoint)>) {
        let engine = self.engine;
        if let Some((loaded, point)) = data {
            self.take_slot_states(loaded);
            self.read = point.offset;
            self.stream_number += 1;
            engine.replication.begin_history(self.version, point);
        }
        if engine.settings.appendonly.get() {
            match self.append_only.turn_on(engine) {
                Ok(()) => engine.snapshots.want(Purpose::Base),
                Err(why) => self.append_only.turn_on_later(engine, &why),
            }
        }
    }

    /// Replaces the data without recording it. A failover may make this server a primary meanwhile, with a stream of its own: its reader would
    /// wait for ever for the units of this worker, which has no lane, and no later write would reach a replica. No client's command runs.
    fn unrecorded<T>(&self, replace: impl FnOnce() -> T) -> T {
        self.engine.journal.suspend(true);
        let replaced = replace();
        self.engine.journal.suspend(false);
        replaced
    }

    /// Returns a worker without clients. Its number follows the numbers of the threads that serve clients.
    fn loader(&self) -> Worker {
        Worker::new(self.engine.inboxes.len(), self.engine, process::random_seed())
    }

    /// Returns the options for loading a snapshot of this length, if known.
    fn options(&self, bytes: Option<u64>) -> LoadOptions {
        let checks = self.engine.settings.rdbchecksum.get();
        LoadOptions { expired: ExpiredKeys::Kept, checks, replaces: false, bytes }
    }

    /// Notes the bytes of a snapshot that have been read.
    fn progress(&self) -> impl FnMut(u64) {
        let mut said = Instant::now();
        move |read| {
            self.engine.snapshots.loading.note(read);
            if said.elapsed() >= LOOK_EVERY {
                said = Instant::now();
                // A link that isn't wanted any more ends with the next read.
                let _ = self.note(|link| link.snapshot_read = read);
            }
        }
    }

    /// Takes over the open slots of a cluster's primary.
    fn take_slot_states(&self, loaded: &Loaded) {
        if !self.engine.slots.are_on() {
            return;
        }
        // A primary without open slots sends none, and slots that are open here have been closed.
        let states = loaded.slot_states.as_deref().unwrap_or_default();
        let command = ClusterCommand::TakeSlotStates(states.into());
        if let Err(why) = self.engine.host.cluster(BusRequest { command, answer: Answer::Nobody }) {
            log::warning(format!("The states of the primary's slots are lost: {why}"));
        }
    }

    /// Empties the keyspace and loads a snapshot into it. A failure leaves the keyspace empty.
    fn load_from(&self, mut from: impl Read, bytes: Option<u64>) -> Result<Loaded, LinkError> {
        let began = Instant::now();
        let mut worker = self.loader();
        Replay::begin(&mut worker, now_us()).empty().map_err(LinkError::Refused)?;
        let options = self.options(bytes);
        let loaded = Replay::begin(&mut worker, now_us()).snapshot(&mut from, options, self.progress());
        let loaded = loaded.map_err(unloadable).and_then(|loaded| {
            // The loader stops at the snapshot's last byte, which may precede the end of the transfer.
            io::copy(&mut from, &mut io::sink())?;
            Ok(loaded)
        });
        match &loaded {
            Ok(loaded) => tell_loaded(loaded, began),
            // A partial copy of the primary's data is useless.
            Err(_) => _ = Replay::begin(&mut worker, now_us()).empty(),
        }
        loaded
    }

    /// Applies the stream as it arrives.
    fn stream(&mut self, socket: &mut Patient, first: Vec<u8>) -> Result<(), LinkError> {
        let splitter = Splitter::new(self.engine.keyspace.databases(), runs_by_itself);
        let mut arrived = ArrivedStream::begin(splitter, first);
        let mut part = vec![0; PART_BYTES];
        self.read = self.applied() + arrived.waiting() as u64;
        loop {
            while let Some(task) = arrived.next_task().map_err(unusable)? {
                self.perform(task, socket)?;
            }
            let len = socket.read_or_look(&mut part)?;
            arrived.add(part.get(..len).unwrap_or_default());
            self.read += len as u64;
            if self.acknowledged.elapsed() >= ACKNOWLEDGE_EVERY || self.engine.synced_offset() != self.told_synced {
                self.acknowledge(socket)?;
            }
        }
    }

    fn perform(&mut self, task: StreamTask, socket: &mut Patient) -> Result<(), LinkError> {
        match task {
            StreamTask::Apply { commands, cuts } => self.apply(&commands, &cuts),
            StreamTask::Answer { question } => {
                // GETACK is part of the history. Its bytes are counted before the reply, so that the reply covers all bytes of the primary.
                self.engine.replication.pass_question(self.version, &question, self.engine.journal.position());
                self.acknowledge(socket)
            }
        }
    }

    /// Has a worker apply whole commands, and waits for it.
    fn apply(&mut self, commands: &[u8], cuts: &[usize]) -> Result<(), LinkError> {
        let mut at = 0;
        while at < commands.len() {
            let message = Message::Apply {
                stream: self.stream_number,
                version: self.version,
                commands: commands.get(at..).unwrap_or_default().to_vec(),
                cuts: cuts.iter().filter_map(|cut| cut.checked_sub(at)).collect(),
            };
            let Some(inbox) = self.engine.inboxes.get(APPLIES) else { return Ok(()) };
            inbox.send(message);
            let applied = self.await_applied();
            let read = self.read;
            self.note(|link| link.read = read)?;
            self.note_failures(&applied)?;
            if let Some(why) = applied.stopped {
                return Err(LinkError::Refused(format!("the primary's stream can't be applied: {why}")));
            }
            at += applied.taken;
            if at < commands.len() {
                std::thread::sleep(ROOM_WAIT);
            }
        }
        Ok(())
    }

    /// Waits for a worker's result for a part. The worker may be in a long command or script.
    fn await_applied(&self) -> Applied {
        loop {
            if let Some(applied) = self.engine.replication.applied(LOOK_EVERY) {
                return applied;
            }
        }
    }

    /// Bytes of the history that have been applied.
    fn applied(&self) -> u64 {
        self.engine.replication.link().applied
    }

    fn note_failures(&self, applied: &Applied) -> Result<(), LinkError> {
        let Some(failure) = &applied.failure else { return Ok(()) };
        log::warning(format!(
            "== CRITICAL == {} commands of the primary's could not be applied, so that its data differ from this server's: {failure}",
            applied.failures
        ));
        self.note(|link| link.failed += applied.failures)?;
        let settings = &self.engine.settings;
        let ignores = settings.propagation_error_behavior.get() == PropagationErrors::Ignore;
        if !ignores && settings.replica_read_only.get() {
            log::warning("The server ends, as propagation-error-behavior says.");
            std::process::exit(1);
        }
        Ok(())
    }

    /// Sends this server's offset to the primary.
    fn acknowledge(&mut self, socket: &mut Patient) -> Result<(), LinkError> {
        self.acknowledged = Instant::now();
        self.told_synced = self.engine.synced_offset();
        Ok(socket.tell(&acknowledgement(self.applied(), self.told_synced))?)
    }
}

fn cannot_store(error: &io::Error) -> LinkError {
    LinkError::Refused(format!(
        "the primary's snapshot can't be stored in the directory of `dir`: {error}. Make room there, or set repl-diskless-load to \
         flush-before-load"
    ))
}

/// The data may be those of the next primary.
fn kept() -> LinkError {
    LinkError::NotNow("this node has asked for votes, and keeps its data until the election is over".into())
}

fn unloadable(why: String) -> LinkError {
    LinkError::Refused(format!("the primary's snapshot can't be loaded: {why}"))
}

fn tell_loaded(loaded: &Loaded, began: Instant) {
    log::notice(format!(
        "The primary's data are loaded: {:.3} seconds, {} keys, {} bytes",
        began.elapsed().as_secs_f64(),
        loaded.keys,
        loaded.bytes
    ));
}

fn unusable(why: Unusable) -> LinkError {
    LinkError::Refused(match why {
        Unusable::Protocol(error) => format!("no commands come: {}", String::from_utf8_lossy(&error.text())),
        Unusable::Database => "it uses more databases than this server has: raise `databases` and start anew".into(),
    })
}

/// Checks that a link is still wanted.
struct Wanted {
    engine: &'static Engine,
    version: u64,
}

impl Wanted {
    fn of(link: &Link<'_>) -> Wanted {
        Wanted { engine: link.engine, version: link.version }
    }

    fn is_over(&self) -> bool {
        self.engine.replication.primary().1 != self.version
    }
}

/// The link's entry among the clients: CLIENT LIST shows it, and CLIENT KILL ends it.
struct ListedLink {
    engine: &'static Engine,
    client: Arc<Client>,
}

impl ListedLink {
    fn new(engine: &'static Engine, socket: &PeerSocket) -> ListedLink {
        let [address, own] = socket.addresses();
        let (id, number, now_ms) = (engine.clients.next_id(), socket.number(), now_us() / 1000);
        let client = Client::new(id, APPLIES, address, own, number, now_ms, client_flag::PRIMARY);
        // Redis's name for the user of a primary's commands.
        client.set_user(Some("(superuser)"));
        let client = Arc::new(client);
        engine.clients.add(client.clone());
        ListedLink { engine, client }
    }

    fn note_read(&self, bytes: usize) {
        self.client.active_ms.store(now_us() / 1000, Ordering::Relaxed);
        self.client.net_bytes[0].fetch_add(bytes as u64, Ordering::Relaxed);
        let database = u32::try_from(self.engine.replication.stream_database()).unwrap_or(u32::MAX);
        self.client.db.store(database, Ordering::Relaxed);
    }
}

impl Drop for ListedLink {
    fn drop(&mut self) {
        self.engine.clients.remove(self.client.id);
    }
}

/// The socket. A read waits no longer than `repl-timeout`, and only while the link is wanted.
struct Patient {
    socket: PeerSocket,
    link: Wanted,
    heard: Instant,
    /// The link's entry among the clients, once the stream has begun.
    listed: Option<ListedLink>,
    /// The reason why writes fail. Bytes that arrived before the end of the connection are still read.
    ended: Option<io::Error>,
}

impl Patient {
    /// Sends a message to the primary. If the connection has ended, the next reads report it, after all arrived bytes. A replica without
    /// these bytes would have less than others, and might be the one that replaces the primary.
    fn tell(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        match self.socket.write_all(bytes) {
            Err(error) if is_end(&error) => {
                self.ended = Some(error);
                Ok(())
            }
            told => told,
        }
    }

    /// Reads available bytes. Returns 0 after a short wait without any.
    fn read_or_look(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let over = |text: &str| Err(io::Error::new(io::ErrorKind::TimedOut, text));
        if self.listed.as_ref().is_some_and(|listed| listed.client.pending_signals.is_killed()) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "a client has killed it"));
        }
        match self.socket.read(room) {
            Ok(0) => Err(self
                .ended
                .take()
                .unwrap_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the primary closed the connection"))),
            Ok(len) => {
                self.heard = Instant::now();
                self.listed.iter().for_each(|listed| listed.note_read(len));
                Ok(len)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let timeout = Duration::from_secs(self.link.engine.settings.repl_timeout_s.get().unsigned_abs());
                match () {
                    () if self.link.is_over() => over("another primary is to be followed"),
                    () if self.heard.elapsed() >= timeout => over("nothing has come from the primary for repl-timeout"),
                    () => Ok(0),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Returns the next line, without its end. `read` holds the bytes read before and not taken.
    fn line(&mut self, read: &mut Vec<u8>) -> Result<Vec<u8>, LinkError> {
        loop {
            if let Some(end) = read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = read.drain(..=end).collect();
                return Ok(line.trim_ascii_end().to_vec());
            }
            if read.len() > LINE_BYTES_MAX {
                return Err(LinkError::Refused("a line is longer than any that a primary sends".into()));
            }
            let mut room = [0; LINE_BYTES_MAX];
            let len = self.read_or_look(&mut room)?;
            read.extend_from_slice(room.get(..len).unwrap_or_default());
        }
    }
}

/// Returns true if a write error means the end of the connection: nothing more arrives.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

impl Read for Patient {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.read_or_look(room)? {
                0 => {}
                len => return Ok(len),
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
