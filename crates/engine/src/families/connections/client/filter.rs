//! The filters of CLIENT LIST and CLIENT KILL.
//!
//! Source of the options: Valkey 9's pages of CLIENT LIST and CLIENT KILL, which include all of Redis's, and the
//! replies of running servers. If the error texts of the two differ, Redis's are used.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::error::{Error, Outcome};
use resp::num;

use crate::clients::client::{Client, Clients, client_flag};
use crate::clients::line::{ClientKind, flags};
use crate::worker::turn::Turn;

/// The letters of connections' flags in CLIENT LIST, here or in another server.
const LETTERS: &[u8] = b"ABEIMNOPRSTUbcdeirtux";
/// The letters of clients' capabilities.
const CAPABILITIES: &[u8] = b"r";

/// Required or excluded properties of a connection, as far as given.
#[derive(Default)]
struct Traits<'t> {
    ids: Vec<u64>,
    /// True if ids are given; if all of them are invalid, no connection matches.
    has_ids: bool,
    kind: Option<ClientKind>,
    user: Option<&'t [u8]>,
    addr: Option<&'t [u8]>,
    laddr: Option<&'t [u8]>,
    ip: Option<&'t [u8]>,
    flags: Option<&'t [u8]>,
    name: Option<&'t [u8]>,
    lib_name: Option<&'t [u8]>,
    lib_ver: Option<&'t [u8]>,
    database: Option<usize>,
    capabilities: Option<&'t [u8]>,
}

impl Traits<'_> {
    /// Returns the result of each given condition for a connection.
    fn held_by(&self, client: &Client) -> impl Iterator<Item = bool> {
        let is = |wanted: Option<&[u8]>, text: &str| wanted.map(|wanted| wanted == text.as_bytes());
        let has = |wanted: Option<&[u8]>, text: &str| {
            wanted.map(|wanted| wanted.iter().all(|letter| text.as_bytes().contains(letter)))
        };
        let names = client.names().clone();
        let user = client.user_name();
        let capabilities = if client.has(client_flag::CAN_REDIRECT) { "r" } else { "" };
        let held = [
            self.has_ids.then(|| self.ids.contains(&client.id)),
            self.kind.map(|kind| kind == ClientKind::of(client)),
            is(self.user, &user),
            is(self.addr, &client.addr),
            is(self.laddr, &client.laddr),
            is(self.ip, ip(&client.addr)),
            has(self.flags, &flags(client)),
            is(self.name, &names.name),
            is(self.lib_name, &names.lib_name),
            is(self.lib_ver, &names.lib_ver),
            self.database.map(|database| client.db.load(Relaxed) as usize == database),
            has(self.capabilities, capabilities),
        ];
        held.into_iter().flatten()
    }
}

/// Returns the part of an address before the port: `127.0.0.1`, `::1`.
fn ip(addr: &str) -> &str {
    let ip = addr.rsplit_once(':').map_or(addr, |(ip, _)| ip);
    ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip)
}

/// A filter; connections must match all given conditions.
#[derive(Default)]
pub(super) struct ClientFilter<'t> {
    is: Traits<'t>,
    is_not: Traits<'t>,
    /// Minimum age of the connection in seconds.
    max_age_s: Option<u64>,
    /// Minimum idle time in seconds.
    idle_s: Option<u64>,
    /// SKIPME, if it is given: excludes the calling connection.
    pub(super) skip_me: Option<bool>,
}

/// The command that the options belong to; it decides the wording of some errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    List,
    Kill,
}

impl<'t> ClientFilter<'t> {
    /// Returns a filter for this address.
    pub(super) fn from_address(addr: &'t [u8]) -> ClientFilter<'t> {
        ClientFilter { is: Traits { addr: Some(addr), ..Traits::default() }, ..ClientFilter::default() }
    }

    /// Parses the options, from the third argument on.
    pub(super) fn parse(turn: &Turn<'t, '_>, of: Of) -> Result<ClientFilter<'t>, Error> {
        let mut filter = ClientFilter::default();
        let mut at = 2;
        while at < turn.len() {
            if at + 1 >= turn.len() {
                return Err(Error::SYNTAX);
            }
            at = filter.parse_option(turn, at, of)?;
        }
        Ok(filter)
    }

