//! Commands in wire format (RESP) or as text, one per line. An input may mix both.
//!
//! A command that begins with `*` is RESP, anything else is a line, by the rule of servers. Blank lines and lines that
//! begin with `#` are skipped. Lengths in RESP are checked against the line ends that must follow them, because a file
//! with wrong lengths must not become other commands. Source of the format: the "Redis serialization protocol
//! specification" page.

use std::ops::Range;

use super::quoted::Splitter;
use super::{Broken, Format, Found, LineFinder, check_args, shape, too_long};
use crate::block::{Block, Head};
use crate::exit::Exit;
use crate::input::Input;
use crate::limits::ARGS_MAX;

/// Number of bytes after which more input wouldn't help to detect the format.
const BEGINNING_BYTES: usize = 64 << 10;

/// Reads commands.
pub struct Commands {
    command_bytes_max: usize,
    args_max: u64,
    lines: LineFinder,
    splitter: Splitter,
    framing: Framing,
    /// True if the beginning of the input was examined.
    has_begun: bool,
}

impl Commands {
    /// Returns a reader for commands of at most `command_bytes_max` bytes.
    pub fn new(command_bytes_max: usize) -> Commands {
        Commands {
            command_bytes_max,
            args_max: ARGS_MAX,
            lines: LineFinder::default(),
            splitter: Splitter::default(),
            framing: Framing::default(),
            has_begun: false,
        }
    }

    /// Sets the maximum number of arguments that the server takes, including the command's name. Commands with more are
    /// rejected.
    pub fn with_args_max(self, args_max: u64) -> Commands {
        Commands { args_max, ..self }
    }

    /// Refuses an input that looks like another format. Returns false if more available input should be read first.
    fn begin(&mut self, input: &Input) -> Result<bool, Broken> {
        let unread = input.unread();
        let tells_enough = unread.len() >= BEGINNING_BYTES || shape::has_lines(unread) || input.has_ended();
        // If no more input is available now, the decision is made with the present bytes.
        if !tells_enough && (unread.is_empty() || input.has_more()) {
            return Ok(false);
        }
        self.has_begun = true;
        match shape::refusal(unread, input.has_ended()) {
            Some(reason) => Err(Broken { line: None, reason, exit: Exit::Usage }),
            None => Ok(true),
        }
    }

    /// Takes a line. Returns false if there is no complete one.
    fn take_line(&mut self, input: &mut Input, block: &mut Block) -> bool {
        let number = input.line();
        let bytes = match self.lines.next(input, self.command_bytes_max) {
            Found::Nothing => return false,
            Found::Skipped => return true,
            Found::TooLong(beginning) => {
                block.reject(number, too_long("line", self.command_bytes_max), beginning);
                self.lines.skip(input);
                return true;
            }
            Found::Line(line) => {
                let is_blank = line.text.iter().all(|byte| matches!(byte, b' ' | b'\t'..=b'\r'));
                if !is_blank && !line.text.starts_with(b"#") {
                    let encode = |out: &mut Vec<u8>| self.splitter.encode(line.text, self.args_max, out);
                    block.command(number, || line.text, encode);
                }
                line.bytes
            }
        };
        // A line without a line end is the last one.
        let lines = u64::from(input.unread().get(bytes - 1) == Some(&b'\n'));
        input.take(bytes, lines);
        true
    }

    /// Takes a command in RESP. Returns false if it is incomplete.
    fn take_request(&mut self, input: &mut Input, block: &mut Block) -> Result<bool, Broken> {
        let unread = input.unread();
        let broken = |framing: &Framing, reason: &str| Broken::at(input.line() + framing.lines, reason);
        let whole = self.framing.advance(unread).map_err(|reason| broken(&self.framing, reason))?;
        let bytes = if whole { self.framing.at } else { unread.len() };
        if bytes > self.command_bytes_max {
            return Err(Broken::at(input.line(), too_long("command", self.command_bytes_max)));
        }
        if !whole {
            return if input.has_ended() {
                Err(broken(&self.framing, "the input ends in mid-command"))
            } else {
                Ok(false)
            };
        }
        let framed = std::mem::take(&mut self.framing);
        let request = &unread[..bytes];
        // Servers don't answer a command without arguments.
        if framed.args_total > 0 {
            let text = || &request[framed.head.name.clone()];
            block.command(input.line(), text, |out| {
                check_args(framed.args_total, self.args_max)?;
                out.extend_from_slice(request);
                Ok(framed.head.clone())
            });
        }
        input.take(bytes, framed.lines);
        Ok(true)
    }
}

