//! A static check: whether a script's text proves, before the first run, that the script uses its declared keys only.
//!
//! The engine learns a script's behavior from a first run alone, behind the gate; a script that passes needs none. The
//! check is only a hint: every access is checked at run time. A wrong result is handled like a second run that accesses
//! new keys.

use std::collections::HashSet;

use commands::spec::{Begin, Find, Info, KeySpec, Scope, flag};

use super::tokens::Token::{self, Name, Sign, Text};
use super::tokens::Tokens;
use commands::table::Table;

/// The name of the table of keys: a script's global, and the usual parameter of library functions.
pub(crate) const SCRIPT: &[u8] = b"KEYS";
pub(crate) const FUNCTION: &[u8] = b"keys";

/// The longest text that is checked: longer ones take more time than a first run alone.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Returns whether a text uses keys only in commands on the keys of `table`. Each call must name its command as a
/// literal. Each key must be `KEYS[...]`, or a local variable that is set once, to an element of `KEYS`.
pub(crate) fn uses_declared_keys_only(commands: &Table, text: &[u8], table: &[u8]) -> bool {
    if text.len() > TEXT_BYTES_MAX {
        return false;
    }
    let tokens: Vec<Token<'_>> = Tokens::of(text).collect();
    let keys = DeclaredKeys { commands, table, locals: locals(&tokens, table) };
    (0..tokens.len()).all(|at| keys.allow(&tokens[..at], &tokens[at..]))
}

/// The expressions that are known to be declared keys.
struct DeclaredKeys<'t> {
    commands: &'t Table,
    table: &'t [u8],
    locals: HashSet<&'t [u8]>,
}

impl DeclaredKeys<'_> {
    /// Returns whether the first of these tokens is harmless. `before` are the tokens before it.
    fn allow(&self, before: &[Token<'_>], tokens: &[Token<'_>]) -> bool {
        match tokens {
            // These run code that is made at run time.
            [Name(b"load" | b"loadstring" | b"_G"), ..] => false,
            // A function that gets the table itself may change it.
            [Name(name), rest @ ..] if *name == self.table && *name == SCRIPT => {
                before.last() == Some(&Sign(b'#'))
                    || behind_element(rest).is_some_and(|behind| behind.first() != Some(&Sign(b'=')))
            }
            [Name(b"redis" | b"server"), Sign(b'.'), Name(b"call" | b"pcall"), rest @ ..] => self.allow_call(rest),
            // An alias of the table would hide its calls.
            [Name(b"redis" | b"server"), rest @ ..] => rest.first() == Some(&Sign(b'.')),
            _ => true,
        }
    }

    /// Returns whether a call is of a command on declared keys. The tokens begin with its arguments.
    fn allow_call(&self, tokens: &[Token<'_>]) -> bool {
        let [Sign(b'('), Text(name), rest @ ..] = tokens else { return false };
        let Some(command) = self.commands.find(name) else { return false };
        let info = command.info;
        let is_simple =
            command.subcommands.is_empty() && !info.has(flag::NOSCRIPT) && matches!(info.scope, Scope::Keys);
        is_simple && matches!(rest.first(), Some(Sign(b',' | b')'))) && self.are_keys(info, &arguments(rest))
    }

    /// Returns whether the arguments that are a command's keys are declared.
    fn are_keys(&self, info: &Info, arguments: &[&[Token<'_>]]) -> bool {
        info.keys.iter().all(|spec| match spec {
            KeySpec { begin: Begin::Index(first), find: Find::Range { last: 0, .. }, .. } => {
                arguments.get(first - 1).is_some_and(|argument| self.is_key(argument))
            }
            KeySpec { begin: Begin::Index(first), find: Find::Range { last: -1, step, limit: 0 }, .. } => {
                let keys = arguments.iter().skip(first - 1).step_by(usize::try_from(*step).unwrap_or(1).max(1));
                keys.clone().count() > 0 && keys.clone().all(|argument| self.is_key(argument))
            }
            _ => false,
        })
    }

    fn is_key(&self, argument: &[Token<'_>]) -> bool {
        match argument {
            [Name(name)] => self.locals.contains(name),
            [Name(name), rest @ ..] if *name == self.table => behind_element(rest).is_some_and(<[_]>::is_empty),
            _ => false,
        }
    }
}

/// Returns the tokens after `[...]`, which must not contain brackets.
fn behind_element<'a, 't>(tokens: &'a [Token<'t>]) -> Option<&'a [Token<'t>]> {
    let [Sign(b'['), inside @ ..] = tokens else { return None };
    let end = inside.iter().position(|token| matches!(token, Sign(b'[' | b']')))?;
    (inside[end] == Sign(b']')).then(|| &inside[end + 1..])
}

/// Returns the arguments after a call's first one: from the comma before them to the closing parenthesis.
fn arguments<'a, 't>(tokens: &'a [Token<'t>]) -> Vec<&'a [Token<'t>]> {
    let (mut arguments, mut depth, mut begin) = (Vec::new(), 0_usize, 1);
    for (at, token) in tokens.iter().enumerate().skip(1) {
        match token {
            Sign(b'(' | b'[' | b'{') => depth += 1,
            Sign(b',') if depth == 0 => {
                arguments.push(&tokens[begin..at]);
                begin = at + 1;
            }
            Sign(b')' | b']' | b'}') if depth == 0 => {
                arguments.push(&tokens[begin..at]);
                break;
            }
            Sign(b')' | b']' | b'}') => depth -= 1,
            _ => {}
        }
    }
    arguments
}

