//! Suggestions: for any texts, scores and payloads, searches return the same results as a search through all entries.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use store::types::suggestions::{Fuzziness, Query, SuggestionOf, Suggestions};

type Model = BTreeMap<Vec<u8>, (f32, Option<Vec<u8>>)>;

/// Takes a part of the data, with its length in the first byte.
fn part<'d>(data: &mut &'d [u8]) -> Option<&'d [u8]> {
    let (&len, rest) = data.split_first()?;
    let (part, rest) = rest.split_at(usize::from(len % 24).min(rest.len()));
    *data = rest;
    Some(part)
}

fn contents(suggestions: &Suggestions) -> Model {
    let mut all = Model::new();
    suggestions.for_each(|SuggestionOf { text, score, payload }| {
        assert!(all.insert(text.to_vec(), (score, payload.map(<[u8]>::to_vec))).is_none());
    });
    all
}

fuzz_target!(|data: &[u8]| {
    let (mut data, mut suggestions, mut model) = (data, Suggestions::default(), Model::new());
    while let Some((&kind, rest)) = data.split_first() {
        data = rest;
        let Some(text) = part(&mut data) else { break };
        match kind % 4 {
            0 => assert_eq!(suggestions.remove(text), model.remove(text).is_some()),
            1 => {
                let fuzziness = if kind & 4 == 0 { Fuzziness::Exact } else { Fuzziness::Fuzzy };
                let Ok(query) = Query::new(text, fuzziness) else { continue };
                let all = suggestions.best(&query, usize::MAX);
                let few = suggestions.best(&query, usize::from(kind >> 3));
                let shown = |best: &store::types::suggestions::Best<'_>, count| -> Vec<(Vec<u8>, u32)> {
                    best.iter().take(count).map(|(text, rank, _)| (text.to_vec(), rank.to_bits())).collect()
                };
                assert_eq!(shown(&few, usize::MAX), shown(&all, usize::from(kind >> 3)));
                assert!(all.iter().zip(all.iter().skip(1)).all(|(one, other)| one.1 >= other.1));
                assert!(all.iter().all(|(text, ..)| model.contains_key(text)));
                if fuzziness == Fuzziness::Exact {
                    assert!(model.keys().filter(|key| key.starts_with(text)).count() <= all.len() || std::str::from_utf8(text).is_err());
                }
            }
            _ => {
                let score = f32::from(i16::from(kind) - 100) / 4.0;
                let payload = (kind & 4 != 0).then(|| part(&mut data)).flatten().filter(|payload| !payload.is_empty());
                suggestions.set(text, score, payload);
                if Suggestions::can_be(text) {
                    let kept = model.remove(text).and_then(|(_, payload)| payload);
                    model.insert(text.to_vec(), (score, payload.map(<[u8]>::to_vec).or(kept)));
                }
            }
        }
        assert_eq!(suggestions.len(), model.len());
    }
    assert_eq!(contents(&suggestions), model);
});
