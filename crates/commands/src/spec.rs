//! Declaration of commands. COMMAND, COMMAND DOCS, key extraction, access categories, locks and the tools' hints are
//! all derived from it. The vocabulary follows Redis's "COMMAND INFO" and "COMMAND DOCS" pages.

mod facts;

use resp::request::Args;
use store::value::Type;

pub use facts::{Channels, FlagsOfKey, IsSecret, NamedDatabases, Script, Waits, fact};

/// A command's entry: its declaration and its handler. `R` is the kind of handler.
#[derive(Clone, Copy)]
pub struct Spec<R: 'static> {
    /// All of the declaration.
    pub info: Info,
    /// The handler. A container, for example CONFIG, runs it when no subcommand is given.
    pub run: R,
    /// A container's subcommands.
    pub subcommands: &'static [Spec<R>],
}

/// The declaration of a command.
#[derive(Clone, Copy)]
pub struct Info {
    /// Name in lower case; a subcommand's name excludes its container's.
    pub name: &'static str,
    /// Number of arguments including the name; a negative number is a minimum.
    pub arity: i32,
    /// See [`flag`].
    pub flags: u32,
    /// See [`fact`].
    pub facts: u32,
    /// Access categories beyond those that the flags imply; see [`acl`].
    pub categories: u32,
    /// True if the command belongs to its group's access category. SORT and containers don't.
    pub in_group_category: bool,
    /// Positions of its keys.
    pub keys: &'static [KeySpec],
    /// Position of the first argument that is a member or field of the first key's collection, and the distance from
    /// one to the next; a distance of 0 means that there are none. Only a hint for prefetching.
    pub items: (usize, usize),
    /// The part of the keyspace that it locks.
    pub scope: Scope,
    /// Type of its keys' values, if the command works on one type. Used for prefetching.
    pub value: Option<Type>,
    /// Event that wakes the command, if it can block.
    pub waits: Option<Waits>,
    /// Kind of channel that it publishes on.
    pub publishes: Option<Channels>,
    /// Kind of argument that identifies the script that it runs.
    pub script: Option<Script>,
    /// Marks arguments that must not appear in logs.
    pub is_secret: Option<IsSecret>,
    /// Flags of its keys that have VARIABLE_FLAGS, for given arguments; without it, the specification's flags apply.
    pub flags_of_key: Option<FlagsOfKey>,
    /// Marks arguments that name databases.
    pub databases: Option<NamedDatabases>,
    /// The group in the documentation.
    pub group: Group,
    /// Version of Redis that introduced the command.
    pub since: &'static str,
    /// One sentence of documentation.
    pub summary: &'static str,
    /// Time complexity in terms of its input.
    pub complexity: &'static str,
    /// Arguments in the notation of [`crate::syntax`]: `key value [NX | XX]:condition [EX seconds:integer]`.
    pub syntax: &'static str,
    /// Hints for proxies and clients of clusters ("nondeterministic_output").
    pub tips: &'static [&'static str],
    /// True if the command is for servers and their tests, and not for applications.
    pub is_system: bool,
    /// Set if new applications should use another command.
    pub deprecated: Option<Deprecated>,
    /// Later additions: the version of Redis and the added feature.
    pub history: &'static [(&'static str, &'static str)],
}

/// Deprecation of a command.
#[derive(Clone, Copy)]
pub struct Deprecated {
    /// Version of Redis that deprecated it.
    pub since: &'static str,
    /// Replacement, in the form of COMMAND DOCS: "`LMOVE` with the `RIGHT` and `LEFT` arguments".
    pub replaced_by: &'static str,
}

