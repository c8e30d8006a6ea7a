//! A failed request: a status and a text for the client.

use hyper::StatusCode;

/// See the module's documentation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Failure {
        Failure { status, text: text.into() }
    }

    /// The request is invalid.
    pub(crate) fn bad(text: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, text)
    }

    /// The page doesn't exist.
    pub(crate) fn absent() -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "ERR there is nothing at this path")
    }
}
