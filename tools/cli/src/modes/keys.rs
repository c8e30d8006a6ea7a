//! `--bigkeys`, `--memkeys` and `--hotkeys`: find the largest and the most used keys.

use super::scan::Scan;
use super::{ask, pause};
use crate::failure::Failure;
use crate::output::complain;
use crate::quote::quoted;
use crate::session::CliSession;
use client::Value;

/// Number of SCAN rounds between pauses, if `-i` is set.
const ROUNDS_PER_PAUSE: u64 = 100;

/// Number of keys between progress lines.
const KEYS_PER_NOTE: u64 = 1_000_000;

/// Number of most used keys in the report.
const HOT_KEYS: usize = 16;

/// Measured types: name, command for the size, and unit. The order is the one of redis-cli 7.0's summary for two keys
/// and more, which is its hash table's order.
const TYPES: [(&str, &str, &str); 6] = [
    ("list", "LLEN", "items"),
    ("hash", "HLEN", "fields"),
    ("string", "STRLEN", "bytes"),
    ("stream", "XLEN", "entries"),
    ("set", "SCARD", "members"),
    ("zset", "ZCARD", "members"),
];

/// Measure of a key's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Number of elements.
    Elements,
    /// MEMORY USAGE, with this number of samples if given.
    Memory(Option<u64>),
}

/// Totals of a type.
struct Found {
    name: String,
    /// The command that returns a key's size, if the type has one.
    command: Option<&'static str>,
    unit: &'static str,
    count: u64,
    total: u64,
    biggest: Option<(Vec<u8>, u64)>,
}

/// Progress of a scan.
struct Walk {
    scan: Scan,
    total: u64,
    sampled: u64,
    rounds: u64,
    /// Percentage at the start of the last round.
    percent: f64,
}

impl Walk {
    fn start(session: &mut CliSession<'_>, goal: &str) -> Result<Self, Failure> {
        session.connect()?;
        let Value::Int(total) = ask(session, &["DBSIZE"], "Couldn't determine DBSIZE")? else {
            return Err(Failure::Other("Non INTEGER response from DBSIZE!".to_owned()));
        };
        session.output.print(format!(
            "\n# Scanning the entire keyspace to find {goal} keys as well as\n\
             # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
             # per 100 SCAN commands (not usually needed).\n\n"
        ))?;
        Ok(Self { scan: Scan::default(), total: total.unsigned_abs(), sampled: 0, rounds: 0, percent: 0.0 })
    }

    fn next(&mut self, session: &mut CliSession<'_>) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        if let Some(interval) =
            session.options.interval.filter(|_| self.rounds > 0 && self.rounds.is_multiple_of(ROUNDS_PER_PAUSE))
        {
            pause(session, interval)?;
        }
        self.rounds += 1;
        self.percent = if self.total == 0 { 0.0 } else { 100.0 * self.sampled as f64 / self.total as f64 };
        self.scan.next(session)
    }

    fn count(&mut self, session: &mut CliSession<'_>) -> Result<(), Failure> {
        self.sampled += 1;
        if self.sampled.is_multiple_of(KEYS_PER_NOTE) {
            let note = format!("[{:05.2}%] Sampled {} keys so far\n", self.percent, self.sampled);
            session.output.print(note)?;
        }
        Ok(())
    }
}

/// Finds the biggest key of each type.
///
/// # Errors
/// Returns [`Failure`].
pub fn find_big(session: &mut CliSession<'_>, measure: Measure) -> Result<(), Failure> {
    let mut walk = Walk::start(session, "biggest")?;
    let mut found: Vec<Found> =
        TYPES.iter().map(|(name, command, unit)| Found::new(name, Some(command), unit, measure)).collect();
    let mut key_bytes = 0;
    while let Some(keys) = walk.next(session)? {
        let types = types_of(session, &keys)?;
        // A key may have been deleted after SCAN returned it.
        let typed: Vec<(Vec<u8>, usize)> = keys
            .into_iter()
            .zip(types)
            .filter_map(|(key, kind)| kind.map(|kind| (key, Found::index(&mut found, &kind, measure))))
            .collect();
        for ((key, index), size) in typed.iter().zip(sizes_of(session, &typed, &found, measure)?) {
            let Some(size) = size else { continue };
            key_bytes += key.len() as u64;
            if let Some(note) = found[*index].add(key, size, walk.percent) {
                session.output.print(note)?;
            }
            walk.count(session)?;
        }
        session.output.flush()?;
    }
    session.output.print(summary(&walk, key_bytes, &found))?;
    Ok(())
}