/// Flags of commands, with their names in COMMAND INFO.
pub mod flag {
    macro_rules! flags {
        ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
            /// Each flag with its name in the protocol, in the order of COMMAND INFO.
            pub const NAMES: &[(u32, &str)] = &[$(($name, $text)),*];
        };
    }
    flags! {
        /// Changes keys.
        WRITE = 0, "write";
        /// Only reads keys.
        READONLY = 1, "readonly";
        /// Refused when used memory is above the limit.
        DENYOOM = 2, "denyoom";
        /// For operators.
        ADMIN = 3, "admin";
        /// Publishes or subscribes.
        PUBSUB = 4, "pubsub";
        /// Not for scripts.
        NOSCRIPT = 5, "noscript";
        /// May wait.
        BLOCKING = 6, "blocking";
        /// Allowed while data is loaded.
        LOADING = 7, "loading";
        /// Allowed on a replica that has lost its primary.
        STALE = 8, "stale";
        /// Not shown by MONITOR.
        SKIP_MONITOR = 9, "skip_monitor";
        /// Not recorded by SLOWLOG.
        SKIP_SLOWLOG = 10, "skip_slowlog";
        /// Allowed for slots being imported.
        ASKING = 11, "asking";
        /// Constant or logarithmic time.
        FAST = 12, "fast";
        /// Allowed before authentication.
        NO_AUTH = 13, "no_auth";
        /// May have effects although it is not a write.
        MAY_REPLICATE = 14, "may_replicate";
        /// Its keys are optional.
        NO_MANDATORY_KEYS = 19, "no_mandatory_keys";
        /// Not allowed while data is loaded in the background.
        NO_ASYNC_LOADING = 15, "no_async_loading";
        /// Not allowed within MULTI.
        NO_MULTI = 16, "no_multi";
        /// Positions alone don't determine its keys.
        MOVABLEKEYS = 17, "movablekeys";
        /// Allowed while a script runs too long.
        ALLOW_BUSY = 18, "allow_busy";
    }
}

/// Access categories of commands, with their names in ACL CAT.
pub mod acl {
    macro_rules! categories {
        ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
            /// Each category with its name in the protocol, in the order of COMMAND INFO.
            pub const NAMES: &[(u32, &str)] = &[$(($name, $text)),*];
        };
    }
    categories! {
        /// Works on keys of any type.
        KEYSPACE = 0, "@keyspace";
        /// Reads keys.
        READ = 1, "@read";
        /// Changes keys.
        WRITE = 2, "@write";
        /// Works on sets.
        SET = 3, "@set";
        /// Works on sorted sets.
        SORTEDSET = 4, "@sortedset";
        /// Works on lists.
        LIST = 5, "@list";
        /// Works on hashes.
        HASH = 6, "@hash";
        /// Works on strings.
        STRING = 7, "@string";
        /// Works on bitmaps.
        BITMAP = 8, "@bitmap";
        /// Works on HyperLogLogs.
        HYPERLOGLOG = 9, "@hyperloglog";
        /// Works on geographical indexes.
        GEO = 10, "@geo";
        /// Works on streams.
        STREAM = 11, "@stream";
        /// Publishes or subscribes.
        PUBSUB = 12, "@pubsub";
        /// For operators.
        ADMIN = 13, "@admin";
        /// Constant or logarithmic time.
        FAST = 14, "@fast";
        /// Not fast.
        SLOW = 15, "@slow";
        /// May wait.
        BLOCKING = 16, "@blocking";
        /// May do harm.
        DANGEROUS = 17, "@dangerous";
        /// Concerns the connection.
        CONNECTION = 18, "@connection";
        /// Part of transactions.
        TRANSACTION = 19, "@transaction";
        /// Part of scripting.
        SCRIPTING = 20, "@scripting";
        /// Searches or changes an index: RediSearch's category.
        SEARCH = 21, "@search";
    }
}

/// Flags of keys, with their names in COMMAND INFO.
pub mod key_flag {
    macro_rules! flags {
        ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
            /// Each flag with its name in the protocol, in the order of COMMAND INFO.
            pub const NAMES: &[(u32, &str)] = &[$(($name, $text)),*];
        };
    }
    flags! {
        /// Only read.
        RO = 0, "RO";
        /// Read and changed.
        RW = 1, "RW";
        /// Overwritten; the old value doesn't matter.
        OW = 2, "OW";
        /// Removed.
        RM = 3, "RM";
        /// Its contents reach the client or another key.
        ACCESS = 4, "access";
        /// Its contents are changed in a way that depends on the old contents.
        UPDATE = 5, "update";
        /// Contents are added.
        INSERT = 6, "insert";
        /// Contents are removed.
        DELETE = 7, "delete";
        /// Looks like a key but isn't one (a shard channel).
        NOT_KEY = 8, "not_key";
        /// Some keys may be missed.
        INCOMPLETE = 9, "incomplete";
        /// The flags depend on the other arguments.
        VARIABLE_FLAGS = 10, "variable_flags";
    }
}

