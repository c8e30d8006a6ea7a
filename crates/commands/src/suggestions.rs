//! Suggestions for autocompletion: FT.SUGADD, FT.SUGGET, FT.SUGDEL, FT.SUGLEN.
//!
//! Source of the semantics: RediSearch's command pages of the group "suggestion", its tests, and its behaviour for
//! details that they omit. Errors have RediSearch's texts. As in RediSearch, an empty or overlong text is ignored, and
//! the reply is the number of suggestions.

#[cfg(test)]
mod tests;

use resp::num::{self, write_f64};
use store::types::suggestions::{Fuzziness, PAYLOAD_BYTES_MAX, QUERY_BYTES_MAX, Query, Suggestions};
use store::value::Type;

use crate::effects::Class;
use crate::error::{Error, Outcome, SHOWN_BYTES, shown};
use crate::spec::flag::{DENYOOM, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, DELETE, RO, RW, UPDATE};
use crate::spec::{Group, KeySpec, On, Spec};
use crate::{Call, Handler};

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::Suggestions).entries([
    Spec::new("ft.sugadd", -4, WRITE | DENYOOM, sugadd as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(
            Group::Suggestion,
            "1.0.0",
            "O(N) in the length of the text",
            "Adds a text to suggestions, or changes its score.",
            "key string score:double [INCR] [PAYLOAD payload]",
        )
        .tips(&["dont_cache"]),
    Spec::new("ft.sugget", -3, READONLY, sugget as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::Suggestion,
        "1.0.0",
        "O(N), where N is the number of returned suggestions; with FUZZY, plus the number of similar prefixes",
        "Returns the best suggestions that begin with a prefix.",
        "key prefix [FUZZY] [WITHSCORES] [WITHPAYLOADS] [MAX max:integer]",
    ),
    Spec::new("ft.sugdel", 3, WRITE, sugdel as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | DELETE)])
        .docs(
            Group::Suggestion,
            "1.0.0",
            "O(N) in the length of the text",
            "Removes a text from suggestions.",
            "key string",
        )
        .tips(&["dont_cache"]),
    Spec::new("ft.suglen", 2, READONLY, suglen as Handler).keys(&[KeySpec::at(1, RO)]).docs(
        Group::Suggestion,
        "1.0.0",
        "O(1)",
        "Returns the number of suggestions.",
        "key",
    ),
]);

/// Largest number of arguments of FT.SUGADD, including the name.
const SUGADD_ARGS_MAX: usize = 7;
/// Largest number of arguments of FT.SUGGET, including the name.
const SUGGET_ARGS_MAX: usize = 10;
/// Default number of suggestions that FT.SUGGET returns.
const COUNT: usize = 5;

const NO_PAYLOAD: Error = Error::fixed("Invalid payload: Expected an argument, but none provided");
const PAYLOAD_TOO_LARGE: Error = Error::fixed("Payload too large");
const INVALID_SCORE: Error = Error::fixed("ERR invalid score");
const NAN: Error = Error::fixed("ERR resulting score is not a number (NaN)");
const QUERY_TOO_LONG: Error = Error::fixed("Invalid query length");
const INVALID_QUERY: Error = Error::fixed("Invalid query");
const NO_MAX: Error = Error::fixed("SEARCH_PARSE_ARGS MAX: Expected an argument, but none provided");
const MAX_NOT_NUMBER: Error = Error::fixed("SEARCH_PARSE_ARGS MAX: Could not convert argument to expected type");
const MAX_OUT_OF_BOUNDS: Error = Error::fixed("SEARCH_PARSE_ARGS MAX: Value is outside acceptable bounds");

/// Options of FT.SUGADD.
#[derive(Default)]
struct Addition<'c> {
    increments: bool,
    /// None if the payload is empty.
    payload: Option<&'c [u8]>,
}

fn addition<'c>(call: &Call<'c, '_, '_>) -> Result<Addition<'c>, Error> {
    if call.len() > SUGADD_ARGS_MAX {
        return Err(Error::arity("ft.sugadd"));
    }
    let mut addition = Addition::default();
    let mut words = call.args.from(4);
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case(b"incr") {
            addition.increments = true;
        } else if word.eq_ignore_ascii_case(b"payload") {
            let payload = words.next().ok_or(NO_PAYLOAD)?;
            if payload.len() > PAYLOAD_BYTES_MAX {
                return Err(PAYLOAD_TOO_LARGE);
            }
            addition.payload = Some(payload).filter(|payload| !payload.is_empty());
        } else {
            return Err(Error::quoting([b"Unknown argument `", shown(word, SHOWN_BYTES), b"`"].concat()));
        }
    }
    Ok(addition)
}

