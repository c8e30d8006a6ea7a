//! CLIENT KILL: which connections, and how they end.

use commands::error::{Error, Outcome};
use resp::num;

use crate::clients::client::Client;
use crate::clients::line::{ClientKind, DEFAULT_USER};
use crate::services::closing::close_client;
use crate::worker::turn::Turn;

/// Which connections to close: those that pass everything that is given.
#[derive(Default)]
struct Filter<'t> {
    id: Option<u64>,
    kind: Option<ClientKind>,
    user: Option<&'t [u8]>,
    addr: Option<&'t [u8]>,
    laddr: Option<&'t [u8]>,
    /// Closed only if connected for at least so many seconds.
    max_age_s: Option<u64>,
    /// Whether the one that asks is spared.
    skip_me: bool,
}

impl Filter<'_> {
    fn passes(&self, client: &Client, now_ms: u64) -> bool {
        let is = |wanted: Option<&[u8]>, text: &str| wanted.is_none_or(|wanted| wanted == text.as_bytes());
        let age_s = now_ms.saturating_sub(client.created_ms) / 1000;
        let user = client.user().clone();
        is(self.addr, &client.addr)
            && is(self.laddr, &client.laddr)
            && is(self.user, user.as_deref().unwrap_or(DEFAULT_USER))
            && self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind == ClientKind::of(client))
            && self.max_age_s.is_none_or(|max| age_s >= max)
    }
}

fn parse<'t>(turn: &Turn<'t, '_>) -> Result<Filter<'t>, Error> {
    let mut filter = Filter { skip_me: true, ..Filter::default() };
    if turn.len() == 3 {
        // The old form may close the one that asks.
        return Ok(Filter { addr: Some(turn.arg(2)), skip_me: false, ..filter });
    }
    for at in (2..turn.len()).step_by(2) {
        if at + 1 >= turn.len() {
            return Err(Error::SYNTAX);
        }
        parse_option(turn, at, &mut filter)?;
    }
    Ok(filter)
}

fn parse_option<'t>(turn: &Turn<'t, '_>, at: usize, filter: &mut Filter<'t>) -> Outcome {
    let value = turn.arg(at + 1);
    let shown = || String::from_utf8_lossy(value).into_owned();
    let positive = || num::parse_i64(value).and_then(|v| u64::try_from(v).ok()).filter(|&v| v > 0);
    match turn.arg(at).to_ascii_lowercase().as_slice() {
        b"id" => filter.id = Some(positive().ok_or_else(|| Error::new("ERR client-id should be greater than 0"))?),
        b"maxage" => {
            num::parse_i64(value).ok_or_else(|| Error::new("ERR maxage is not an integer or out of range"))?;
            filter.max_age_s = Some(positive().ok_or_else(|| Error::new("ERR maxage should be greater than 0"))?);
        }
        b"type" => {
            let unknown = || Error::new(format!("ERR Unknown client type '{}'", shown()));
            filter.kind = Some(ClientKind::named(value).ok_or_else(unknown)?);
        }
        b"user" if value != DEFAULT_USER.as_bytes() => {
            return Err(Error::new(format!("ERR No such user '{}'", shown())));
        }
        b"user" => filter.user = Some(value),
        b"addr" => filter.addr = Some(value),
        b"laddr" => filter.laddr = Some(value),
        b"skipme" if turn.is(at + 1, "yes") => filter.skip_me = true,
        b"skipme" if turn.is(at + 1, "no") => filter.skip_me = false,
        _ => return Err(Error::SYNTAX),
    }
    Ok(())
}

pub(super) fn kill(turn: &mut Turn<'_, '_>) -> Outcome {
    let filter = parse(turn)?;
    let (engine, now_ms, me) = (turn.engine(), turn.now_ms(), turn.session.client.id);
    let mut killed = 0;
    for client in engine.clients.all() {
        if !filter.passes(&client, now_ms) || (client.id == me && filter.skip_me) {
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
        _ if turn.len() > 3 => turn.reply.int(killed),
        0 => return Err(Error::new("ERR No such client")),
        _ => turn.reply.ok(),
    }
    Ok(())
}
