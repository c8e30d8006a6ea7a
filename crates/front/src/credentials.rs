//! Credentials of a request: the token in the header `Authorization`.

use std::fmt;

/// User of clients that don't name one.
const DEFAULT_USER: &[u8] = b"default";

/// A user with a password, or no user.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A client that doesn't authenticate.
    Anybody,
    /// A user that authenticates with AUTH.
    User {
        /// Name of the user.
        name: Vec<u8>,
        /// Password of the user.
        password: Vec<u8>,
    },
}

/// Passwords are never shown.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Anybody => f.write_str("Anybody"),
            Identity::User { name, .. } => write!(f, "User({})", name.escape_ascii()),
        }
    }
}

impl Identity {
    /// Parses the header's value; none means that the header is missing. The token `user:password` is for a user; a
    /// token without a colon is the default user's password.
    ///
    /// # Errors
    /// The header requests an authentication scheme other than a token.
    pub fn of_header(header: Option<&[u8]>) -> Result<Identity, &'static str> {
        let Some(header) = header else { return Ok(Identity::Anybody) };
        let (scheme, token) = match header.iter().position(|&byte| byte == b' ') {
            Some(at) => (&header[..at], header[at..].trim_ascii()),
            None => (header, &b""[..]),
        };
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return Err("ERR only 'Authorization: Bearer user:password' is understood");
        }
        if token.is_empty() {
            return Ok(Identity::Anybody);
        }
        let (name, password) = match token.iter().position(|&byte| byte == b':') {
            Some(at) => (&token[..at], &token[at + 1..]),
            None => (DEFAULT_USER, token),
        };
        Ok(Identity::User { name: name.to_vec(), password: password.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_users() {
        let user = |name: &str, password: &str| Identity::User { name: name.into(), password: password.into() };
        let check =
            |header: Option<&str>, expected| assert_eq!(Identity::of_header(header.map(str::as_bytes)), expected);
        check(None, Ok(Identity::Anybody));
        check(Some("Bearer secret"), Ok(user("default", "secret")));
        check(Some("bearer  alice:a:b "), Ok(user("alice", "a:b")));
        check(Some("Bearer :x"), Ok(user("", "x")));
        check(Some("Bearer "), Ok(Identity::Anybody));
        check(Some("Bearer"), Ok(Identity::Anybody));
        let refused = Err("ERR only 'Authorization: Bearer user:password' is understood");
        check(Some("Basic YTpi"), refused.clone());
        check(Some(""), refused);
        assert_eq!(format!("{:?}", user("alice", "secret")), "User(alice)");
    }
}
