//! What scripts say that they do, by the flags of their shebangs.

use commands::error::Error;
use commands::spec::Script;
use resp::request::Args;
use resp::splitargs::split_args;

use super::cache::Scripts;
use super::library::Libraries;
use crate::command_table::Command;

/// What a script says that it does, by the flags of its shebang.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights(u8);

impl Rights {
    /// It writes nothing.
    pub const NO_WRITES: Rights = Rights(1);
    /// It may run, and write, though memory is over its limit.
    pub const ALLOW_OOM: Rights = Rights(2);
    /// It may run on a replica that has lost its source.
    pub const ALLOW_STALE: Rights = Rights(4);
    /// It must not run in a cluster.
    pub const NO_CLUSTER: Rights = Rights(8);
    /// It may reach for keys in several slots of a cluster.
    pub const CROSS_SLOT: Rights = Rights(16);
    /// It says nothing, since it has no shebang: what it does is looked at when it does it.
    pub const UNSAID: Rights = Rights(32);

    /// Each flag with its name.
    pub const NAMES: &[(Rights, &str)] = &[
        (Rights::NO_WRITES, "no-writes"),
        (Rights::ALLOW_OOM, "allow-oom"),
        (Rights::ALLOW_STALE, "allow-stale"),
        (Rights::NO_CLUSTER, "no-cluster"),
        (Rights::CROSS_SLOT, "allow-cross-slot-keys"),
    ];

    /// Whether it has this flag.
    #[must_use]
    pub fn has(self, flag: Rights) -> bool {
        self.0 & flag.0 != 0
    }

    /// These and another.
    #[must_use]
    pub fn with(self, flag: Rights) -> Rights {
        Rights(self.0 | flag.0)
    }

    /// The names of its flags.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }

    /// The flag of this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Rights> {
        Self::NAMES.iter().find(|(_, n)| n.as_bytes() == name).map(|(flag, _)| *flag)
    }

    /// The flags in a text's first line, if it begins with "#!", and where its code begins.
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
            // None at all is nothing to say; an empty name among others is wrong, as in Redis.
            let names = (!flags.is_empty()).then(|| flags.split(|&b| b == b','));
            for name in names.into_iter().flatten() {
                let flag = Rights::named(name)
                    .ok_or_else(|| Error::quoting([b"ERR Unexpected flag in script shebang: ", name].concat()))?;
                rights = rights.with(flag);
            }
        }
        // The line's end stays, so that errors count lines from the shebang.
        Ok((rights, end))
    }
}

/// Whether the script that a command would run may write, as its flags have it. None, if it has none or isn't known, or
/// the command runs no script.
pub(crate) fn may_write(scripts: &Scripts, libraries: &Libraries, command: &Command, args: &Args<'_>) -> Option<bool> {
    let rights = match command.info.script? {
        Script::Text => Rights::of_shebang(args.get(1)).ok().map(|(rights, _)| rights),
        Script::Digest => scripts.look_up(args.get(1), false).map(|script| script.rights),
        Script::Function => libraries.of_function(args.get(1)).map(|(library, index)| library.functions[index].rights),
    };
    rights.filter(|rights| !rights.has(Rights::UNSAID)).map(|rights| !rights.has(Rights::NO_WRITES))
}
