//! Which commands don't belong on a connection that callers share.

use std::time::Duration;

use resp::longdouble::F80;
use resp::num::parse_i64;

use crate::error::Error;

/// What a command does to the connection that it runs on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Nothing.
    Shareable,
    /// It may hold up all commands behind it, for so long; `None`: for ever.
    Blocking(Option<Duration>),
    /// It changes what later commands mean or what comes back, or speaks of its own connection's commands. Its name.
    Unshareable(String),
}

/// Which argument of a blocking command is its timeout, in seconds.
#[derive(Clone, Copy)]
enum TimeoutAt {
    First,
    Last,
}

/// Commands that wait for other clients. XREAD and XREADGROUP do so with BLOCK only, which says for how many
/// milliseconds.
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

/// Commands that answer for the writes of their own connection: on any other they say "replicated" whatever became of
/// the caller's, on the shared one they would hold up all callers, and in a transaction they know only what was before
/// it.
const OF_OWN_WRITES: &[&str] = &["WAIT", "WAITAOF"];

/// Commands that change the state of their connection, be it in the midst of a transaction: EXEC doesn't take that
/// back.
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

/// Those that do so with some subcommands only. Even a harmless change would be silently lost with the next connection:
/// a cache that relies on CLIENT TRACKING would be out of date for ever.
const UNSHAREABLE_SUBCOMMANDS: &[(&str, &[&str])] = &[
    (
        "CLIENT",
        &["CACHING", "CAPA", "IMPORT-SOURCE", "NO-EVICT", "NO-TOUCH", "REPLY", "SETINFO", "SETNAME", "TRACKING"],
    ),
    // What a connection counts under a token; Penstock's own.
    ("PIPELINE", &["RESUME", "START"]),
    ("SCRIPT", &["DEBUG"]),
];

/// A request without even a name. It is never answered, so that its caller would get another one's reply.
const NOTHING: &[u8] = b"*0\r\n";

/// Longer than every name above.
const NAME_BYTES_MAX: usize = 16;

/// What the command of this request does.
pub(crate) fn kind_of(request: &[u8]) -> Sharing {
    let mut args = Args(request);
    let mut name = [0; NAME_BYTES_MAX];
    if request == NOTHING {
        return Sharing::Unshareable("a request of nothing".to_owned());
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

/// [`Sharing::Blocking`] if the command waits for other clients.
fn blocking_kind(name: &str, mut args: Args<'_>) -> Option<Sharing> {
    if matches!(name, "XREAD" | "XREADGROUP") {
        // Wherever it stands: should servers learn options that are unknown here, no other caller is held up.
        let may_block = args.clone().any(|arg| arg.eq_ignore_ascii_case(b"BLOCK"));
        return may_block.then(|| Sharing::Blocking(time_from_ms(block_option(args).and_then(parse_i64))));
    }
    let (_, timeout_at) = BLOCKING.iter().find(|(blocking, _)| *blocking == name)?;
    let seconds = match timeout_at {
        TimeoutAt::First => args.next(),
        TimeoutAt::Last => args.last(),
    };
    // As servers read it: a started millisecond counts whole.
    let ms = seconds.and_then(F80::parse).map(|seconds| seconds.times(1000).ceil());
    Some(Sharing::Blocking(time_from_ms(ms)))
}

/// What XREAD or XREADGROUP has behind BLOCK; the last one counts. A group, a consumer or a key may be called like an
/// option.
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

/// How long a command with this timeout waits; `None`: for ever.
fn time_from_ms(timeout_ms: Option<i64>) -> Option<Duration> {
    match timeout_ms {
        Some(0) => None,
        // Servers refuse at once what is no number, or negative.
        other => Some(Duration::from_millis(other.and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default())),
    }
}

fn unshareable_subcommand(name: &str, subcommand: Option<&[u8]>) -> Option<&'static str> {
    let (_, subcommands) = UNSHAREABLE_SUBCOMMANDS.iter().find(|(container, _)| *container == name)?;
    let subcommand = subcommand?;
    subcommands.iter().find(|name| subcommand.eq_ignore_ascii_case(name.as_bytes())).copied()
}

/// # Errors
/// [`Error::NotShareable`] with the first command of a pipeline that must not be in it.
pub(crate) fn check_all<'a>(mut requests: impl Iterator<Item = &'a [u8]>) -> Result<(), Error> {
    requests.try_for_each(|request| match kind_of(request) {
        Sharing::Shareable => Ok(()),
        Sharing::Blocking(_) => Err(Error::NotShareable("a blocking command".to_owned())),
        Sharing::Unshareable(name) => Err(Error::NotShareable(name)),
    })
}

/// # Errors
/// [`Error::NotShareable`] with the first command of a transaction that must not be in it. Blocking commands don't
/// block there.
pub(crate) fn check_inside<'a>(mut requests: impl Iterator<Item = &'a [u8]>) -> Result<(), Error> {
    requests.try_for_each(|request| match kind_of(request) {
        Sharing::Unshareable(name) => Err(Error::NotShareable(name)),
        _ => Ok(()),
    })
}

/// Whether any of these requests, each of them whole, changes its connection. Yes, too, if they can't be told apart.
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

/// The arguments of a request as [`crate::Request::pack`] writes it; none of anything else.
#[derive(Clone)]
struct Args<'a>(&'a [u8]);

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
    fn how_long_commands_block() {
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
            // Only called so, but it does no harm to take it for what it might be.
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
    fn what_alters_is_found_among_others() {
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
    fn nonsense_is_no_trouble() {
        for bytes in [&b""[..], b"PING\r\n", b"*1\r\n", b"*1\r\n$9\r\nabc\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$x\r\n"] {
            assert_eq!(kind_of(bytes), Sharing::Shareable);
        }
    }
}
