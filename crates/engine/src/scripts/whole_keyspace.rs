//! A static check: whether a script's text names a command on the whole keyspace.

use commands::spec::{Scope, flag};

use commands::table::{Command, Table};

/// Returns whether a text names, as a Lua string, a command that concerns more than its keys (DBSIZE, SCAN, FLUSHALL,
/// SORT with its patterns). A script that has written can't start over alone, so a false positive, which costs one run
/// alone, is better than a false negative. Names that are assembled at run time are not found.
pub(super) fn names_whole_keyspace(commands: &Table, text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\'' | b'"' | b'[')) {
        let opening = &rest[at..];
        rest = &opening[1..];
        let (word, closing) =
            if opening[0] == b'[' { (opening.strip_prefix(b"[["), &b"]]"[..]) } else { (Some(rest), &opening[..1]) };
        if word.is_some_and(|word| begins_with_whole_keyspace(commands, word, closing)) {
            return true;
        }
    }
    false
}

/// Returns whether the text begins with the name of a command on the whole keyspace and then `closing`.
fn begins_with_whole_keyspace(commands: &Table, word: &[u8], closing: &[u8]) -> bool {
    let length = word.iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'_').count();
    let (name, behind) = word.split_at(length);
    behind.starts_with(closing) && is_of_whole_keyspace(commands, name)
}

fn is_of_whole_keyspace(commands: &Table, name: &[u8]) -> bool {
    let Some(command) = commands.find(name) else { return false };
    let reaches = |command: &Command| {
        let info = command.info;
        !info.has(flag::NOSCRIPT) && matches!(info.scope, Scope::Whole | Scope::Each | Scope::ByArgs(_))
    };
    reaches(command) || command.subcommands.iter().any(|&id| reaches(&commands.all()[id]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::table;

    #[test]
    fn names_of_whole_keyspace_commands_are_found() {
        for text in [
            "return redis.call('DBSIZE')",
            "redis.call(\"FlushAll\")",
            "local rcall = redis.call; rcall([[scan]], 0)",
            "redis.call 'keys'",
            "redis.call('SORT', 'x', 'BY', 'w*')",
            "redis.call('memory', 'stats')",
            "redis.call(ARGV[1] == '1' and 'GET' or 'randomkey')",
            "redis.call('INFO')",
            "redis.call('SWAPDB', 0, 1)",
            "redis.call('flushdb')",
            "x = 'don\\'t' redis.call('dbsize')",
        ] {
            assert!(names_whole_keyspace(table(), text.as_bytes()), "{text}");
        }
        for text in [
            "return redis.call('GET', KEYS[1])",
            "return #KEYS",
            "return {KEYS[1], ARGV['keysx']}",
            "return found[keys]",
            "return [[keys]",
            "redis.call('EVAL', 'scan x')",
            "return 'keys",
            "",
            "'",
            "[",
        ] {
            assert!(!names_whole_keyspace(table(), text.as_bytes()), "{text}");
        }
    }
}
