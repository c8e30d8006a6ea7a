//! Static files of a configured directory, public for every client.

use std::io::Read;
use std::path::{Path, PathBuf};

use hyper::StatusCode;
use percent_encoding::percent_decode_str;

use crate::failure::Failure;
use crate::respond::{self, Answered};

/// Size of the largest file that is served, in bytes: files are read whole, on the port's thread.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Content security policy of these pages: everything within their own origin.
const POLICY: &str = "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// File name extensions and their content types.
const TYPES: &[(&str, &str)] = &[
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("gif", "image/gif"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("md", "text/plain; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("webp", "image/webp"),
    ("woff2", "font/woff2"),
];

/// Returns the file under `path`, which is not decoded. `root` is a directory or the only file.
pub(crate) fn answer(root: &Path, path: &str) -> Result<Answered, Failure> {
    let found = find(root, path).ok_or_else(Failure::absent)?;
    let bytes = read(&found)?;
    Ok(respond::with(StatusCode::OK, kind(&found), POLICY, bytes))
}

/// Returns the file's path, if it exists and is within the root after resolving links.
fn find(root: &Path, path: &str) -> Option<PathBuf> {
    let root = root.canonicalize().ok()?;
    if root.is_file() {
        return path.is_empty().then_some(root);
    }
    let mut file = root.clone();
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    for part in decoded.split('/').filter(|part| !part.is_empty()) {
        // Rejects `..` and hidden files.
        if part.starts_with('.') || part.contains(['\\', '\0']) {
            return None;
        }
        file.push(part);
    }
    if file.is_dir() {
        file.push("index.html");
    }
    let file = file.canonicalize().ok()?;
    (file.starts_with(&root) && file.is_file()).then_some(file)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let file = std::fs::File::open(path).map_err(|_| Failure::absent())?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|_| Failure::absent())?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "ERR the file is larger than 16 MB: use another server for it",
        )),
        false => Ok(bytes),
    }
}

fn kind(path: &Path) -> &'static str {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    TYPES.iter().find(|(known, _)| *known == end).map_or("application/octet-stream", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary directory that is removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Place {
            let place = std::env::temp_dir().join(format!("penstock-files-{}", std::process::id()));
            std::fs::create_dir_all(place.join("root/sub")).unwrap();
            for (name, text) in [
                ("root/index.html", "top"),
                ("root/sub/index.html", "sub"),
                ("root/a b.txt", "a"),
                ("secret", "s"),
                ("root/.hidden", "h"),
            ] {
                std::fs::write(place.join(name), text).unwrap();
            }
            std::os::unix::fs::symlink("../secret", place.join("root/link")).unwrap();
            Place(place)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_files_within_the_directory_are_served() {
        let place = Place::new();
        let root = place.0.join("root");
        let check = |path: &str, expected: Option<&str>| {
            let found = find(&root, path).map(|file| std::fs::read_to_string(file).unwrap());
            assert_eq!(found.as_deref(), expected, "{path}");
        };
        check("", Some("top"));
        check("sub", Some("sub"));
        check("sub/", Some("sub"));
        check("a%20b.txt", Some("a"));
        for path in [
            "../secret",
            "%2e%2e/secret",
            "sub/../../secret",
            "..%2fsecret",
            "link",
            ".hidden",
            "none",
            "/etc/passwd",
            "sub\\x",
            "a\0",
            "%ff",
        ] {
            check(path, None);
        }
        assert_eq!(find(&root.join("a b.txt"), "").as_deref().map(kind), Some("text/plain; charset=utf-8"));
        assert_eq!(find(&root.join("a b.txt"), "x"), None);
    }
}
