//! Classifies commands: some must not run on a connection that callers share.

use std::time::Duration;

use resp::longdouble::F80;
use resp::num::parse_i64;

use crate::error::Error;

/// Effect of a command on its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The command has no such effect.
    Shareable,
    /// The command may block all later commands for this time; `None` is unlimited.
    Blocking(Option<Duration>),
    /// The command changes the meaning of later commands or their replies, or refers to earlier commands of its own
    /// connection. The string is its name.
    Unshareable(String),
}

/// Position of a blocking command's timeout in seconds.
#[derive(Clone, Copy)]
enum TimeoutAt {
    First,
    Last,
}

/// Commands that wait for other clients. XREAD and XREADGROUP wait only with the option BLOCK, in milliseconds.
const BLOCKING: &[(&str, TimeoutAt)] = &[
    ("BLMOVE", TimeoutAt::Last),
    ("BLMPOP", TimeoutAt::First),
    ("BLPOP", TimeoutAt::Last),
    ("BRPOP", TimeoutAt::Last),
    ("BRPOPLPUSH", TimeoutAt::Last),
    ("BZMPOP", TimeoutAt::First),
    ("BZPOPMAX", TimeoutAt::Last),
    ("BZPOPMIN", TimeoutAt::Last),
];

/// Commands that report on the writes of their own connection. On another connection they would say "replicated"
/// regardless of the caller's writes, and on the shared connection they would block all callers. Within a transaction
/// they cover only the writes before it.
const OF_OWN_WRITES: &[&str] = &["WAIT", "WAITAOF"];

/// Commands that change the state of their connection. Within a transaction they do so, too: EXEC doesn't undo it.
const UNSHAREABLE: &[&str] = &[
    "ASKING",
    "AUTH",
    "DISCARD",
    "EXEC",
    "HELLO",
    "MONITOR",
    "MULTI",
    "PSUBSCRIBE",
    "PSYNC",
    "PUNSUBSCRIBE",
    "QUIT",
    "READONLY",
    "READWRITE",
    "REPLCONF",
    "RESET",
    "SELECT",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SUNSUBSCRIBE",
    "SYNC",
    "UNSUBSCRIBE",
    "UNWATCH",
    "WATCH",
];

/// Commands that change the state with some subcommands only. Even a harmless change would be lost silently with the
/// next connection: a cache that relies on CLIENT TRACKING would stay stale forever.
const UNSHAREABLE_SUBCOMMANDS: &[(&str, &[&str])] = &[
    (
        "CLIENT",
        &["CACHING", "CAPA", "IMPORT-SOURCE", "NO-EVICT", "NO-TOUCH", "REPLY", "SETINFO", "SETNAME", "TRACKING"],
    ),
    // Penstock's counting of a connection's commands under a token, and its rule for the commands behind a failure.
    ("PIPELINE", &["ABORT", "RESUME", "START", "SYNC"]),
    ("SCRIPT", &["DEBUG"]),
];

/// A request without a name. Servers never answer it, and its caller would get the reply of another caller.
const NOTHING: &[u8] = b"*0\r\n";

/// Longer than every name above.
const NAME_BYTES_MAX: usize = 16;

/// Classifies the command of this request.
pub(crate) fn kind_of(request: &[u8]) -> Sharing {
    let mut args = Args(request);
    let mut name = [0; NAME_BYTES_MAX];
    if request == NOTHING {
        return Sharing::Unshareable("an empty request".to_owned());
    }
    let Some(name) = args.next().and_then(|word| upper_case(word, &mut name)) else { return Sharing::Shareable };
    if let Some(blocking) = blocking_kind(name, args.clone()) {
        return blocking;
    }
    if UNSHAREABLE.contains(&name) || OF_OWN_WRITES.contains(&name) {
        return Sharing::Unshareable(name.to_owned());
    }
    match unshareable_subcommand(name, args.next()) {
        Some(subcommand) => Sharing::Unshareable(format!("{name} {subcommand}")),
        None => Sharing::Shareable,
    }
}

/// Returns [`Sharing::Blocking`] if the command waits for other clients.
fn blocking_kind(name: &str, mut args: Args<'_>) -> Option<Sharing> {
    if matches!(name, "XREAD" | "XREADGROUP") {
        // BLOCK counts at any position, because newer servers may have options that are unknown here. The worst case is
        // a dedicated connection without need.
        let may_block = args.clone().any(|arg| arg.eq_ignore_ascii_case(b"BLOCK"));
        return may_block.then(|| Sharing::Blocking(time_from_ms(block_option(args).and_then(parse_i64))));
    }
    let (_, timeout_at) = BLOCKING.iter().find(|(blocking, _)| *blocking == name)?;
    let seconds = match timeout_at {
        TimeoutAt::First => args.next(),
        TimeoutAt::Last => args.last(),
    };
    // Servers round up to whole milliseconds.
    let ms = seconds.and_then(F80::parse).map(|seconds| seconds.times(1000).ceil());
    Some(Sharing::Blocking(time_from_ms(ms)))
}

