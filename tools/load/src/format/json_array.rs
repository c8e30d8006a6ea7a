//! A JSON array: a template converts each of its elements to a command, as a line of JSON lines.
//!
//! Only the end of each element is searched here, so that the memory is bounded by the largest element. The parser of
//! JSON lines checks the element itself. A wrong element is rejected, and a wrong array ends the input.

use super::json::take_object;
use super::{Broken, Format, too_long};
use crate::block::Block;
use crate::input::Input;
use crate::template::Templates;

/// Reads the elements of an array.
pub struct JsonArray {
    templates: Templates,
    element_bytes_max: usize,
    place: Place,
    element: ElementEnd,
}

/// The expected part of the array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The opening bracket.
    Start,
    /// An element, or the end of an empty array.
    First,
    /// An element.
    Next,
    /// A comma, or the end of the array.
    AfterElement,
    /// Nothing.
    End,
}

impl JsonArray {
    /// Returns a reader that converts elements of at most `element_bytes_max` bytes to commands.
    pub fn new(templates: Templates, element_bytes_max: usize) -> JsonArray {
        JsonArray { templates, element_bytes_max, place: Place::Start, element: ElementEnd::default() }
    }

    /// Takes the next part of the array. Returns false if it is incomplete, or if the block is full.
    fn step(&mut self, input: &mut Input, block: &mut Block) -> Result<bool, Broken> {
        if self.element.at == 0 {
            skip_blanks(input);
        }
        let Some(&byte) = input.unread().first() else {
            return if input.has_ended() { self.end(input) } else { Ok(false) };
        };
        let wrong = |text: &str| Err(Broken::at(input.line(), text));
        self.place = match (self.place, byte) {
            (Place::Start, b'[') => Place::First,
            (Place::Start, _) => {
                return wrong("expected a JSON array; for a JSON object on each line use --json-lines");
            }
            (Place::First | Place::AfterElement, b']') => Place::End,
            (Place::AfterElement, b',') => Place::Next,
            (Place::AfterElement, _) => return wrong("expected a comma or the end of the array after an element"),
            (Place::Next, b']') => return wrong("expected an element after a comma"),
            (Place::First | Place::Next, _) => return self.take_element(input, block),
            (Place::End, _) => return wrong("unexpected text after the end of the array"),
        };
        input.take(1, 0);
        Ok(true)
    }

    fn take_element(&mut self, input: &mut Input, block: &mut Block) -> Result<bool, Broken> {
        let (unread, line) = (input.unread(), input.line());
        let is_complete = self.element.advance(unread);
        if self.element.at > self.element_bytes_max {
            return Err(Broken::at(line, too_long("element", self.element_bytes_max)));
        }
        if !is_complete {
            return if input.has_ended() { self.end(input) } else { Ok(false) };
        }
        let text = &unread[..self.element.at];
        if !take_object(&mut self.templates, line, text, block) {
            return Ok(false);
        }
        let (bytes, lines) = (text.len(), memchr::memchr_iter(b'\n', text).count() as u64);
        input.take(bytes, lines);
        self.element = ElementEnd::default();
        self.place = Place::AfterElement;
        Ok(true)
    }

    /// Handles the end of the input.
    fn end(&self, input: &Input) -> Result<bool, Broken> {
        match self.place {
            Place::End => Ok(false),
            Place::Start => Err(Broken::at(input.line(), "the input has no JSON array")),
            _ => Err(Broken::at(input.line(), "the input ends within the array")),
        }
    }
}

impl Format for JsonArray {
    fn take(&mut self, input: &mut Input, block: &mut Block) -> Result<(), Broken> {
        while !block.is_full() && self.step(input, block)? {}
        Ok(())
    }
}

/// Takes the blanks before the next part.
fn skip_blanks(input: &mut Input) {
    let unread = input.unread();
    let blanks = unread.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
    let lines = memchr::memchr_iter(b'\n', &unread[..blanks]).count() as u64;
    input.take(blanks, lines);
}

