//! Random streams of commands: commands of one family, with some deliberate mistakes.

use crate::bytes::Command;
use crate::families::{ALL, Family};
use crate::known_differences::incomparable;
use crate::rng::Rng;
use crate::template::Templates;
use crate::vocabulary::{LEX_KEYS, Vocabulary, any_key, bad_number, junk};

/// The pipelining of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each command waits for the previous reply.
    OneByOne,
    /// This many commands at once.
    Pipelined(usize),
}

/// The input of one run.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The commands in order.
    pub commands: Vec<Command>,
    /// True if `HELLO 3` comes first.
    pub resp3: bool,
    /// The pipelining.
    pub mode: Mode,
}

/// Share of commands with a mistake, in percent.
const SPOILT_PERCENT: usize = 20;

/// Share of commands from other families, in percent.
const FOREIGN_PERCENT: usize = 10;

/// Share of commands at which a MULTI begins, in percent.
const MULTI_PERCENT: usize = 3;

/// Smallest and largest number of commands in a stream.
const COMMANDS: (usize, usize) = (30, 300);

/// Returns the stream of `seed` for `family`.
pub fn generate(family: &Family, seed: u64) -> Stream {
    let mut rng = Rng::new(seed);
    let mut vocabulary = Vocabulary::default();
    let own = Templates::parse(family.table);
    let all: Vec<Templates> = ALL.iter().map(|family| Templates::parse(family.table)).collect();
    let n = COMMANDS.0 + rng.below(COMMANDS.1 - COMMANDS.0);
    let mut commands = Vec::new();
    let mut left_in_multi = 0;
    while commands.len() < n {
        let templates = if rng.chance(FOREIGN_PERCENT) { rng.pick(&all) } else { &own };
        let mut command = templates.generate(&mut rng, &mut vocabulary);
        if rng.chance(SPOILT_PERCENT) {
            spoil(&mut command, &mut rng);
        }
        if harmful(&command) || mixes_lex_scores(&command) || incomparable(&command) {
            continue;
        }
        if command[0].to_ascii_uppercase().starts_with(b"SORT") {
            // Redis's SORT misinterprets an errno left by an earlier number; SCAN resets errno to 0.
            commands.push(crate::bytes::command("SCAN 1 COUNT 1"));
        }
        commands.extend(consumers_of(&command));
        commands.push(command);
        match left_in_multi {
            0 if rng.chance(MULTI_PERCENT) => {
                commands.push(crate::bytes::command("MULTI"));
                left_in_multi = 1 + rng.below(6);
            }
            0 => {}
            1 => {
                commands.push(crate::bytes::command("EXEC"));
                left_in_multi = 0;
            }
            _ => left_in_multi -= 1,
        }
    }
    let mode = if rng.chance(50) { Mode::OneByOne } else { Mode::Pipelined(*rng.pick(&[2, 3, 10, 50, 200])) };
    Stream { commands, resp3: rng.chance(50), mode }
}

/// Returns commands that create the consumers of a command: since 7.2 a consumer is created even if there is no entry
/// for it.
fn consumers_of(command: &Command) -> Vec<Command> {
    let create = |key: &Vec<u8>, group: &Vec<u8>, consumer: &Vec<u8>| {
        [b"XGROUP".to_vec(), b"CREATECONSUMER".to_vec(), key.clone(), group.clone(), consumer.clone()].to_vec()
    };
    match (command[0].to_ascii_uppercase().as_slice(), command.as_slice()) {
        (b"XCLAIM" | b"XAUTOCLAIM", [_, key, group, consumer, ..]) => vec![create(key, group, consumer)],
        (b"XREADGROUP", [_, _, group, consumer, rest @ ..]) => {
            let after =
                rest.iter().position(|arg| arg.eq_ignore_ascii_case(b"STREAMS")).map_or(rest.len(), |at| at + 1);
            let streams = &rest[after..];
            streams[..streams.len() / 2].iter().map(|key| create(key, group, consumer)).collect()
        }
        _ => Vec::new(),
    }
}

