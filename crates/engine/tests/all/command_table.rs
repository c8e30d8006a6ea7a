//! Tests of the table of commands with the commands of all families.

use commands::table::Table;
use penstock_engine::families;
use penstock_engine::registry::table;

#[test]
fn every_command_is_found_in_any_case_and_nothing_else_is() {
    for command in table().all().iter().filter(|c| c.parent.is_none()) {
        for name in [command.name.clone(), command.name.to_uppercase()] {
            assert_eq!(table().find(name.as_bytes()).map(|c| c.id), Some(command.id), "{name}");
        }
        let near = command.name.replace('e', "\u{5}");
        assert!(near == command.name || table().find(near.as_bytes()).is_none(), "{near:?}");
    }
    for name in ["", "x", "gett", "get\0", "zrangebyscorewithaverylongname"] {
        assert!(table().find(name.as_bytes()).is_none(), "{name:?}");
    }
}

#[test]
fn renamed_commands_are_found_by_their_new_names_only() {
    let mut table = Table::build(families::ALL);
    let name_of = |table: &Table, called: &str| table.find(called.as_bytes()).map(|c| c.name.clone());
    let all = table.callable().count();
    for (old, new) in
        [("GET", "set"), ("nosuch", "x"), ("", "x"), ("config|get", "x"), ("SET", "SET"), ("Get", "Holen")]
    {
        let expected = match (old, new) {
            ("GET", _) => Err("Target command name already exists"),
            ("SET" | "Get", _) => Ok(()),
            _ => Err("No such command in rename-command"),
        };
        assert_eq!(table.rename(old, new), expected, "{old} {new}");
    }
    assert_eq!(table.rename("get", "x"), Err("No such command in rename-command"), "by its new name only");
    for (old, new) in [("del", "get"), ("debug", "dbg_1"), ("keys", "b840fc02d524045429941cc15f59e41cb7be6c52")] {
        assert_eq!(table.rename(old, new), Ok(()));
        assert_eq!(name_of(&table, &new.to_uppercase()).as_deref(), Some(old));
        assert_eq!(name_of(&table, old), None);
    }
    assert_eq!(name_of(&table, "holen").as_deref(), Some("get"));
    // Folds to the same bits as "dbg_1".
    assert_eq!(name_of(&table, "dbg\u{7f}1"), None);
    assert_eq!(table.rename("CONFIG", ""), Ok(()));
    assert_eq!((name_of(&table, "config"), name_of(&table, "")), (None, None));
    assert!(table.find_full(b"config|get").is_none());
    let subcommands = table.all().iter().filter(|c| c.name.starts_with("config|")).count();
    assert_eq!(table.callable().count(), all - 1 - subcommands);
}