/// Returns the value of XREAD's or XREADGROUP's last BLOCK option. A group, a consumer or a key may have an option's
/// name.
fn block_option<'a>(mut args: Args<'a>) -> Option<&'a [u8]> {
    let mut block = None;
    while let Some(option) = args.next() {
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        if is(b"STREAMS") {
            break;
        } else if is(b"BLOCK") {
            block = args.next();
        } else if is(b"COUNT") {
            args.next();
        } else if is(b"GROUP") {
            args.nth(1);
        }
    }
    block
}

/// Returns the waiting time for this timeout; `None` is unlimited.
fn time_from_ms(timeout_ms: Option<i64>) -> Option<Duration> {
    match timeout_ms {
        Some(0) => None,
        // Servers refuse an invalid or negative timeout at once.
        other => Some(Duration::from_millis(other.and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default())),
    }
}

fn unshareable_subcommand(name: &str, subcommand: Option<&[u8]>) -> Option<&'static str> {
    let (_, subcommands) = UNSHAREABLE_SUBCOMMANDS.iter().find(|(container, _)| *container == name)?;
    let subcommand = subcommand?;
    subcommands.iter().find(|name| subcommand.eq_ignore_ascii_case(name.as_bytes())).copied()
}

/// Checks the commands of a pipeline.
///
/// # Errors
/// Returns [`Error::NotShareable`] for the first command that can't be part of a shared pipeline.
pub(crate) fn check_all<'a>(mut requests: impl Iterator<Item = &'a [u8]>) -> Result<(), Error> {
    requests.try_for_each(|request| match kind_of(request) {
        Sharing::Shareable => Ok(()),
        Sharing::Blocking(_) => Err(Error::NotShareable("a blocking command".to_owned())),
        Sharing::Unshareable(name) => Err(Error::NotShareable(name)),
    })
}

/// Checks the commands of a transaction. Blocking commands don't block there.
///
/// # Errors
/// Returns [`Error::NotShareable`] for the first command that can't be part of a shared transaction.
pub(crate) fn check_inside<'a>(mut requests: impl Iterator<Item = &'a [u8]>) -> Result<(), Error> {
    requests.try_for_each(|request| match kind_of(request) {
        Sharing::Unshareable(name) => Err(Error::NotShareable(name)),
        _ => Ok(()),
    })
}

/// Returns true if any of these complete requests changes its connection, or if the bytes can't be parsed.
pub(crate) fn any_alters(mut requests: &[u8]) -> bool {
    while !requests.is_empty() {
        let Some((request, rest)) = length_of_first(requests).and_then(|length| requests.split_at_checked(length))
        else {
            return true;
        };
        if matches!(kind_of(request), Sharing::Unshareable(_)) {
            return true;
        }
        requests = rest;
    }
    false
}

fn length_of_first(requests: &[u8]) -> Option<usize> {
    let mut args = Args(requests);
    let count: usize = std::str::from_utf8(args.line()?.strip_prefix(b"*")?).ok()?.parse().ok()?;
    (0..count).try_for_each(|_| args.next().map(drop))?;
    Some(requests.len() - args.0.len())
}

fn upper_case<'a>(word: &[u8], room: &'a mut [u8; NAME_BYTES_MAX]) -> Option<&'a str> {
    let room = room.get_mut(..word.len())?;
    room.copy_from_slice(word);
    room.make_ascii_uppercase();
    std::str::from_utf8(room).ok()
}

/// Iterates over the arguments of a request that [`crate::Request::pack`] wrote. Other bytes give no arguments.
#[derive(Clone)]
pub(crate) struct Args<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.first() == Some(&b'*') {
            self.line()?;
        }
        let length: usize = std::str::from_utf8(self.line()?.strip_prefix(b"$")?).ok()?.parse().ok()?;
        let arg = self.0.get(..length)?;
        self.0 = self.0.get(length + 2..)?;
        Some(arg)
    }
}

