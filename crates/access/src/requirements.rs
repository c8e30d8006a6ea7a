//! The checks before a command may run, derived from its entry in the table.

use commands::spec::{Begin, Channels, Find, Info, KeySpec, acl, fact, flag, key_flag};
use resp::num;
use resp::request::Args;

use super::patterns::{READ, WRITE};
use commands::table::{Command, KeysAt};

/// The checks before a command runs under a selector, in one byte; 0 requires the full check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requirement(u8);

impl Requirement {
    /// The command may run if the remaining checks pass.
    const MAY_RUN: u8 = 1;
    /// Its only key must match a pattern with the permission in the bits from [`Requirement::NEED_SHIFT`] on.
    const HAS_KEY: u8 = 1 << 1;
    const NEED_SHIFT: u32 = 2;
    /// The selected database must be allowed.
    const IN_DATABASE: u8 = 1 << 4;

    /// Returns the checks of a command that the selector allows.
    pub(super) fn of(command: &Command, all_keys: bool, all_channels: bool, all_databases: bool) -> Requirement {
        let info = command.info;
        let names_databases = info.databases.is_some() || info.is(fact::ALL_DATABASES);
        if (names_databases && !all_databases) || (has_channels(info) && !all_channels) {
            return Requirement::default();
        }
        let mut requirement = Requirement::MAY_RUN;
        if !all_databases && touches_database(info) {
            requirement |= Requirement::IN_DATABASE;
        }
        match (command.keys, real_keys(info).next()) {
            _ if all_keys => {}
            (_, None) => {}
            (KeysAt::Only(_), Some(spec)) => {
                // The arguments decide the use of the key; a pattern with both permissions covers every use.
                let is_variable = spec.flags & key_flag::VARIABLE_FLAGS != 0;
                let need = if is_variable { READ | WRITE } else { permission(spec.flags) };
                requirement |= Requirement::HAS_KEY | need << Requirement::NEED_SHIFT;
            }
            _ => return Requirement::default(),
        }
        Requirement(requirement)
    }

    /// Returns true if it may run with any arguments. `in_database`: the selected database is allowed.
    #[inline]
    pub(super) fn is_sure(self, in_database: bool) -> bool {
        self.may_run(in_database) && self.0 & Requirement::HAS_KEY == 0
    }

    /// Returns true if it may run, provided that its key matches.
    #[inline]
    pub(super) fn may_run(self, in_database: bool) -> bool {
        self.0 & Requirement::MAY_RUN != 0 && (in_database || self.0 & Requirement::IN_DATABASE == 0)
    }

    /// Returns the permission that its key needs.
    #[inline]
    pub(super) fn need(self) -> u8 {
        self.0 >> Requirement::NEED_SHIFT & (READ | WRITE)
    }
}

/// Returns the permission that the flags of a key require. A test for existence needs a matching pattern but no
/// permission.
pub(super) fn permission(flags: u32) -> u8 {
    let changes = key_flag::INSERT | key_flag::DELETE | key_flag::UPDATE;
    (if flags & key_flag::ACCESS != 0 { READ } else { 0 }) | if flags & changes != 0 { WRITE } else { 0 }
}

fn real_keys(info: &'static Info) -> impl Iterator<Item = &'static KeySpec> {
    info.keys.iter().filter(|spec| spec.flags & key_flag::NOT_KEY == 0)
}

/// Returns true if the command publishes on or subscribes to channels in its arguments. Unsubscribing is always
/// allowed.
pub(super) fn has_channels(info: &Info) -> bool {
    info.publishes.is_some() || info.is(fact::SUBSCRIBES | fact::SUBSCRIBES_TO_PATTERNS)
}

/// Calls `visit` with the index of each channel, until it returns false.
pub(super) fn visit_channels(info: &Info, args: Args<'_>, visit: impl FnMut(usize) -> bool) -> bool {
    match info.publishes {
        Some(Channels::Plain | Channels::Sharded) => (1..args.len().min(2)).all(visit),
        None if has_channels(info) => (1..args.len()).all(visit),
        None => true,
    }
}

/// Returns true if a command uses the selected database: it has keys, or reads or changes the keyspace.
pub(super) fn touches_database(info: &'static Info) -> bool {
    let names_all = info.databases.is_some() || info.is(fact::ALL_DATABASES);
    let is_of_keyspace = info.has(flag::READONLY | flag::WRITE) || info.all_categories() & acl::KEYSPACE != 0;
    real_keys(info).next().is_some() || (is_of_keyspace && !names_all)
}

/// Calls `visit` with the index and the flags of each key of a request, except for shard channels. A request with a
/// wrong key count has no keys here: its handler refuses it.
pub(super) fn visit_keys(info: &'static Info, args: Args<'_>, mut visit: impl FnMut(usize, u32)) {
    if real_keys(info).all(|spec| has_counted_keys(spec, args)) {
        for spec in real_keys(info) {
            let flags = flags_of(info, spec, args);
            spec.visit(args, |index| visit(index, flags));
        }
    }
}

/// Returns true if the number of keys equals the count before them.
pub fn has_counted_keys(spec: &KeySpec, args: Args<'_>) -> bool {
    let (Begin::Index(begin), Find::Count { count, first, step }) = (spec.begin, spec.find) else { return true };
    if begin + count >= args.len() {
        return false;
    }
    let Some(given) = num::parse_i64(args.get(begin + count)).and_then(|g| usize::try_from(g).ok()) else {
        return false;
    };
    let room = args.len().saturating_sub(begin + first).div_ceil(step);
    (1..=room).contains(&given)
}

/// Returns the use of a key specification's keys in a request, which may depend on other arguments.
pub fn flags_of(info: &Info, spec: &KeySpec, args: Args<'_>) -> u32 {
    if spec.flags & key_flag::VARIABLE_FLAGS == 0 {
        return spec.flags;
    }
    info.flags_of_key.map_or(spec.flags & !key_flag::VARIABLE_FLAGS, |flags| flags(args))
}
