//! The title of a user's command in reports: its words on one line, safe to print.

use std::fmt::Write;

/// Maximum length of a title, in characters. Long scripts and values are cut.
const CHARS_MAX: usize = 200;
/// Mark at the end of a title that was cut.
const CUT_OFF: &str = "...";

/// Returns the title of a command. Characters that could harm a terminal are escaped, for example as `\xff` or `\n`.
#[must_use]
pub fn title(words: &[Vec<u8>]) -> String {
    let mut title = String::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            title.push(' ');
        }
        // A character has at most four bytes. One more character than fits shows that the title must be cut.
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
                // Letters of all languages are kept. Invisible characters and direction marks are escaped.
                _ => title.extend(character.escape_debug()),
            }
        }
        push_escaped(title, chunk.invalid());
    }
}

fn push_escaped(title: &mut String, bytes: &[u8]) {
    // Writing to a string can't fail.
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
    fn printable_words_are_unchanged() {
        check(&[b"SET", b"key:__rand_int__", b"a b", b"c:\\d \"e\""], "SET key:__rand_int__ a b c:\\d \"e\"");
        check(&["SET", "größe", "日本"].map(str::as_bytes), "SET größe 日本");
    }

    #[test]
    fn binary_words_are_escaped() {
        check(&[b"SET", b"\xff\x01", b"a\nb\x1b[2J\x7f"], r"SET \xff\x01 a\nb\x1b[2J\x7f");
        check(&["SET", "\u{202e}\u{9b}2J"].map(str::as_bytes), r"SET \u{202e}\u{9b}2J");
    }

    #[test]
    fn long_titles_are_cut() {
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
