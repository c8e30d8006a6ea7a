//! MIGRATE: moves keys to another server. `execute::migration` has its end.
//!
//! Source of the semantics: Redis's page of MIGRATE, and the replies of a running server.

use cluster::Slot;
use cluster::view::{NodeView, Open};
use commands::error::{Error, Outcome};
use commands::spec::flag::{MOVABLEKEYS, NO_MULTI, NOSCRIPT, WRITE};
use commands::spec::key_flag::{ACCESS, DELETE, INCOMPLETE, RW};
use commands::spec::{Begin, Find, Group, KeySpec, Spec, acl, fact};
use resp::num::parse_i64;
use resp::request::Args;
use store::keyspace::Key;

use crate::clients::blocking::Awaited;
use crate::migrations::{CANNOT_CONNECT, Credentials, MigratingKey, Migration};
use crate::services::migrating::{self, dump};
use crate::state::Engine;
use crate::worker::turn::{Run, Turn};

/// Timeout of each step if the argument is 0 or less: Redis's figure.
const TIMEOUT_DEFAULT_MS: u64 = 1000;
/// Reply while too many bytes are in transit.
const TOO_MUCH: &str = "ERR Too many values are being migrated at this moment. Try again later";

const KEY_FLAGS: u32 = RW | ACCESS | DELETE;
const ALL_THAT_FOLLOW: Find = Find::Range { last: -1, step: 1, limit: 0 };

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] =
    &[Spec::new("migrate", -6, WRITE | NOSCRIPT | NO_MULTI | MOVABLEKEYS, Run::Session(migrate))
        .keys(&[
            KeySpec { begin: Begin::UnlessEmpty(3), ..KeySpec::at(3, KEY_FLAGS) },
            KeySpec {
                flags: KEY_FLAGS | INCOMPLETE,
                begin: Begin::Option("KEYS", -2, first_of_many),
                find: ALL_THAT_FOLLOW,
                notes: "",
            },
        ])
        .facts(fact::MIGRATES)
        .secret(is_secret)
        .categories(acl::DANGEROUS)
        .docs(
            Group::Generic,
            "2.6.0",
            "O(N) in the sizes of the values: DUMP and DEL here, RESTORE there",
            "Moves keys to another server.",
            "host port:integer <key | \"\":empty-string>:key-selector destination-db:integer timeout:integer \
             [COPY@3.0.0] [REPLACE@3.0.0] [AUTH@4.0.7 password | AUTH2@6.0.0 username password]:authentication \
             [KEYS@3.0.6 key [key ...]]",
        )
        .history(&[
            ("3.0.0", "`COPY` and `REPLACE`."),
            ("3.0.6", "`KEYS`."),
            ("4.0.7", "`AUTH`."),
            ("6.0.0", "`AUTH2`."),
        ])
        .tips(&["nondeterministic_output"])];

/// An option of MIGRATE.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MigrateOption {
    Copy,
    Replace,
    Auth,
    Auth2,
    Keys,
}

impl MigrateOption {
    fn of(arg: &[u8]) -> Option<MigrateOption> {
        let words = [
            ("copy", MigrateOption::Copy),
            ("replace", MigrateOption::Replace),
            ("auth", MigrateOption::Auth),
            ("auth2", MigrateOption::Auth2),
        ];
        let found = words.into_iter().chain([("keys", MigrateOption::Keys)]);
        found.into_iter().find(|(name, _)| arg.eq_ignore_ascii_case(name.as_bytes())).map(|(_, word)| word)
    }

    /// Returns the number of its arguments.
    fn values(self) -> usize {
        match self {
            MigrateOption::Copy | MigrateOption::Replace | MigrateOption::Keys => 0,
            MigrateOption::Auth => 1,
            MigrateOption::Auth2 => 2,
        }
    }
}

/// Index of the first option.
const OPTIONS: usize = 6;

/// Returns the options with their indexes, up to the first unknown one.
fn words(args: Args<'_>) -> impl Iterator<Item = (usize, MigrateOption)> {
    let mut at = OPTIONS;
    std::iter::from_fn(move || {
        let word = (at < args.len()).then(|| MigrateOption::of(args.get(at))).flatten()?;
        let found = (at, word);
        at = if word == MigrateOption::Keys { args.len() } else { at + 1 + word.values() };
        Some(found)
    })
}

/// Returns the index of the first key, if there are several.
fn first_of_many(args: Args<'_>) -> Option<usize> {
    let many = args.len() > OPTIONS && args.get(3).is_empty();
    words(args).find(|(_, word)| many && *word == MigrateOption::Keys).map(|(at, _)| at + 1)
}

