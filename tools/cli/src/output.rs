//! Buffered standard output. It is flushed before each wait, so that readers see all output.

use std::env;
use std::io::{self, BufWriter, Stdout, Write};
use std::process::ChildStdin;

/// Standard output, or the input of a shell command.
pub struct Output {
    stdout: BufWriter<Stdout>,
    /// Takes the output instead of standard output.
    pipe: Option<BufWriter<ChildStdin>>,
    /// Reused for every reply.
    scratch: Vec<u8>,
}

impl Default for Output {
    fn default() -> Self {
        Self { stdout: BufWriter::new(io::stdout()), pipe: None, scratch: Vec::new() }
    }
}

impl Output {
    /// Sends the following output to a process.
    pub fn begin_pipe(&mut self, input: ChildStdin) {
        self.pipe = Some(BufWriter::new(input));
    }

    /// Sends the following output to standard output. The process gets the rest of its input and the end.
    pub fn end_pipe(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // The process may have read enough.
            let _ = pipe.flush();
        }
    }

    /// Returns true if the output goes to a process.
    pub fn is_piped(&self) -> bool {
        self.pipe.is_some()
    }

    fn target(&mut self) -> &mut dyn Write {
        match &mut self.pipe {
            Some(pipe) => pipe,
            None => &mut self.stdout,
        }
    }

    /// Prints the bytes that `format` appends to a buffer.
    ///
    /// # Errors
    /// Returns errors of standard output.
    pub fn print_with(&mut self, format: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.scratch.clear();
        let mut scratch = std::mem::take(&mut self.scratch);
        format(&mut scratch);
        let written = self.target().write_all(&scratch);
        self.scratch = scratch;
        written
    }

    /// Prints a text.
    ///
    /// # Errors
    /// Returns errors of standard output.
    pub fn print(&mut self, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.target().write_all(text.as_ref())
    }

    /// Flushes the buffer.
    ///
    /// # Errors
    /// Returns errors of standard output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.target().flush()
    }
}

/// Returns true if the environment allows colours on a terminal: `NO_COLOR` is empty or unset, and `TERM` names a
/// terminal other than `dumb`.
pub fn may_colour() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Prints a line on standard error. If standard error is closed or full, the line is dropped. `eprintln!` would end the
/// program.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use complain;
