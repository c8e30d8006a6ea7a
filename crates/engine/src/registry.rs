//! The registry of all commands: their table, built from all families' entries, and their handlers.
//!
//! The registry is above the families, so that lower modules know commands only by their indexes in the table and by
//! their entries' declarations.

use std::iter;
use std::sync::OnceLock;

use commands::{FAMILIES, Spec};

use crate::families;
use crate::worker::turn::Run;
use commands::table::Table;

struct Registry {
    table: Table,
    /// The handlers by command index.
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

/// Returns the handlers of a command and its subcommands, in the table's order.
fn runs_of<R>(spec: &'static Spec<R>, run: impl Fn(&R) -> Run) -> impl Iterator<Item = Run> {
    iter::once(spec).chain(spec.subcommands).map(move |spec| run(&spec.run))
}

/// Builds a table of all commands under their original names.
#[must_use]
pub fn build() -> Table {
    Table::build(families::ALL)
}

/// Returns the table, which is built at the first call and never changes.
#[inline]
#[must_use]
pub fn table() -> &'static Table {
    &registry().table
}

/// Returns the handlers by command index.
pub(crate) fn runs() -> &'static [Run] {
    &registry().runs
}

/// Renames commands: pairs of an old and a new name, in order. Must be called before the table is used.
///
/// # Errors
/// See [`Table::rename`]; also if the table is in use already.
pub fn rename(pairs: &[(String, String)]) -> Result<(), &'static str> {
    let mut table = build();
    pairs.iter().try_for_each(|(old, new)| table.rename(old, new))?;
    REGISTRY.set(Registry::of(table)).map_err(|_| "Commands can't be renamed any more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_handler() {
        assert_eq!(table().all().len(), runs().len());
        for (command, run) in table().all().iter().zip(runs()) {
            match run {
                Run::Keys(_) => assert!(command.keys_handler.is_none() || !command.is_keyless, "{}", command.name),
                Run::Session(_) => assert!(command.keys_handler.is_none(), "{}", command.name),
            }
        }
        let session = |name: &[u8]| table().find_full(name).map(|c| matches!(runs()[c.id], Run::Session(_)));
        assert_eq!(
            [&b"get"[..], b"ping", b"config|get", b"xinfo|stream"].map(session),
            [false, true, true, false].map(Some)
        );
    }
}
