//! The link to the primary that this server follows (REPLICAOF): a thread of its own.
//!
//! The thread opens the link, introduces the server, and loads the primary's snapshot beside the threads that serve clients, as a start
//! does. Then it reads the primary's stream and has the first worker apply it, a part at a time, so that the stream is one more client:
//! its commands are prefetched, recorded and told to listeners as a client's are. What was applied is acknowledged once a second.

mod link;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::config::Settings;
use engine::engine::Engine;
use engine::replication::failover::{HandOver, HandOvers};
use engine::replication::{LinkState, Primary};

use self::link::Link;
use crate::append_only::AppendOnly;
use crate::conf_file::system_text;
use crate::event_loop::now_us;
use crate::log;
use crate::peer_socket::CannotOpen;

/// How long the thread waits after a link has failed until it tries another one, at first; each failure in a row doubles it.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest such wait: a primary that comes back is followed again soon.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// The wait where the primary says that it can't now.
const NOT_NOW: Duration = Duration::from_secs(1);
/// How often the thread looks whether the server ends while there is nothing to follow.
const IDLE: Duration = Duration::from_secs(60);

/// Why a link has ended.
#[derive(Debug)]
enum Trouble {
    /// Another primary is to be followed, or none.
    Changed,
    /// The network's, or the system's.
    Io(io::Error),
    /// The primary says that it can't now; another try is made soon.
    NotNow(String),
    /// What the primary says or sends can't be used: another try is made later.
    Refused(String),
    /// The server that was asked to take this one's place has done so already, or follows none for another reason.
    IsPrimary,
    /// The server that was asked to take this one's place doesn't go on where this one is.
    NotTaken,
}

impl From<CannotOpen> for Trouble {
    fn from(why: CannotOpen) -> Trouble {
        match why {
            CannotOpen::Io(error) => Trouble::Io(error),
            CannotOpen::Unusable(why) => Trouble::Refused(why),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}

/// What the thread has.
struct Follower {
    engine: &'static Engine,
    append_only: Arc<AppendOnly>,
    /// Counts snapshots that were loaded. A worker keeps the state of the stream behind one, the database that it has selected, and
    /// a link that goes on needs it.
    streams: u64,
}

/// The primary that the configuration names.
pub fn configured_primary(settings: &Settings) -> Option<Primary> {
    let words = settings.replicaof.get();
    let (host, port) = words.split_once(' ')?;
    Some(Primary { host: host.to_owned(), port: port.parse().ok()? })
}

/// Starts the thread that follows a primary whenever there is one to be followed.
///
/// # Errors
/// If there can't be another thread.
pub fn start(engine: &'static Engine, append_only: Arc<AppendOnly>) -> Result<(), String> {
    let run = move || Follower { engine, append_only, streams: 0 }.run();
    let thread = std::thread::Builder::new().name("replica".into()).spawn(run);
    thread.map_err(|error| format!("can't start a thread: {error}"))?;
    Ok(())
}

impl Follower {
    fn run(mut self) {
        let replication = &self.engine.replication;
        let mut wait = RETRY_MIN;
        let mut hand_overs = HandOvers::default();
        loop {
            let (primary, version) = replication.primary();
            let Some(primary) = primary else {
                replication.wait_for_change(version, IDLE);
                continue;
            };
            let hand_over = hand_overs.next(replication);
            let mut link = Link::new(self.engine, &self.append_only, version, self.streams, hand_over);
            let ended = link.follow(&primary);
            let was_up = link.was_up();
            self.streams = link.stream_number();
            self.note_end(version);
            match &ended {
                Err(Trouble::Refused(why)) => replication.note_link_error(version, Some(why.clone())),
                Err(Trouble::Io(_)) if !was_up => {}
                _ => replication.note_link_error(version, None),
            }
            match &ended {
                Err(Trouble::IsPrimary) => hand_overs.note_follows_none(),
                Err(Trouble::Refused(_) | Trouble::NotTaken) if hand_over != HandOver::None => self.abort_failover(),
                _ => {}
            }
            wait = match &ended {
                Ok(()) | Err(Trouble::Changed | Trouble::IsPrimary) => RETRY_MIN,
                Err(Trouble::NotNow(_)) => NOT_NOW,
                Err(Trouble::Io(_)) if was_up => RETRY_MIN,
                Err(Trouble::Io(_) | Trouble::Refused(_) | Trouble::NotTaken) => (wait * 2).min(RETRY_MAX),
            };
            if let Err(trouble) = ended {
                tell(&primary, &trouble, wait);
            }
            replication.wait_for_change(version, wait);
        }
    }

    /// The replica has refused to take this server's place, which goes on as the primary that it was.
    fn abort_failover(&self) {
        let _alone = self.engine.keyspace.gate().close();
        if self.engine.abort_failover() {
            log::warning("The failover is given up: this server goes on as a primary.");
        }
    }

    fn note_end(&self, version: u64) {
        let stale = self.engine.settings.replica_serve_stale_data.get();
        self.engine.replication.note_link(version, stale, |link| {
            if link.state == LinkState::Up || link.down_since_s == 0 {
                link.down_since_s = now_us() / 1_000_000;
            }
            (link.state, link.snapshot_bytes) = (LinkState::Down, None);
        });
    }
}

/// Says in the log why a link has ended.
fn tell(primary: &Primary, trouble: &Trouble, wait: Duration) {
    let Primary { host, port } = primary;
    let why = match trouble {
        Trouble::Changed => return,
        Trouble::Io(error) => system_text(error),
        Trouble::NotNow(text) | Trouble::Refused(text) => text.clone(),
        Trouble::IsPrimary => "it follows none already".into(),
        Trouble::NotTaken => "it doesn't go on where this server is".into(),
    };
    log::warning(format!(
        "The link to the primary {host}:{port} is down: {why}. Another try follows in {:.1} s.",
        wait.as_secs_f64()
    ));
}
