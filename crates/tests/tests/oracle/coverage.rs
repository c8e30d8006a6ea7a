//! Every command of the server's table is compared with the oracle by some family's templates, and every command that
//! writes is replayed. A new command in the table must be added there.

use std::collections::BTreeSet;

use commands::spec::flag;
use commands::table::Command;
use engine::registry::table;
use penstock_tests::families::{self, EFFECTS, FIELD_EFFECTS, Family};

/// Commands that aren't compared: no available oracle knows most of them, and PFSELFTEST takes it seconds. Their
/// families' own tests cover them.
const NOT_COMPARED: &[&str] = &[
    "delex",
    "delifeq",
    "digest",
    "msetex",
    "blmovem",
    "lmovem",
    "sdiffcard",
    "sunioncard",
    "xcfgset",
    "xidmprecord",
    "xdelex",
    "xackdel",
    "pfselftest",
    // RediSearch's commands.
    "ft.sugadd",
    "ft.sugget",
    "ft.sugdel",
    "ft.suglen",
];

/// Returns the commands on keys in the templates of some families; subcommands are written "object|encoding".
fn named<'f>(families: impl Iterator<Item = &'f Family>) -> BTreeSet<String> {
    let alternatives =
        |word: &str| -> Vec<String> { word.trim_matches(['(', ')']).split('|').map(str::to_lowercase).collect() };
    let mut found = BTreeSet::new();
    for (name, second) in families.flat_map(Family::names) {
        let name = name.to_lowercase();
        for second in second.map(alternatives).unwrap_or_default() {
            found.insert(format!("{name}|{second}"));
        }
        found.insert(name);
    }
    found
}

/// Commands on keys, without subcommands.
fn on_keys() -> impl Iterator<Item = &'static Command> {
    table().all().iter().filter(|command| command.sees_keys && command.subcommands.is_empty())
}

fn missing(wanted: impl Iterator<Item = &'static Command>, named: &BTreeSet<String>) -> Vec<&'static str> {
    wanted.map(|command| &*command.name).filter(|name| !named.contains(*name)).collect()
}

#[test]
fn every_command_on_keys_is_compared_with_the_oracle() {
    assert_eq!(missing(on_keys(), &named(families::ALL.iter().chain(families::NEWER))), NOT_COMPARED);
}

#[test]
fn every_command_that_writes_is_replayed() {
    let all = families::ALL.iter().chain(families::NEWER).chain(families::OWN).chain(&[EFFECTS, FIELD_EFFECTS]);
    let replayed = named(all.filter(|family| family.is_replayed));
    assert_eq!(missing(on_keys().filter(|command| command.info.has(flag::WRITE)), &replayed), [""; 0]);
}
