//! One link to a primary, from its opening to its end.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::config::DisklessLoad;
use engine::engine::Engine;
use engine::inbox::Message;
use engine::replay::{DataBeside, Replay, runs_by_itself};
use engine::replication::failover::HandOver;
use engine::replication::{Applied, LinkState, Primary};
use engine::snapshots::Purpose;
use engine::snapshots::reading::{ExpiredKeys, LoadOptions, Loaded};
use engine::worker::Worker;
use replication::answers::acknowledgement;
use replication::handshake::{Beginning, Handshake, HandshakeStep, Introduction, Refused};
use replication::id::{HistoryId, HistoryPoint};
use replication::stream::{ArrivedStream, Splitter, StreamTask, Unusable};
use replication::transfer::{End, Transfer};

use super::Trouble;
use crate::append_only::AppendOnly;
use crate::event_loop::now_us;
use crate::peer_socket::PeerSocket;
use crate::{log, process};

/// How long the thread waits for bytes before it looks whether the link is still wanted, and whether something is to be said.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the primary is told how far this server is.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);
/// Bytes that are read at once, and had applied: fewer than a worker takes a millisecond for.
const PART_BYTES: usize = 64 << 10;
/// Longest line of a handshake.
const LINE_BYTES_MAX: usize = 4 << 10;
/// How long the log's room is waited for before what a worker didn't take is given to it again.
const ROOM_WAIT: Duration = Duration::from_millis(1);
/// The worker that applies the stream.
const APPLIES: usize = 0;

