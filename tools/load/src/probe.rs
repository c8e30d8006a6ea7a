//! Queries the server's limits and the possible merging before anything is sent. The commands change nothing.
//!
//! The answers must match the expectation in every detail. If the server doesn't know the commands, or refuses them, or
//! a proxy answers, nothing is merged.

use client::{Command, Connection, Error, Value};

use crate::limits::{ARGS_MAX, ARGS_MAX_BEFORE};
use crate::merge::Family;

/// Returns the families that may be merged for this connection's user.
///
/// # Errors
/// Returns an error if the connection broke. Some proxies close it after an unknown command.
pub fn mergeable(connection: &mut Connection) -> Result<Vec<Family>, Error> {
    let mut question = Command::new("COMMAND INFO").arg("MSET");
    for family in Family::ALL {
        question = question.arg(family.name());
    }
    let Some(Value::Array(known)) = ask(connection, &question)? else { return Ok(Vec::new()) };
    let [mset, families @ ..] = &known[..] else { return Ok(Vec::new()) };
    // Before Redis 4.0, HSET took one field. A renamed command isn't usable.
    let mut mergeable = Vec::new();
    for (family, info) in Family::ALL.into_iter().zip(families) {
        let may = match family {
            Family::Set => info_of(info, b"set").is_some() && info_of(mset, b"mset") == Some(-3),
            _ => info_of(info, family.name().to_ascii_lowercase().as_bytes()).is_some_and(|arity| arity < 0),
        };
        if may && (family.has_one_key() || takes_any_keys(connection)?) {
            mergeable.push(family);
        }
    }
    Ok(mergeable)
}

/// Returns the maximum number of arguments of a command. For an unknown server it returns the largest limit of all
/// servers.
///
/// # Errors
/// Returns the errors of [`mergeable`].
pub fn args_max(connection: &mut Connection) -> Result<u64, Error> {
    let info = ask(connection, &Command::new("INFO").arg("server"))?;
    Ok(info.as_ref().and_then(Value::bytes).map_or(ARGS_MAX, args_max_of))
}

/// Returns the limit for a server with this INFO text.
fn args_max_of(info: &[u8]) -> u64 {
    let version = info.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"redis_version:"));
    let version = version.and_then(|version| version.split(|byte| *byte == b'.').next());
    let is_old = version.and_then(resp::num::parse_i64).is_some_and(|major| major < 7);
    if is_old { ARGS_MAX_BEFORE } else { ARGS_MAX }
}

/// Returns the reply, or `None` for an error reply.
fn ask(connection: &mut Connection, command: &Command) -> Result<Option<Value>, Error> {
    match connection.command(command) {
        Ok(reply) => Ok(Some(reply)),
        Err(Error::Server(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a command's arity from its entry in the reply of COMMAND INFO.
fn info_of(info: &Value, name: &[u8]) -> Option<i64> {
    match info {
        Value::Array(entry) => match &entry[..] {
            [found, Value::Int(arity), ..] if found.bytes() == Some(name) => Some(*arity),
            _ => None,
        },
        _ => None,
    }
}

/// Returns true if a command may have any combination of keys: the server is not a cluster, and the user may run all
/// commands on all keys. If the user can't read the rules, it returns false.
fn takes_any_keys(connection: &mut Connection) -> Result<bool, Error> {
    let info = ask(connection, &Command::new("INFO").arg("cluster"))?;
    let is_alone = info
        .as_ref()
        .and_then(Value::bytes)
        .is_some_and(|text| text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"cluster_enabled:0"));
    if !is_alone {
        return Ok(false);
    }
    let user = match connection.command(&Command::new("ACL").arg("WHOAMI")) {
        Ok(user) => user,
        // A server without ACLs permits everything to every client.
        Err(Error::Server(error)) => return Ok(error.text().starts_with(b"ERR unknown command")),
        Err(error) => return Err(error),
    };
    let Some(user) = user.bytes() else { return Ok(false) };
    let rules = ask(connection, &Command::new("ACL GETUSER").arg(user))?;
    Ok(rules.is_some_and(|rules| allows_all(&rules)))
}

/// Returns true if a user's rules (a map, or a flat array in RESP2) permit all commands and all keys.
fn allows_all(rules: &Value) -> bool {
    let pairs: Vec<(&Value, &Value)> = match rules {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => return false,
    };
    let field =
        |name: &str| pairs.iter().find(|(key, _)| key.bytes() == Some(name.as_bytes())).map(|(_, value)| *value);
    let is = |value: &Value, text: &[u8]| value.bytes() == Some(text);
    let all_commands = field("commands").is_some_and(|commands| is(commands, b"+@all"));
    // A string since Redis 7.0; earlier an array of patterns without the tilde.
    let all_keys = field("keys").is_some_and(|keys| match keys {
        Value::Array(patterns) => patterns.iter().any(|pattern| is(pattern, b"*")),
        keys => keys.bytes().is_some_and(|text| text.split(|byte| *byte == b' ').any(|pattern| pattern == b"~*")),
    });
    all_commands && all_keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::parse::{ReplyLimits, parse};

    fn rules(commands: &str, keys: &str) -> bool {
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let text = format!("*4\r\n{}{}{}{keys}", bulk("commands"), bulk(commands), bulk("keys"));
        allows_all(&parse(text.as_bytes(), &ReplyLimits::default()).unwrap().unwrap().0)
    }

    #[test]
    fn the_limit_of_arguments_depends_on_the_server() {
        let check = |info: &str, expected: u64| assert_eq!(args_max_of(info.as_bytes()), expected, "{info}");
        check("# Server\r\nredis_version:7.2.4\r\npenstock_version:0.1.0\r\n", ARGS_MAX);
        check("# Server\r\nredis_version:6.2.14\r\nos:Linux\r\n", ARGS_MAX_BEFORE);
        check("# Server\r\nredis_version:7.0.15\r\n", ARGS_MAX);
        check("# Server\r\nredis_version:255.255.255\r\n", ARGS_MAX);
        check("", ARGS_MAX);
    }

    #[test]
    fn only_a_user_with_all_rights_may() {
        assert!(rules("+@all", "$2\r\n~*\r\n"));
        assert!(rules("+@all", "$9\r\n~a* ~* ~b\r\n"));
        assert!(rules("+@all", "*1\r\n$1\r\n*\r\n"));
        assert!(!rules("+@all", "$3\r\n~a*\r\n"));
        assert!(!rules("+@all", "$4\r\n%R~*\r\n"));
        assert!(!rules("+@all", "*1\r\n$2\r\na*\r\n"));
        assert!(!rules("+@all -mset", "$2\r\n~*\r\n"));
        assert!(!rules("-@all +set", "$2\r\n~*\r\n"));
        assert!(!allows_all(&Value::Int(1)));
    }
}