    /// Parses the option at an index, and returns the next index.
    fn parse_option(&mut self, turn: &Turn<'t, '_>, at: usize, of: Of) -> Result<usize, Error> {
        let option = turn.arg(at).to_ascii_lowercase();
        let value = turn.arg(at + 1);
        match &*option {
            b"maxage" => self.max_age_s = Some(seconds("maxage", value)?),
            b"idle" => self.idle_s = Some(seconds("idle", value)?),
            b"skipme" if turn.is(at + 1, "yes") => self.skip_me = Some(true),
            b"skipme" if turn.is(at + 1, "no") => self.skip_me = Some(false),
            _ => {
                let (name, traits, is_not) = match option.strip_prefix(b"not-") {
                    Some(name) => (name, &mut self.is_not, true),
                    None => (&*option, &mut self.is, false),
                };
                if name == b"id" {
                    return parse_ids(traits, turn, at + 1, of);
                }
                parse_trait(traits, turn, name, value, is_not)?;
            }
        }
        Ok(at + 2)
    }

    /// Returns the connections that may match: in the order of the given ids, or all of them, the oldest first.
    pub(super) fn candidates(&self, clients: &Clients) -> Vec<Arc<Client>> {
        if self.is.has_ids { self.is.ids.iter().filter_map(|&id| clients.get(id)).collect() } else { clients.all() }
    }

    pub(super) fn passes(&self, client: &Client, now_ms: u64) -> bool {
        let seconds_since = |ms: u64| now_ms.saturating_sub(ms) / 1000;
        let idle_s = seconds_since(client.active_ms.load(Relaxed));
        self.is.held_by(client).all(|held| held)
            && !self.is_not.held_by(client).any(|held| held)
            && self.max_age_s.is_none_or(|least| seconds_since(client.created_ms) >= least)
            && self.idle_s.is_none_or(|least| idle_s >= least)
    }
}

fn seconds(option: &str, value: &[u8]) -> Result<u64, Error> {
    let seconds =
        num::parse_i64(value).ok_or_else(|| Error::new(format!("ERR {option} is not an integer or out of range")))?;
    let positive = u64::try_from(seconds).ok().filter(|&seconds| seconds > 0);
    positive.ok_or_else(|| Error::new(format!("ERR {option} should be greater than 0")))
}

/// Parses ids as long as there are any, and returns the next index.
fn parse_ids(traits: &mut Traits<'_>, turn: &Turn<'_, '_>, from: usize, of: Of) -> Result<usize, Error> {
    let not_positive = || Error::fixed("ERR client-id should be greater than 0");
    traits.has_ids = true;
    let mut at = from;
    while at < turn.len()
        && let Some(id) = num::parse_i64(turn.arg(at))
    {
        match u64::try_from(id).ok().filter(|&id| id > 0) {
            Some(id) => traits.ids.push(id),
            // No connection has this id.
            None if of == Of::List => {}
            None => return Err(not_positive()),
        }
        at += 1;
    }
    match of {
        _ if at > from => Ok(at),
        Of::List => Err(Error::fixed("ERR Invalid client ID")),
        Of::Kill => Err(not_positive()),
    }
}

fn parse_trait<'t>(
    traits: &mut Traits<'t>,
    turn: &Turn<'t, '_>,
    name: &[u8],
    value: &'t [u8],
    is_not: bool,
) -> Outcome {
    let letters = |what: &str, known: &[u8], filter: &str| {
        let unknown = || Error::naming(&format!("ERR Unknown {what} found in the {filter} filter: "), value, "");
        if value.iter().all(|letter| known.contains(letter)) { Ok(Some(value)) } else { Err(unknown()) }
    };
    match name {
        b"type" => {
            let unknown = || Error::naming("ERR Unknown client type '", value, "'");
            traits.kind = Some(ClientKind::named(value).ok_or_else(unknown)?);
        }
        b"user" if turn.engine().users.get(value).is_none() => {
            return Err(Error::naming("ERR No such user '", value, "'"));
        }
        b"user" => traits.user = Some(value),
        b"addr" => traits.addr = Some(value),
        b"laddr" => traits.laddr = Some(value),
        b"ip" => traits.ip = Some(value),
        b"flags" => traits.flags = letters("flags", LETTERS, if is_not { "NOT-FLAGS" } else { "provided" })?,
        b"capa" => traits.capabilities = letters("capa", CAPABILITIES, if is_not { "NOT-CAPA" } else { "provided" })?,
        b"name" => traits.name = Some(value),
        b"lib-name" => traits.lib_name = Some(value),
        b"lib-ver" => traits.lib_ver = Some(value),
        b"db" => traits.database = Some(database(turn, value)?),
        _ => return Err(Error::SYNTAX),
    }
    Ok(())
}

