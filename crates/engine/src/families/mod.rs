//! The commands on sessions and the server, a file per family, and what the way of a command needs of them.

pub mod client;
mod client_kill;
mod client_line;
pub mod command;
pub mod config;
pub mod connection;
pub mod debug;
pub mod functions;
mod help;
pub mod info;
pub mod latency;
pub mod memory;
pub mod monitor;
pub mod notifications;
pub mod pipeline;
pub mod pubsub;
pub mod scripting;
pub mod server;
pub mod slowlog;
pub mod transactions;

use commands::Spec;
use commands::spec::fact;
use resp::request::Args;

use crate::command_table::{Command, Run};
use crate::pipelines;
use crate::session::Session;
use crate::worker::Worker;

pub(crate) use client_kill::close as close_client;
pub(crate) use client_line::line as client_line;
pub(crate) use monitor::{feed as feed_monitors, send as send_to_monitors};
pub(crate) use notifications::{notify, notify_seen};
pub(crate) use transactions::{is_exec, unwatch, watched_keys_changed};

/// Every command of this room, by family. A new family is a line here.
pub const ALL: &[&[Spec<Run>]] = &[
    command::COMMANDS,
    client::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    functions::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    monitor::COMMANDS,
    pipeline::COMMANDS,
    pubsub::COMMANDS,
    scripting::COMMANDS,
    server::COMMANDS,
    slowlog::COMMANDS,
    transactions::COMMANDS,
];

/// Records a command that took long in the slow log and for the latency monitor, each if it is long enough for that.
#[cold]
pub(crate) fn note_slow(worker: &Worker, session: &Session, command: &Command, args: Args<'_>, ticks: u64) {
    if ticks >= worker.engine.slow_ticks() {
        slowlog::note(worker, session, command, args, ticks);
    }
    latency::note(worker, latency::event_of(command), ticks);
}

/// Takes a session that ends out of what its commands have entered it into.
pub(crate) fn leave(worker: &mut Worker, session: &mut Session) {
    unwatch(worker, session);
    pubsub::leave_all(worker, session);
    monitor::leave(worker, session);
    pipelines::leave(worker, session);
}

/// Whether a connection that speaks RESP2 and has subscribed to something may give this command.
pub(crate) fn is_allowed_for_subscribers(command: &Command) -> bool {
    command.info.is(fact::FOR_SUBSCRIBERS)
}
