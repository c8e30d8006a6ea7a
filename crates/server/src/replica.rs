//! The link to this server's primary (REPLICAOF), in a thread of its own.
//!
//! The thread opens the link and introduces the server. It loads the primary's snapshot beside the threads that serve clients, like a start
//! does. Then it reads the primary's stream and has the first worker apply it in parts. The stream is one more client: its commands are
//! prefetched, recorded and announced to listeners like a client's. The applied offset is acknowledged once a second.

mod link;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use config::Settings;
use engine::replication::failover::{HandOver, HandOvers};
use engine::replication::{LinkState, Primary};
use engine::state::Engine;

use self::link::Link;
use crate::append_only::AppendOnly;
use crate::conf_file::system_text;
use crate::log;
use crate::peer_socket::CannotOpen;
use crate::threads;
use crate::time::now_us;

/// Time between the end of the link to a primary that hands over and the promotion, at most, in milliseconds.
const TAKEOVER_MS: u64 = 1000;
/// First delay between a failed link and the next try. Each failure in a row doubles it.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest delay: a primary that returns is followed again soon.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// The delay after a primary's reply that it can't serve now.
const NOT_NOW: Duration = Duration::from_secs(1);
/// Interval between checks for the server's end while there is no primary.
const IDLE: Duration = Duration::from_secs(60);

/// The reason why a link has ended.
#[derive(Debug)]
enum LinkError {
    /// The primary has changed, or this server is one.
    Changed,
    /// A network or system error.
    Io(io::Error),
    /// The primary can't serve now. The next try is soon.
    NotNow(String),
    /// The primary's data can't be used. The next try is later.
    Refused(String),
    /// The server chosen for the failover is a primary already, or follows none for another reason.
    IsPrimary,
    /// The server chosen for the failover doesn't continue from this server's offset.
    NotTaken,
}

impl From<CannotOpen> for LinkError {
    fn from(why: CannotOpen) -> LinkError {
        match why {
            CannotOpen::Io(error) => LinkError::Io(error),
            CannotOpen::Unusable(why) => LinkError::Refused(why),
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> LinkError {
        LinkError::Io(error)
    }
}

/// The thread's state.
struct Follower {
    engine: &'static Engine,
    append_only: Arc<AppendOnly>,
    /// Number of loaded snapshots. A worker keeps the state of the stream behind one, its selected database, and a link that continues
    /// needs it.
    streams: u64,
}

/// The configured primary.
pub fn configured_primary(settings: &Settings) -> Option<Primary> {
    let words = settings.replicaof.get();
    let (host, port) = words.split_once(' ')?;
    Some(Primary { host: host.to_owned(), port: port.parse().ok()? })
}

/// Starts the thread that follows the primary, whenever there is one.
///
/// # Errors
/// If no other thread can be started.
pub fn start(engine: &'static Engine, append_only: Arc<AppendOnly>) -> Result<(), String> {
    let run = move || Follower { engine, append_only, streams: 0 }.run();
    let thread = threads::spawn(&threads::REPLICA, run);
    thread.map_err(threads::cannot_start)?;
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
                Err(LinkError::Refused(why)) => replication.note_link_error(version, Some(why.clone())),
                Err(LinkError::Io(_)) if !was_up => {}
                _ => replication.note_link_error(version, None),
            }
            match &ended {
                Err(LinkError::IsPrimary) => hand_overs.note_follows_none(),
                Err(LinkError::Refused(_) | LinkError::NotTaken) if hand_over != HandOver::None => {
                    self.abort_failover()
                }
                _ => {}
            }
            wait = match &ended {
                Ok(()) | Err(LinkError::Changed | LinkError::IsPrimary) => RETRY_MIN,
                Err(LinkError::NotNow(_)) => NOT_NOW,
                Err(LinkError::Io(_)) if was_up => RETRY_MIN,
                Err(LinkError::Io(_) | LinkError::Refused(_) | LinkError::NotTaken) => (wait * 2).min(RETRY_MAX),
            };
            if let Err(error) = ended {
                tell(&primary, &error, wait);
            }
            replication.wait_for_change(version, wait);
        }
    }

    /// Resumes as the primary after the replica has refused to take this server's place.
    fn abort_failover(&self) {
        let _alone = self.engine.keyspace.gate().close();
        if self.engine.abort_failover(now_us() / 1000) {
            log::warning("The failover is given up: this server goes on as a primary.");
        }
    }

    fn note_end(&self, version: u64) {
        self.engine.maintenance.shorten_hold(now_us() / 1000 + TAKEOVER_MS);
        let stale = self.engine.settings.replica_serve_stale_data.get();
        self.engine.replication.note_link(version, stale, |link| {
            if link.state == LinkState::Up || link.down_since_s == 0 {
                link.down_since_s = now_us() / 1_000_000;
            }
            (link.state, link.snapshot_bytes) = (LinkState::Down, None);
        });
    }
}

/// Logs the reason for the end of a link.
fn tell(primary: &Primary, error: &LinkError, wait: Duration) {
    let Primary { host, port } = primary;
    let why = match error {
        LinkError::Changed => return,
        LinkError::Io(error) => system_text(error),
        LinkError::NotNow(text) | LinkError::Refused(text) => text.clone(),
        LinkError::IsPrimary => "it follows none already".into(),
        LinkError::NotTaken => "it doesn't go on where this server is".into(),
    };
    log::warning(format!(
        "The link to the primary {host}:{port} is down: {why}. Another try follows in {:.1} s.",
        wait.as_secs_f64()
    ));
}