/// Requests the types of keys in one pipeline. Returns `None` for keys that no longer exist.
fn types_of(session: &mut CliSession<'_>, keys: &[Vec<u8>]) -> Result<Vec<Option<String>>, Failure> {
    for key in keys {
        session.send(&[b"TYPE".as_slice(), key])?;
    }
    let mut types = Vec::with_capacity(keys.len());
    for _ in keys {
        let reply = session.next_reply()?;
        if let Some(text) = reply.error() {
            return Err(Failure::Other(format!("TYPE returned an error: {}", String::from_utf8_lossy(text))));
        }
        let name = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
        types.push(Some(name).filter(|name| name != "none"));
    }
    Ok(types)
}

/// Requests the sizes of keys in one pipeline. Returns `None` for keys that were deleted or changed their type in the
/// meantime.
fn sizes_of(
    session: &mut CliSession<'_>,
    keys: &[(Vec<u8>, usize)],
    found: &[Found],
    measure: Measure,
) -> Result<Vec<Option<u64>>, Failure> {
    let requests: Vec<_> = keys.iter().map(|(key, index)| found[*index].size_request(key, measure)).collect();
    for request in requests.iter().flatten() {
        session.send(request)?;
    }
    let mut sizes = Vec::with_capacity(keys.len());
    for ((key, _), request) in keys.iter().zip(&requests) {
        sizes.push(match request {
            None => Some(0),
            Some(request) => size_of_reply(&session.next_reply()?, request, key),
        });
    }
    Ok(sizes)
}

fn size_of_reply(reply: &Value, request: &[Vec<u8>], key: &[u8]) -> Option<u64> {
    if let Value::Int(size) = reply {
        return Some(size.unsigned_abs());
    }
    if reply.error().is_some() {
        let command = String::from_utf8_lossy(&request[0]);
        complain!("Warning:  {command} on '{}' failed (may have changed type)", String::from_utf8_lossy(key));
    }
    None
}

impl Found {
    fn new(name: &str, command: Option<&'static str>, unit: &'static str, measure: Measure) -> Self {
        let unit = if measure == Measure::Elements { unit } else { "bytes" };
        Self { name: name.to_owned(), command, unit, count: 0, total: 0, biggest: None }
    }

    /// Returns the index of a type. Types of modules are added.
    fn index(found: &mut Vec<Found>, name: &str, measure: Measure) -> usize {
        found.iter().position(|known| known.name == name).unwrap_or_else(|| {
            found.push(Self::new(name, None, "?", measure));
            found.len() - 1
        })
    }

    /// Returns the request for the size of a key of this type, if there is one.
    fn size_request(&self, key: &[u8], measure: Measure) -> Option<Vec<Vec<u8>>> {
        let mut request = match (measure, self.command) {
            (Measure::Memory(_), _) => vec![b"MEMORY".to_vec(), b"USAGE".to_vec()],
            (Measure::Elements, Some(command)) => vec![command.as_bytes().to_vec()],
            (Measure::Elements, None) => return None,
        };
        request.push(key.to_vec());
        if let Measure::Memory(Some(samples)) = measure {
            request.extend([b"SAMPLES".to_vec(), samples.to_string().into_bytes()]);
        }
        Some(request)
    }

    /// Counts a key. Returns a progress line if it is the biggest so far.
    fn add(&mut self, key: &[u8], size: u64, percent: f64) -> Option<String> {
        self.count += 1;
        self.total += size;
        let record = self.biggest.as_ref().map_or(0, |(_, size)| *size);
        if size <= record {
            return None;
        }
        self.biggest = Some((key.to_vec(), size));
        let (name, unit, key) = (&self.name, self.unit, shown(key));
        Some(format!("[{percent:05.2}%] Biggest {name:<6} found so far '{key}' with {size} {unit}\n"))
    }
}

