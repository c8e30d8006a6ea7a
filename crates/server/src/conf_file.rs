//! The grammar of redis.conf: files into lines, lines into directives.
//!
//! One directive a line, its arguments quoted by the rules of [`resp::splitargs`]. Blank lines and lines that begin with `#` are ignored. A
//! `#` further on in a line is no comment. `include` reads other files at its place. The [`Loader`] interprets the directives.
//!
//! Source: the sample redis.conf and the "Redis configuration" page.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use config::Loader;

/// The most errors reported at once.
const ERRORS_MAX: usize = 100;
/// The depth limit of nested includes. A deeper nesting is a file that includes itself.
const INCLUDE_DEPTH_MAX: usize = 16;

/// A configuration error that prevents a start. Its text is printed before the exit.
#[derive(Debug, PartialEq, Eq)]
pub enum ConfError {
    /// A line is wrong.
    Line {
        /// The name of the file or other source.
        source: String,
        /// Counted from 1.
        line: usize,
        /// The line itself.
        text: String,
        /// The error in it.
        reason: String,
    },
    /// A file can't be read.
    File {
        /// Its name, as far as it is known.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
}

/// The first line of every fatal error in a configuration, after a blank line.
pub(crate) const FATAL: &str =
    concat!("\n*** FATAL CONFIG FILE ERROR (Penstock ", env!("CARGO_PKG_VERSION"), ") ***\n");

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfError::Line { source, line, text, reason } => {
                write!(f, "Reading the configuration file, at line {line} of {source}\n>>> '{text}'\n{reason}")
            }
            ConfError::File { path, reason } => {
                write!(f, "Fatal error, can't open config file '{}': {reason}", path.display())
            }
        }
    }
}

impl std::error::Error for ConfError {}

/// All errors of a configuration, shown together at one start. The text is printed before the exit.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfErrors(Vec<ConfError>);

impl ConfErrors {
    /// Returns `Ok` if there are no errors.
    ///
    /// # Errors
    /// All errors together.
    pub fn into_result(self) -> Result<(), ConfErrors> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    fn push(&mut self, error: ConfError) {
        if !self.is_full() {
            self.0.push(error);
        }
    }

    /// Returns true if the rest of the configuration is skipped.
    fn is_full(&self) -> bool {
        self.0.len() >= ERRORS_MAX
    }
}

impl fmt::Display for ConfErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only @ ConfError::File { .. }] = self.0.as_slice() {
            return write!(f, "{only}");
        }
        f.write_str(FATAL)?;
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if index > 0 { "\n" } else { "" })?;
        }
        if self.is_full() { write!(f, "\nThe rest was not looked at.") } else { Ok(()) }
    }
}

impl std::error::Error for ConfErrors {}

/// Reads the file at `path` into `loader`. Wrong lines, there or in an included file, are left out and noted.
pub fn load_file(loader: &mut Loader, path: &Path, errors: &mut ConfErrors) {
    load_nested(loader, path, 0, errors);
}

/// Reads the configuration `text` into `loader`, like [`load_file`]. Errors name `source` as its place.
pub fn load_text(loader: &mut Loader, source: &str, text: &[u8], errors: &mut ConfErrors) {
    load_lines(loader, source, text, 0, errors);
}

fn load_nested(loader: &mut Loader, path: &Path, depth: usize, errors: &mut ConfErrors) {
    match std::fs::read(path) {
        Ok(text) => {
            let source = path.display().to_string();
            let outer = (depth > 0).then(|| loader.set_included(Some(source.clone())));
            load_lines(loader, &source, &text, depth, errors);
            outer.map(|outer| loader.set_included(outer));
        }
        Err(error) => errors.push(ConfError::File { path: path.to_owned(), reason: system_text(&error) }),
    }
}

fn load_lines(loader: &mut Loader, source: &str, text: &[u8], depth: usize, errors: &mut ConfErrors) {
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        // A file that includes itself several times would be read endlessly.
        if errors.is_full() {
            return;
        }
        if let Err(reason) = load_line(loader, line, depth, errors) {
            let text = String::from_utf8_lossy(line).into_owned();
            errors.push(ConfError::Line { source: source.to_owned(), line: index + 1, text, reason });
        }
    }
}

