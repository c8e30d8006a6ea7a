//! What a command is, declared once: COMMAND, COMMAND DOCS, key extraction, access categories, locks and the tools'
//! hints all come from here. The vocabulary is that of Redis's "COMMAND INFO" and "COMMAND DOCS" pages.

mod facts;

use resp::request::Args;
use store::value::Type;

pub use facts::{Channels, FlagsOfKey, IsSecret, NamedDatabases, Script, Waits, fact};

/// A command's entry: what it is, and what runs it. `R` is the kind of handler.
#[derive(Clone, Copy)]
pub struct Spec<R: 'static> {
    /// Everything but the handler.
    pub info: Info,
    /// The handler. Of a container such as CONFIG, it runs when no subcommand is given.
    pub run: R,
    /// A container's subcommands.
    pub subcommands: &'static [Spec<R>],
}

/// The declaration of a command.
#[derive(Clone, Copy)]
pub struct Info {
    /// The name in lower case; a subcommand's is without its container's.
    pub name: &'static str,
    /// Arguments including the name; negative: at least so many.
    pub arity: i32,
    /// See [`flag`].
    pub flags: u32,
    /// See [`fact`].
    pub facts: u32,
    /// Access categories beyond those that follow from the flags; see [`acl`].
    pub categories: u32,
    /// Whether the group brings its access category. Of SORT and of containers it doesn't.
    pub in_group_category: bool,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// Which arguments are members or fields of the first key's collection: the first, and every how many; none, if
    /// 0. Only a hint, by which memory is fetched ahead.
    pub items: (usize, usize),
    /// What it must have to itself.
    pub scope: Scope,
    /// The type of value that its keys hold, if it is for one type. By that, memory is fetched ahead.
    pub value: Option<Type>,
    /// What it waits for when it finds nothing, if it may wait.
    pub waits: Option<Waits>,
    /// Where it publishes.
    pub publishes: Option<Channels>,
    /// What names the script that it runs.
    pub script: Option<Script>,
    /// Which of its arguments must not be shown.
    pub is_secret: Option<IsSecret>,
    /// The flags of its keys with VARIABLE_FLAGS for some arguments; without it, those of the specification.
    pub flags_of_key: Option<FlagsOfKey>,
    /// Which of its arguments name databases.
    pub databases: Option<NamedDatabases>,
    /// The group in the documentation.
    pub group: Group,
    /// The version of Redis that brought it.
    pub since: &'static str,
    /// One sentence for people.
    pub summary: &'static str,
    /// In the size of its input.
    pub complexity: &'static str,
    /// Its arguments in the notation of [`crate::syntax`]: `key value [NX | XX]:condition [EX seconds:integer]`.
    pub syntax: &'static str,
    /// Hints for proxies and clients of clusters ("nondeterministic_output").
    pub tips: &'static [&'static str],
    /// Whether it is for servers and their tests, and not for applications.
    pub is_system: bool,
    /// Whether new applications should use something else.
    pub deprecated: Option<Deprecated>,
    /// What came later than the command: the version of Redis, and what it added.
    pub history: &'static [(&'static str, &'static str)],
}

/// That there is something better than a command.
#[derive(Clone, Copy)]
pub struct Deprecated {
    /// The version of Redis that said so first.
    pub since: &'static str,
    /// What to use, as COMMAND DOCS puts it: "`LMOVE` with the `RIGHT` and `LEFT` arguments".
    pub replaced_by: &'static str,
}

/// Flags of commands, with the names that COMMAND INFO prints.
pub mod flag {
    macro_rules! flags {
        ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
            /// Each flag with its name in the protocol, in the order in which COMMAND INFO prints them.
            pub const NAMES: &[(u32, &str)] = &[$(($name, $text)),*];
        };
    }
    flags! {
        /// Changes keys.
        WRITE = 0, "write";
        /// Only reads keys.
        READONLY = 1, "readonly";
        /// Refused when memory is over its limit.
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
        /// Allowed on a replica that has lost its source.
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
        /// May have effects though it is no write.
        MAY_REPLICATE = 14, "may_replicate";
        /// Runs without keys, though it may have some.
        NO_MANDATORY_KEYS = 19, "no_mandatory_keys";
        /// Not allowed while data is loaded in the background.
        NO_ASYNC_LOADING = 15, "no_async_loading";
        /// Not allowed within MULTI.
        NO_MULTI = 16, "no_multi";
        /// Its keys can't be told from positions alone.
        MOVABLEKEYS = 17, "movablekeys";
        /// Allowed while a script runs too long.
        ALLOW_BUSY = 18, "allow_busy";
    }
}

/// Access categories of commands, with the names that ACL CAT prints.
pub mod acl {
    macro_rules! categories {
        ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
            /// Each category with its name in the protocol, in the order in which COMMAND INFO prints them.
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
        /// Searches, or changes what is searched: RediSearch's.
        SEARCH = 21, "@search";
    }
}