/// Group of a command in the documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are Redis's")]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Bitmap,
    HyperLogLog,
    Geo,
    Stream,
    PubSub,
    Transactions,
    Connection,
    Server,
    Scripting,
    Cluster,
    Suggestion,
}

impl Group {
    /// Name of the group in COMMAND DOCS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Geo => "geo",
            Group::Stream => "stream",
            Group::PubSub => "pubsub",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::Cluster => "cluster",
            Group::Suggestion => "suggestion",
        }
    }

    /// Access category that the group implies.
    #[must_use]
    pub const fn category(self) -> u32 {
        match self {
            Group::Generic => acl::KEYSPACE,
            Group::String => acl::STRING,
            Group::List => acl::LIST,
            Group::Set => acl::SET,
            Group::SortedSet => acl::SORTEDSET,
            Group::Hash => acl::HASH,
            Group::Bitmap => acl::BITMAP,
            Group::HyperLogLog => acl::HYPERLOGLOG,
            Group::Geo => acl::GEO,
            Group::Stream => acl::STREAM,
            Group::PubSub => acl::PUBSUB,
            Group::Transactions => acl::TRANSACTION,
            Group::Connection => acl::CONNECTION,
            Group::Scripting => acl::SCRIPTING,
            Group::Suggestion => acl::SEARCH,
            Group::Server | Group::Cluster => 0,
        }
    }
}

/// The part of the keyspace that a command locks while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// The shards of its keys; nothing, if it has no keys.
    Keys,
    /// One shard at a time, as it visits them (SCAN). Runs alone behind the gate when it is part of a transaction.
    Each,
    /// Everything: it runs alone behind the gate (FLUSHALL, KEYS).
    Whole,
    /// The shards of its keys at first, and further shards on demand while it runs (EVAL).
    Script,
    /// Depends on the arguments (SORT with BY or GET).
    ByArgs(fn(Args<'_>) -> Scope),
}

/// Position of a command's first key.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// At this argument.
    Index(usize),
    /// At this argument, unless it is empty. COMMAND INFO calls it an index.
    UnlessEmpty(usize),
    /// After this word. The search for the word begins at this argument; a negative number searches backwards from the
    /// end.
    Keyword(&'static str, i32),
    /// After this word, an option that may appear anywhere from this argument on. The function returns the key's
    /// position, if the option is present. COMMAND INFO calls it a keyword.
    Option(&'static str, i32, fn(Args<'_>) -> Option<usize>),
    /// At the position that this function returns, if any. COMMAND INFO calls both the beginning and the search
    /// "unknown".
    Unknown(fn(Args<'_>) -> Option<usize>),
}

/// Positions of further keys, relative to the first.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// Up to `last`, relative to the first key (negative: from the end, -1 being the last argument), every `step`
    /// arguments. A `limit` of 2 means the first half of the remaining arguments, and so on.
    Range {
        /// Position of the last key, relative to the first, or from the end if negative.
        last: i32,
        /// Distance from one key to the next, in arguments.
        step: i32,
        /// Part of the remaining arguments that are keys: all (0, 1), half (2), and so on.
        limit: i32,
    },
    /// The number of keys is `count` arguments after the beginning, the first key `first` arguments after it.
    Count {
        /// Position of the number of keys, relative to the beginning.
        count: usize,
        /// Position of the first key, relative to the beginning.
        first: usize,
        /// Distance from one key to the next, in arguments.
        step: usize,
    },
}

/// A group of a command's keys that is found by one rule.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// See [`key_flag`].
    pub flags: u32,
    /// Position of the first key.
    pub begin: Begin,
    /// Positions of further keys.
    pub find: Find,
    /// Notes in COMMAND INFO; empty for none.
    pub notes: &'static str,
}

