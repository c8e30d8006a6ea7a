//! Commands of Redis and Valkey that this server doesn't have.
//!
//! Rules of others name them. They are kept as they are, so that files of users load and are saved whole: what they allow or forbid
//! can't be run here anyway.

/// All commands and subcommands of Redis 7.0 and 8.6.3 and of Valkey 9.1.2, as COMMAND shows them, that the table lacks, sorted.
const NAMES: &[&str] = &[
    "clusterscan",
    "cluster|cancelslotmigrations",
    "cluster|flushslot",
    "cluster|getslotmigrations",
    "cluster|migrateslots",
    "cluster|migration",
    "cluster|slot-stats",
    "cluster|syncslots",
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

/// True if a rule's command, in lower case and perhaps with a first argument, is one of another server's.
pub(super) fn is_known(name: &str) -> bool {
    let has = |name: &str| NAMES.binary_search(&name).is_ok();
    has(name) || name.split_once('|').is_some_and(|(command, argument)| has(command) && !argument.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::table;

    #[test]
    fn the_table_has_none_of_them() {
        for name in NAMES {
            assert!(table().find_full(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.is_sorted());
        for (name, expected) in [
            ("vadd", true),
            ("cluster|migration", true),
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