impl Format for Commands {
    fn take(&mut self, input: &mut Input, block: &mut Block) -> Result<(), Broken> {
        if !self.has_begun && !self.begin(input)? {
            return Ok(());
        }
        while !block.is_full() {
            let first = if self.lines.skipping { None } else { input.unread().first() };
            let taken = match first {
                Some(b'*') => self.take_request(input, block)?,
                _ => self.take_line(input, block),
            };
            if !taken {
                break;
            }
        }
        Ok(())
    }
}

/// State of the parsing of a request, relative to its beginning. It is kept for an incomplete request, so that a long
/// one isn't parsed again with every read.
#[derive(Debug, Default)]
struct Framing {
    at: usize,
    /// Number of line ends before `at`.
    lines: u64,
    /// Announced number of arguments, once it is known.
    args_total: u64,
    args_done: u64,
    head: Head,
    has_count: bool,
}

impl Framing {
    /// Continues with the available bytes. Returns true if the request ends at `self.at`.
    fn advance(&mut self, bytes: &[u8]) -> Result<bool, &'static str> {
        if !self.has_count {
            let Some((count, at)) = number(bytes, 1)? else { return Ok(false) };
            if count > ARGS_MAX as i64 {
                return Err("the command announces too many arguments");
            }
            (self.at, self.lines, self.has_count) = (at, 1, true);
            self.args_total = u64::try_from(count).unwrap_or(0);
        }
        while self.args_done < self.args_total {
            let Some(content) = argument(bytes, self.at)? else { return Ok(false) };
            match self.args_done {
                0 => self.head.name = content.clone(),
                1 => self.head.argument = content.clone(),
                _ => {}
            }
            self.lines += 2 + count_lines(&bytes[content.clone()]);
            self.at = content.end + 2;
            self.args_done += 1;
        }
        Ok(true)
    }
}

/// Returns the number of line ends in `bytes`. Most arguments have none.
fn count_lines(bytes: &[u8]) -> u64 {
    /// For shorter arguments, a call of the vectorised search costs more than it saves.
    const SHORT: usize = 32;
    if bytes.len() >= SHORT || has_line_end(bytes) { memchr::memchr_iter(b'\n', bytes).count() as u64 } else { 0 }
}

/// Returns true if `bytes`, a short slice, contains a line end. It checks eight bytes at a time.
fn has_line_end(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    let is_end = |word: [u8; 8]| {
        // Line ends are zero bytes now. The expression sets the top bit of the lowest zero byte, and of no byte below
        // it.
        let others = u64::from_le_bytes(word) ^ (ONES * u64::from(b'\n'));
        others.wrapping_sub(ONES) & !others & (ONES << 7) != 0
    };
    let Some(last) = bytes.last_chunk::<8>() else { return bytes.contains(&b'\n') };
    // The last eight bytes overlap the previous ones.
    is_end(*last) || bytes.as_chunks().0.iter().any(|word| is_end(*word))
}

/// Returns the range of the argument with its head at `at`, or `None` if it is incomplete.
fn argument(bytes: &[u8], at: usize) -> Result<Option<Range<usize>>, &'static str> {
    match bytes.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(_) => return Err("expected '$' and the length of an argument; the length before it may be wrong"),
    }
    let Some((length, start)) = number(bytes, at + 1)? else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_| "the length of an argument is negative")?;
    let end = start.checked_add(length).ok_or("the length of an argument is too large")?;
    match bytes.get(end..) {
        None | Some([] | [b'\r']) => Ok(None),
        Some([b'\r', b'\n', ..]) => Ok(Some(start..end)),
        Some(_) => Err("an argument is not as long as its length says"),
    }
}

