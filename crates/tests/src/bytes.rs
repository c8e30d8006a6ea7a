//! Requests as bytes, and bytes as readable text that can be pasted into `redis-cli`.

/// A command: its name and its arguments.
pub type Command = Vec<Vec<u8>>;

/// A command from words without spaces: `command("SET k v")`. For tests with plain arguments.
pub fn command(words: &str) -> Command {
    words.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The request of one command, as an array of bulk strings.
pub fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// The requests of several commands, one after another.
pub fn encode_all(commands: &[Command]) -> Vec<u8> {
    commands.iter().flat_map(|c| encode(c)).collect()
}

/// Escapes bytes that are not printable ASCII, like `redis-cli`. Long texts are truncated.
pub fn escape(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let mut out = String::new();
    for &byte in shown {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'"' => out.push_str("\\\""),
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b' '..=b'~' => out.push(byte as char),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if shown.len() < bytes.len() {
        out.push_str(&format!("...({} bytes)", bytes.len()));
    }
    out
}

/// Longer texts are truncated in reports; the seed repeats the whole.
const SHOWN_BYTES_MAX: usize = 6000;

/// A command as a user would type it into `redis-cli`.
pub fn as_typed(command: &[Vec<u8>]) -> String {
    let words: Vec<String> = command.iter().map(|arg| as_typed_word(arg)).collect();
    words.join(" ")
}

fn as_typed_word(arg: &[u8]) -> String {
    let plain = !arg.is_empty() && arg.iter().all(|b| b.is_ascii_graphic() && !b"\"'\\".contains(b));
    if plain {
        return escape(arg);
    }
    format!("\"{}\"", escape(arg))
}