fn is_secret(args: Args<'_>, index: usize) -> bool {
    words(args).any(|(at, word)| (at + 1..=at + word.values()).contains(&index))
}

/// MIGRATE's options.
#[derive(Default)]
struct MigrateOptions {
    copies: bool,
    replaces: bool,
    credentials: Option<Credentials>,
}

impl MigrateOptions {
    fn parse(turn: &Turn<'_, '_>) -> Result<MigrateOptions, Error> {
        let mut options = MigrateOptions::default();
        let mut end = OPTIONS;
        for (at, word) in words(*turn.args) {
            end = at + 1 + word.values();
            if end > turn.len() {
                return Err(Error::SYNTAX);
            }
            let value = |offset: usize| turn.arg(at + offset).to_vec();
            match word {
                MigrateOption::Copy => options.copies = true,
                MigrateOption::Replace => options.replaces = true,
                MigrateOption::Auth => options.credentials = Some(Credentials::Password(value(1))),
                MigrateOption::Auth2 => options.credentials = Some(Credentials::User(value(1), value(2))),
                MigrateOption::Keys if !turn.arg(3).is_empty() => {
                    return Err(Error::fixed(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                    ));
                }
                MigrateOption::Keys => end = turn.len(),
            }
        }
        if end < turn.len() { Err(Error::SYNTAX) } else { Ok(options) }
    }
}

fn migrate(turn: &mut Turn<'_, '_>) -> Outcome {
    let options = MigrateOptions::parse(turn)?;
    let timeout_ms = u64::try_from(turn.int(5)?).ok().filter(|&ms| ms > 0).unwrap_or(TIMEOUT_DEFAULT_MS);
    let target_database = turn.int(4)?;
    let keys = dump_all(turn);
    if keys.is_empty() {
        turn.reply.simple("NOKEY");
        return Ok(());
    }
    let port = port(turn.arg(2))?;
    let engine = turn.engine();
    let host = String::from_utf8_lossy(turn.arg(1)).into_owned();
    check_target(engine, &host, port, &keys)?;
    let migration = Box::new(Migration {
        id: engine.migrations.next_id(),
        client: turn.session.client.id,
        worker: turn.worker.id,
        host,
        port,
        credentials: options.credentials,
        target_database,
        database: turn.session.database,
        timeout_ms,
        copies: options.copies,
        replaces: options.replaces,
        asks: engine.slots.are_on(),
        keys,
        error: None,
        rounds: 0,
    });
    if !engine.migrations.reserve(migration.bytes()) {
        return Err(Error::fixed(TOO_MUCH));
    }
    let (id, bytes) = (migration.id, migration.bytes());
    // Before the transfer begins, and with the shards held, so that no change is missed.
    migrating::hold(engine, &migration);
    if let Err((migration, why)) = engine.host.migrate(migration) {
        engine.migrations.release(bytes);
        migrating::let_go(engine, &migration);
        return Err(Error::new(format!("ERR {why}")));
    }
    turn.session.awaited = Some(Awaited::Migration { id });
    Ok(())
}

/// Refuses keys of a migrating slot for another node of the target's shard. A failover has replaced that node, which may not know it yet: it would
/// take the keys, and lose them with its place.
fn check_target(engine: &Engine, host: &str, port: u16, keys: &[MigratingKey]) -> Result<(), Error> {
    let Some(view) = engine.slots.view().filter(|view| !view.open_slots().is_empty()) else { return Ok(()) };
    let tls = engine.settings.tls_cluster.get();
    let is_there = |node: &&NodeView| node.endpoints.are_at(host, port, tls);
    for key in keys {
        let slot = Slot::of_hash(key.hash.slot());
        let Some(Open::Migrating { to }) = view.open(slot) else { continue };
        let Some(target) = view.node(to).filter(|target| !is_there(target)) else { continue };
        if view.nodes.iter().filter(is_there).any(|node| node.shard == target.shard) {
            return Err(Error::new(format!(
                "ERR Slot {slot} is migrating to node {}, and not to another node of its shard",
                target.id
            )));
        }
    }
    Ok(())
}

/// Parses a server's port. An invalid number becomes 0, as in Redis, and fails to connect.
fn port(text: &[u8]) -> Result<u16, Error> {
    u16::try_from(parse_i64(text).unwrap_or_default()).map_err(|_| Error::fixed(CANNOT_CONNECT))
}

/// Dumps the command's existing keys.
fn dump_all(turn: &mut Turn<'_, '_>) -> Vec<MigratingKey> {
    let names: Vec<Key<'_>> = turn.each_key().collect();
    let mut db = turn.db();
    names.into_iter().filter_map(|key| dump(&mut db, key)).collect()
}
