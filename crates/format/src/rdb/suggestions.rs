//! Suggestions in a snapshot, in RediSearch's format for the type of FT.SUGADD. Each server reads the other's
//! snapshots.
//!
//! ```text
//! | module type, a length: nine letters of six bits, then ten bits of version | 2 count | suggestions | 0 |
//! a suggestion: | 5 text and a NUL, a string | 4 score, f64 little endian | 5 payload and a NUL, a string | [2 documents] |
//! ```
//!
//! The digits before values give their types, as in all values of modules (type 7). A missing payload is encoded as its
//! NUL alone. Version 0 has no payloads. Version 2 has numbers of documents, which are ignored here. The writer uses
//! version 1, which every release of RediSearch since 2.0 reads. Source: RediSearch's `trie.c`, Redis's `module.c` for
//! the types of values, and payloads that were built by hand from them.

use std::io::Read;

use store::types::suggestions::{PAYLOAD_BYTES_MAX, SuggestionOf, Suggestions};
use store::unaligned_box::TightBox;
use store::value::Value;

use super::Source;
use super::read::error::{Error, Flaw};
use super::read::module_name;
use super::write::{Writer, length};

/// Name of RediSearch's type.
const NAME: &[u8; 9] = b"trietype0";
/// First version with payloads.
const VERSION_PAYLOADS: u64 = 1;
/// First version with numbers of documents.
const VERSION_DOCUMENTS: u64 = 2;
/// Number of bits of the version.
const VERSION_BITS: u32 = 10;

/// Type marks before values.
mod mark {
    pub(super) const END: u64 = 0;
    pub(super) const UNSIGNED: u64 = 2;
    pub(super) const DOUBLE: u64 = 4;
    pub(super) const STRING: u64 = 5;
}

/// The number of the type, with the version that the writer uses.
const fn module_id() -> u64 {
    let (mut id, mut at) = (0, 0);
    while at < NAME.len() {
        let letter = NAME[at];
        let place = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            _ => letter - b'0' + 52,
        };
        id = id << 6 | place as u64;
        at += 1;
    }
    id << VERSION_BITS | VERSION_PAYLOADS
}

impl Writer {
    pub(super) fn suggestions(&mut self, out: &mut Vec<u8>, suggestions: &Suggestions) {
        self.suggestions_head(out, suggestions.len() as u64);
        suggestions.for_each(|SuggestionOf { text, score, payload }| self.suggestion(out, text, score, payload));
        self.suggestions_end(out);
    }

    /// Writes everything before the first of `count` suggestions.
    pub(super) fn suggestions_head(&self, out: &mut Vec<u8>, count: u64) {
        length(out, module_id());
        length(out, mark::UNSIGNED);
        length(out, count);
    }

    /// Writes one suggestion of a value that is written in parts.
    pub fn suggestion(&mut self, out: &mut Vec<u8>, text: &[u8], score: f32, payload: Option<&[u8]>) {
        self.terminated(out, text);
        length(out, mark::DOUBLE);
        out.extend_from_slice(&f64::from(score).to_le_bytes());
        self.terminated(out, payload.unwrap_or_default());
    }

    /// Writes the end of a value that is written in parts.
    pub fn suggestions_end(&self, out: &mut Vec<u8>) {
        length(out, mark::END);
    }

    fn terminated(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        length(out, mark::STRING);
        self.string(out, &[bytes, b"\0"].concat());
    }
}

/// Reads a module's value; only this type is supported.
pub(crate) fn read<R: Read>(source: &mut Source<R>) -> Result<Value, Error> {
    let id = source.length()?;
    let version = id & ((1 << VERSION_BITS) - 1);
    if id >> VERSION_BITS != module_id() >> VERSION_BITS {
        return Err(source.flaw(Flaw::Unsupported(format!("a value of the module '{}'", module_name(id)))));
    }
    if version > VERSION_DOCUMENTS {
        let what = format!("version {version} of the module type '{}'", module_name(id));
        return Err(source.flaw(Flaw::Unsupported(what)));
    }
    expect(source, mark::UNSIGNED)?;
    let count = source.length()?;
    if count == 0 {
        expect(source, mark::END)?;
        return Err(source.flaw(Flaw::Empty));
    }
    let mut suggestions = Suggestions::default();
    for _ in 0..count {
        read_one(source, version, &mut suggestions)?;
    }
    expect(source, mark::END)?;
    Ok(Value::Suggestions(TightBox::new(suggestions)))
}

fn read_one<R: Read>(source: &mut Source<R>, version: u64, suggestions: &mut Suggestions) -> Result<(), Error> {
    let text = read_terminated(source)?;
    expect(source, mark::DOUBLE)?;
    let score = f64::from_le_bytes(source.array()?) as f32;
    let payload = if version >= VERSION_PAYLOADS { read_terminated(source)? } else { Vec::new() };
    if version >= VERSION_DOCUMENTS {
        expect(source, mark::UNSIGNED)?;
        source.length()?;
    }
    let payload = Some(&*payload).filter(|payload| !payload.is_empty());
    if !Suggestions::can_be(&text) || score.is_nan() || payload.is_some_and(|payload| payload.len() > PAYLOAD_BYTES_MAX)
    {
        return Err(source.damaged("a suggestion"));
    }
    if suggestions.set(&text, score, payload) { Ok(()) } else { Err(source.damaged("a duplicate suggestion")) }
}

