//! Errors of reading a snapshot or a payload.

use std::{fmt, io};

/// An error and its position.
#[derive(Debug)]
pub struct Error {
    /// Offset of the invalid element, in bytes from the start.
    pub offset: u64,
    /// Kind of error.
    pub flaw: Flaw,
}

/// Kind of error.
#[derive(Debug)]
pub enum Flaw {
    /// The source failed.
    Source(io::Error),
    /// The source ends too early.
    Cut,
    /// The source doesn't begin like a snapshot.
    NotASnapshot,
    /// The version is unknown; the first bytes.
    Version(String),
    /// The source contains something that this server doesn't support; its name.
    Unsupported(String),
    /// An element is damaged; its name.
    Damaged(&'static str),
    /// A key holds an empty collection.
    Empty,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, flaw } = self;
        match flaw {
            Flaw::Source(error) => write!(f, "reading failed at byte {offset}: {error}"),
            Flaw::Cut => write!(f, "it is cut off at byte {offset}"),
            Flaw::NotASnapshot => {
                write!(f, "it is not a snapshot: it begins with neither REDIS nor VALKEY and a version")
            }
            Flaw::Version(version) => write!(f, "its version, {version}, is not known"),
            Flaw::Unsupported(what) => write!(f, "{what} at byte {offset} is not supported"),
            Flaw::Damaged(what) => write!(f, "{what} at byte {offset} is damaged"),
            Flaw::Empty => write!(f, "the collection at byte {offset} is empty"),
        }
    }
}

impl std::error::Error for Error {}
