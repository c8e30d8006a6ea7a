//! Tests that the page of commands lists exactly the table's commands. `UPDATE_DOCS=1 cargo test -p penstock-engine
//! --test all docs::` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use commands::syntax::shown;
use commands::table::Command;
use penstock_engine::registry::table;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");

const HEAD: &str = "# Commands

This page lists Penstock's commands with their arguments, by group. Semantics, replies and error texts follow Redis 7.2.
Any other command gets the reply to an unknown command. `COMMAND DOCS` returns the same information to programs.
";

fn line(command: &Command) -> String {
    let name = command.name.replace('|', " ").to_uppercase();
    let syntax = shown(command.info.syntax);
    let call = if syntax.is_empty() { name } else { format!("{name} {syntax}") };
    // A bar would end the cell.
    format!("| `{}` | {} |", call.replace('|', "\\|"), command.info.summary)
}

fn page() -> String {
    let mut groups: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for command in table().all().iter().filter(|c| c.subcommands.is_empty()) {
        let parent = command.parent.map_or(command, |id| &table().all()[id]);
        groups.entry(parent.info.group.name()).or_default().insert(&command.name, line(command));
    }
    let mut page = HEAD.to_string();
    for (group, lines) in groups {
        let _ = write!(page, "\n## {group}\n\n| command | what it does |\n| --- | --- |\n");
        lines.values().for_each(|line| page.push_str(&format!("{line}\n")));
    }
    page
}

#[test]
fn the_page_lists_every_command() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, page()).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        written == page(),
        "docs/commands.md is out of date; regenerate it as the comment at the top of this file says"
    );
}
