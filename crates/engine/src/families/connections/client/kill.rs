//! CLIENT KILL: closes connections.

use commands::error::{Error, Outcome};

use super::filter::{ClientFilter, Of};
use crate::services::closing::close_client;
use crate::worker::turn::Turn;

pub(super) fn kill(turn: &mut Turn<'_, '_>) -> Outcome {
    // The old form may close the calling connection.
    let is_old = turn.len() == 3;
    let filter = if is_old { ClientFilter::from_address(turn.arg(2)) } else { ClientFilter::parse(turn, Of::Kill)? };
    let skip_me = filter.skip_me.unwrap_or(!is_old);
    let (engine, now_ms, me) = (turn.engine(), turn.now_ms(), turn.session.client.id);
    let mut killed = 0;
    for client in engine.clients.all() {
        if !filter.passes(&client, now_ms) || (client.id == me && skip_me) {
            continue;
        }
        killed += 1;
        if client.id == me {
            turn.session.closing = true;
        } else {
            close_client(engine, &client);
        }
    }
    match killed {
        _ if !is_old => turn.reply.int(killed),
        0 => return Err(Error::new("ERR No such client")),
        _ => turn.reply.ok(),
    }
    Ok(())
}
