//! One entry of the table: a directive's name, kind, default and what becomes of it.

use super::cell::Cell;
use super::kind::ValueKind;
use super::settings::Settings;

/// A part of the server outside of the engine that must act when a setting changes. What the engine makes from settings,
/// it makes anew after every change (`Engine::settings_changed`), and a directive that only needs that is live.
///
/// The text of an error of [`super::ConfigHost::apply`] reaches the client behind `CONFIG SET failed (possibly related
/// to argument '...') - `; where Redis has a text for it, the variant names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Apply {
    /// `port`, `tls-port`: listen there instead. "Unable to listen on this port. Check server logs."
    Port,
    /// `bind`: listen on these addresses instead. "Failed to bind to specified addresses."
    Bind,
    /// `tls-*`: encrypt new connections as they say now. "Unable to update TLS configuration. Check server logs."
    Tls,
    /// `maxclients`: raise the limit of open files. "The operating system is not able to handle the specified number
    /// of clients, try with N"
    MaxClients,
    /// `maxmemory`: warn if more is in use.
    MemoryLimit,
    /// `loglevel`, `log-format`, `log-timestamp-format`: what is logged from now on, and how.
    LogLevel,
    /// `dir`: relative file names mean another place.
    Directory,
    /// `proc-title-template`: the process has another title.
    Title,
    /// `appendonly`: begin to write an append-only file, or end it. "Unable to turn on AOF. Check server logs."
    AppendOnly,
}

/// What a directive does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Its cell is read whenever it matters; CONFIG SET shows at once.
    Live,
    /// As [`Effect::Live`], and the server is told of a change.
    Applied(Apply),
    /// Read once, when the server starts; CONFIG SET refuses to change it.
    Startup,
    /// Accepted, shown and rewritten, but without effect; a file that has it leaves a line in the log.
    Stored,
}

/// Refuses a text that isn't right for one directive, with a text for the client.
type Check = fn(&str) -> Result<(), String>;

/// An entry of the table; see [`super::TABLE`].
#[derive(Clone, Copy)]
pub struct Directive {
    /// The name, in lower case.
    pub name: &'static str,
    /// Older names, each of which CONFIG GET shows beside the name.
    pub aliases: &'static [&'static str],
    /// How values are read and shown.
    pub kind: ValueKind,
    /// The default, as CONFIG SET would take it.
    pub default: &'static str,
    /// What it is for; for a stored one, why it has no effect.
    pub docs: &'static str,
    /// What a change of it does.
    pub effect: Effect,
    /// CONFIG SET refuses it.
    pub immutable: bool,
    /// CONFIG GET shows it only if asked for by its full name.
    pub hidden: bool,
    /// The value must not appear in logs, MONITOR or SLOWLOG.
    pub sensitive: bool,
    /// The value only names what has the contents: CONFIG SET to the same value acts, too.
    pub refers: bool,
    /// CONFIG SET refuses it unless `enable-protected-configs` allows it.
    pub protected: bool,
    /// Any value but the default is refused, since this feature doesn't exist.
    pub(super) missing_feature: Option<&'static str>,
    /// A check of text values beyond their kind's.
    pub(super) check: Option<Check>,
    /// The typed field that holds the value; the settings' shelf for this entry if there is none.
    pub(super) field: Option<fn(&Settings) -> &dyn Cell>,
}

impl std::fmt::Debug for Directive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directive").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// How an entry is written down; each of these is used in the table only.
impl Directive {
    pub(super) const fn new(name: &'static str, kind: ValueKind, default: &'static str) -> Directive {
        Directive {
            name,
            aliases: &[],
            kind,
            default,
            docs: "",
            effect: Effect::Live,
            immutable: false,
            hidden: false,
            sensitive: false,
            refers: false,
            protected: false,
            missing_feature: None,
            check: None,
            field: None,
        }
    }

    pub(super) const fn bool(name: &'static str, default: &'static str) -> Directive {
        Directive::new(name, ValueKind::Bool, default)
    }

    pub(super) const fn int(name: &'static str, min: i64, max: i64, default: &'static str) -> Directive {
        Directive::new(name, ValueKind::Int { min, max, keep: (min, max) }, default)
    }

    /// A whole number from 0 up to what a C `int` holds, Redis's commonest range.
    pub(super) const fn natural(name: &'static str, default: &'static str) -> Directive {
        Directive::int(name, 0, i32::MAX as i64, default)
    }

    /// A whole number from 0 up to what a C `long` holds.
    pub(super) const fn count(name: &'static str, default: &'static str) -> Directive {
        Directive::int(name, 0, i64::MAX, default)
    }

    /// A TCP port, or 0.
    pub(super) const fn port(name: &'static str, default: &'static str) -> Directive {
        Directive::int(name, 0, u16::MAX as i64, default)
    }

    pub(super) const fn bytes(name: &'static str, min: u64, default: &'static str) -> Directive {
        Directive::new(name, ValueKind::Bytes { min, max: i64::MAX as u64 }, default)
    }

    pub(super) const fn text(name: &'static str, default: &'static str) -> Directive {
        Directive::new(name, ValueKind::Text, default)
    }

    pub(super) const fn choice(name: &'static str, words: &'static [&'static str], default: &'static str) -> Directive {
        Directive::new(name, ValueKind::Choice(words), default)
    }

    pub(super) const fn alias(mut self, aliases: &'static [&'static str]) -> Directive {
        self.aliases = aliases;
        self
    }

    pub(super) const fn applied(mut self, apply: Apply) -> Directive {
        self.effect = Effect::Applied(apply);
        self
    }

    pub(super) const fn startup(mut self) -> Directive {
        self.effect = Effect::Startup;
        self.immutable = true;
        self
    }

    pub(super) const fn immutable(mut self) -> Directive {
        self.immutable = true;
        self
    }

    pub(super) const fn hidden(mut self) -> Directive {
        self.hidden = true;
        self
    }

    pub(super) const fn sensitive(mut self) -> Directive {
        self.sensitive = true;
        self
    }

    pub(super) const fn refers(mut self) -> Directive {
        self.refers = true;
        self
    }

    pub(super) const fn protected(mut self) -> Directive {
        self.protected = true;
        self
    }

    pub(super) const fn missing(mut self, feature: &'static str) -> Directive {
        self.missing_feature = Some(feature);
        self
    }

    pub(super) const fn checked(mut self, check: Check) -> Directive {
        self.check = Some(check);
        self
    }

    pub(super) const fn at(mut self, docs: &'static str, field: fn(&Settings) -> &dyn Cell) -> Directive {
        self.docs = docs;
        self.field = Some(field);
        self
    }

    pub(super) const fn stored(mut self, why: &'static str) -> Directive {
        self.docs = why;
        self.effect = Effect::Stored;
        self
    }
}
