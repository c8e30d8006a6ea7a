//! The threads that drive moves of whole slots between nodes: one for each import, one for all exports, and one for the end of imports that
//! this node only followed.
//!
//! The machines are `engine::slot_moves`. A thread gives them its connection and the clocks, and waits for the conditions that they return.

use std::sync::Arc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use engine::slot_moves::{
    CleanUp, Export, FollowedEnds, Import, LOST_SOURCE, MoveClock, MoveWait, RedisNodes, RedisSource,
};
use engine::slots::jobs::{JobState, SlotJob};
use engine::state::Engine;

mod node_socket;
mod redis;
mod source;
mod target;

use self::redis::RedisSockets;
use self::source::SourceSocket;
use self::target::TargetSocket;
use crate::connection::Socket;
use crate::log;
use crate::threads;
use crate::time::now_us;

/// The longest wait for the result of another thread, before the machine checks that its job goes on.
const BLOCK_MAX: Duration = Duration::from_millis(100);

/// The clocks of the machines.
struct Clock;

/// The moment from which the machines count.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl MoveClock for Clock {
    fn now(&self) -> Duration {
        BEGAN.elapsed()
    }

    fn unix_us(&self) -> u64 {
        now_us()
    }
}

/// Starts the thread of exports.
///
/// # Errors
/// The reason why it can't start.
pub fn start_exports(engine: &'static Engine) -> Result<(), String> {
    let run = move || {
        while let Some(job) = engine.slots.jobs.next_export() {
            let mut link = TargetSocket::new(engine);
            let mut export = Export::begin(engine, job, &link);
            loop {
                match export.step(&mut link) {
                    MoveWait::Over => break,
                    MoveWait::Thread => export.block(BLOCK_MAX),
                    wait => link.wait(wait),
                }
            }
        }
    };
    threads::spawn(&threads::SLOT_EXPORT, run).map(drop).map_err(threads::cannot_start)
}

/// Starts the thread of an import.
pub fn start_import(engine: &'static Engine, socket: Socket, job: Arc<SlotJob>) {
    let run = {
        let job = job.clone();
        move || {
            let mut link = SourceSocket::new(socket);
            let mut import = Import::begin(engine, job, &link);
            loop {
                match import.step(&mut link) {
                    MoveWait::Over => break,
                    MoveWait::Thread => import.block(BLOCK_MAX),
                    wait => link.wait(wait),
                }
            }
        }
    };
    if let Err(error) = threads::spawn(&threads::SLOT_IMPORT, run) {
        log::warning(format!("No slots can be imported: {}", threads::cannot_start(error)));
        engine.slots.jobs.end(&job, JobState::Failed, "Failed to start a thread", now_us() / 1_000_000);
        engine.keyspace.stage(job.slots.iter().map(engine::slots::Slot::index), false);
    }
}

/// Starts the thread of an import from a Redis node.
///
/// # Errors
/// The reason why it can't start.
pub fn start_import_from_redis(engine: &'static Engine, job: Arc<SlotJob>) -> Result<(), String> {
    let nodes = job.nodes.as_ref().zip(engine.slots.view()).and_then(|(nodes, view)| {
        let source = view.nodes.iter().find(|node| node.id.as_str() == nodes.source)?;
        Some(RedisNodes { source: source.clone(), me: nodes.target.clone() })
    });
    let nodes = nodes.ok_or("the source is not known any more")?;
    let run = move || {
        let mut link = RedisSource::begin(engine, job.clone(), nodes, RedisSockets::new(engine));
        let mut import = Import::begin(engine, job, &link);
        loop {
            let wait = import.step(&mut link);
            if wait == MoveWait::Over {
                break;
            }
            link.pump();
            match wait {
                MoveWait::Thread => import.block(BLOCK_MAX),
                wait => link.link().wait(wait),
            }
        }
    };
    threads::spawn(&threads::SLOT_IMPORT, run).map(drop).map_err(threads::cannot_start)
}

/// Ends an import that has no connection. It has no keys yet.
pub fn give_up_import(engine: &'static Engine, job: Arc<SlotJob>) {
    job.ask_for_failure(LOST_SOURCE);
    let run = {
        let job = job.clone();
        move || {
            let mut clean_up = CleanUp::begin(engine, job, LOST_SOURCE, &Clock);
            while !go_on(clean_up.step(&Clock), |longest| clean_up.block(longest)) {}
        }
    };
    // Not on the calling worker, which deletes the keys.
    if threads::spawn(&threads::SLOT_IMPORT, run).is_err() {
        engine.slots.jobs.end(&job, JobState::Failed, LOST_SOURCE, now_us() / 1_000_000);
    }
}

/// Waits for the condition of a machine without a connection. Returns true if the machine has ended.
fn go_on(wait: MoveWait, block: impl FnOnce(Duration)) -> bool {
    match wait {
        MoveWait::Over => return true,
        MoveWait::Nothing => {}
        MoveWait::Thread => block(BLOCK_MAX),
        MoveWait::Bytes(time) | MoveWait::Room(time) | MoveWait::Time(time) => std::thread::sleep(time),
    }
    false
}

/// Ends the imports that this node only followed, as a replica or in its append-only file, now that it is a primary.
pub fn end_followed(engine: &'static Engine, message: &str) {
    let Some(mut ends) = FollowedEnds::begin(engine, message) else { return };
    while !go_on(ends.step(&Clock), |longest| ends.block(longest)) {}
}

/// Like [`end_followed`], without a wait for the workers.
pub fn end_followed_later(engine: &'static Engine, message: &'static str) {
    if engine.slots.jobs.under_way().iter().any(|job| job.nodes.is_none()) {
        let started = threads::spawn(&threads::SLOT_IMPORT, move || end_followed(engine, message));
        if let Err(error) = started {
            log::warning(format!("Staged keys are left: {}", threads::cannot_start(error)));
        }
    }
}

/// Ends the imports that this replica followed: other data replace the present ones.
pub fn forget_followed(engine: &Engine) {
    engine::slot_moves::forget_followed(engine, now_us() / 1_000_000);
}
