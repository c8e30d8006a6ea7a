//! The console: one page, whose files are in the program.

use hyper::StatusCode;

use crate::ConsoleMode;
use crate::failure::Failure;
use crate::respond::{self, Answered};

/// What the page may do: show itself, and ask its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Where the page says what it may do.
const MODE: &str = "{{mode}}";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Its files: name, type, contents.
const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("console/index.html")),
    ("console.css", "text/css; charset=utf-8", include_str!("console/console.css")),
    ("icon.svg", "image/svg+xml", include_str!("console/icon.svg")),
    ("advisor.js", SCRIPT, include_str!("console/advisor.js")),
    ("api.js", SCRIPT, include_str!("console/api.js")),
    ("clients.js", SCRIPT, include_str!("console/clients.js")),
    ("confirm.js", SCRIPT, include_str!("console/confirm.js")),
    ("dom.js", SCRIPT, include_str!("console/dom.js")),
    ("keys.js", SCRIPT, include_str!("console/keys.js")),
    ("line.js", SCRIPT, include_str!("console/line.js")),
    ("main.js", SCRIPT, include_str!("console/main.js")),
    ("overview.js", SCRIPT, include_str!("console/overview.js")),
    ("text.js", SCRIPT, include_str!("console/text.js")),
    ("value.js", SCRIPT, include_str!("console/value.js")),
];

/// A file of it.
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
    let body = if name.is_empty() {
        text.replace(MODE, mode).into()
    } else {
        hyper::body::Bytes::from_static(text.as_bytes())
    };
    Ok(respond::with(StatusCode::OK, kind, POLICY, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_the_program() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let name = if name == "index.html" { "" } else { &name };
            assert!(FILES.iter().any(|(known, ..)| *known == name), "{name}");
        }
        assert_eq!(answer("", ConsoleMode::Off).unwrap_err().status, StatusCode::NOT_FOUND);
        assert_eq!(answer("none.js", ConsoleMode::Full).unwrap_err().status, StatusCode::NOT_FOUND);
    }

    /// What the policy forbids, and the browser would leave out without a word to the user.
    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_nothing_inline() {
        for (name, _, text) in FILES {
            let without_names = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!without_names.contains("://"), "{name} names another place");
            assert!(!text.contains("innerHTML") && !text.contains("eval("), "{name} reads text as markup or code");
            let is_page = name.is_empty();
            assert!(
                !is_page || !text.contains("style=") && !text.contains("<style") && !text.contains("onclick="),
                "{name}"
            );
        }
    }
}
