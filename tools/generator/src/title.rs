//! What a command of the user's own is called in reports: its words as they were given, safe to print and of one line.

use std::fmt::Write;

/// Longest title, in characters. The command line has the whole of a long script or value.
const CHARS_MAX: usize = 200;
/// What stands at the end of a title that is cut off.
const CUT_OFF: &str = "...";

/// The title of a command. What no terminal should be sent is written as an escape, such as `\xff` or `\n`.
#[must_use]
pub fn title(words: &[Vec<u8>]) -> String {
    let mut title = String::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            title.push(' ');
        }
        // Four bytes are a character at least, and one more than fits tells that something is left.
        push_printable(&mut title, &word[..word.len().min(4 * (CHARS_MAX + 1))]);
        if title.chars().nth(CHARS_MAX).is_some() {
            return title.chars().take(CHARS_MAX - CUT_OFF.len()).chain(CUT_OFF.chars()).collect();
        }
    }
    title
}

fn push_printable(title: &mut String, word: &[u8]) {
    for chunk in word.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                ' '..='~' => title.push(character),
                '\0'..='\x7f' => push_escaped(title, &[character as u8]),
                // Letters of all languages stay; what is invisible or turns the line around does not.
                _ => title.extend(character.escape_debug()),
            }
        }
        push_escaped(title, chunk.invalid());
    }
}

fn push_escaped(title: &mut String, bytes: &[u8]) {
    // A string takes everything.
    let _ = write!(title, "{}", bytes.escape_ascii());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&[u8]], expected: &str) {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
        assert_eq!(title(&words), expected);
    }

    #[test]
    fn words_stand_as_they_were_given() {
        check(&[b"SET", b"key:__rand_int__", b"a b", b"c:\\d \"e\""], "SET key:__rand_int__ a b c:\\d \"e\"");
        check(&["SET", "größe", "日本"].map(str::as_bytes), "SET größe 日本");
    }

    #[test]
    fn what_is_no_text_is_escaped() {
        check(&[b"SET", b"\xff\x01", b"a\nb\x1b[2J\x7f"], r"SET \xff\x01 a\nb\x1b[2J\x7f");
        check(&["SET", "\u{202e}\u{9b}2J"].map(str::as_bytes), r"SET \u{202e}\u{9b}2J");
    }

    #[test]
    fn what_is_long_is_cut_off() {
        let check_cut = |words: &[Vec<u8>]| {
            let title = title(words);
            assert!(title.ends_with("...") && title.chars().count() == CHARS_MAX, "{title}");
        };
        check_cut(&[b"SET".to_vec(), b"x".to_vec(), vec![b'v'; 1 << 20]]);
        check_cut(&vec![b"word".to_vec(); 10_000]);
        check_cut(&["ä".repeat(1000).into_bytes()]);
        check_cut(&["🗝".repeat(1000).into_bytes()]);
        check_cut(&[vec![0xff; 1000]]);
        check(&[&[b'x'; CHARS_MAX]], &"x".repeat(CHARS_MAX));
    }
}
