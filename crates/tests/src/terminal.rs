//! A real terminal, which tmux is: what one types, and what stands on the screen then.

use crate::server::{comes_true, subject_program};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// A terminal with a program in it. Dropping it ends both.
pub struct Terminal {
    /// The name of a tmux server of its own.
    socket: String,
    /// The home of what runs in it.
    pub home: PathBuf,
}

impl Terminal {
    /// Runs a shell's command line in a new terminal with a home of its own.
    pub fn new(command: &str) -> Terminal {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let socket = format!("penstock-terminal-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let home = env::temp_dir().join(&socket);
        fs::create_dir_all(&home).unwrap();
        Terminal::in_home(command, socket, home)
    }

    /// The same with a tmux server of this name, and in this home.
    pub fn in_home(command: &str, socket: String, home: PathBuf) -> Terminal {
        let terminal = Terminal { socket, home };
        let line = format!("env -u NO_COLOR HOME={} {command}; sleep 60", terminal.home.display());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "150", &line]);
        terminal
    }

    /// `penstock cli` for the server at `port`.
    pub fn penstock(port: u16) -> Terminal {
        Terminal::new(&format!("{} cli -p {port}", subject_program().display()))
    }

    /// Runs a command of tmux.
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

    /// Types a text as it is.
    pub fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses a key, by tmux's name for it.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Types a line and waits for what it leads to.
    pub fn enter(&self, line: &str, expected: &str) {
        self.type_text(line);
        self.press("Enter");
        self.wait_for(expected);
    }

    /// The screen's text, without blanks at the ends of lines.
    pub fn screen(&self) -> String {
        let text = self.tmux(&["capture-pane", "-p"]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Waits until the screen ends so.
    pub fn wait_for(&self, expected: &str) {
        self.wait_until(expected, |screen| screen.ends_with(expected));
    }

    /// Waits until the screen is as it should be.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) {
        assert!(comes_true(|| is_so(&self.screen())), "not seen: {what}\nbut:\n{}", self.screen());
    }

    /// The file of past lines.
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
