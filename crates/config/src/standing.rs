//! Comparison of each directive with the one of the same name in Redis and Valkey, for the page of directives.

use super::directive::Effect;
use super::stored::STORED;
use super::table::TABLE;

/// Result of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Meaning and default are the same as in one of the two.
    Same,
    /// The meaning differs, with an explanation.
    Differs(&'static str),
    /// Accepted without a meaning here, with the reason.
    NoMeaning(&'static str),
    /// Belongs to a missing feature, with the reason why it has no effect.
    NotYet(&'static str),
}

/// Directives with an effect that differs from Redis and Valkey.
const DIFFERS: &[(&str, &str)] = &[
    ("active-defrag-cycle-max", "of one thread's time"),
    ("active-defrag-cycle-min", "of one thread's time"),
    ("active-defrag-ignore-bytes", "16mb"),
    ("active-defrag-threshold-lower", "5"),
    ("active-expire-effort", "scales the share of a thread's time: 25 percent, and 2 more with each step"),
    ("activedefrag", "`yes`: memory of half-empty pages is returned to the system by default"),
    ("client-output-buffer-limit", "counts replies that wait on disk, too; see pipelines.md"),
    ("client-query-buffer-limit", "at most 3gb"),
    ("daemonize", "the command waits until the server is ready, and fails with its message if the start fails"),
    ("hz", "shown by INFO; background work has its own schedule"),
    ("io-threads", "an alias of `threads`, which execute commands; default: as many as cores"),
    ("maxclients", "up to `operator-connections` more are accepted for commands of administration"),
    ("proto-max-bulk-len", "at most 3gb"),
    ("supervised", "Upstart is not notified"),
    ("tls-ciphers", "those of rustls, which has no weak ones; see tls.md"),
    ("tls-ciphersuites", "the three that rustls has"),
    ("tls-key-file-pass", "for keys in PKCS #8"),
    ("tls-protocols", "TLSv1.2 and TLSv1.3; older ones are refused"),
    ("tls-session-cache-size", "0 is the default, not unlimited"),
];

/// Returns the comparison for a directive or alias; `None` for an unknown name.
#[must_use]
pub fn standing(name: &str) -> Option<Standing> {
    let (name, index) = TABLE.entry(name.as_bytes())?;
    let directive = &TABLE.directives[index];
    if directive.effect == Effect::Stored {
        let has = |group: &&super::stored::InertDirectives| group.directives.iter().any(|d| d.name == directive.name);
        let awaits = STORED.iter().find(has).is_some_and(|group| group.awaits);
        let why = directive.docs;
        return Some(if awaits { Standing::NotYet(why) } else { Standing::NoMeaning(why) });
    }
    let differs = DIFFERS.iter().find(|(listed, _)| *listed == name);
    Some(differs.map_or(Standing::Same, |(_, how)| Standing::Differs(how)))
}

/// Returns true if values of directive `name` other than its default are refused at the start, because ignoring them
/// would be harmful.
#[must_use]
pub fn is_refused(name: &str) -> bool {
    let directive = TABLE.find(name.as_bytes()).map(|index| &TABLE.directives[index]);
    directive.is_some_and(|directive| directive.missing_feature.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_directives_have_an_effect() {
        assert!(DIFFERS.is_sorted());
        for (name, _) in DIFFERS {
            assert!(matches!(standing(name), Some(Standing::Differs(_))), "{name}");
        }
    }
}
