//! Rejects commands that a load can't contain, because they would change the number or the recipient of replies.

/// Meaning of a command for the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Send it.
    Plain,
    /// Send it. Later commands run only when the transaction ends.
    Begins,
    /// Send it. It executes and ends a transaction.
    Executes,
    /// Send it. It ends a transaction without executing it.
    Discards,
    /// Send it. The user's permissions may change after it.
    Permits,
    /// Don't send it, for this reason.
    Refused(&'static str),
}

/// Classifies a command by its name and first argument.
#[inline]
pub fn admit(name: &[u8], argument: &[u8]) -> Admission {
    // Every command passes here. The length and the first letter show that most are harmless.
    let Some(first) = name.first() else { return Admission::Refused("a command has no name") };
    match (name.len(), first.to_ascii_uppercase()) {
        (3, b'A')
        | (4 | 5, b'A' | b'E' | b'H' | b'M' | b'P' | b'Q' | b'R' | b'S' | b'W')
        | (6, b'C')
        | (7.., b'D' | b'M' | b'P' | b'R' | b'S' | b'U') => admit_slowly(name, argument),
        _ => Admission::Plain,
    }
}

fn admit_slowly(name: &[u8], argument: &[u8]) -> Admission {
    const PUSHES: &str = "the command doesn't get exactly one reply, so it can't be part of a load";
    const ENDS: &str = "the command ends or takes over the connection, so it can't be part of a load";
    const LOGIN: &str = "a new connection would lack this setting; use the options for user, password and protocol";
    const WATCHES: &str = "a new connection would not watch the keys, so the command can't be part of a load";
    const COUNTS: &str = "the command would change the server's count for --resume, so it can't be part of a load";
    let name = name.to_ascii_uppercase();
    match &*name {
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE" => {
            Admission::Refused(PUSHES)
        }
        b"CLIENT" if argument.eq_ignore_ascii_case(b"REPLY") => Admission::Refused(PUSHES),
        b"QUIT" | b"MONITOR" | b"SYNC" | b"PSYNC" | b"REPLCONF" | b"RESET" | b"SHUTDOWN" => Admission::Refused(ENDS),
        b"AUTH" | b"HELLO" => Admission::Refused(LOGIN),
        b"WATCH" => Admission::Refused(WATCHES),
        b"MULTI" => Admission::Begins,
        b"EXEC" => Admission::Executes,
        b"DISCARD" => Admission::Discards,
        b"ACL" => Admission::Permits,
        b"PIPELINE" => Admission::Refused(COUNTS),
        _ => Admission::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_change_the_number_of_replies_are_refused() {
        for name in ["subscribe", "PUNSUBSCRIBE", "Monitor", "QUIT", "AUTH", "hello", "WATCH", "PIPELINE", "RESET", ""]
        {
            assert!(matches!(admit(name.as_bytes(), b"x"), Admission::Refused(_)), "{name}");
        }
        assert!(matches!(admit(b"client", b"reply"), Admission::Refused(_)));
        assert_eq!(admit(b"CLIENT", b"SETNAME"), Admission::Plain);
        assert_eq!((admit(b"acl", b"SETUSER"), admit(b"ADD", b"")), (Admission::Permits, Admission::Plain));
    }

    #[test]
    fn the_rest_passes() {
        for name in
            ["SET", "set", "ZADD", "HSET", "INCR", "RPUSH", "EXISTS", "PUBLISH", "SADD", "UNLINK", "MSETNX", "SELECT"]
        {
            assert_eq!(admit(name.as_bytes(), b"k"), Admission::Plain, "{name}");
        }
    }

    #[test]
    fn transactions_are_known() {
        assert_eq!((admit(b"multi", b""), admit(b"Exec", b""), admit(b"DISCARD", b"")), {
            (Admission::Begins, Admission::Executes, Admission::Discards)
        });
    }
}
