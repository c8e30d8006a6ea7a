//! Standard output: buffered, and flushed where a user or a program may be waiting for it.

use std::env;
use std::io::{self, BufWriter, Stdout, Write};

/// Where replies go.
pub struct Output {
    stdout: BufWriter<Stdout>,
    /// Reused for every reply.
    scratch: Vec<u8>,
}

impl Default for Output {
    fn default() -> Self {
        Self { stdout: BufWriter::new(io::stdout()), scratch: Vec::new() }
    }
}

impl Output {
    /// Prints what `format` appends to a buffer.
    ///
    /// # Errors
    /// Standard output's.
    pub fn print_with(&mut self, format: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.scratch.clear();
        format(&mut self.scratch);
        self.stdout.write_all(&self.scratch)
    }

    /// Prints a text.
    ///
    /// # Errors
    /// Standard output's.
    pub fn print(&mut self, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.stdout.write_all(text.as_ref())
    }

    /// Lets the reader have what was printed.
    ///
    /// # Errors
    /// Standard output's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

/// Whether the environment lets a terminal be sent colours: `NO_COLOR` is empty or not set, and `TERM` names a terminal
/// that knows some.
pub fn may_colour() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Prints a line on standard error. If that is closed or full, the line is dropped; `eprintln!` would end the program.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use complain;