/// Returns the number at `at` and the start of the next line, or `None` if the line is incomplete.
fn number(bytes: &[u8], at: usize) -> Result<Option<(i64, usize)>, &'static str> {
    const WRONG: &str = "expected a number and the end of the line";
    /// Maximum length of a number with its sign and line end.
    const LENGTH_MAX: usize = 22;
    let line = &bytes[at.min(bytes.len())..];
    // Nearly all numbers have one or two digits.
    match line {
        [digit @ b'0'..=b'9', b'\r', b'\n', ..] => return Ok(Some((i64::from(digit - b'0'), at + 3))),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Ok(Some((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), at + 4)));
        }
        _ => {}
    }
    let Some(end) = line.iter().take(LENGTH_MAX).position(|byte| *byte == b'\r') else {
        return if line.len() >= LENGTH_MAX { Err(WRONG) } else { Ok(None) };
    };
    match line.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((resp::num::parse_i64(&line[..end]).ok_or(WRONG)?, at + end + 2))),
        Some(_) => Err(WRONG),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, read};
    use super::*;

    #[test]
    fn line_ends_are_counted_wherever_they_are() {
        for length in 0..40 {
            for at in 0..length {
                let mut bytes = vec![b'\x0b'; length];
                assert_eq!(count_lines(&bytes), 0);
                bytes[at] = b'\n';
                assert_eq!(count_lines(&bytes), 1, "{at} of {length}");
                bytes[at / 2] = b'\n';
                assert_eq!(count_lines(&bytes), 1 + u64::from(at > 0), "{at} of {length}");
            }
        }
    }

    const LIMIT: usize = 100;

    fn commands() -> Box<dyn Format> {
        Box::new(Commands::new(LIMIT))
    }

    #[test]
    fn lines_are_commands() {
        check(commands, "", &[]);
        check(commands, "SET a 1\nGET a", &["1: SET a 1", "2: GET a"]);
        check(commands, "SET a \"x\\ny\"\r\n\r\n  \n# a comment\nPING\r\n", &["1: SET a \"x\\ny\"", "5: PING"]);
        check(commands, "\n\nSET a\tb   c\n", &["3: SET a b c"]);
    }

    #[test]
    fn bad_lines_are_rejected_and_the_next_ones_taken() {
        let quote = "! a quote is not closed, or closes within a word";
        check(
            commands,
            "SET \"a\nPING\n'\nPING x",
            &[&format!("1{quote}"), "2: PING", &format!("3{quote}"), "4: PING x"],
        );
        check(
            commands,
            "subscribe x\nPING",
            &["1! the command doesn't get exactly one reply, so it can't be part of a load", "2: PING"],
        );
        let long = format!("PING\nSET k {}\n*1\r\n$4\r\nPING\r\nSET k {}", "v".repeat(LIMIT), "v".repeat(LIMIT - 6));
        let too_long = "2! the line is longer than 100 bytes; --max-command raises the limit";
        let last = format!("6: SET k {}", "v".repeat(LIMIT - 6));
        check(commands, &long, &["1: PING", too_long, "3: PING", &last]);
        // A long line that contains RESP stays one line.
        let long = format!("{}*1\r\nPING", "v".repeat(LIMIT + 1));
        check(commands, &long, &["1! the line is longer than 100 bytes; --max-command raises the limit", "2: PING"]);
    }

    #[test]
    fn requests_are_commands() {
        let text = "*1\r\n$4\r\nPING\r\n*0\r\n*-1\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n1\r\n2\r\nPING\r\n*1\r\n$4\r\nPING\r\n";
        check(commands, text, &["1: PING", "6: SET a \"1\\r\\n2\"", "14: PING", "15: PING"]);
    }

    #[test]
    fn broken_requests_end_the_input() {
        let check_broken = |text: &str, line: u64, reason: &str| {
            check(commands, &format!("PING\n{text}"), &["1: PING", &format!("{line}!! {reason}")]);
        };
        check_broken("*1\r\n$4\r\nPIN", 3, "the input ends in mid-command");
        check_broken("*1\r\n$4\r\nPIN\r\n*1\r\n$4\r\nPING\r\n", 3, "an argument is not as long as its length says");
        check_broken(
            "*2\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
            5,
            "expected '$' and the length of an argument; the length before it may be wrong",
        );
        check_broken("*x\r\n", 2, "expected a number and the end of the line");
        check_broken("*1\r\n$-1\r\n", 3, "the length of an argument is negative");
        check_broken("*2147483648\r\n", 2, "the command announces too many arguments");
        check_broken("*9999999\r\n", 3, "the input ends in mid-command");
        check_broken("*1\n$4\nPING\nand so on, and so on", 2, "expected a number and the end of the line");
        check_broken("*00000000000000000000000000001\r\n", 2, "expected a number and the end of the line");
    }

    #[test]
    fn arguments_have_a_limit_in_both_forms() {
        let commands = || Box::new(Commands::new(LIMIT).with_args_max(2)) as Box<dyn Format>;
        let rejected = |line: u64| format!("{line}! the command has 3 arguments, and the server takes no more than 2");
        let request = "*3\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n";
        check(
            commands,
            &format!("DEL a\nDEL a b\nDEL \"a\" b\n{request}GET a\n"),
            &["1: DEL a", &rejected(2), &rejected(3), &rejected(4), "11: GET a"],
        );
    }

    #[test]
    fn a_request_has_a_limit() {
        let text = format!("*2\r\n$4\r\nECHO\r\n$200\r\n{}\r\n", "x".repeat(200));
        for size in [1, 50, 1000] {
            let found = read(&mut *commands(), text.as_bytes(), size);
            assert_eq!(found, ["1!! the command is longer than 100 bytes; --max-command raises the limit"]);
        }
    }
}