impl KeySpec {
    /// One key, the argument at `index`.
    #[must_use]
    pub const fn at(index: usize, flags: u32) -> KeySpec {
        KeySpec { flags, begin: Begin::Index(index), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
    }

    /// Keys from the argument at `index` on, every `step` arguments. `last` is relative to the end: -1 includes the
    /// last argument.
    #[must_use]
    pub const fn range(index: usize, last: i32, step: i32, flags: u32) -> KeySpec {
        KeySpec { flags, begin: Begin::Index(index), find: Find::Range { last, step, limit: 0 }, notes: "" }
    }

    /// A number of keys, given by the argument at `index`, right after it.
    #[must_use]
    pub const fn counted(index: usize, flags: u32) -> KeySpec {
        KeySpec { flags, begin: Begin::Index(index), find: Find::Count { count: 0, first: 1, step: 1 }, notes: "" }
    }

    /// One key at the position that `find` returns. COMMAND INFO shows its position as unknown.
    #[must_use]
    pub const fn unknown(flags: u32, find: fn(Args<'_>) -> Option<usize>) -> KeySpec {
        KeySpec { flags, begin: Begin::Unknown(find), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
    }

    /// One key after the option `word`, somewhere from the argument at `from` on; `find` returns its position.
    #[must_use]
    pub const fn option(word: &'static str, from: i32, flags: u32, find: fn(Args<'_>) -> Option<usize>) -> KeySpec {
        let begin = Begin::Option(word, from, find);
        KeySpec { flags, begin, find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
    }

    /// Adds the notes in COMMAND INFO.
    #[must_use]
    pub const fn notes(mut self, notes: &'static str) -> KeySpec {
        self.notes = notes;
        self
    }

    /// Calls `visit` with the index of each key in the arguments. Invalid arguments yield no key; the handler will
    /// reject them.
    #[inline]
    pub fn visit(&self, args: Args<'_>, mut visit: impl FnMut(usize)) {
        let Some(begin) = self.begin(args) else { return };
        match self.find {
            Find::Range { last: 0, .. } => {
                if begin < args.len() {
                    visit(begin);
                }
            }
            Find::Range { last, step, limit } => {
                let end = if last >= 0 {
                    begin + last as usize
                } else if limit <= 1 {
                    (args.len() as i64 + i64::from(last)).max(0) as usize
                } else {
                    begin + (args.len() - begin.min(args.len())) / limit as usize - 1
                };
                (begin..=end.min(args.len() - 1)).step_by(step.max(1) as usize).for_each(visit);
            }
            Find::Count { count, first, step } => {
                let Some(count) = resp::num::parse_i64(args.get(begin + count)).filter(|&c| c > 0) else { return };
                let keys = (begin + first..args.len()).step_by(step);
                keys.take(count as usize).for_each(visit);
            }
        }
    }

    /// Returns true if the arguments hold fewer keys than their count names, or no whole number of groups.
    fn is_short(&self, args: Args<'_>) -> bool {
        let Some(begin) = self.begin(args) else { return false };
        match self.find {
            Find::Count { count, first, step } => {
                let keys = (begin + first..args.len()).step_by(step).len();
                resp::num::parse_i64(args.get(begin + count)).is_some_and(|count| count > keys as i64)
            }
            Find::Range { limit, .. } => limit > 1 && args.len().saturating_sub(begin) % limit as usize != 0,
        }
    }

    fn begin(&self, args: Args<'_>) -> Option<usize> {
        match self.begin {
            Begin::Index(index) => Some(index),
            Begin::UnlessEmpty(index) => Some(index).filter(|&index| index < args.len() && !args.get(index).is_empty()),
            Begin::Unknown(find) | Begin::Option(_, _, find) => find(args),
            Begin::Keyword(word, from) => {
                let is_word = |&i: &usize| args.get(i).eq_ignore_ascii_case(word.as_bytes());
                let at = if from >= 0 {
                    (from as usize..args.len()).find(is_word)
                } else {
                    (1..=(args.len() as i64 + i64::from(from)).max(0) as usize).rev().find(is_word)
                };
                at.map(|i| i + 1)
            }
        }
    }
}

impl Info {
    /// All access categories: the group's, those that the flags imply, and the entry's own.
    #[must_use]
    pub fn all_categories(&self) -> u32 {
        use flag::{ADMIN, BLOCKING, FAST, PUBSUB, READONLY, WRITE};
        let mut all = 0;
        let implied = [
            (WRITE, acl::WRITE),
            (READONLY, acl::READ),
            (ADMIN, acl::ADMIN | acl::DANGEROUS),
            (PUBSUB, acl::PUBSUB),
            (BLOCKING, acl::BLOCKING),
        ];
        for (flag, categories) in implied {
            if self.flags & flag != 0 {
                all |= categories;
            }
        }
        // Redis counts scripting commands neither as reads nor as writes.
        if self.group == Group::Scripting {
            all &= !(acl::READ | acl::WRITE);
        }
        all |= self.categories | if self.in_group_category { self.group.category() } else { 0 };
        all | if self.flags & FAST != 0 { acl::FAST } else { acl::SLOW }
    }

    /// True if the command has this flag.
    #[inline]
    #[must_use]
    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// True if it has this fact.
    #[inline]
    #[must_use]
    pub const fn is(&self, fact: u32) -> bool {
        self.facts & fact != 0
    }

    /// True if a command with these arguments, including the name, may block: always, or because of BLOCK before STREAMS.
    #[must_use]
    pub fn may_block<'a>(&self, args: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let mut options = args.into_iter().take_while(|arg| !arg.eq_ignore_ascii_case(b"STREAMS"));
        let mut is_chosen = || options.any(|arg| arg.eq_ignore_ascii_case(b"BLOCK"));
        self.has(flag::BLOCKING) && (!self.is(fact::WAITS_BY_OPTION) || is_chosen())
    }

    /// True if this number of arguments, including the name, is valid.
    #[inline]
    #[must_use]
    pub fn accepts(&self, args: usize) -> bool {
        let args = args as i64;
        let arity = i64::from(self.arity);
        if arity >= 0 { args == arity } else { args >= -arity }
    }

    /// The position of the only key, if the command always has exactly one.
    #[must_use]
    pub fn only_key(&self) -> Option<usize> {
        match self.keys {
            [KeySpec { begin: Begin::Index(index), find: Find::Range { last: 0, .. }, .. }]
                if self.arity.unsigned_abs() as usize > *index =>
            {
                Some(*index)
            }
            _ => None,
        }
    }

    /// Calls `visit` with the index of each key in the arguments.
    #[inline]
    pub fn visit_keys(&self, args: Args<'_>, mut visit: impl FnMut(usize)) {
        self.keys.iter().for_each(|keys| keys.visit(args, &mut visit));
    }

    /// Returns true if the arguments hold fewer keys than their count names. The handler will reject them.
    #[must_use]
    pub fn lacks_keys(&self, args: Args<'_>) -> bool {
        self.keys.iter().any(|keys| keys.is_short(args))
    }

    /// The scope of a call with these arguments.
    #[inline]
    #[must_use]
    pub fn scope_for(&self, args: Args<'_>) -> Scope {
        match self.scope {
            Scope::ByArgs(decide) => decide(args),
            scope => scope,
        }
    }
}

impl<R> Spec<R> {
    /// Creates the entry of a command. The methods below add the other declarations; all of them work at compile time.
    #[must_use]
    pub const fn new(name: &'static str, arity: i32, flags: u32, run: R) -> Spec<R> {
        let info = Info {
            name,
            arity,
            flags,
            facts: 0,
            categories: 0,
            in_group_category: true,
            keys: &[],
            items: (0, 0),
            scope: Scope::Keys,
            value: None,
            waits: None,
            publishes: None,
            script: None,
            is_secret: None,
            flags_of_key: None,
            databases: None,
            group: Group::Generic,
            since: "",
            summary: "",
            complexity: "",
            syntax: "",
            tips: &[],
            is_system: false,
            deprecated: None,
            history: &[],
        };
        Spec { info, run, subcommands: &[] }
    }
}

impl<R: Copy> Spec<R> {
    /// Sets the positions of its keys.
    #[must_use]
    pub const fn keys(mut self, keys: &'static [KeySpec]) -> Self {
        self.info.keys = keys;
        self
    }

    /// Sets the part of the keyspace that it locks.
    #[must_use]
    pub const fn scope(mut self, scope: Scope) -> Self {
        self.info.scope = scope;
        self
    }

    /// Declares that every `step`th argument from `first` on is a member or field of the first key's collection.
    #[must_use]
    pub const fn items(mut self, first: usize, step: usize) -> Self {
        self.info.items = (first, step);
        self
    }

    /// Adds facts; see [`fact`].
    #[must_use]
    pub const fn facts(mut self, facts: u32) -> Self {
        self.info.facts |= facts;
        self
    }

    /// Declares that it is brief; see [`fact::BRIEF`].
    #[must_use]
    pub const fn brief(self) -> Self {
        self.facts(fact::BRIEF)
    }

    /// Sets the type that ends its wait when a key gets it.
    #[must_use]
    pub const fn waits_for(mut self, kind: Type) -> Self {
        self.info.waits = Some(Waits { kind, ends_without_key: false });
        self
    }

    /// Like [`Spec::waits_for`], for a command that fails instead of waiting on when its key is deleted.
    #[must_use]
    pub const fn waits_while_there_is(mut self, kind: Type) -> Self {
        self.info.waits = Some(Waits { kind, ends_without_key: true });
        self
    }

    /// Sets the kind of channel that it publishes on.
    #[must_use]
    pub const fn publishes(mut self, channels: Channels) -> Self {
        self.info.publishes = Some(channels);
        self
    }

    /// Sets the kind of argument that identifies the script that it runs.
    #[must_use]
    pub const fn script(mut self, script: Script) -> Self {
        self.info.script = Some(script);
        self
    }

    /// Marks arguments that must not be shown.
    #[must_use]
    pub const fn secret(mut self, is_secret: IsSecret) -> Self {
        self.info.is_secret = Some(is_secret);
        self
    }

    /// Sets the flags of its keys that have VARIABLE_FLAGS.
    #[must_use]
    pub const fn flags_of_key(mut self, flags: FlagsOfKey) -> Self {
        self.info.flags_of_key = Some(flags);
        self
    }

    /// Marks arguments that name databases.
    #[must_use]
    pub const fn databases(mut self, databases: NamedDatabases) -> Self {
        self.info.databases = Some(databases);
        self
    }

    /// Adds access categories beyond the implied ones.
    #[must_use]
    pub const fn categories(mut self, categories: u32) -> Self {
        self.info.categories = categories;
        self
    }

    /// Excludes it from its group's access category.
    #[must_use]
    pub const fn not_in_group_category(mut self) -> Self {
        self.info.in_group_category = false;
        self
    }

    /// Sets its documentation: group, first version, complexity, summary and syntax.
    #[must_use]
    pub const fn docs(
        mut self,
        group: Group,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
        syntax: &'static str,
    ) -> Self {
        self.info.group = group;
        self.info.since = since;
        self.info.complexity = complexity;
        self.info.summary = summary;
        self.info.syntax = syntax;
        self
    }

    /// Adds hints for clients of clusters.
    #[must_use]
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.info.tips = tips;
        self
    }

    /// Sets the versions of Redis that added features to it.
    #[must_use]
    pub const fn history(mut self, history: &'static [(&'static str, &'static str)]) -> Self {
        self.info.history = history;
        self
    }

    /// Declares that it is for servers and their tests.
    #[must_use]
    pub const fn system(mut self) -> Self {
        self.info.is_system = true;
        self
    }

    /// Declares the version that deprecated it, and its replacement.
    #[must_use]
    pub const fn deprecated(mut self, since: &'static str, replaced_by: &'static str) -> Self {
        self.info.deprecated = Some(Deprecated { since, replaced_by });
        self
    }

    /// Adds subcommands.
    #[must_use]
    pub const fn subcommands(mut self, subcommands: &'static [Spec<R>]) -> Self {
        self.subcommands = subcommands;
        self
    }
}

/// Declares a type of value for the keys of several entries.
#[derive(Clone, Copy)]
pub struct On(pub Type);

impl On {
    /// Returns the entries with the type set.
    #[must_use]
    pub const fn entries<R: Copy, const N: usize>(self, mut entries: [Spec<R>; N]) -> [Spec<R>; N] {
        let mut at = 0;
        while at < N {
            // A container has no keys and gets no type.
            if !entries[at].info.keys.is_empty() {
                entries[at].info.value = Some(self.0);
            }
            at += 1;
        }
        entries
    }
}
