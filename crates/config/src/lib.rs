//! redis.conf's directives: typed, live, in one table.
//!
//! [`Settings`] holds every setting in a cell of its own that any thread reads without a lock; [`get`], [`set`] and
//! [`rewrite()`] are CONFIG's subcommands; [`Loader`] fills settings before the server runs. All of them, and the
//! defaults, come from [`TABLE`]. A new directive is one entry: in `settings.rs` if something reads it, in
//! `stored.rs` otherwise.
//!
//! This crate knows neither the syntax of files (the server's `conf_file` does) nor sockets: [`ConfigHost`] hides
//! everything that must act on a change.
//!
//! # Directives with and without effect
//!
//! | directives | effect |
//! | --- | --- |
//! | those in `settings.rs` | live, or read at the start where CONFIG SET refuses them, as Redis does |
//! | `dir`, `dbfilename` | as in Redis, CONFIG SET changes them only if `enable-protected-configs` allows it |
//! | `io-threads` | an alias of `threads`, in Redis's range: from 1 to 128 |
//! | `user`, `aclfile` | users and their rules: the crate `access`; not both at once |
//! | `rename-command` | in a file or on the command line only: [`Settings::renamed_commands`] |
//! | `loadmodule` | refused: dangerous to ignore |
//! | `sentinel` | refused: dangerous to ignore |
//! | CPU lists and others | stored: the service manager sets these |
//! | the rest about moving slots, and modules | stored until these features exist |
//! | `list-compress-depth` | stored: lists aren't compressed |
//! | `activerehashing`, `dynamic-hz`, `jemalloc-bg-thread` | stored: the keyspace needs none |
//!
//! # Differences from Redis
//!
//! A number of bytes beyond 64 bits is an error (Redis lets it wrap). Values must be UTF-8. CONFIG REWRITE keeps a
//! line that states the right value in another spelling. CONFIG GET replies in the order of the names.
//!
//! Sources: the "Redis configuration" page, the sample redis.conf of 7.2, the pages of CONFIG GET, SET and REWRITE, and
//! the replies of a running server.

#![forbid(unsafe_code)]

mod cell;
mod change;
mod cluster;
mod directive;
mod kind;
mod load;
mod rewrite;
mod settings;
mod special;
mod standing;
mod stored;
mod table;

pub use cell::{
    Bytes, BytesOrPercent, Choice, Choices, ClientClass, Flag, Int, OutputLimit, OutputLimits, Text, Value,
};
pub use change::{ConfigHost, get, set};
pub use directive::{Apply, Directive, Effect};
pub use kind::ValueKind;
pub use kind::quoted;
pub use load::{CheckUser, Loader};
pub use rewrite::replace_file;
pub use rewrite::{RewriteError, UserLines, rewrite, rewrite_whole};
pub use settings::{
    Access, AppendFsync, AuthClients, CertificateUser, ClusterEndpoint, ClusterForward, ClusterSave, CrossSlot,
    DisklessLoad, HttpConsole, LogFormat, LogLevel, LogTimestamp, MaxmemoryPolicy, NewChannels,
    PIPELINE_TOKEN_TTL_S_MAX, PropagationErrors, QUERY_BYTES_MAX, Settings, Supervised, SyslogFacility,
};
pub use special::system_text;
pub use special::{SavePoint, keyspace_events};
pub use standing::{Standing, is_refused, standing};
pub use table::{DirectiveTable, TABLE, is_sensitive};
