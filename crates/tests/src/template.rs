//! Templates of commands: `SET <str> <val> [(EX <far>|KEEPTTL)] [(NX|XX)]` generates all these variants.
//!
//! - a word is literal, `<slot>` is replaced by arguments from the vocabulary;
//! - `[...]` is optional, `(a|b)` is one of its parts, `{...}` repeats one to five times;
//! - a line `7: ...` is chosen seven times as often as a line without a number.

use crate::bytes::Command;
use crate::rng::Rng;
use crate::vocabulary::Vocabulary;
use std::iter::Peekable;
use std::str::Chars;

#[derive(Debug)]
enum Node {
    Word(String),
    Slot(String),
    Optional(Vec<Node>),
    Choice(Vec<Vec<Node>>),
    Repeat(Vec<Node>),
}

/// Probability of an optional part, in percent.
const OPTIONAL_PERCENT: usize = 30;

/// Most repetitions of a repeated part.
const REPEAT_MAX: usize = 5;

/// A table of templates with their weights.
#[derive(Debug)]
pub struct Templates {
    rows: Vec<Vec<Node>>,
    /// For each unit of weight, the index of its row.
    tickets: Vec<usize>,
}

impl Templates {
    /// Parses a table with one template in each line. A malformed template panics: it is a mistake in this crate.
    pub fn parse(table: &str) -> Templates {
        let mut templates = Templates { rows: Vec::new(), tickets: Vec::new() };
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (weight, text) = match line.split_once(": ") {
                Some((n, text)) if n.bytes().all(|b| b.is_ascii_digit()) => (n.parse().unwrap_or(1), text),
                _ => (1, line),
            };
            let row = templates.rows.len();
            templates.rows.push(parse_sequence(&mut text.chars().peekable()));
            templates.tickets.extend(std::iter::repeat_n(row, weight));
        }
        templates
    }

    /// Returns a random command.
    pub fn generate(&self, rng: &mut Rng, vocabulary: &mut Vocabulary) -> Command {
        let row = *rng.pick(&self.tickets);
        let mut command = Command::new();
        generate(&self.rows[row], rng, vocabulary, &mut command);
        command
    }
}

/// Parses nodes up to the bracket or bar that ends the sequence, which stays in `chars`.
fn parse_sequence(chars: &mut Peekable<Chars>) -> Vec<Node> {
    let mut nodes = Vec::new();
    while let Some(&c) = chars.peek() {
        match c {
            ']' | ')' | '}' | '|' => break,
            ' ' => {
                chars.next();
            }
            '[' => nodes.push(Node::Optional(parse_bracketed(chars, ']'))),
            '{' => nodes.push(Node::Repeat(parse_bracketed(chars, '}'))),
            '(' => nodes.push(parse_choice(chars)),
            _ => nodes.push(parse_word(chars)),
        }
    }
    nodes
}

fn parse_bracketed(chars: &mut Peekable<Chars>, end: char) -> Vec<Node> {
    chars.next();
    let nodes = parse_sequence(chars);
    assert_eq!(chars.next(), Some(end), "unbalanced template near {nodes:?}");
    nodes
}

fn parse_choice(chars: &mut Peekable<Chars>) -> Node {
    let mut choices = Vec::new();
    loop {
        chars.next();
        choices.push(parse_sequence(chars));
        match chars.peek() {
            Some('|') => {}
            Some(')') => break,
            other => panic!("unbalanced template at {other:?} after {choices:?}"),
        }
    }
    chars.next();
    Node::Choice(choices)
}

fn parse_word(chars: &mut Peekable<Chars>) -> Node {
    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| !" []{}()|".contains(*c)) {
        word.push(c);
    }
    match word.strip_prefix('<').and_then(|slot| slot.strip_suffix('>')) {
        Some(slot) => Node::Slot(slot.to_string()),
        None => Node::Word(word),
    }
}

fn generate(nodes: &[Node], rng: &mut Rng, vocabulary: &mut Vocabulary, out: &mut Command) {
    for node in nodes {
        match node {
            Node::Word(word) => out.push(word.as_bytes().to_vec()),
            Node::Slot(slot) => vocabulary.fill(slot, rng, out),
            Node::Optional(_) if !rng.chance(OPTIONAL_PERCENT) => {}
            Node::Optional(inner) => generate(inner, rng, vocabulary, out),
            Node::Choice(choices) => {
                let i = rng.below(choices.len());
                generate(&choices[i], rng, vocabulary, out);
            }
            Node::Repeat(inner) => {
                for _ in 0..=rng.below(REPEAT_MAX) {
                    generate(inner, rng, vocabulary, out);
                }
            }
        }
    }
}