impl<'a> Args<'a> {
    fn line(&mut self) -> Option<&'a [u8]> {
        let end = self.0.windows(2).position(|pair| pair == b"\r\n")?;
        let line = &self.0[..end];
        self.0 = &self.0[end + 2..];
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Request};

    fn check(words: &str, expected: &Sharing) {
        let mut bytes = Vec::new();
        Command::new(words).pack(&mut bytes);
        assert_eq!(&kind_of(&bytes), expected, "{words}");
    }

    #[test]
    fn kinds() {
        for words in [
            "GET SELECT",
            "get k",
            "XREAD COUNT 5 STREAMS s 0",
            "CLIENT ID",
            "CLIENT",
            "SCRIPT LOAD x",
            "VERYLONGNAMEOFACOMMAND",
            "PING",
        ] {
            check(words, &Sharing::Shareable);
        }
        check("select 1", &Sharing::Unshareable("SELECT".to_owned()));
        check("Client Reply OFF", &Sharing::Unshareable("CLIENT REPLY".to_owned()));
        check("pipeline start x", &Sharing::Unshareable("PIPELINE START".to_owned()));
        check("pipeline sync", &Sharing::Unshareable("PIPELINE SYNC".to_owned()));
        for (container, subcommands) in UNSHAREABLE_SUBCOMMANDS {
            for subcommand in *subcommands {
                let name = format!("{container} {subcommand}");
                check(&name, &Sharing::Unshareable(name.clone()));
            }
        }
        for name in UNSHAREABLE.iter().chain(OF_OWN_WRITES) {
            check(name, &Sharing::Unshareable((*name).to_owned()));
        }
    }

    #[test]
    fn blocking_times_are_known() {
        const REFUSED: u64 = 0;
        let rows = [
            ("BLPOP k 0", None),
            ("brpop k 0.0", None),
            ("BLPOP k -0.0005", None),
            ("BRPOP a b 1.5", Some(1500)),
            ("BLPOP k 0.0001", Some(1)),
            ("BLPOP k 0x10", Some(16_000)),
            ("BLPOP k 9223372036854775", Some(9_223_372_036_854_775_000)),
            ("BLMOVE a b LEFT RIGHT 2", Some(2000)),
            ("BRPOPLPUSH a b 2", Some(2000)),
            ("bzpopmin k 0", None),
            ("BZPOPMAX a b 3", Some(3000)),
            ("BLMPOP 3 1 k LEFT COUNT 9", Some(3000)),
            ("BZMPOP 0 1 k MIN", None),
            ("XREAD BLOCK 1000 STREAMS s $", Some(1000)),
            ("XREAD COUNT 5 BLOCK 0 STREAMS s $", None),
            ("XREAD BLOCK 5 BLOCK 7 STREAMS BLOCK 0", Some(7)),
            ("XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS s >", None),
            ("XREADGROUP GROUP STREAMS BLOCK COUNT 1 block 8 STREAMS s >", Some(8)),
            // The key is called BLOCK. Treating it as the option does no harm.
            ("XREAD STREAMS block 0", Some(REFUSED)),
            ("BLPOP", Some(REFUSED)),
            ("BLPOP k x", Some(REFUSED)),
            ("BLPOP k -1", Some(REFUSED)),
            ("BLPOP k nan", Some(REFUSED)),
            ("BLMPOP", Some(REFUSED)),
            ("XREAD BLOCK", Some(REFUSED)),
            ("XREAD BLOCK 1.5 STREAMS s $", Some(REFUSED)),
            ("XREAD BLOCK -1 STREAMS s $", Some(REFUSED)),
        ];
        for (words, ms) in rows {
            check(words, &Sharing::Blocking(ms.map(Duration::from_millis)));
        }
        for (name, _) in BLOCKING {
            check(name, &Sharing::Blocking(Some(Duration::ZERO)));
        }
    }

    #[test]
    fn altering_commands_are_found_among_others() {
        let packed = |commands: &[&str]| {
            let mut bytes = Vec::new();
            commands.iter().for_each(|words| Command::new(words).pack(&mut bytes));
            bytes
        };
        for harmless in [&[][..], &["GET k"], &["SET k SELECT", "BLPOP k 0", "PING", "CLIENT ID"]] {
            assert!(!any_alters(&packed(harmless)), "{harmless:?}");
        }
        for altering in [&["SELECT 1"][..], &["PING", "GET k", "select 1"], &["WATCH k", "GET k"]] {
            assert!(any_alters(&packed(altering)), "{altering:?}");
        }
        for bytes in
            [&b"SELECT 1\r\n"[..], b"*1\r\n", b"*2\r\n$3\r\nGET\r\n$9\r\nk\r\n", b"*x\r\n", b"*1\r\n$4\r\nPING\r\nx"]
        {
            assert!(any_alters(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn invalid_requests_do_not_panic() {
        for bytes in [&b""[..], b"PING\r\n", b"*1\r\n", b"*1\r\n$9\r\nabc\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$x\r\n"] {
            assert_eq!(kind_of(bytes), Sharing::Shareable);
        }
    }
}