/// Flags of keys, with the names that COMMAND INFO prints.
pub mod key_flag {
    macro_rules! flags {
        ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
            /// Each flag with its name in the protocol, in the order in which COMMAND INFO prints them.
            pub const NAMES: &[(u32, &str)] = &[$(($name, $text)),*];
        };
    }
    flags! {
        /// Only read.
        RO = 0, "RO";
        /// Read and changed.
        RW = 1, "RW";
        /// Overwritten, whatever it held.
        OW = 2, "OW";
        /// Removed.
        RM = 3, "RM";
        /// Its contents reach the client or another key.
        ACCESS = 4, "access";
        /// Its contents are changed, depending on what they were.
        UPDATE = 5, "update";
        /// Contents are added.
        INSERT = 6, "insert";
        /// Contents are removed.
        DELETE = 7, "delete";
        /// Named like a key but none (a shard channel).
        NOT_KEY = 8, "not_key";
        /// Some keys may be missed.
        INCOMPLETE = 9, "incomplete";
        /// The flags depend on the other arguments.
        VARIABLE_FLAGS = 10, "variable_flags";
    }
}

/// The group of a command in the documentation.
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
    /// The name in COMMAND DOCS.
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

    /// The access category that comes with the group.
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

/// What a command must have to itself while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// The shards of its keys; none, if it has no keys.
    Keys,
    /// One shard after the other, as it visits them (SCAN). Behind the gate when part of a transaction.
    Each,
    /// Everything, alone behind the gate (FLUSHALL, KEYS).
    Whole,
    /// The shards of its keys to begin with, and whatever it reaches for while it runs (EVAL).
    Script,
    /// Depends on the arguments (SORT with BY or GET).
    ByArgs(fn(Args<'_>) -> Scope),
}

/// Where a command's keys begin.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// At this argument.
    Index(usize),
    /// The same, unless that is empty. COMMAND INFO calls it an index.
    UnlessEmpty(usize),
    /// After this word, which is looked for from this argument on; negative: from the end backwards.
    Keyword(&'static str, i32),
    /// After this word, an option that may stand anywhere from this argument on: where this function says, if it is
    /// there. COMMAND INFO calls it a keyword.
    Option(&'static str, i32, fn(Args<'_>) -> Option<usize>),
    /// Where this function says, if there are any. COMMAND INFO calls it "unknown", and what follows it too.
    Unknown(fn(Args<'_>) -> Option<usize>),
}

/// How keys follow each other from where they begin.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// To `last`, relative to the first (negative: from the end, -1 being the last argument), every `step` arguments;
    /// `limit` 2 means the first half of what is left, and so on.
    Range {
        /// The last key, relative to the first, or from the end.
        last: i32,
        /// Arguments from one key to the next.
        step: i32,
        /// Which part of the arguments left are keys: all (0, 1), half (2), and so on.
        limit: i32,
    },
    /// A count of keys is `count` arguments after the beginning, the first key `first` arguments after it.
    Count {
        /// Where the count is, relative to the beginning.
        count: usize,
        /// Where the first key is, relative to the beginning.
        first: usize,
        /// Arguments from one key to the next.
        step: usize,
    },
}

/// Some keys of a command.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// See [`key_flag`].
    pub flags: u32,
    /// Where they begin.
    pub begin: Begin,
    /// How they go on.
    pub find: Find,
    /// What COMMAND INFO says about it; nothing, if empty.
    pub notes: &'static str,
}