/// Makes one mistake: an argument too few or too many, a bad number, a foreign option, a key of another type, or
/// unusual spelling.
fn spoil(command: &mut Command, rng: &mut Rng) {
    let at = rng.below(command.len());
    match rng.below(12) {
        0 if command.len() > 1 => drop(command.pop()),
        1 if at > 0 => drop(command.remove(at)),
        2 => command.push(junk(rng)),
        3 => command.push(bad_number(rng)),
        4..8 if at > 0 => command[at] = bad_number(rng),
        8 if at > 0 => command[at] = junk(rng),
        9 if command.len() > 1 => command[1] = any_key(rng),
        10 => command.insert(at + 1, junk(rng)),
        _ => command[at] = command[at].to_ascii_lowercase(),
    }
}

/// True for commands that would hang the oracle, exhaust the machine's memory, or depend on chance in a way that can't
/// be normalised.
fn harmful(command: &[Vec<u8>]) -> bool {
    let name = command[0].to_ascii_uppercase();
    let number = |arg: Option<&Vec<u8>>| arg.and_then(|arg| std::str::from_utf8(arg).ok()?.trim().parse::<f64>().ok());
    let has = |word: &[u8]| command.iter().any(|arg| arg.eq_ignore_ascii_case(word));
    match name.as_slice() {
        // A negative count allows repetition, so the reply could have a billion elements.
        b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER" => {
            number(command.get(2)).is_some_and(|count| count < -1000.0 && count > -9e18)
        }
        b"SETRANGE" => number(command.get(2)).is_some_and(|offset| (1e5..536_870_912.0).contains(&offset)),
        // Offsets that create a string of megabytes.
        b"SETBIT" => number(command.get(2)).is_some_and(|offset| (1e6..4_294_967_296.0).contains(&offset)),
        b"BITFIELD" => command.windows(2).any(|pair| {
            // An offset follows a type.
            let offset = number(Some(&pair[1].strip_prefix(b"#").unwrap_or(&pair[1]).to_vec()));
            let is_far = offset.is_some_and(|offset| (1e6..4_294_967_296.0).contains(&offset));
            is_far && pair[0].first().is_some_and(|kind| b"iu".contains(kind))
        }),
        b"BLPOP" | b"BRPOP" | b"BZPOPMIN" | b"BZPOPMAX" | b"BLMOVE" | b"BRPOPLPUSH" => blocks(command.last()),
        b"BLMPOP" | b"BZMPOP" => blocks(command.get(1)),
        // Equal weights leave the order open.
        b"SORT" => has(b"STORE") && has(b"ALPHA") && has(b"BY"),
        b"CLIENT" => has(b"PAUSE") && number(command.get(2)).is_some_and(|ms| ms >= 0.0) || has(b"OFF") || has(b"SKIP"),
        b"QUIT" | b"MONITOR" | b"SHUTDOWN" | b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" => true,
        _ => false,
    }
}

/// True for a timeout that Redis considers long or infinite. It parses numbers like strtold(3).
fn blocks(timeout: Option<&Vec<u8>>) -> bool {
    let number = timeout.is_some_and(|t| t.first().is_some_and(|b| b.is_ascii_digit() || b"+-i".contains(b)));
    number && !timeout.is_some_and(|t| t == b"0.001" || t == b"-1" || t == b"1e100")
}

/// True for commands that need the lexical order of members with possibly different scores, which Redis leaves
/// undefined. Only the keys of the lex pool have equal scores, and only some commands preserve this.
fn mixes_lex_scores(command: &[Vec<u8>]) -> bool {
    let name = command[0].to_ascii_uppercase();
    let is_lex = |key: &Vec<u8>| LEX_KEYS.contains(&key.as_slice());
    let by_lex =
        name.ends_with(b"LEX") || name == b"ZLEXCOUNT" || command.iter().any(|a| a.eq_ignore_ascii_case(b"BYLEX"));
    if by_lex {
        let keys = if name == b"ZRANGESTORE" { command.get(1..3) } else { command.get(1..2) };
        return !keys.is_some_and(|keys| keys.iter().all(is_lex));
    }
    match name.as_slice() {
        b"ZADD" => command.get(1).is_some_and(is_lex) && command[2..].iter().step_by(2).any(|score| score != b"0"),
        b"GEOADD" | b"GEORADIUS" | b"GEORADIUSBYMEMBER" | b"GEOSEARCHSTORE" => command.iter().any(is_lex),
        b"ZINCRBY" | b"ZUNIONSTORE" | b"ZINTERSTORE" | b"ZDIFFSTORE" | b"ZRANGESTORE" | b"COPY" | b"RENAME"
        | b"RENAMENX" => command.iter().any(is_lex),
        _ => false,
    }
}