/// Reads a string and removes the NUL at its end.
fn read_terminated<R: Read>(source: &mut Source<R>) -> Result<Vec<u8>, Error> {
    expect(source, mark::STRING)?;
    let mut bytes = source.string_owned()?;
    if bytes.pop() == Some(0) { Ok(bytes) } else { Err(source.damaged("a suggestion's string")) }
}

fn expect<R: Read>(source: &mut Source<R>, mark: u64) -> Result<(), Error> {
    if source.length()? == mark { Ok(()) } else { Err(source.damaged("a module's value")) }
}

#[cfg(test)]
mod tests {
    use store::entry::View;

    use super::*;
    use crate::Limits;
    use crate::payload::{BadPayload, Dumper, read_value};

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut payload = [body, &10u16.to_le_bytes()].concat();
        payload.extend_from_slice(&crate::crc64::crc64(&payload).to_le_bytes());
        payload
    }

    /// A body built from RediSearch's code: the version, and the marks and values of the suggestions "hello" with score
    /// 1.5 and payload "p", and "ok" with score 2.
    fn body(version: u8) -> Vec<u8> {
        let mut body = vec![7, 0x81, 0xB6, 0xB8, 0x9E, 0xB7, 0x2A, 0x5E, 0xD0, version];
        assert_eq!(module_name(u64::from_be_bytes(body[2..10].try_into().unwrap())), "trietype0");
        body.extend_from_slice(&[2, 2]);
        for (text, score, payload) in [(&b"hello\0"[..], 1.5f64, &b"p\0"[..]), (b"ok\0", 2.0, b"\0")] {
            body.extend_from_slice(&[5, text.len() as u8]);
            body.extend_from_slice(text);
            body.push(4);
            body.extend_from_slice(&score.to_le_bytes());
            if version >= 1 {
                body.extend_from_slice(&[5, payload.len() as u8]);
                body.extend_from_slice(payload);
            }
            if version >= 2 {
                body.extend_from_slice(&[2, 0]);
            }
        }
        body.push(0);
        body
    }

    fn read_back(body: &[u8]) -> Result<Vec<String>, BadPayload> {
        let entry = read_value(&sealed(body), b"k", None, &Limits::default())?;
        let View::Object(Value::Suggestions(suggestions)) = entry.view() else { panic!("something else") };
        let mut all = Vec::new();
        suggestions.for_each(|found| {
            let text = String::from_utf8_lossy(found.text).into_owned();
            all.push(format!("{text} {} {:?}", found.score, found.payload));
        });
        all.sort();
        Ok(all)
    }

    #[test]
    fn all_versions_are_read() {
        assert_eq!(read_back(&body(0)).unwrap(), ["hello 1.5 None", "ok 2 None"]);
        for version in [1, 2] {
            assert_eq!(read_back(&body(version)).unwrap(), ["hello 1.5 Some([112])", "ok 2 None"]);
        }
        let refused = read_back(&body(3)).map_err(|error| format!("{error:?}")).unwrap_err();
        assert!(refused.contains("version 3 of the module type 'trietype0'"), "{refused}");
    }

    #[test]
    fn written_values_equal_redisearch() {
        let mut suggestions = Suggestions::default();
        // The suggestion with the highest score comes first.
        suggestions.set(b"ok", 2.0, None);
        suggestions.set(b"hello", 1.5, Some(b"p"));
        let value = Value::Suggestions(TightBox::new(suggestions));
        let payload = Dumper::new().value(&View::Object(&value));
        let [head, hello, ok] = [&body(1)[..12], &body(1)[12..33], &body(1)[33..50]];
        assert_eq!(payload, sealed(&[head, ok, hello, b"\0"].concat()));
    }

    #[test]
    fn invalid_suggestions_are_refused() {
        let whole = body(1);
        for cut in 1..whole.len() {
            assert!(read_back(&whole[..cut]).is_err(), "{cut}");
        }
        // A wrong mark, no NUL, NaN, an empty text, a duplicate text, no suggestion at all.
        let change = |at: usize, bytes: &[u8]| {
            let mut changed = whole.clone();
            changed.splice(at..at + bytes.len(), bytes.iter().copied());
            changed
        };
        for wrong in [change(12, &[4]), change(19, &[1]), change(21, &f64::NAN.to_le_bytes()), change(33, &[5, 1, 0])] {
            assert!(matches!(read_back(&wrong), Err(BadPayload::Contents(_))));
        }
        let twice = [&whole[..12], &whole[12..33], &whole[12..33], b"\0"].concat();
        assert!(
            read_back(&twice).map_err(|error| format!("{error:?}")).unwrap_err().contains("a duplicate suggestion")
        );
        let none = [&whole[..11], &[0, 0]].concat();
        assert!(matches!(read_back(&none), Err(BadPayload::Contents(Error { flaw: Flaw::Empty, .. }))));
    }
}
