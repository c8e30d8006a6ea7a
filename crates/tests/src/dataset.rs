//! Reads all data of a server, so that tests can compare the effects of streams, too.

use crate::conn::Conn;
use crate::normalise::{sorted, timeless};
use crate::reply::Reply;
use std::io;

/// The databases that streams use.
const DATABASES: &[&str] = &["0", "1", "2", "15"];

/// A key with all its observable properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The database.
    pub database: &'static str,
    /// The key.
    pub key: Vec<u8>,
    /// The reply of TYPE.
    pub kind: String,
    /// The reply of OBJECT ENCODING.
    pub encoding: String,
    /// True if it has an expiry.
    pub expires: bool,
    /// The value's content; sorted if the order is undefined.
    pub content: Vec<Vec<Reply>>,
}

/// Returns all data of the server behind `conn` (a RESP2 connection), in the order of databases and keys.
pub fn read(conn: &mut Conn) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for database in DATABASES {
        conn.cmd(&format!("SELECT {database}"))?;
        let mut keys: Vec<Vec<u8>> = conn.cmd("KEYS *")?.items().iter().map(|key| key.text().to_vec()).collect();
        keys.sort();
        for key in keys {
            entries.push(read_entry(conn, database, key)?);
        }
    }
    Ok(entries)
}

fn read_entry(conn: &mut Conn, database: &'static str, key: Vec<u8>) -> io::Result<Entry> {
    let about = |words: &[&str]| words.iter().map(|w| w.as_bytes().to_vec()).chain([key.clone()]).collect();
    let facts = conn.pipeline(&[about(&["TYPE"]), about(&["OBJECT", "ENCODING"]), about(&["PTTL"])])?;
    let text = |reply: &Reply| String::from_utf8_lossy(reply.text()).into_owned();
    let (kind, encoding) = (text(&facts[0]), text(&facts[1]));
    let content = read_content(conn, &kind, &encoding, &key)?;
    Ok(Entry { database, key, kind, encoding, expires: facts[2].integer() != Some(-1), content })
}

fn read_content(conn: &mut Conn, kind: &str, encoding: &str, key: &[u8]) -> io::Result<Vec<Vec<Reply>>> {
    if kind == "stream" {
        let words = |words: [&str; 2]| words.map(|w| w.as_bytes().to_vec());
        let range = [&[b"XRANGE".to_vec(), key.to_vec()], words(["-", "+"]).as_slice()].concat();
        let groups = [words(["XINFO", "GROUPS"]).as_slice(), &[key.to_vec()]].concat();
        return Ok(vec![vec![conn.call(&range)?, timeless(&conn.call(&groups)?)]]);
    }
    let (words, group): (&[&str], usize) = match kind {
        "string" => (&["GET"], 0),
        "list" => (&["LRANGE", "", "0", "-1"], 1),
        "set" => (&["SMEMBERS"], 1),
        "hash" => (&["HGETALL"], 2),
        "zset" => (&["ZRANGE", "", "0", "-1", "WITHSCORES"], 2),
        _ => return Ok(Vec::new()),
    };
    let mut command: Vec<Vec<u8>> = words.iter().map(|w| w.as_bytes().to_vec()).collect();
    match command.get_mut(1) {
        Some(place) => *place = key.to_vec(),
        None => command.push(key.to_vec()),
    }
    let reply = conn.call(&command)?;
    // A packed hash keeps the order of insertion, and a set of integers is sorted.
    let ordered = matches!(kind, "list" | "zset")
        || matches!(encoding, "intset" | "ziplist")
        || kind == "hash" && matches!(encoding, "listpack" | "listpackex");
    Ok(match group {
        0 => vec![vec![reply]],
        _ if ordered => reply.items().chunks(group).map(<[Reply]>::to_vec).collect(),
        _ => sorted(&reply, group),
    })
}
