//! Commands of Redis and Valkey that this server doesn't have.
//!
//! Rules from other servers name them. They are kept unchanged, so that files of users are loaded and saved without
//! loss. Nobody can run these commands here in any case.

/// All commands and subcommands of Redis 7.0 and 8.6.3 and of Valkey 9.1.2, as listed by COMMAND, that the table lacks,
/// sorted.
const NAMES: &[&str] = &[
    "trimslots",
    "vadd",
    "vcard",
    "vdim",
    "vemb",
    "vgetattr",
    "vinfo",
    "vismember",
    "vlinks",
    "vrandmember",
    "vrange",
    "vrem",
    "vsetattr",
    "vsim",
];

/// Returns true if another server has this command, given in lower case and optionally with a first argument.
pub(super) fn is_known(name: &str) -> bool {
    let has = |name: &str| NAMES.binary_search(&name).is_ok();
    has(name) || name.split_once('|').is_some_and(|(command, argument)| has(command) && !argument.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::registry::table;

    #[test]
    fn the_table_lacks_unknown_commands() {
        for name in NAMES {
            assert!(table().find_full(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.is_sorted());
        for (name, expected) in [
            ("vadd", true),
            ("trimslots", true),
            ("vadd|x", true),
            ("vadd|", false),
            ("cluster|nosuch", false),
            ("nosuch", false),
            ("ft.search", false),
            ("", false),
        ] {
            assert_eq!(is_known(name), expected, "{name}");
        }
    }
}
