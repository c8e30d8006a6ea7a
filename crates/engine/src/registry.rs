//! The registry of all commands: the one table of them, built from all families' entries, and what runs each.
//!
//! It stands above the families, so that the rooms below them know commands only by their places in the table and by
//! what their entries declare.

use std::iter;
use std::sync::OnceLock;

use commands::{FAMILIES, Spec};

use crate::command_table::Table;
use crate::families;
use crate::worker::turn::Run;

struct Registry {
    table: Table,
    /// What runs each command, by its place.
    runs: Vec<Run>,
}

static REGISTRY: OnceLock<Registry> = OnceLock::new();

#[inline]
fn registry() -> &'static Registry {
    REGISTRY.get_or_init(|| Registry::of(build()))
}

impl Registry {
    fn of(table: Table) -> Registry {
        let on_keys = FAMILIES.iter().copied().flatten().flat_map(|spec| runs_of(spec, |run| Run::Keys(*run)));
        let on_sessions = families::ALL.iter().copied().flatten().flat_map(|spec| runs_of(spec, |run| *run));
        Registry { table, runs: on_keys.chain(on_sessions).collect() }
    }
}

/// What runs a command and its subcommands, in the order of the table.
fn runs_of<R>(spec: &'static Spec<R>, run: impl Fn(&R) -> Run) -> impl Iterator<Item = Run> {
    iter::once(spec).chain(spec.subcommands).map(move |spec| run(&spec.run))
}

/// A table of all commands by their own names.
#[must_use]
pub fn build() -> Table {
    Table::build(families::ALL)
}

/// The table. It is built at the first call and never changes.
#[inline]
#[must_use]
pub fn table() -> &'static Table {
    &registry().table
}

/// What runs each command of the table, by its place.
pub(crate) fn runs() -> &'static [Run] {
    &registry().runs
}

/// Has the table be built with commands renamed: pairs of an old name and a new one, in their order. To be called
/// before the table is used.
///
/// # Errors
/// See [`Table::rename`]; or it is in use already.
pub fn rename(pairs: &[(String, String)]) -> Result<(), &'static str> {
    let mut table = build();
    pairs.iter().try_for_each(|(old, new)| table.rename(old, new))?;
    REGISTRY.set(Registry::of(table)).map_err(|_| "Commands can't be renamed any more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_what_runs_it() {
        assert_eq!(table().all().len(), runs().len());
        for (command, run) in table().all().iter().zip(runs()) {
            match run {
                Run::Keys(_) => assert!(command.quick.is_none() || !command.is_keyless, "{}", command.name),
                Run::Session(_) => assert!(command.quick.is_none(), "{}", command.name),
            }
        }
        let session = |name: &[u8]| table().find_full(name).map(|c| matches!(runs()[c.id], Run::Session(_)));
        assert_eq!(
            [&b"get"[..], b"ping", b"config|get", b"xinfo|stream"].map(session),
            [false, true, true, false].map(Some)
        );
    }
}