fn sugadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Addition { increments, payload } = addition(call)?;
    let (key, text) = (call.key(1), call.arg(2));
    let given = num::parse_f64(call.arg(3)).map(|score| score as f32);
    let (Some(given), true) = (given, Suggestions::can_be(text)) else {
        let len = call.db.object::<Suggestions>(key)?.map_or(0, Suggestions::len);
        given.ok_or(INVALID_SCORE)?;
        call.reply.count(len);
        return Ok(());
    };
    let suggestions = call.db.object_or_new::<Suggestions>(key)?;
    let before = if increments { suggestions.get(text) } else { None };
    let score = before.map_or(given, |(score, _)| score + given);
    // Only a sum of opposite infinities is NaN, and that needs an existing suggestion.
    if score.is_nan() {
        return Err(NAN);
    }
    suggestions.set(text, score, payload);
    let len = suggestions.len();
    // RediSearch publishes no event here.
    call.changed(key, Class::Unpublished, "");
    if increments && call.is_recorded() {
        let mut digits = Vec::new();
        write_f64(&mut digits, f64::from(score));
        let words = [&b"FT.SUGADD"[..], key.bytes, text, &digits, b"PAYLOAD", payload.unwrap_or_default()];
        call.record_as(&words[..if payload.is_some() { words.len() } else { words.len() - 2 }]);
    }
    call.reply.count(len);
    Ok(())
}

fn sugdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, text) = (call.key(1), call.arg(2));
    let Some(suggestions) = call.db.object_mut::<Suggestions>(key)? else {
        call.reply.int(0);
        return Ok(());
    };
    let is_removed = suggestions.remove(text);
    if suggestions.is_empty() {
        call.db.remove(key);
    }
    if is_removed {
        call.changed(key, Class::Unpublished, "");
    }
    call.reply.int(i64::from(is_removed));
    Ok(())
}

fn suglen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = call.db.object::<Suggestions>(call.key(1))?.map_or(0, Suggestions::len);
    call.reply.count(len);
    Ok(())
}

/// Options of FT.SUGGET.
struct SearchOptions {
    fuzziness: Fuzziness,
    count: usize,
    trims: bool,
    with_scores: bool,
    with_payloads: bool,
}

fn search_options(call: &Call<'_, '_, '_>) -> Result<SearchOptions, Error> {
    let mut options = SearchOptions {
        fuzziness: Fuzziness::Exact,
        count: COUNT,
        trims: false,
        with_scores: false,
        with_payloads: false,
    };
    let mut words = call.args.from(3);
    while let Some(word) = words.next() {
        match word {
            _ if word.eq_ignore_ascii_case(b"fuzzy") => options.fuzziness = Fuzziness::Fuzzy,
            _ if word.eq_ignore_ascii_case(b"max") => options.count = count(words.next().ok_or(NO_MAX)?)?,
            _ if word.eq_ignore_ascii_case(b"withscores") => options.with_scores = true,
            _ if word.eq_ignore_ascii_case(b"withpayloads") => options.with_payloads = true,
            _ if word.eq_ignore_ascii_case(b"trim") => options.trims = true,
            // Accepted without an effect.
            _ if word.eq_ignore_ascii_case(b"optimize") => {}
            _ => {
                let quoted = [b"SEARCH_PARSE_ARGS Unrecognized argument: ", shown(word, SHOWN_BYTES)].concat();
                return Err(Error::quoting(quoted));
            }
        }
    }
    Ok(options)
}

/// Parses a number of suggestions; the fraction is dropped.
fn count(text: &[u8]) -> Result<usize, Error> {
    let number = num::parse_f64(text).ok_or(MAX_NOT_NUMBER)?;
    if (1.0..=f64::from(u32::MAX)).contains(&number) { Ok(number as usize) } else { Err(MAX_OUT_OF_BOUNDS) }
}

fn sugget(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.len() > SUGGET_ARGS_MAX {
        return Err(Error::arity("ft.sugget"));
    }
    if call.arg(2).len() > QUERY_BYTES_MAX {
        return Err(QUERY_TOO_LONG);
    }
    let options = search_options(call)?;
    let query = Query::new(call.arg(2), options.fuzziness);
    let Some(suggestions) = call.db.object::<Suggestions>(call.key(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    let mut best = suggestions.best(&query.map_err(|_| INVALID_QUERY)?, options.count);
    if options.trims {
        best.trim();
    }
    call.reply.array(best.len() * (1 + usize::from(options.with_scores) + usize::from(options.with_payloads)));
    for (text, rank, payload) in best.iter() {
        call.reply.bulk(text);
        if options.with_scores {
            call.reply.double(f64::from(rank));
        }
        if options.with_payloads {
            call.reply.bulk_or_null(payload);
        }
    }
    Ok(())
}
