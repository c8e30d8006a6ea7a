//! The console: a page with its files embedded in the program.

use std::borrow::Cow;
use std::path::Path;

use hyper::StatusCode;
use hyper::body::Bytes;

use crate::ConsoleMode;
use crate::failure::Failure;
use crate::respond::{self, Answered};

/// Content security policy of the page: it may load its own files and send requests to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Placeholder for the console's mode in the page.
const MODE: &str = "{{mode}}";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The embedded files: name, type, contents.
const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("console/index.html")),
    ("console.css", "text/css; charset=utf-8", include_str!("console/console.css")),
    ("icon.svg", "image/svg+xml", include_str!("console/icon.svg")),
    ("advisor.js", SCRIPT, include_str!("console/advisor.js")),
    ("api.js", SCRIPT, include_str!("console/api.js")),
    ("batches.js", SCRIPT, include_str!("console/batches.js")),
    ("bulk.js", SCRIPT, include_str!("console/bulk.js")),
    ("chart.js", SCRIPT, include_str!("console/chart.js")),
    ("clients.js", SCRIPT, include_str!("console/clients.js")),
    ("confirm.js", SCRIPT, include_str!("console/confirm.js")),
    ("dom.js", SCRIPT, include_str!("console/dom.js")),
    ("format.js", SCRIPT, include_str!("console/format.js")),
    ("history.js", SCRIPT, include_str!("console/history.js")),
    ("keys.js", SCRIPT, include_str!("console/keys.js")),
    ("line.js", SCRIPT, include_str!("console/line.js")),
    ("live.js", SCRIPT, include_str!("console/live.js")),
    ("main.js", SCRIPT, include_str!("console/main.js")),
    ("overview.js", SCRIPT, include_str!("console/overview.js")),
    ("ranges.js", SCRIPT, include_str!("console/ranges.js")),
    ("stream.js", SCRIPT, include_str!("console/stream.js")),
    ("text.js", SCRIPT, include_str!("console/text.js")),
    ("value.js", SCRIPT, include_str!("console/value.js")),
];

/// Returns an embedded file.
pub(crate) fn answer(name: &str, mode: ConsoleMode) -> Result<Answered, Failure> {
    let mode = match mode {
        ConsoleMode::Off => {
            let text = "ERR the console is off; turn it on with http-console yes";
            return Err(Failure::new(StatusCode::NOT_FOUND, text));
        }
        ConsoleMode::ReadOnly => "read-only",
        ConsoleMode::Full => "full",
    };
    let (_, kind, text) = FILES.iter().find(|(known, ..)| *known == name).ok_or_else(Failure::absent)?;
    let text = current(name, text);
    let body = match text {
        _ if name.is_empty() => text.replace(MODE, mode).into(),
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    };
    Ok(respond::with(StatusCode::OK, kind, POLICY, body))
}

/// Returns the contents of a file. A debug build reads the source file, if there is one, so that a change to the
/// console needs no build.
fn current(name: &str, embedded: &'static str) -> Cow<'static, str> {
    if !cfg!(debug_assertions) {
        return Cow::Borrowed(embedded);
    }
    let file = if name.is_empty() { "index.html" } else { name };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console").join(file);
    std::fs::read_to_string(source).map_or(Cow::Borrowed(embedded), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_the_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let name = if name == "index.html" { "" } else { &name };
            assert!(FILES.iter().any(|(known, ..)| *known == name), "{name}");
        }
        assert_eq!(answer("", ConsoleMode::Off).unwrap_err().status, StatusCode::NOT_FOUND);
        assert_eq!(answer("none.js", ConsoleMode::Full).unwrap_err().status, StatusCode::NOT_FOUND);
    }

    /// The policy forbids other origins and inline code; a browser would block them silently.
    #[test]
    fn the_page_uses_no_other_origin_and_no_inline_code() {
        for (name, _, text) in FILES {
            let without_names = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!without_names.contains("://"), "{name} refers to another origin");
            assert!(!text.contains("innerHTML") && !text.contains("eval("), "{name} interprets text as markup or code");
            let is_page = name.is_empty();
            assert!(
                !is_page || !text.contains("style=") && !text.contains("<style") && !text.contains("onclick="),
                "{name}"
            );
        }
    }
}
