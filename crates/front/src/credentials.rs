//! Who asks: the token of the header `Authorization`.

use std::fmt;

/// The user that clients are which say nothing of one.
const DEFAULT_USER: &[u8] = b"default";

/// A user with a password, or none.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// What a client is that doesn't authenticate.
    Anybody,
    /// A user, by AUTH.
    User {
        /// Its name.
        name: Vec<u8>,
        /// Its password.
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
    /// Reads the header's value; none stands for no header. `user:password` is a user's token, one without a colon is the password of
    /// the default user.
    ///
    /// # Errors
    /// The header asks for another way of authentication than a token.
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
