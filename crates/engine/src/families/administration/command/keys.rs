//! COMMAND GETKEYS: the keys of a request in the arguments.

use commands::error::Error;
use commands::spec::{flag, key_flag};
use resp::request::OwnedArgs;

use crate::worker::turn::Turn;
use access::{flags_of, has_counted_keys};

/// A key of a request.
pub(super) struct RequestKey<'a> {
    /// The key.
    pub name: &'a [u8],
    /// Flags of the request's use of the key.
    pub flags: u32,
}

/// Returns the keys of the request after the subcommand, except names that aren't keys (shard channels).
///
/// # Errors
/// An unknown command, a command without keys, or arguments that don't fit its key specifications.
pub(super) fn of<'t>(turn: &Turn<'t, '_>) -> Result<Vec<RequestKey<'t>>, Error> {
    let request = OwnedArgs::new(turn.args.from(2));
    let args = request.args();
    let table = turn.engine().table;
    let command = table.find(args.get(0)).and_then(|command| table.resolve(command, args));
    let info = command.ok_or(Error::new("ERR Invalid command specified"))?.info;
    let specs = || info.keys.iter().filter(|k| k.flags & key_flag::NOT_KEY == 0);
    if specs().next().is_none() {
        return Err(Error::new("ERR The command has no key arguments"));
    }
    if !info.accepts(args.len()) {
        return Err(Error::new("ERR Invalid number of arguments specified for command"));
    }
    let mut found = Vec::new();
    if specs().all(|spec| has_counted_keys(spec, args)) {
        for spec in specs() {
            let flags = flags_of(info, spec, args);
            spec.visit(args, |index| found.push(RequestKey { name: turn.args.get(index + 2), flags }));
        }
    }
    // A script may have no keys, and Redis treats a wrong key count like zero.
    if found.is_empty() && !info.has(flag::NO_MANDATORY_KEYS) {
        return Err(Error::new("ERR Invalid arguments specified for command"));
    }
    Ok(found)
}
