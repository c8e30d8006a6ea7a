//! Error replies, with Redis's exact texts: clients match on them.

use std::borrow::Cow;

use store::db::WrongType;

/// Result of a handler; an error becomes the command's reply. A handler that has begun its reply must not fail.
pub type Outcome = Result<(), Error>;

/// An error reply, without the leading "-". Stored as bytes, because some errors quote the client's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Cow<'static, [u8]>);

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        impl Error {
            $($(#[$doc])* pub const $name: Error = Error(Cow::Borrowed($text.as_bytes()));)*
        }
    };
}

errors! {
    /// The key holds another type.
    WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value";
    /// This server is a replica, and its data belong to the primary.
    READ_ONLY = "READONLY You can't write against a read only replica.";
    /// Fewer replicas keep up than `min-replicas-to-write` demands.
    FEW_REPLICAS = "NOREPLICAS Not enough good replicas to write.";
    /// The replica has lost its primary and must not serve data that may be stale.
    STALE = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    /// Used memory is above `maxmemory`.
    OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'.";
    /// Unknown or contradictory options.
    SYNTAX = "ERR syntax error";
    /// Not a 64-bit integer.
    NOT_INTEGER = "ERR value is not an integer or out of range";
    /// An integer outside the 32-bit range that Redis uses for this argument.
    NOT_32_BITS = "ERR value is out of range, value must between -2147483648 and 2147483647";
    /// The 64-bit integer without a 64-bit absolute value.
    NOT_NEGATABLE = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    /// Not a floating point number.
    NOT_FLOAT = "ERR value is not a valid float";
    /// A count that is too large for its command.
    VALUE_OUT_OF_RANGE = "ERR value is out of range";
    /// A count that must not be negative.
    NOT_POSITIVE = "ERR value is out of range, must be positive";
    /// An index beyond the list.
    INDEX_OUT_OF_RANGE = "ERR index out of range";
    /// A key that must exist.
    NO_SUCH_KEY = "ERR no such key";
    /// An increment beyond 64 bits.
    OVERFLOW = "ERR increment or decrement would overflow";
    /// A floating point result that is NaN or infinite.
    NAN_OR_INFINITY = "ERR increment would produce NaN or Infinity";
    /// A string beyond proto-max-bulk-len.
    STRING_TOO_LONG = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    /// An offset below zero.
    OFFSET_OUT_OF_RANGE = "ERR offset is out of range";
    /// A timeout below zero.
    TIMEOUT_NEGATIVE = "ERR timeout is negative";
    /// A timeout that is not a number.
    TIMEOUT_NOT_FLOAT = "ERR timeout is not a float or out of range";
    /// A timeout that overflows.
    TIMEOUT_OUT_OF_RANGE = "ERR timeout is out of range";
    /// A database that doesn't exist.
    DB_OUT_OF_RANGE = "ERR DB index is out of range";
    /// A cursor that is not a number.
    INVALID_CURSOR = "ERR invalid cursor";
    /// A score bound that is not a number.
    MIN_MAX_NOT_FLOAT = "ERR min or max is not a float";
    /// A lexicographical bound without its prefix.
    MIN_MAX_NOT_STRING = "ERR min or max not valid string range item";
}

impl Error {
    /// Creates an error with its own text, which begins with a code ("ERR").
    #[must_use]
    pub fn new(text: impl Into<Cow<'static, str>>) -> Error {
        Error(match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    }

    /// Creates an error from a text that is known at compile time.
    #[must_use]
    pub const fn fixed(text: &'static str) -> Error {
        Error(Cow::Borrowed(text.as_bytes()))
    }

    /// Creates an error that quotes the client's input, which may not be valid UTF-8. Trailing line ends are removed,
    /// as in Redis.
    #[must_use]
    pub fn quoting(mut text: Vec<u8>) -> Error {
        while text.pop_if(|byte| matches!(byte, b'\r' | b'\n')).is_some() {}
        Error(text.into())
    }

    /// Creates an error that quotes an argument of the client between two texts.
    #[must_use]
    pub fn naming(before: &str, given: &[u8], after: &str) -> Error {
        Error::quoting([before.as_bytes(), shown(given, usize::MAX), after.as_bytes()].concat())
    }

    /// Wrong number of arguments. `name` is the command's name in lower case; a subcommand has the prefix "parent|".
    #[must_use]
    pub fn arity(name: &str) -> Error {
        Error::new(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// An expiry that is not positive or too far away.
    #[must_use]
    pub fn invalid_expire(name: &str) -> Error {
        Error::new(format!("ERR invalid expire time in '{name}' command"))
    }

    /// Unknown subcommand. `parent` is the container's name as the client wrote it.
    #[must_use]
    pub fn unknown_subcommand(parent: &[u8], given: &[u8]) -> Error {
        let (given, parent) = (shown(given, SHOWN_BYTES), parent.to_ascii_uppercase());
        Error::quoting([b"ERR unknown subcommand '", given, b"'. Try ", &parent, b" HELP."].concat())
    }

    /// The text, without the leading "-".
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.0
    }
}

/// Largest number of input bytes that Redis quotes in an error.
pub const SHOWN_BYTES: usize = 128;

/// The part of `given` that an error quotes: at most `bytes_max` bytes, and up to the first NUL, since Redis prints it
/// as a C string.
#[must_use]
pub fn shown(given: &[u8], bytes_max: usize) -> &[u8] {
    let text = given.split(|&b| b == 0).next().unwrap_or_default();
    &text[..text.len().min(bytes_max)]
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WRONG_TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_as_bytes_up_to_the_first_nul() {
        assert_eq!(Error::naming("ERR no '", b"a\xffb\0c", "'").text(), b"ERR no 'a\xffb'");
        assert_eq!(Error::naming("ERR no ", b"a\r\n", "").text(), b"ERR no a");
    }
}