/// See the module's documentation.
pub(super) struct Link<'f> {
    engine: &'static Engine,
    append_only: &'f Arc<AppendOnly>,
    /// Which change of the primary it belongs to, and the number of its stream: that of the snapshots before it.
    version: u64,
    stream_number: u64,
    was_up: bool,
    hand_over: HandOver,
    /// Bytes of the history that have arrived.
    read: u64,
    acknowledged: Instant,
    /// What the primary was told of the disk.
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

    /// Whether the stream has begun.
    pub(super) fn was_up(&self) -> bool {
        self.was_up
    }

    /// How many snapshots have been loaded by now.
    pub(super) fn stream_number(&self) -> u64 {
        self.stream_number
    }

    /// Follows the primary until the link ends, which it does with an error.
    pub(super) fn follow(&mut self, primary: &Primary) -> Result<(), Trouble> {
        self.note(|link| link.state = LinkState::Connecting)?;
        let timeout = self.timeout();
        let settings = &self.engine.settings;
        let encryption = settings.tls_replication.get().then_some(settings);
        let mut socket = Patient {
            socket: PeerSocket::open((&primary.host, primary.port), encryption, timeout, LOOK_EVERY)?,
            link: Wanted::of(self),
            heard: Instant::now(),
            ended: None,
        };
        self.note(|link| link.state = LinkState::Handshake)?;
        let (beginning, rest) = self.introduce(&mut socket)?;
        if self.hand_over == HandOver::Verifies && matches!(beginning, Beginning::Snapshot { .. }) {
            return Err(Trouble::NotTaken);
        }
        // It is the primary from here on, even if it lacks something, as after a failover that was forced: to give the failover up now would
        // leave two.
        self.engine.end_failover(self.version);
        let rest = match beginning {
            Beginning::Snapshot { history, offset } => self.load(&mut socket, rest, history, offset)?,
            Beginning::GoesOn { history } => {
                self.go_on(history);
                rest
            }
        };
        self.was_up = true;
        self.note(|link| (link.state, link.snapshot_bytes) = (LinkState::Up, None))?;
        self.acknowledge(&mut socket)?;
        self.stream(&mut socket, rest)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.engine.settings.repl_timeout_s.get().unsigned_abs())
    }

    /// Notes what is new of the link. It ends if it isn't wanted any more.
    fn note(&self, note: impl FnOnce(&mut engine::replication::LinkFigures)) -> Result<(), Trouble> {
        let stale = self.engine.settings.replica_serve_stale_data.get();
        let heard = |link: &mut engine::replication::LinkFigures| {
            link.heard_s = now_us() / 1_000_000;
            note(link);
        };
        if self.engine.replication.note_link(self.version, stale, heard) { Ok(()) } else { Err(Trouble::Changed) }
    }

    /// What this server says of itself.
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
            version: engine::machine::version::REDIS_VERSION.to_owned(),
            known: self.engine.replication.known_part(),
            hands_over: self.hand_over == HandOver::Asks,
        }
    }

    /// Goes through the handshake. Returns how the stream begins, and what was read behind that.
    fn introduce(&mut self, socket: &mut Patient) -> Result<(Beginning, Vec<u8>), Trouble> {
        let (mut handshake, first) = Handshake::begin(self.introduction());
        socket.write_all(&first)?;
        let mut read = Vec::new();
        loop {
            let line = socket.line(&mut read)?;
            let step = handshake.line(&line).map_err(|refused| match refused {
                Refused { is_primary: true, .. } => Trouble::IsPrimary,
                Refused { is_for_now: true, text, .. } => Trouble::NotNow(text),
                Refused { text, .. } => Trouble::Refused(text),
            })?;
            match step {
                HandshakeStep::Send(bytes) => socket.write_all(&bytes)?,
                HandshakeStep::Wait => {}
                HandshakeStep::Begin(beginning) => return Ok((beginning, read)),
            }
        }
    }

    /// The primary goes on where this server is.
    fn go_on(&mut self, renamed: Option<HistoryId>) {
        self.engine.replication.go_on(renamed);
        self.read = self.applied();
        log::notice(format!("The primary goes on at offset {} of its history", self.read + 1));
        // The link's end tells if it isn't wanted any more.
        let _ = self.note(|link| link.partial += 1);
    }

    /// Has the primary's snapshot take the place of all data. Returns what was read behind it.
    fn load(
        &mut self,
        socket: &mut Patient,
        mut read: Vec<u8>,
        history: HistoryId,
        offset: u64,
    ) -> Result<Vec<u8>, Trouble> {
        self.note(|link| (link.state, link.snapshot_read) = (LinkState::Receiving, 0))?;
        let end = loop {
            // The primary says that it lives by empty lines until its snapshot begins.
            let line = socket.line(&mut read)?;
            if !line.is_empty() {
                let bad = || Trouble::Refused(format!("no snapshot comes, but \"{}\"", line.escape_ascii()));
                break End::parse(&line).ok_or_else(bad)?;
            }
        };
        self.note(|link| link.snapshot_bytes = end.bytes())?;
        let mut transfer = Transfer::new(socket, end, &read);
        let point =
            |loaded: &Loaded| HistoryPoint { id: history, offset, database: loaded.stream_database.unwrap_or(0) };
        let (engine, now_s) = (self.engine, now_us() / 1_000_000);
        let is_beside = engine.settings.repl_diskless_load.get() == DisklessLoad::Swapdb;
        if is_beside {
            engine.begin_loading_beside(now_s);
        } else {
            engine.begin_loading(now_s);
        }
        engine.snapshots.loading.expect(end.bytes().unwrap_or_default());
        if is_beside {
            self.load_beside(&mut transfer, point)?;
        } else {
            self.load_in_place(&mut transfer, point)?;
        }
        Ok(transfer.into_rest())
    }

    /// Empties the keyspace and puts in what a snapshot has. Clients' commands are refused until then.
    fn load_in_place(
        &mut self,
        transfer: &mut Transfer<&mut Patient>,
        point: impl Fn(&Loaded) -> HistoryPoint,
    ) -> Result<(), Trouble> {
        let loaded = self.give_data_up().and_then(|()| {
            let loaded = self.load_from(transfer);
            self.begin_data(loaded.as_ref().ok().map(point));
            loaded
        });
        self.engine.end_loading();
        loaded.map(|_| ())
    }

    /// Reads a snapshot while clients are served what there is, which it then takes the place of. If it can't be read, nothing has changed, and
    /// the history goes on.
    fn load_beside(
        &mut self,
        transfer: &mut Transfer<&mut Patient>,
        point: impl Fn(&Loaded) -> HistoryPoint,
    ) -> Result<(), Trouble> {
        let engine = self.engine;
        let mut worker = self.loader();
        let read = self.read_beside(&mut worker, transfer);
        engine.end_loading_beside();
        let (data, loaded) = read?;
        engine.begin_reloading(now_us() / 1000);
        let exchanged = self.give_data_up().and_then(|()| {
            let exchanged = Replay::begin(&mut worker, now_us()).exchange(data);
            if exchanged.is_err() {
                let _ = Replay::begin(&mut worker, now_us()).empty();
            }
            self.begin_data(exchanged.is_ok().then(|| point(&loaded)));
            exchanged.map_err(Trouble::Refused)
        });
        engine.end_reloading();
        exchanged
    }

    fn read_beside(
        &self,
        worker: &mut Worker,
        transfer: &mut Transfer<&mut Patient>,
    ) -> Result<(DataBeside, Loaded), Trouble> {
        let began = Instant::now();
        let options = self.options(transfer.snapshot_bytes());
        let read = Replay::begin(worker, now_us()).read_beside(&mut *transfer, options, self.progress());
        let read = read.map_err(unloadable)?;
        transfer.skip_to_end()?;
        tell_loaded(&read.1, began);
        Ok(read)
    }

    /// From here on the data are no history's, and no file's. Not if another primary is to be followed meanwhile, or none: whatever runs when
    /// commands are refused, or wait, has ended here, REPLICAOF too.
    fn give_data_up(&self) -> Result<(), Trouble> {
        let engine = self.engine;
        drop(engine.keyspace.gate().close());
        self.note(|_| {})?;
        engine.replication.lose_history();
        self.append_only.turn_off();
        self.append_only.wait_until_off();
        Ok(())
    }

    /// Notes where the stream begins, if there are data of the primary's now.
    fn begin_data(&mut self, point: Option<HistoryPoint>) {
        let engine = self.engine;
        if let Some(point) = point {
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

    /// A worker without clients. It has a number beyond those of the threads that serve some.
    fn loader(&self) -> Worker {
        Worker::new(self.engine.inboxes.len(), self.engine, process::random_seed())
    }

    /// How a snapshot of this length is loaded, which may not be known.
    fn options(&self, bytes: Option<u64>) -> LoadOptions {
        let checks = self.engine.settings.rdbchecksum.get();
        LoadOptions { expired: ExpiredKeys::Kept, checks, replaces: false, bytes }
    }

    /// Notes how many bytes of a snapshot have been read.
    fn progress(&self) -> impl FnMut(u64) {
        let mut said = Instant::now();
        move |read| {
            self.engine.snapshots.loading.note(read);
            if said.elapsed() >= LOOK_EVERY {
                said = Instant::now();
                // A link that isn't wanted any more ends with the next byte that is read.
                let _ = self.note(|link| link.snapshot_read = read);
            }
        }
    }

    /// Empties the keyspace and puts in what a snapshot has. If that fails, the keyspace is empty.
    fn load_from(&self, transfer: &mut Transfer<&mut Patient>) -> Result<Loaded, Trouble> {
        let began = Instant::now();
        let mut worker = self.loader();
        Replay::begin(&mut worker, now_us()).empty().map_err(Trouble::Refused)?;
        let options = self.options(transfer.snapshot_bytes());
        let loaded = Replay::begin(&mut worker, now_us()).snapshot(&mut *transfer, options, self.progress());
        let loaded = loaded.map_err(unloadable).and_then(|loaded| {
            // A reader ends with the snapshot's last byte, which may not be the transfer's.
            transfer.skip_to_end()?;
            Ok(loaded)
        });
        match &loaded {
            Ok(loaded) => tell_loaded(loaded, began),
            // Half of the primary's data is of no use.
            Err(_) => _ = Replay::begin(&mut worker, now_us()).empty(),
        }
        loaded
    }

    /// Has the stream applied as it arrives.
    fn stream(&mut self, socket: &mut Patient, first: Vec<u8>) -> Result<(), Trouble> {
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

    fn perform(&mut self, task: StreamTask, socket: &mut Patient) -> Result<(), Trouble> {
        match task {
            StreamTask::Apply { commands, cuts } => self.apply(&commands, &cuts),
            StreamTask::Answer { question } => {
                // A part of the history, too. Counted before the answer, so that this tells of all that the primary has.
                self.engine.replication.pass_question(self.version, &question, self.engine.journal.position());
                self.acknowledge(socket)
            }
        }
    }

    /// Has a worker apply whole commands, and waits for it.
    fn apply(&mut self, commands: &[u8], cuts: &[usize]) -> Result<(), Trouble> {
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
            at += applied.taken;
            if at < commands.len() {
                std::thread::sleep(ROOM_WAIT);
            }
        }
        Ok(())
    }

    /// Waits for what a worker has done with a part. It may be in the midst of a long command, or of a script.
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

    fn note_failures(&self, applied: &Applied) -> Result<(), Trouble> {
        let Some(failure) = &applied.failure else { return Ok(()) };
        log::warning(format!(
            "== CRITICAL == {} commands of the primary's could not be applied, so that its data differ from this server's: {failure}",
            applied.failures
        ));
        self.note(|link| link.failed += applied.failures)
    }

    /// Tells the primary how far this server is.
    fn acknowledge(&mut self, socket: &mut Patient) -> Result<(), Trouble> {
        self.acknowledged = Instant::now();
        self.told_synced = self.engine.synced_offset();
        Ok(socket.tell(&acknowledgement(self.applied(), self.told_synced))?)
    }
}

fn unloadable(why: String) -> Trouble {
    Trouble::Refused(format!("the primary's snapshot can't be loaded: {why}"))
}

fn tell_loaded(loaded: &Loaded, began: Instant) {
    log::notice(format!(
        "The primary's data are loaded: {:.3} seconds, {} keys, {} bytes",
        began.elapsed().as_secs_f64(),
        loaded.keys,
        loaded.bytes
    ));
}

fn unusable(why: Unusable) -> Trouble {
    Trouble::Refused(match why {
        Unusable::Protocol(error) => format!("no commands come: {}", String::from_utf8_lossy(&error.text())),
        Unusable::Database => "it uses more databases than this server has: raise `databases` and start anew".into(),
    })
}

/// Whether a link is still wanted.
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

/// The socket: reading waits no longer than `repl-timeout`, and no longer than the link is wanted.
struct Patient {
    socket: PeerSocket,
    link: Wanted,
    heard: Instant,
    /// Why nothing can be written any more. What had arrived before the connection ended is read yet.
    ended: Option<io::Error>,
}

impl Patient {
    /// Writes what the primary is told. If the connection has ended, reading tells, behind all that had arrived: a replica that gave that up would
    /// have less than others, and might be the one that replaces the primary.
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

    /// Reads what there is. Nothing after a moment without any.
    fn read_or_look(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let over = |text: &str| Err(io::Error::new(io::ErrorKind::TimedOut, text));
        match self.socket.read(room) {
            Ok(0) => Err(self
                .ended
                .take()
                .unwrap_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the primary closed the connection"))),
            Ok(len) => {
                self.heard = Instant::now();
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

    /// The next line, without its end. `read` has what was read so far and not taken.
    fn line(&mut self, read: &mut Vec<u8>) -> Result<Vec<u8>, Trouble> {
        loop {
            if let Some(end) = read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = read.drain(..=end).collect();
                return Ok(line.trim_ascii_end().to_vec());
            }
            if read.len() > LINE_BYTES_MAX {
                return Err(Trouble::Refused("a line is longer than any that a primary sends".into()));
            }
            let mut room = [0; LINE_BYTES_MAX];
            let len = self.read_or_look(&mut room)?;
            read.extend_from_slice(room.get(..len).unwrap_or_default());
        }
    }
}

/// Whether an error of writing says that the connection has ended, so that nothing more arrives.
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
