//! State of a connection that a new one can't restore: a login, watched keys, a transaction.

use client::Value;

/// State in addition to the options that the program sends on every new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// The user has logged in with a command.
    login: bool,
    /// Keys are watched.
    watch: bool,
    /// A transaction is open: MULTI was answered, EXEC or DISCARD wasn't.
    transaction: bool,
}

impl SessionState {
    /// Updates the state after a command was answered.
    pub fn note(&mut self, request: &[Vec<u8>], reply: &Value) {
        let words: Vec<Vec<u8>> = request.iter().map(|word| word.to_ascii_lowercase()).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let is_error = reply.error().is_some();
        match words.as_slice() {
            // A failed EXEC ends the transaction as well. Without a transaction there is nothing to end.
            [b"exec"] => (self.watch, self.transaction) = (false, false),
            _ if is_error => {}
            [b"auth", _, ..] => self.login = true,
            [b"hello", options @ ..] if options.contains(&b"auth".as_slice()) => self.login = true,
            [b"watch", _, ..] => self.watch = true,
            [b"unwatch"] if !self.transaction => self.watch = false,
            [b"multi"] => self.transaction = true,
            [b"discard"] => (self.watch, self.transaction) = (false, false),
            [b"reset"] => *self = SessionState::default(),
            _ => {}
        }
    }

    /// Returns a message about the lost state, for the user of a new connection, or `None` if nothing was lost.
    pub fn loss(self) -> Option<String> {
        let all = [
            (self.login, "the logged-in user"),
            (self.watch, "the watched keys"),
            (self.transaction, "the open transaction"),
        ];
        let lost: Vec<&str> = all.into_iter().filter(|(is_lost, _)| *is_lost).map(|(_, what)| what).collect();
        Some(format!("Reconnected, without {}", lost.join(" and "))).filter(|_| !lost.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::parse::{ReplyLimits, parse};

    fn check(lines: &[(&str, &str)], expected: Option<&str>) {
        let mut session_state = SessionState::default();
        for (request, reply) in lines {
            let request: Vec<Vec<u8>> = request.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let (reply, _) = parse(reply.as_bytes(), &ReplyLimits::default()).unwrap().unwrap();
            session_state.note(&request, &reply);
        }
        assert_eq!(session_state.loss().as_deref(), expected, "{lines:?}");
    }

    #[test]
    fn state_that_ends_with_a_connection_is_tracked() {
        const OK: &str = "+OK\r\n";
        const ERROR: &str = "-ERR no\r\n";
        let login = Some("Reconnected, without the logged-in user");
        let watch = Some("Reconnected, without the watched keys");
        check(&[("ping", "+PONG\r\n"), ("hello 3", OK), ("select 2", OK)], None);
        check(&[("AUTH u p", OK)], login);
        check(&[("auth u p", ERROR)], None);
        check(&[("hello 3 AUTH u p", OK)], login);
        check(&[("auth p", OK), ("reset", "+RESET\r\n")], None);
        check(&[("watch a", OK)], watch);
        check(&[("watch a", OK), ("unwatch", OK)], None);
        check(&[("watch a", OK), ("multi", OK), ("discard", OK)], None);
        check(&[("watch a", OK), ("multi", OK), ("exec", "*-1\r\n")], None);
        check(&[("multi", OK), ("x", ERROR), ("exec", ERROR)], None);
        let all = "Reconnected, without the logged-in user and the watched keys and the open transaction";
        check(&[("auth p", OK), ("watch a", OK), ("multi", OK), ("unwatch", "+QUEUED\r\n")], Some(all));
    }
}
