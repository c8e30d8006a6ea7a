//! One entry of the table: a directive's name, kind, default and effect.

use super::cell::Cell;
use super::kind::ValueKind;
use super::settings::Settings;

/// A part of the server outside of the engine that must apply a changed setting. The engine renews everything that it
/// derives from settings after each change (`Engine::settings_changed`), so directives that concern only the engine are
/// live.
///
/// An error text of [`super::ConfigHost::apply`] reaches the client behind `CONFIG SET failed (possibly related to
/// argument '...') - `. Each variant quotes Redis's text, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Apply {
    /// `port`, `tls-port`: listen on the new port. "Unable to listen on this port. Check server logs."
    Port,
    /// `bind`: listen on the new addresses. "Failed to bind to specified addresses."
    Bind,
    /// `tls-*`: use the new values for new connections. "Unable to update TLS configuration. Check server logs."
    Tls,
    /// `maxclients`: raise the limit of open files. "The operating system is not able to handle the specified number
    /// of clients, try with N"
    MaxClients,
    /// `maxmemory`: warn if more is in use.
    MemoryLimit,
    /// `loglevel`, `log-format`, `log-timestamp-format`: amount and form of later log lines.
    LogLevel,
    /// `dir`: base of relative file names.
    Directory,
    /// `proc-title-template`: set the new process title.
    Title,
    /// `cluster-*`: apply them to the node, which announces its changes.
    Cluster,
    /// `appendonly`: begin or end the append-only file. "Unable to turn on AOF. Check server logs."
    AppendOnly,
}

/// The effect of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read from its cell whenever needed, so CONFIG SET acts at once.
    Live,
    /// Like [`Effect::Live`], and the server is told about a change.
    Applied(Apply),
    /// Read once at the start; CONFIG SET refuses to change it.
    Startup,
    /// Accepted, shown and rewritten, but without effect. The server logs its use in a file.
    Stored,
}

/// Checks a text for one directive; the error is for the client.
type Check = fn(&str) -> Result<(), String>;

/// An entry of the table; see [`super::TABLE`].
#[derive(Clone, Copy)]
pub struct Directive {
    /// The name, in lower case.
    pub name: &'static str,
    /// Older names; CONFIG GET shows each of them beside the name.
    pub aliases: &'static [&'static str],
    /// The syntax of its values.
    pub kind: ValueKind,
    /// The default, in the syntax of CONFIG SET.
    pub default: &'static str,
    /// The description; for a stored directive, the reason why it has no effect.
    pub docs: &'static str,
    /// The effect of a change.
    pub effect: Effect,
    /// CONFIG SET refuses it.
    pub immutable: bool,
    /// CONFIG GET shows it only under its full name.
    pub hidden: bool,
    /// The value must not appear in logs, MONITOR or SLOWLOG.
    pub sensitive: bool,
    /// The value refers to external contents, for example a file. CONFIG SET to the same value acts, too.
    pub refers: bool,
    /// CONFIG SET refuses it unless `enable-protected-configs` allows it.
    pub protected: bool,
    /// Name of a missing feature: every value but the default is refused.
    pub(super) missing_feature: Option<&'static str>,
    /// An additional check of text values.
    pub(super) check: Option<Check>,
    /// The typed field with the value; without one, the value is in [`Settings::stored`].
    pub(super) field: Option<fn(&Settings) -> &dyn Cell>,
}

impl std::fmt::Debug for Directive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directive").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Constructors and modifiers of entries, for the table.
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

    /// An integer from 0 to the maximum of a C `int`, Redis's most common range.
    pub(super) const fn natural(name: &'static str, default: &'static str) -> Directive {
        Directive::int(name, 0, i32::MAX as i64, default)
    }

    /// An integer from 0 to the maximum of a C `long`.
    pub(super) const fn count(name: &'static str, default: &'static str) -> Directive {
        Directive::int(name, 0, i64::MAX, default)
    }

    /// A TCP port, or 0.
    pub(super) const fn port(name: &'static str, default: &'static str) -> Directive {
        Directive::int(name, 0, u16::MAX as i64, default)
    }

    pub(super) const fn bytes(name: &'static str, min: u64, default: &'static str) -> Directive {
        Directive::new(name, ValueKind::Bytes { min, max: i64::MAX as u64, keep_min: 0 }, default)
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
