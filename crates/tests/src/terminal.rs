//! A real terminal, by means of tmux: types input and reads the screen.

use crate::server::{comes_true, subject_program};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// A terminal that runs a program. Dropping it ends both.
pub struct Terminal {
    /// The name of the terminal's own tmux server.
    socket: String,
    /// The program's home directory.
    pub home: PathBuf,
}

impl Terminal {
    /// Runs a shell's command line in a new terminal with a home directory of its own.
    pub fn new(command: &str) -> Terminal {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let socket = format!("penstock-terminal-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let home = env::temp_dir().join(&socket);
        fs::create_dir_all(&home).unwrap();
        Terminal::in_home(command, socket, home)
    }

    /// Runs a command line in a terminal with this tmux server and this home directory.
    pub fn in_home(command: &str, socket: String, home: PathBuf) -> Terminal {
        let terminal = Terminal { socket, home };
        let line = format!("env -u NO_COLOR HOME={} {command}; sleep 60", terminal.home.display());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "150", &line]);
        terminal
    }

    /// Runs `penstock cli` for the server at `port`.
    pub fn penstock(port: u16) -> Terminal {
        Terminal::new(&format!("{} cli -p {port}", subject_program().display()))
    }

    /// Runs a tmux command.
    pub fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.socket])
            .args(args)
            .stdin(Stdio::null())
            .output()
            .expect("tmux runs (on Debian: apt-get install tmux)");
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types a text literally.
    pub fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses a key, named as in tmux.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Types a line and waits for the expected end of the screen.
    pub fn enter(&self, line: &str, expected: &str) {
        self.type_text(line);
        self.press("Enter");
        self.wait_for(expected);
    }

    /// The text of the screen, without blanks at the ends of lines.
    pub fn screen(&self) -> String {
        let text = self.tmux(&["capture-pane", "-p"]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Waits until the screen ends with this text.
    pub fn wait_for(&self, expected: &str) {
        self.wait_until(expected, |screen| screen.ends_with(expected));
    }

    /// Waits until the screen satisfies a condition.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) {
        assert!(comes_true(|| is_so(&self.screen())), "not seen: {what}\nbut:\n{}", self.screen());
    }

    /// The content of the history file.
    pub fn history(&self) -> String {
        fs::read_to_string(self.home.join(".rediscli_history")).unwrap_or_default()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).status();
        let _ = fs::remove_dir_all(&self.home);
    }
}
