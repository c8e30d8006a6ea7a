//! DEBUG subcommands about the encodings of data: HTSTATS, HTSTATS-KEY, LISTPACK, QUICKLIST, SDSLEN.
//!
//! Test suites check encodings and the fill of tables. Penstock's encodings differ inside; the replies have Redis's
//! names and Penstock's figures.

use commands::error::{Error, Outcome};
use store::db::Survey;
use store::entry::View;
use store::keyspace::Key;
use store::value::Value;

use crate::families::observability::info::surveys;
use crate::worker::turn::Turn;

/// Redis's header of a table's figures.
const MAIN_TABLE: &str = "Hash table 0 stats (main hash table):\n";

/// Returns the encoding of the value at the key in the third argument, and its length in bytes if it is a string.
fn value(turn: &mut Turn<'_, '_>) -> Result<(&'static str, Option<usize>), Error> {
    let key = Key::new(turn.arg(2));
    let db = turn.db();
    let entry = db.peek(key).ok_or(Error::NO_SUCH_KEY)?;
    let len = match entry.view() {
        View::Bytes(bytes) => Some(bytes.len()),
        View::Object(Value::Str(bytes)) => Some(bytes.len()),
        View::Int(_) | View::Object(_) => None,
    };
    Ok((entry.encoding(), len))
}

/// `HTSTATS database [full]`: the numbers of keys and of keys with an expiry. A table grows one bucket at a time.
pub(super) fn table(turn: &mut Turn<'_, '_>) -> Outcome {
    let database = usize::try_from(turn.int(2)?).unwrap_or(usize::MAX);
    let surveys = surveys(turn);
    let Survey { keys, volatile, .. } = surveys.get(database).ok_or(Error::fixed("ERR Out of range database"))?;
    let stats = |name: &str, count: usize| match count {
        0 => format!("[{name} HT]\nNo stats available for empty dictionaries\n"),
        _ => {
            let size = count.next_power_of_two();
            format!("[{name} HT]\n{MAIN_TABLE} table size: {size}\n number of elements: {count}\n")
        }
    };
    let text = stats("Dictionary", *keys) + &stats("Expires", *volatile);
    turn.reply.verbatim("txt", &text);
    Ok(())
}

/// `HTSTATS-KEY key [full]`.
pub(super) fn table_of_key(turn: &mut Turn<'_, '_>) -> Outcome {
    let (encoding, _) = value(turn)?;
    if !matches!(encoding, "hashtable" | "skiplist") {
        return Err(Error::fixed("ERR The value stored at the specified key is not represented using an hash table"));
    }
    turn.reply.verbatim("txt", MAIN_TABLE);
    Ok(())
}

/// `LISTPACK key`: checks that the value is packed. Redis prints it to its standard output.
pub(super) fn packed(turn: &mut Turn<'_, '_>) -> Outcome {
    has_encoding(
        turn,
        &["listpack", "listpackex"],
        "ERR Not a listpack encoded object.",
        "Listpack structure printed on stdout",
    )
}

/// `QUICKLIST key [detail]`: checks that the value is a list of several blocks.
pub(super) fn quicklist(turn: &mut Turn<'_, '_>) -> Outcome {
    has_encoding(turn, &["quicklist"], "ERR Not a quicklist encoded object.", "Quicklist structure printed on stdout")
}

fn has_encoding(turn: &mut Turn<'_, '_>, wanted: &[&str], refusal: &'static str, answer: &str) -> Outcome {
    if !wanted.contains(&value(turn)?.0) {
        return Err(Error::fixed(refusal));
    }
    turn.reply.simple(answer);
    Ok(())
}

/// `SDSLEN key`: the lengths of a key and of its string. Neither has free space.
pub(super) fn string_lengths(turn: &mut Turn<'_, '_>) -> Outcome {
    let (_, len) = value(turn)?;
    let len = len.ok_or(Error::fixed("ERR Not an sds encoded string."))?;
    let key = turn.arg(2).len();
    let text = format!(
        "key_sds_len:{key}, key_sds_avail:0, key_zmalloc: {key}, val_sds_len:{len}, val_sds_avail:0, val_zmalloc: {len}"
    );
    turn.reply.simple(&text);
    Ok(())
}