fn database(turn: &Turn<'_, '_>, value: &[u8]) -> Result<usize, Error> {
    let count = turn.engine().keyspace.databases();
    let number = num::parse_i64(value).ok_or(Error::fixed("ERR DB is not an integer or out of range"))?;
    let database = usize::try_from(number).ok().filter(|&database| database < count);
    database.ok_or_else(|| Error::new(format!("ERR DB number should be between 0 and {}", count - 1)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use crate::testing::Bench;

    /// Returns the ids in a list.
    fn ids(list: &str) -> Vec<String> {
        list.split("id=").skip(1).filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }

    #[test]
    fn each_option_chooses_connections_and_its_negation_the_others() {
        let mut bench = Bench::default();
        let (mut one, mut two, mut three) = (bench.open(), bench.open(), bench.open());
        for line in ["client setname a", "client setinfo lib-name lib", "client setinfo lib-ver 1.2", "select 3"] {
            bench.line(&mut one, line);
        }
        bench.check(&mut one, &[("client capa bogus redirect", "+OK")]);
        bench.line(&mut two, "subscribe c");
        bench.now_us += 5_000_000;
        three.client.active_ms.store(bench.now_us / 1000, Ordering::Relaxed);
        for (option, chosen) in [
            ("id 1 3", "1 3"),
            ("id 1 0 -4 99", "1"),
            ("id 99", ""),
            ("type pubsub", "2"),
            ("type primary", ""),
            ("user default", "1 2 3"),
            ("addr 127.0.0.1:1", "1 2 3"),
            ("laddr x", ""),
            ("ip 127.0.0.1", "1 2 3"),
            ("ip ::1", ""),
            ("flags P", "2"),
            ("flags N", "1 3"),
            ("flags NP", ""),
            ("name a", "1"),
            ("lib-name lib", "1"),
            ("lib-ver 1.2", "1"),
            ("db 3", "1"),
            ("db 0", "2 3"),
            ("capa r", "1"),
        ] {
            let list = bench.line(&mut three, &format!("client list {option}"));
            assert_eq!(ids(&list).join(" "), chosen, "{option}");
            let others: Vec<&str> = ["1", "2", "3"].into_iter().filter(|id| !chosen.contains(id)).collect();
            let list = bench.line(&mut three, &format!("client list not-{option}"));
            assert_eq!(ids(&list), others, "not-{option}");
        }
        for (options, chosen) in [
            ("idle 3", "1 2"),
            ("idle 6", ""),
            ("maxage 5", "1 2 3"),
            ("maxage 6", ""),
            ("skipme yes", "1 2"),
            ("skipme no", "1 2 3"),
            ("id 1 2 type normal", "1"),
            ("not-id 1 not-flags P", "3"),
        ] {
            let list = bench.line(&mut three, &format!("client list {options}"));
            assert_eq!(ids(&list).join(" "), chosen, "{options}");
        }
        bench.check(
            &mut three,
            &[
                ("client kill not-id 1 not-type normal", ":1"),
                ("client kill name b", ":0"),
                ("client kill capa r ip 127.0.0.1", ":1"),
            ],
        );
        assert_eq!(ids(&bench.line(&mut three, "client list")), ["3"]);
    }

    #[test]
    fn errors_name_the_option() {
        crate::testing::check(&[
            ("client list id", "-ERR syntax error"),
            ("client list id abc", "-ERR Invalid client ID"),
            ("client list id 1 abc", "-ERR syntax error"),
            ("client kill id 0", "-ERR client-id should be greater than 0"),
            ("client kill id 1 0", "-ERR client-id should be greater than 0"),
            ("client list maxage abc", "-ERR maxage is not an integer or out of range"),
            ("client list maxage 0", "-ERR maxage should be greater than 0"),
            ("client kill idle -1", "-ERR idle should be greater than 0"),
            ("client list flags Z", "-ERR Unknown flags found in the provided filter: Z"),
            ("client list not-flags Z", "-ERR Unknown flags found in the NOT-FLAGS filter: Z"),
            ("client list capa x", "-ERR Unknown capa found in the provided filter: x"),
            ("client list db 16", "-ERR DB number should be between 0 and 15"),
            ("client list db x", "-ERR DB is not an integer or out of range"),
            ("client list user nosuch", "-ERR No such user 'nosuch'"),
            ("client list not-maxage 1", "-ERR syntax error"),
            ("client list skipme maybe", "-ERR syntax error"),
            ("client list type", "-ERR syntax error"),
            ("client list bogus x", "-ERR syntax error"),
            ("client capa", "-ERR wrong number of arguments for 'client|capa' command"),
            ("client import-source on", "-ERR Server is not in import mode"),
            ("client import-source off", "+OK"),
            ("client import-source maybe", "-ERR Server is not in import mode"),
        ]);
    }
}