/// Returns a key in quotes.
fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&quoted(key)).into_owned()
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn summary(walk: &Walk, key_bytes: u64, found: &[Found]) -> String {
    let sampled = walk.sampled;
    let mut text = format!(
        "\n-------- summary -------\n\nSampled {sampled} keys in the keyspace!\n\
         Total key length in bytes is {key_bytes} (avg len {:.2})\n\n",
        ratio(key_bytes, sampled)
    );
    for Found { name, unit, biggest, .. } in found {
        if let Some((key, size)) = biggest {
            text += &format!("Biggest {name:>6} found '{}' has {size} {unit}\n", shown(key));
        }
    }
    text.push('\n');
    for Found { name, unit, count, total, .. } in found {
        let share = 100.0 * ratio(*count, sampled);
        let average = ratio(*total, *count);
        text += &format!("{count} {name}s with {total} {unit} ({share:05.2}% of keys, avg size {average:.2})\n");
    }
    text
}

/// Finds the most used keys.
///
/// # Errors
/// Returns [`Failure`], also if the server doesn't count uses.
pub fn find_hot(session: &mut CliSession<'_>) -> Result<(), Failure> {
    let mut walk = Walk::start(session, "hot")?;
    let mut hottest = Hottest::default();
    while let Some(keys) = walk.next(session)? {
        for key in &keys {
            session.send(&[b"OBJECT".as_slice(), b"FREQ", key])?;
        }
        for key in keys {
            let reply = session.next_reply()?;
            if let Some(text) = reply.error() {
                return Err(Failure::Other(format!("Error: {}", String::from_utf8_lossy(text))));
            }
            walk.count(session)?;
            let Value::Int(uses @ 1..) = reply else { continue };
            if hottest.add(uses, &key) {
                let note =
                    format!("[{:05.2}%] Hot key '{}' found so far with counter {uses}\n", walk.percent, shown(&key));
                session.output.print(note)?;
            }
        }
        session.output.flush()?;
    }
    session.output.print(format!("\n-------- summary -------\n\nSampled {} keys in the keyspace!\n", walk.sampled))?;
    for (uses, key) in hottest.keys.iter().rev() {
        session.output.print(format!("hot key found with counter: {uses}\tkeyname: {}\n", shown(key)))?;
    }
    Ok(())
}

/// The most used keys so far, in ascending order of use.
#[derive(Default)]
struct Hottest {
    keys: Vec<(i64, Vec<u8>)>,
}

impl Hottest {
    /// Adds a key if it is among the most used. Returns true if it was added.
    fn add(&mut self, uses: i64, key: &[u8]) -> bool {
        if self.keys.len() == HOT_KEYS && self.keys.first().is_some_and(|(least, _)| uses <= *least) {
            return false;
        }
        let place = self.keys.partition_point(|(other, _)| *other < uses);
        self.keys.insert(place, (uses, key.to_vec()));
        if self.keys.len() > HOT_KEYS {
            self.keys.remove(0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_keys_are_kept() {
        let mut hottest = Hottest::default();
        assert!((1..=20).all(|uses| hottest.add(uses, b"k")));
        assert!(!hottest.add(5, b"k") && !hottest.add(1, b"k"));
        assert!(hottest.add(6, b"new"));
        assert_eq!(hottest.keys.len(), HOT_KEYS);
        assert_eq!(hottest.keys.first().map(|(uses, _)| *uses), Some(6));
    }

    #[test]
    fn types_of_modules_are_added() {
        let mut found = vec![Found::new("list", Some("LLEN"), "items", Measure::Elements)];
        assert_eq!(Found::index(&mut found, "list", Measure::Elements), 0);
        assert_eq!(Found::index(&mut found, "ReJSON-RL", Measure::Elements), 1);
        assert_eq!(Found::index(&mut found, "ReJSON-RL", Measure::Elements), 1);
    }
}
