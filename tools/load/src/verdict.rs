//! Which commands a load can't contain, because they would change how many replies come, or which client gets them.

/// What a command means for the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Plain,
    /// Send it; what follows runs only when a command that ends the transaction does.
    Begins,
    /// Send it; it executes what came since the command that began, and that ends.
    Executes,
    /// Send it; it ends a transaction, which isn't executed.
    Discards,
    /// Send it; what users may do can be another thing behind it.
    Permits,
    /// Don't send it, for this reason.
    Refused(&'static str),
}

/// Looks at a command's name and first argument.
#[inline]
pub fn judge(name: &[u8], argument: &[u8]) -> Verdict {
    // Every command passes here: most are known to be harmless by their length and first letter.
    let Some(first) = name.first() else { return Verdict::Refused("a command has no name") };
    match (name.len(), first.to_ascii_uppercase()) {
        (3, b'A')
        | (4 | 5, b'A' | b'E' | b'H' | b'M' | b'P' | b'Q' | b'R' | b'S' | b'W')
        | (6, b'C')
        | (7.., b'D' | b'M' | b'P' | b'R' | b'S' | b'U') => judge_slowly(name, argument),
        _ => Verdict::Plain,
    }
}

fn judge_slowly(name: &[u8], argument: &[u8]) -> Verdict {
    const PUSHES: &str = "what it is answered with isn't one reply per command, so it can't be part of a load";
    const ENDS: &str = "it ends or takes over the connection, so it can't be part of a load";
    const LOGIN: &str = "a new connection would not know of it; use the options for user, password and protocol";
    const WATCHES: &str = "a new connection would not watch any more, so it can't be part of a load";
    const COUNTS: &str = "it would change what the server counts for --resume, so it can't be part of a load";
    let name = name.to_ascii_uppercase();
    match &*name {
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE" => {
            Verdict::Refused(PUSHES)
        }
        b"CLIENT" if argument.eq_ignore_ascii_case(b"REPLY") => Verdict::Refused(PUSHES),
        b"QUIT" | b"MONITOR" | b"SYNC" | b"PSYNC" | b"REPLCONF" | b"RESET" | b"SHUTDOWN" => Verdict::Refused(ENDS),
        b"AUTH" | b"HELLO" => Verdict::Refused(LOGIN),
        b"WATCH" => Verdict::Refused(WATCHES),
        b"MULTI" => Verdict::Begins,
        b"EXEC" => Verdict::Executes,
        b"DISCARD" => Verdict::Discards,
        b"ACL" => Verdict::Permits,
        b"PIPELINE" => Verdict::Refused(COUNTS),
        _ => Verdict::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_count_of_replies_is_refused() {
        for name in ["subscribe", "PUNSUBSCRIBE", "Monitor", "QUIT", "AUTH", "hello", "WATCH", "PIPELINE", "RESET", ""]
        {
            assert!(matches!(judge(name.as_bytes(), b"x"), Verdict::Refused(_)), "{name}");
        }
        assert!(matches!(judge(b"client", b"reply"), Verdict::Refused(_)));
        assert_eq!(judge(b"CLIENT", b"SETNAME"), Verdict::Plain);
        assert_eq!((judge(b"acl", b"SETUSER"), judge(b"ADD", b"")), (Verdict::Permits, Verdict::Plain));
    }

    #[test]
    fn the_rest_passes() {
        for name in
            ["SET", "set", "ZADD", "HSET", "INCR", "RPUSH", "EXISTS", "PUBLISH", "SADD", "UNLINK", "MSETNX", "SELECT"]
        {
            assert_eq!(judge(name.as_bytes(), b"k"), Verdict::Plain, "{name}");
        }
    }

    #[test]
    fn transactions_are_known() {
        assert_eq!((judge(b"multi", b""), judge(b"Exec", b""), judge(b"DISCARD", b"")), {
            (Verdict::Begins, Verdict::Executes, Verdict::Discards)
        });
    }
}