/// Returns the local variables that are set exactly once, to an element of the table.
fn locals<'t>(tokens: &[Token<'t>], table: &[u8]) -> HashSet<&'t [u8]> {
    let (mut locals, mut set) = (HashSet::new(), HashSet::new());
    let mut set_again = HashSet::new();
    for at in 0..tokens.len() {
        let [Name(name), Sign(b'='), value @ ..] = &tokens[at..] else { continue };
        if !set.insert(*name) {
            set_again.insert(*name);
        }
        let [Name(of), rest @ ..] = value else { continue };
        let is_local = at > 0 && tokens[at - 1] == Name(b"local");
        if is_local && *of == table && behind_element(rest).is_some_and(ends_expression) {
            locals.insert(*name);
        }
    }
    locals.retain(|name| !set_again.contains(name));
    locals
}

/// Returns whether an expression ends before these tokens.
fn ends_expression(tokens: &[Token<'_>]) -> bool {
    match tokens.first() {
        None | Some(Sign(b';')) => true,
        Some(Name(name)) => !matches!(*name, b"or" | b"and"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::table;

    #[test]
    fn scripts_that_use_only_declared_keys_are_recognized() {
        for text in [
            "return 1",
            "while true do end",
            "return redis.call('GET', KEYS[1])",
            "local t = os.clock() while os.clock() - t < 0.6 do redis.call('incr', KEYS[1]) end return #KEYS",
            "for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[i] .. KEYS[1]) end",
            "local key = KEYS[1]\nlocal n = redis.call(\"HINCRBY\", key, 'f', (tonumber(ARGV[1]) or 0) + 1) return n",
            "-- redis.call('GET', 'x')\nif redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end",
            "redis.pcall('MSET', KEYS[1], 'a', KEYS[2], f(1, 2))",
            "redis.call('DEL', KEYS[1], KEYS[2]) redis.call('ECHO', 'x')",
            "redis.call('ZADD', KEYS[1], unpack(ARGV)) pcall(f) return redis.error_reply('no')",
            "redis.call('RENAME', KEYS[1], KEYS[2])",
        ] {
            assert!(uses_declared_keys_only(table(), text.as_bytes(), SCRIPT), "{text}");
        }
        for text in [
            "return redis.call('GET', 'x')",
            "return redis.call('GET', KEYS[1] .. ':x')",
            "return redis.call('GET', ARGV[1])",
            "return redis.call(ARGV[1], KEYS[1])",
            "return redis.call('G' .. 'ET', KEYS[1])",
            "local key = KEYS[1] .. 'x' redis.call('GET', key)",
            "local key = KEYS[1] key = 'x' redis.call('GET', key)",
            "local key = KEYS[1] or 'x' redis.call('GET', key)",
            "local call = redis.call call('GET', 'x')",
            "local r = redis r.call('GET', 'x')",
            "KEYS[1] = 'x' redis.call('GET', KEYS[1])",
            "table.insert(KEYS, 'x') redis.call('GET', KEYS[2])",
            "loadstring(ARGV[1])()",
            "_G['redis'].call('GET', 'x')",
            "redis.call('DBSIZE')",
            "redis.call('DEL', KEYS[1], 'x')",
            "redis.call('DEL', unpack(KEYS))",
            "redis.call('RENAME', KEYS[1], 'x')",
            "redis.call('SORT', KEYS[1], 'BY', 'w*')",
            "redis.call('EVAL', 'x', 0)",
            "redis.call('ZUNIONSTORE', KEYS[1], 1, 'x')",
            "redis.call('nosuch', KEYS[1])",
            "redis.call 'DBSIZE'",
            "redis.call('GET'",
        ] {
            assert!(!uses_declared_keys_only(table(), text.as_bytes(), SCRIPT), "{text}");
        }
        let library = "#!lua name=l\nredis.register_function('f', function(keys, args)\
                       local key = keys[1] return redis.call('SET', key, redis.call('GET', keys[2])) end)";
        assert!(uses_declared_keys_only(table(), library.as_bytes(), FUNCTION));
        assert!(!uses_declared_keys_only(table(), library.replace("keys[2]", "args[1]").as_bytes(), FUNCTION));
    }
}