/// Reads one line. Returns the error of this line, and notes the errors of files that it includes.
fn load_line(loader: &mut Loader, line: &[u8], depth: usize, errors: &mut ConfErrors) -> Result<(), String> {
    let argv = resp::splitargs::split_args(line).map_err(|_| "Unbalanced quotes in configuration line".to_owned())?;
    match argv.as_slice() {
        [name, _] if name.eq_ignore_ascii_case(b"include") && depth == INCLUDE_DEPTH_MAX => {
            Err(format!("Files include files more than {INCLUDE_DEPTH_MAX} deep"))
        }
        [name, pattern] if name.eq_ignore_ascii_case(b"include") => {
            include(loader, pattern, depth + 1, errors);
            Ok(())
        }
        argv => loader.directive(argv),
    }
}

/// Reads the files that match a pattern, in the order of their names. A glob may match no file, but a plain name must exist. Relative paths
/// start at the current value of `dir`.
pub(crate) fn include(loader: &mut Loader, pattern: &[u8], depth: usize, errors: &mut ConfErrors) {
    let pattern = String::from_utf8_lossy(pattern);
    let pattern = loader.settings().in_dir(&pattern);
    if is_plain(&pattern) {
        return load_nested(loader, &pattern, depth, errors);
    }
    for path in matching_paths(&pattern) {
        load_nested(loader, &path, depth, errors);
    }
}

fn is_plain(path: &Path) -> bool {
    store::glob::is_literal(path.as_os_str().as_encoded_bytes())
}

/// Returns the existing paths that match `pattern`, sorted. Any component may be a glob.
fn matching_paths(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        found = match component {
            Component::Normal(glob) if !is_plain(Path::new(glob)) => {
                found.iter().flat_map(|directory| matching_entries(directory, glob.as_encoded_bytes())).collect()
            }
            plain => found.into_iter().map(|path| path.join(plain)).filter(|path| path.exists()).collect(),
        };
    }
    found.sort();
    found
}

/// Returns the entries of `directory` that match `glob`. A leading dot must be written in the glob, like in a shell.
fn matching_entries(directory: &Path, glob: &[u8]) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name()));
    names
        .filter(|name| {
            let name = name.as_encoded_bytes();
            name.starts_with(b".") == glob.starts_with(b".") && store::glob::matches(glob, name, false)
        })
        .map(|name| directory.join(name))
        .collect()
}

