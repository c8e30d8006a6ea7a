//! DEBUG subcommands that disturb the bus of a cluster: lost messages, closed links, missing PINGs.
//!
//! The bus answers them. A server outside of a cluster accepts the switches, which have no effect there, as Valkey does.

use cluster::Debug;
use cluster::commands::ClusterCommand;
use commands::error::{Error, Outcome};
use resp::num;

use crate::families::cluster::ask_bus;
use crate::worker::turn::Turn;

/// Reads a switch. As in Redis, an invalid number counts as 0.
fn is_on(turn: &Turn<'_, '_>) -> bool {
    num::parse_i64(turn.arg(2)).unwrap_or(0) != 0
}

fn ask(turn: &mut Turn<'_, '_>, debug: Debug) -> Outcome {
    if turn.engine().slots.are_on() {
        return ask_bus(turn, ClusterCommand::Debug(debug));
    }
    turn.reply.ok();
    Ok(())
}

/// `CLOSE-CLUSTER-LINK-ON-PACKET-DROP on`.
pub(super) fn close_on_drop(turn: &mut Turn<'_, '_>) -> Outcome {
    let on = is_on(turn);
    ask(turn, Debug::CloseOnDrop(on))
}

/// `DISABLE-CLUSTER-RANDOM-PING on`.
pub(super) fn no_random_ping(turn: &mut Turn<'_, '_>) -> Outcome {
    let on = is_on(turn);
    ask(turn, Debug::NoRandomPing(on))
}

/// `DISABLE-CLUSTER-RECONNECTION on`.
pub(super) fn no_reconnection(turn: &mut Turn<'_, '_>) -> Outcome {
    let on = is_on(turn);
    ask(turn, Debug::NoReconnection(on))
}

/// `DROP-CLUSTER-PACKET-FILTER kind`.
pub(super) fn drop_kind(turn: &mut Turn<'_, '_>) -> Outcome {
    let kind = turn.int(2)?;
    ask(turn, Debug::DropKind(kind))
}

/// `CLUSTERLINK KILL direction node`.
pub(super) fn kill_link(turn: &mut Turn<'_, '_>) -> Outcome {
    if !turn.engine().slots.are_on() {
        return Err(Error::fixed("ERR Debug option only available for cluster mode enabled setup!"));
    }
    let text = |at: usize| String::from_utf8_lossy(turn.arg(at)).into_owned();
    let (direction, node) = (text(3), text(4));
    ask(turn, Debug::KillLink { direction, node })
}