/// The search for the end of an element. Its state is kept while input is missing.
#[derive(Default)]
struct ElementEnd {
    /// Number of searched bytes; at the end, the element's length.
    at: usize,
    /// Number of open brackets and braces.
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl ElementEnd {
    /// Searches on. Returns true at the end of the element, before the comma or bracket behind it.
    fn advance(&mut self, bytes: &[u8]) -> bool {
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                _ if self.is_in_string => {}
                b'{' | b'[' => self.depth += 1,
                b',' | b']' | b'}' if self.depth == 0 => return true,
                b']' | b'}' => self.depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    fn json(templates: &'static [&'static str]) -> impl Fn() -> Box<dyn Format> {
        let texts: Vec<Vec<u8>> = templates.iter().map(|text| text.as_bytes().to_vec()).collect();
        move || Box::new(JsonArray::new(Templates::parse(&texts).unwrap(), 60))
    }

    fn check_movies(text: &str, expected: &[&str]) {
        check(json(&["ZADD movies {year} {title}"]), text, expected);
    }

    #[test]
    fn elements_become_commands() {
        check_movies("[]", &[]);
        check_movies(" [ ] \n", &[]);
        check_movies(
            "[{\"title\":\"Al]ien\",\"year\":1979},\n\n {\n\"year\":\"1\", \"title\":\"A\\\"}\\\\\"\n }\n]\n",
            &["1: ZADD movies 1979 Al]ien", "3: ZADD movies 1 \"A\\\"}\\\\\""],
        );
        check(json(&["SET {0} {1.a} {2:-x}"]), "[[\"k\",{\"a\":7}]]", &["1: SET k 7 x"]);
    }

    #[test]
    fn each_template_makes_a_command_of_each_element() {
        check(
            json(&["SET {id} {x}", "SADD ids {id}"]),
            "[{\"id\":1,\"x\":2},{\"id\":3}, 7 ]",
            &[
                "1: SET 1 2",
                "1: SADD ids 1",
                "1! the record has no field 'x'",
                "1: SADD ids 3",
                "1! not an object: invalid type: integer `7`, expected an object or an array",
            ],
        );
    }

    #[test]
    fn wrong_elements_are_rejected_and_the_next_ones_taken() {
        check_movies(
            "[{\"year\" 1},\n{\"title\":\"B\",\"year\":1}]",
            &["1! not JSON: expected `:`, at column 9", "2: ZADD movies 1 B"],
        );
        check_movies("[{\"year\":\n1,\n x}]", &["1! not JSON: key must be a string, at column 2 of its line 3"]);
    }

    #[test]
    fn a_wrong_array_ends_the_input() {
        let one = "{\"title\":\"B\",\"year\":1}";
        let taken = "1: ZADD movies 1 B";
        check_movies("", &["1!! the input has no JSON array"]);
        check_movies(one, &["1!! expected a JSON array; for a JSON object on each line use --json-lines"]);
        check_movies("[", &["1!! the input ends within the array"]);
        check_movies("[{\"a\":[1\n", &["1!! the input ends within the array"]);
        // An element is complete once a comma or bracket follows.
        check_movies(&format!("[{one}\n"), &["1!! the input ends within the array"]);
        check_movies(&format!("[{one} {one}]"), &["1! not JSON: trailing characters, at column 24"]);
        check_movies(&format!("[{one},]"), &[taken, "1!! expected an element after a comma"]);
        check_movies(&format!("[{one}}}]"), &[taken, "1!! expected a comma or the end of the array after an element"]);
        check_movies(&format!("[{one}]\nx"), &[taken, "2!! unexpected text after the end of the array"]);
        check_movies(
            &format!("[{one},\"{}\"]", "x".repeat(60)),
            &[taken, "1!! the element is longer than 60 bytes; --max-command raises the limit"],
        );
    }
}