/// Returns the text of strerror for a system error, without Rust's "(os error 2)".
pub(crate) fn system_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Settings, get};

    fn load(text: &str) -> Result<Settings, String> {
        let settings = Settings::new();
        let mut errors = ConfErrors::default();
        load_text(&mut Loader::new(&settings), "test.conf", text.as_bytes(), &mut errors);
        errors.into_result().map(|()| settings).map_err(|errors| errors.to_string())
    }

    fn check(text: &str, name: &str, value: &str) {
        let found = load(text).map(|settings| get(&settings, &[name.as_bytes()]));
        assert_eq!(found, Ok(vec![(name.into(), value.into())]), "{text:?}");
    }

    fn check_error(text: &str, line: usize, shown: &str, reason: &str) {
        let expected =
            format!("{FATAL}Reading the configuration file, at line {line} of test.conf\n>>> '{shown}'\n{reason}");
        assert_eq!(load(text).map(|_| ()), Err(expected), "{text:?}");
    }

    #[test]
    fn lines_are_directives() {
        check("# a\n\n  \tport 7000 \nhz 20", "port", "7000");
        check("PORT 1\r\nport 2\r\n\r\n", "port", "2");
        check("requirepass \"a\\x20\\\"b\"", "requirepass", "a \"b");
        check("requirepass 'a \\'b\\n'", "requirepass", "a 'b\\n");
        check("requirepass #x", "requirepass", "#x");
        check("", "hz", "10");
        check("save 900 1\nsave 300 10", "save", "900 1 300 10");
    }

    #[test]
    fn errors_name_file_and_line() {
        let bad = "Bad directive: there is no 'nonsense'; correct its name, or remove it";
        let comment = "wrong number of arguments: 'port' takes 1, not 3; a comment needs a line of its own";
        let missing = "wrong number of arguments: 'hz' takes 1, not 0; add the missing ones, \"\" for an empty one";
        check_error("# c\n\nport 0\n nonsense yes \n", 4, "nonsense yes", bad);
        check_error("\"a b", 1, "\"a b", "Unbalanced quotes in configuration line");
        check_error("port 1 # comment", 1, "port 1 # comment", comment);
        check_error("hz\r\n", 1, "hz", missing);
        check_error("include", 1, "include", &missing.replace("hz", "include"));
        check_error("maxmemory xx", 1, "maxmemory xx", "argument must be a memory value");
        let text = load("nonsense yes").map(|_| ()).unwrap_err();
        assert!(text.starts_with("\n*** FATAL CONFIG FILE ERROR (Penstock "), "{text}");
    }

    #[test]
    fn all_errors_are_named_at_once() {
        let text = load("foo 1\nhz 20\n\nport x\n\"a").map(|_| ()).unwrap_err();
        let expected = format!(
            "{FATAL}\
             Reading the configuration file, at line 1 of test.conf\n>>> 'foo 1'\n\
             Bad directive: there is no 'foo'; correct its name, or remove it\n\
             Reading the configuration file, at line 4 of test.conf\n>>> 'port x'\n\
             argument couldn't be parsed into an integer\n\
             Reading the configuration file, at line 5 of test.conf\n>>> '\"a'\n\
             Unbalanced quotes in configuration line"
        );
        assert_eq!(text, expected);
        let many = load(&"foo 1\n".repeat(1000)).map(|_| ()).unwrap_err();
        assert_eq!(many.matches("at line").count(), ERRORS_MAX);
        assert!(many.ends_with("\nThe rest was not looked at."), "{many}");
    }

    /// A directory for one test, removed at its end.
    struct ScratchDirectory(PathBuf);

    impl ScratchDirectory {
        fn new(name: &str, files: &[(&str, &str)]) -> ScratchDirectory {
            let path = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
            for (file, text) in files {
                let file = path.join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
            ScratchDirectory(path)
        }

        fn load(&self, file: &str) -> Result<Settings, String> {
            let settings = Settings::new();
            let mut loader = Loader::new(&settings);
            loader.directive(&[b"dir".to_vec(), self.0.to_str().unwrap().into()]).unwrap();
            let mut errors = ConfErrors::default();
            load_file(&mut loader, &self.0.join(file), &mut errors);
            errors.into_result().map(|()| settings).map_err(|errors| errors.to_string())
        }
    }

    impl Drop for ScratchDirectory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn includes_are_read_in_place() {
        let scratch = ScratchDirectory::new(
            "include",
            &[
                ("a.conf", "hz 11\ninclude b.conf\ntimeout 1\ninclude c/*/[xy].conf\nINCLUDE none*\n"),
                ("b.conf", "hz 12\ntimeout 2\n"),
                ("c/1/y.conf", "port 2\n"),
                ("c/1/x.conf", "port 1\nmaxclients 5\n"),
                ("c/1/.x.conf", "nonsense\n"),
            ],
        );
        let settings = scratch.load("a.conf").unwrap();
        assert_eq!((settings.hz.get(), settings.timeout_s.get()), (12, 1));
        assert_eq!((settings.port.get(), settings.maxclients.get()), (2, 5));
    }

    #[test]
    fn errors_in_includes_name_the_included_file() {
        let scratch = ScratchDirectory::new(
            "include-errors",
            &[
                ("a.conf", "\ninclude b.conf\n"),
                ("b.conf", "hz x\n"),
                ("c.conf", "include nofile\n"),
                ("self.conf", "include self.conf\n"),
                ("twice.conf", "include twice.conf\ninclude twice.conf\n"),
                ("both.conf", "foo\ninclude b.conf\ninclude nofile\n"),
            ],
        );
        let error = scratch.load("a.conf").unwrap_err();
        assert!(error.contains("at line 1 of ") && error.contains("/b.conf\n>>> 'hz x'\n"), "{error}");
        let error = scratch.load("c.conf").unwrap_err();
        assert!(error.starts_with("Fatal error, can't open config file '"), "{error}");
        assert!(error.ends_with("/nofile': No such file or directory"), "{error}");
        assert!(scratch.load("self.conf").unwrap_err().ends_with("Files include files more than 16 deep"));
        // The load ends long before 65,536 reads.
        assert!(scratch.load("twice.conf").unwrap_err().ends_with("The rest was not looked at."));
        let error = scratch.load("both.conf").unwrap_err();
        assert!(error.starts_with(FATAL) && error.contains("'foo'") && error.contains("/b.conf\n"), "{error}");
        assert!(error.ends_with("/nofile': No such file or directory"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error_of_their_line() {
        let settings = Settings::new();
        let mut errors = ConfErrors::default();
        load_text(&mut Loader::new(&settings), "x", b"\nrequirepass \xff\n", &mut errors);
        assert!(matches!(errors.0.as_slice(), [ConfError::Line { line: 2, .. }]), "{errors}");
    }
}