impl KeySpec {
    /// One key, the argument at `index`.
    #[must_use]
    pub const fn at(index: usize, flags: u32) -> KeySpec {
        KeySpec { flags, begin: Begin::Index(index), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
    }

    /// Keys from the argument at `index` to the last but `-last - 1`, every `step` arguments.
    #[must_use]
    pub const fn range(index: usize, last: i32, step: i32, flags: u32) -> KeySpec {
        KeySpec { flags, begin: Begin::Index(index), find: Find::Range { last, step, limit: 0 }, notes: "" }
    }

    /// As many keys as the argument at `index` says, right after it.
    #[must_use]
    pub const fn counted(index: usize, flags: u32) -> KeySpec {
        KeySpec { flags, begin: Begin::Index(index), find: Find::Count { count: 0, first: 1, step: 1 }, notes: "" }
    }

    /// One key, the argument that `find` names; COMMAND INFO knows nothing of how it is found.
    #[must_use]
    pub const fn unknown(flags: u32, find: fn(Args<'_>) -> Option<usize>) -> KeySpec {
        KeySpec { flags, begin: Begin::Unknown(find), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
    }

    /// One key, which follows the option `word`, somewhere from the argument at `from` on; `find` says where.
    #[must_use]
    pub const fn option(word: &'static str, from: i32, flags: u32, find: fn(Args<'_>) -> Option<usize>) -> KeySpec {
        let begin = Begin::Option(word, from, find);
        KeySpec { flags, begin, find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
    }

    /// Adds what COMMAND INFO says about it.
    #[must_use]
    pub const fn notes(mut self, notes: &'static str) -> KeySpec {
        self.notes = notes;
        self
    }

    /// Calls `visit` with the index of every key that the arguments hold. Arguments that make no sense give no key;
    /// the handler will refuse them.
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
    /// All access categories: the group's, those that follow from the flags, and the entry's own.
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
        // Redis counts scripting's commands as neither reads nor writes of their own.
        if self.group == Group::Scripting {
            all &= !(acl::READ | acl::WRITE);
        }
        all |= self.categories | if self.in_group_category { self.group.category() } else { 0 };
        all | if self.flags & FAST != 0 { acl::FAST } else { acl::SLOW }
    }

    /// Whether it has this flag.
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

    /// Whether so many arguments, the name included, are right.
    #[inline]
    #[must_use]
    pub fn accepts(&self, args: usize) -> bool {
        let args = args as i64;
        let arity = i64::from(self.arity);
        if arity >= 0 { args == arity } else { args >= -arity }
    }

    /// The place of its only key, if it has exactly one whatever its arguments.
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

    /// Calls `visit` with the index of every key that the arguments hold.
    #[inline]
    pub fn visit_keys(&self, args: Args<'_>, mut visit: impl FnMut(usize)) {
        self.keys.iter().for_each(|keys| keys.visit(args, &mut visit));
    }

    /// The scope for these arguments.
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
    /// A command with its handler; the rest is added by the methods below, which all work at compile time.
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
    /// Adds where its keys are.
    #[must_use]
    pub const fn keys(mut self, keys: &'static [KeySpec]) -> Self {
        self.info.keys = keys;
        self
    }

    /// Adds what it must have to itself.
    #[must_use]
    pub const fn scope(mut self, scope: Scope) -> Self {
        self.info.scope = scope;
        self
    }

    /// Adds which arguments are members or fields of the first key's collection: those from `first` on, every `step`.
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

    /// Adds the type that a key must get to end its wait.
    #[must_use]
    pub const fn waits_for(mut self, kind: Type) -> Self {
        self.info.waits = Some(Waits { kind, ends_without_key: false });
        self
    }

    /// The same for a command that fails, instead of waiting on, when its key is gone.
    #[must_use]
    pub const fn waits_while_there_is(mut self, kind: Type) -> Self {
        self.info.waits = Some(Waits { kind, ends_without_key: true });
        self
    }

    /// Adds where it publishes.
    #[must_use]
    pub const fn publishes(mut self, channels: Channels) -> Self {
        self.info.publishes = Some(channels);
        self
    }

    /// Adds what names the script that it runs.
    #[must_use]
    pub const fn script(mut self, script: Script) -> Self {
        self.info.script = Some(script);
        self
    }

    /// Adds which of its arguments must not be shown.
    #[must_use]
    pub const fn secret(mut self, is_secret: IsSecret) -> Self {
        self.info.is_secret = Some(is_secret);
        self
    }

    /// Adds what the flags of its keys with VARIABLE_FLAGS are.
    #[must_use]
    pub const fn flags_of_key(mut self, flags: FlagsOfKey) -> Self {
        self.info.flags_of_key = Some(flags);
        self
    }

    /// Adds which of its arguments name databases.
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

    /// Keeps its group's access category from it.
    #[must_use]
    pub const fn not_in_group_category(mut self) -> Self {
        self.info.in_group_category = false;
        self
    }

    /// Adds its documentation: group, since, complexity, summary and syntax.
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

    /// Says which versions of Redis have added what to it.
    #[must_use]
    pub const fn history(mut self, history: &'static [(&'static str, &'static str)]) -> Self {
        self.info.history = history;
        self
    }

    /// Says that it is for servers and their tests.
    #[must_use]
    pub const fn system(mut self) -> Self {
        self.info.is_system = true;
        self
    }

    /// Says since when something else is better, and what.
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

/// Declares for several entries that their keys hold this type.
#[derive(Clone, Copy)]
pub struct On(pub Type);

impl On {
    /// The entries with that.
    #[must_use]
    pub const fn entries<R: Copy, const N: usize>(self, mut entries: [Spec<R>; N]) -> [Spec<R>; N] {
        let mut at = 0;
        while at < N {
            // Not of a container, which has none.
            if !entries[at].info.keys.is_empty() {
                entries[at].info.value = Some(self.0);
            }
            at += 1;
        }
        entries
    }
}
