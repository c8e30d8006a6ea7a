//! The rights that scripts declare by the flags of their shebangs.

use commands::error::Error;
use commands::spec::{Script, flag};
use resp::request::Args;
use resp::splitargs::split_args;

use super::cache::Scripts;
use super::library::Libraries;
use commands::table::Command;

/// The rights that a script declares by the flags of its shebang.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights(u8);

impl Rights {
    /// The script writes nothing.
    pub const NO_WRITES: Rights = Rights(1);
    /// The script may run, and write, although memory is over its limit.
    pub const ALLOW_OOM: Rights = Rights(2);
    /// The script may run on a replica without a link to its primary.
    pub const ALLOW_STALE: Rights = Rights(4);
    /// The script must not run in a cluster.
    pub const NO_CLUSTER: Rights = Rights(8);
    /// The script may access keys in several slots of a cluster.
    pub const CROSS_SLOT: Rights = Rights(16);
    /// The script has no shebang, so it declares nothing. Each of its commands is checked when it runs.
    pub const UNSAID: Rights = Rights(32);

    /// Each flag with its name.
    pub const NAMES: &[(Rights, &str)] = &[
        (Rights::NO_WRITES, "no-writes"),
        (Rights::ALLOW_OOM, "allow-oom"),
        (Rights::ALLOW_STALE, "allow-stale"),
        (Rights::NO_CLUSTER, "no-cluster"),
        (Rights::CROSS_SLOT, "allow-cross-slot-keys"),
    ];

    /// Returns whether this set has the flag.
    #[must_use]
    pub fn has(self, flag: Rights) -> bool {
        self.0 & flag.0 != 0
    }

    /// Returns this set with another flag.
    #[must_use]
    pub fn with(self, flag: Rights) -> Rights {
        Rights(self.0 | flag.0)
    }

    /// Returns the names of its flags.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }

    /// Returns the flag with this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Rights> {
        Self::NAMES.iter().find(|(_, n)| n.as_bytes() == name).map(|(flag, _)| *flag)
    }

    /// Returns the flags in a text's first line, if it begins with "#!", and the start of its code.
    pub(crate) fn of_shebang(text: &[u8]) -> Result<(Rights, usize), Error> {
        if !text.starts_with(b"#!") {
            return Ok((Rights::UNSAID, 0));
        }
        let Some(end) = text.iter().position(|&b| b == b'\n') else {
            return Err(Error::new("ERR Invalid script shebang"));
        };
        let words = split_args(&text[..end]).map_err(|_| Error::new("ERR Invalid engine in script shebang"))?;
        let (engine, words) = words.split_first().map_or((&b""[..], &[][..]), |(first, rest)| (&first[..], rest));
        if engine != b"#!lua" {
            return Err(Error::quoting([b"ERR Unexpected engine in script shebang: ", engine].concat()));
        }
        let mut rights = Rights::default();
        for word in words {
            let Some(flags) = word.strip_prefix(b"flags=") else {
                return Err(Error::quoting([b"ERR Unknown lua shebang option: ", &word[..]].concat()));
            };
            // An empty list is allowed; an empty name among others is an error, as in Redis.
            let names = (!flags.is_empty()).then(|| flags.split(|&b| b == b','));
            for name in names.into_iter().flatten() {
                let flag = Rights::named(name)
                    .ok_or_else(|| Error::quoting([b"ERR Unexpected flag in script shebang: ", name].concat()))?;
                rights = rights.with(flag);
            }
        }
        // The code keeps the line's end, so that errors count lines from the shebang.
        Ok((rights, end))
    }
}

/// Returns the flags that the script of a command declares. Returns `None` if the script declares none or is unknown,
/// or if the command runs no script.
pub(crate) fn declared(scripts: &Scripts, libraries: &Libraries, command: &Command, args: &Args<'_>) -> Option<Rights> {
    let rights = match command.info.script? {
        Script::Text => Rights::of_shebang(args.get(1)).ok().map(|(rights, _)| rights),
        Script::Digest => scripts.look_up(args.get(1), false).map(|script| script.rights),
        Script::Function => libraries.of_function(args.get(1)).map(|(library, index)| library.functions[index].rights),
    };
    rights.filter(|rights| !rights.has(Rights::UNSAID))
}

/// Returns whether the script of a command may write, by its flags. Returns `None` if the script declares none or is
/// unknown, or if the command runs no script.
pub(crate) fn may_write(scripts: &Scripts, libraries: &Libraries, command: &Command, args: &Args<'_>) -> Option<bool> {
    declared(scripts, libraries, command, args).map(|rights| !rights.has(Rights::NO_WRITES))
}

/// Returns a command's flags. The flags that its script declares replace the command's own, like in Redis.
pub(crate) fn flags(scripts: &Scripts, libraries: &Libraries, command: &Command, args: &Args<'_>) -> u32 {
    let flags = command.info.flags;
    let Some(rights) = declared(scripts, libraries, command, args) else { return flags };
    let writes = !rights.has(Rights::NO_WRITES);
    let of = |flag: u32, is_set: bool| if is_set { flag } else { 0 };
    (flags & !(flag::STALE | flag::DENYOOM | flag::WRITE | flag::MAY_REPLICATE))
        | of(flag::WRITE, writes)
        | of(flag::DENYOOM, writes && !rights.has(Rights::ALLOW_OOM))
        | of(flag::STALE, rights.has(Rights::ALLOW_STALE))
}
