//! Preferences that `:set` changes, in interactive mode or in `~/.redisclirc`.

use crate::output::complain;
use std::fs;
use std::path::Path;

/// Preferences of the interactive mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// True if the remaining arguments are shown behind the cursor.
    pub hints: bool,
}

impl Default for Preferences {
    fn default() -> Self {
        Self { hints: true }
    }
}

impl Preferences {
    /// Executes a line that begins with a colon. Returns the output, which is empty on success.
    pub fn set(&mut self, words: &[Vec<u8>]) -> String {
        let words: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).to_ascii_lowercase()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [":set", "hints", ..] => self.hints = true,
            [":set", "nohints", ..] => self.hints = false,
            [":set", other, ..] => return format!("unknown redis-cli preference '{other}'\n"),
            [other, ..] => return format!("unknown redis-cli internal command '{other}'\n"),
            [] => {}
        }
        String::new()
    }

    /// Reads preferences from a file. A missing file changes nothing.
    pub fn load(path: &Path) -> Self {
        let mut preferences = Self::default();
        let text = fs::read(path).unwrap_or_default();
        for line in text.split(|&byte| byte == b'\n') {
            let words = resp::splitargs::split_args(line).unwrap_or_default();
            let trouble = preferences.set(&words);
            if !trouble.is_empty() {
                complain!(".redisclirc: {}", trouble.trim_end());
            }
        }
        preferences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_switched() {
        let mut preferences = Preferences::default();
        let mut set = |line: &str| {
            let answer = preferences.set(&resp::splitargs::split_args(line.as_bytes()).unwrap());
            (preferences.hints, answer)
        };
        assert_eq!(set(":set nohints"), (false, String::new()));
        assert_eq!(set(":set nohints extra"), (false, String::new()));
        assert_eq!(set(":SET HINTS"), (true, String::new()));
        assert_eq!(set(":set foo"), (true, "unknown redis-cli preference 'foo'\n".to_owned()));
        assert_eq!(set(":foo"), (true, "unknown redis-cli internal command ':foo'\n".to_owned()));
    }
}
