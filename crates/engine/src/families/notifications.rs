//! Keyspace notifications: what happens to keys, published on channels (notify-keyspace-events).

use commands::effects::Class;

use crate::session::Session;
use crate::worker::Worker;

/// Publishes an event, if somebody wants its class.
pub(crate) fn notify(
    worker: &mut Worker,
    _session: Option<&mut Session>,
    _database: usize,
    _class: Class,
    _event: &'static str,
    _key: &[u8],
) {
    if worker.engine.notify_classes.load(std::sync::atomic::Ordering::Relaxed) == 0 {}
}
