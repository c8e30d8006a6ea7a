//! Error replies, with Redis's exact texts: clients match on them.

use std::borrow::Cow;
use std::fmt::Write as _;

use store::db::WrongType;

/// What a handler ends with; an error becomes the command's reply. A handler that has begun its reply must not fail.
pub type Outcome = Result<(), Error>;

/// An error reply, without the leading "-".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Cow<'static, str>);

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        impl Error {
            $($(#[$doc])* pub const $name: Error = Error(Cow::Borrowed($text));)*
        }
    };
}

errors! {
    /// The key holds another type.
    WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value";
    /// Options that don't fit together or don't exist.
    SYNTAX = "ERR syntax error";
    /// Not a 64-bit integer.
    NOT_INTEGER = "ERR value is not an integer or out of range";
    /// Not a floating point number.
    NOT_FLOAT = "ERR value is not a valid float";
    /// A count that must not be negative.
    NOT_POSITIVE = "ERR value is out of range, must be positive";
    /// An index beyond the list.
    INDEX_OUT_OF_RANGE = "ERR index out of range";
    /// A key that must exist.
    NO_SUCH_KEY = "ERR no such key";
    /// An increment beyond 64 bits.
    OVERFLOW = "ERR increment or decrement would overflow";
    /// A floating point result that is none.
    NAN_OR_INFINITY = "ERR increment would produce NaN or Infinity";
    /// A string beyond proto-max-bulk-len.
    STRING_TOO_LONG = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    /// An offset below zero.
    OFFSET_OUT_OF_RANGE = "ERR offset is out of range";
    /// A timeout below zero.
    TIMEOUT_NEGATIVE = "ERR timeout is negative";
    /// A timeout that is no number.
    TIMEOUT_NOT_FLOAT = "ERR timeout is not a float or out of range";
    /// A timeout beyond what can be represented.
    TIMEOUT_OUT_OF_RANGE = "ERR timeout is out of range";
    /// A database that doesn't exist.
    DB_OUT_OF_RANGE = "ERR DB index is out of range";
    /// A cursor that is no number.
    INVALID_CURSOR = "ERR invalid cursor";
    /// A score bound that is no number.
    MIN_MAX_NOT_FLOAT = "ERR min or max is not a float";
    /// A lexicographical bound without its prefix.
    MIN_MAX_NOT_STRING = "ERR min or max not valid string range item";
}

impl Error {
    /// An error with a text of its own; begins with its code, such as "ERR".
    #[must_use]
    pub fn new(text: impl Into<Cow<'static, str>>) -> Error {
        Error(text.into())
    }

    /// Too few or too many arguments; `name` is the command's in lower case, with "parent|" for a subcommand.
    #[must_use]
    pub fn arity(name: &str) -> Error {
        Error(format!("ERR wrong number of arguments for '{name}' command").into())
    }

    /// An expiry that is not positive or too far away.
    #[must_use]
    pub fn invalid_expire(name: &str) -> Error {
        Error(format!("ERR invalid expire time in '{name}' command").into())
    }

    /// A subcommand that does not exist; `parent` is the container's name in lower case.
    #[must_use]
    pub fn unknown_subcommand(parent: &str, given: &[u8]) -> Error {
        let mut text = String::from("ERR unknown subcommand '");
        // Redis shows at most 128 bytes of what it was given.
        push_lossy(&mut text, &given[..given.len().min(128)]);
        let _ = write!(text, "'. Try {} HELP.", parent.to_ascii_uppercase());
        Error(text.into())
    }

    /// The text, without the leading "-".
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Bytes that a client gave, as text for an error message. What is not UTF-8 is replaced.
fn push_lossy(text: &mut String, bytes: &[u8]) {
    text.push_str(&String::from_utf8_lossy(bytes));
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WRONG_TYPE
    }
}
