//! The table of all directives, in order, and the index of their names.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::directive::Directive;
use super::settings::FIELDS;
use super::stored::STORED;

/// The table of all directives.
pub struct DirectiveTable {
    /// Sorted by name.
    pub directives: Vec<Directive>,
    /// Names and aliases, in lower case and sorted, with the index of their directive.
    names: Vec<(&'static str, usize)>,
    /// The positions in `names`.
    positions: HashMap<&'static str, usize>,
}

/// The only table, used for parsing, for CONFIG GET, SET and REWRITE, and for the settings' defaults.
pub static TABLE: LazyLock<DirectiveTable> = LazyLock::new(|| {
    let stored = STORED.iter().flat_map(|group| group.directives.iter().map(|directive| directive.stored(group.why)));
    let mut directives: Vec<Directive> = FIELDS.iter().copied().chain(stored).collect();
    directives.sort_by_key(|directive| directive.name);
    let names = directives.iter().enumerate().flat_map(|(index, directive)| {
        std::iter::once(directive.name).chain(directive.aliases.iter().copied()).map(move |name| (name, index))
    });
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let positions = names.iter().enumerate().map(|(position, (name, _))| (*name, position)).collect();
    DirectiveTable { directives, names, positions }
});

impl DirectiveTable {
    /// Returns a name or alias, given in any case, in the table's spelling, with the index of its directive.
    pub(super) fn entry(&self, name: &[u8]) -> Option<(&'static str, usize)> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.positions.get(name.as_str()).map(|&position| self.names[position])
    }

    /// Returns the index of the directive with this name, in any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.entry(name).map(|(_, index)| index)
    }

    /// Returns the names and aliases that match a glob, in any case, without the hidden ones.
    pub(super) fn matching(&self, glob: &[u8]) -> impl Iterator<Item = (&'static str, usize)> {
        self.names.iter().copied().filter(move |(name, index)| {
            !self.directives[*index].hidden && store::glob::matches(glob, name.as_bytes(), true)
        })
    }
}

/// Returns true if the value of directive `name` (any case, or an alias) must be kept out of logs, MONITOR and SLOWLOG.
pub fn is_sensitive(name: &[u8]) -> bool {
    TABLE.find(name).is_some_and(|index| TABLE.directives[index].sensitive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directive::Effect;
    use crate::settings::Settings;

    #[test]
    fn names_are_unique_lower_case_and_sorted() {
        let names: usize = TABLE.directives.iter().map(|directive| 1 + directive.aliases.len()).sum();
        assert_eq!(names, TABLE.positions.len(), "two directives share a name");
        assert!(TABLE.names.iter().all(|(name, _)| *name == name.to_ascii_lowercase()));
        assert!(TABLE.directives.is_sorted_by_key(|directive| directive.name));
    }

    #[test]
    fn every_entry_has_docs_and_a_valid_default() {
        for directive in &TABLE.directives {
            assert!(directive.docs.trim().len() > 10, "{}: no docs", directive.name);
            assert!(directive.default_value().is_ok(), "{}: {:?}", directive.name, directive.default_value());
            assert!(directive.immutable || directive.effect != Effect::Startup, "{}", directive.name);
        }
    }

    /// Each kind of value fits its cell: values are returned unchanged, and can be parsed from their own text.
    #[test]
    fn values_fit_their_cells_and_survive_their_text() {
        let settings = Settings::new();
        for (index, directive) in TABLE.directives.iter().enumerate() {
            let value = settings.cell(index).load();
            assert_eq!(Ok(&value), directive.default_value().as_ref(), "{}", directive.name);
            let shown = directive.kind.show(&value);
            let again = directive.parse(&directive.kind.arguments(&shown), &value);
            assert_eq!(again, Ok(value), "{}: {shown}", directive.name);
        }
    }

    #[test]
    fn only_secrets_are_sensitive() {
        for (name, sensitive) in [("requirepass", true), ("MASTERAUTH", true), ("port", false), ("x", false)] {
            assert_eq!(is_sensitive(name.as_bytes()), sensitive, "{name}");
        }
    }
}
