//! The console: one page, whose files are in the program.

use hyper::StatusCode;

use crate::ConsoleMode;
use crate::failure::Failure;
use crate::respond::{self, Answered};

/// What the page may do: show itself, and ask its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Its files: name, type, contents.
const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("console/index.html")),
    ("console.css", "text/css; charset=utf-8", include_str!("console/console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_str!("console/console.js")),
    ("icon.svg", "image/svg+xml", include_str!("console/icon.svg")),
];

/// A file of it.
pub(crate) fn answer(name: &str, mode: ConsoleMode) -> Result<Answered, Failure> {
    if mode == ConsoleMode::Off {
        return Err(Failure::new(StatusCode::NOT_FOUND, "ERR the console is off; turn it on with http-console yes"));
    }
    let (_, kind, text) = FILES.iter().find(|(known, ..)| *known == name).ok_or_else(Failure::absent)?;
    Ok(respond::with(StatusCode::OK, kind, POLICY, *text))
}
