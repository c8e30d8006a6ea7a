//! Why a snapshot or a payload can't be read.

use std::{fmt, io};

/// What is wrong, and where.
#[derive(Debug)]
pub struct Error {
    /// Where the element begins that is wrong, in bytes from the start.
    pub offset: u64,
    /// What is wrong.
    pub flaw: Flaw,
}

/// What is wrong.
#[derive(Debug)]
pub enum Flaw {
    /// The source failed.
    Source(io::Error),
    /// It ends too early.
    Cut,
    /// It doesn't begin as a snapshot does.
    NotASnapshot,
    /// It is of a version that isn't known; the first bytes.
    Version(String),
    /// It holds something that this server doesn't have, named here.
    Unsupported(String),
    /// It is damaged: what of it.
    Damaged(&'static str),
    /// A key holds an empty collection.
    Empty,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, flaw } = self;
        match flaw {
            Flaw::Source(error) => write!(f, "reading failed at byte {offset}: {error}"),
            Flaw::Cut => write!(f, "it ends at byte {offset}, in the midst of something"),
            Flaw::NotASnapshot => write!(f, "it is no snapshot: it begins with neither REDIS nor VALKEY and a version"),
            Flaw::Version(version) => write!(f, "its version, {version}, is not known"),
            Flaw::Unsupported(what) => write!(f, "{what} at byte {offset} is not supported"),
            Flaw::Damaged(what) => write!(f, "{what} at byte {offset} is damaged"),
            Flaw::Empty => write!(f, "the collection at byte {offset} is empty"),
        }
    }
}

impl std::error::Error for Error {}
