//! Unions, intersections and differences of sorted sets and sets: ZUNION, ZINTER, ZDIFF, their storing variants and
//! ZINTERCARD.

use store::keyspace::Key;
use store::types::set::Set;
use store::types::zset::{ScoreMap, ZSet};
use store::value::Value;

use super::PairForm;
use super::range::{store, store_recorded};
use crate::Call;
use crate::error::{Error, Outcome};

const WEIGHT_NOT_FLOAT: Error = Error::fixed("ERR weight value is not a float");
const LIMIT_NEGATIVE: Error = Error::fixed("ERR LIMIT can't be negative");

/// Operation on the inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetOperation {
    Union,
    Intersection,
    Difference,
}

/// Combination of the scores that a member has in several inputs.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
    /// Ignore the scores and add the weights of the inputs that have the member.
    Count,
}

impl Aggregate {
    /// An input's contribution to a member's score.
    fn part(self, score: f64, weight: f64) -> f64 {
        if matches!(self, Aggregate::Count) { weight } else { score * weight }
    }

    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // The sum of opposite infinities is 0, as in Redis.
            Aggregate::Sum | Aggregate::Count => not_nan(a + b),
            // The first operand wins if both are equal (0 and -0) or one is NaN.
            Aggregate::Min if b < a => b,
            Aggregate::Max if b > a => b,
            Aggregate::Min | Aggregate::Max => a,
        }
    }
}

fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// An input; members of a set have the score 1.
#[derive(Clone, Copy)]
enum Source<'s> {
    Missing,
    Set(&'s Set),
    ZSet(&'s ZSet),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Source::Missing => 0,
            Source::Set(set) => set.len(),
            Source::ZSet(zset) => zset.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Missing => None,
            Source::Set(set) => set.contains(member).then_some(1.0),
            Source::ZSet(zset) => zset.score(member),
        }
    }

    /// Visits all members.
    fn for_each(&self, mut visit: impl FnMut(&[u8], f64)) {
        match self {
            Source::Missing => {}
            Source::Set(set) => set.for_each(|member| visit(member, 1.0)),
            Source::ZSet(zset) => zset.visit_ranks(0..zset.len(), false, visit),
        }
    }

    /// Visits all members until `visit` returns false.
    fn visit_while(&self, mut visit: impl FnMut(&[u8], f64) -> bool) {
        match self {
            Source::Missing => {}
            Source::Set(set) => drop(set.visit_while(|member| visit(member, 1.0))),
            Source::ZSet(zset) => drop(zset.visit_while(visit)),
        }
    }
}

/// Parsed arguments of a command of this family.
struct CombineQuery {
    /// Index of the first key.
    first: usize,
    numkeys: usize,
    /// Empty if all weights are 1.
    weights: Vec<f64>,
    aggregate: Aggregate,
    form: PairForm,
    /// Number of members at which ZINTERCARD stops counting; 0 means no limit.
    limit: usize,
}

/// Options that a command accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionsTaken {
    /// WEIGHTS and AGGREGATE, except for differences.
    Stores,
    /// WEIGHTS and AGGREGATE, except for differences, and WITHSCORES.
    Replies,
    /// LIMIT.
    Counts,
}

impl CombineQuery {
    /// Parses the arguments from the number of keys on, which is at `index`. As in Redis, the keys' types are checked
    /// before the options.
    fn read(
        call: &mut Call<'_, '_, '_>,
        index: usize,
        operation: SetOperation,
        options: OptionsTaken,
    ) -> Result<CombineQuery, Error> {
        let numkeys = call.int(index)?;
        let numkeys = usize::try_from(numkeys).ok().filter(|&n| n > 0).ok_or_else(|| {
            let name = String::from_utf8_lossy(call.arg(0)).to_ascii_lowercase();
            Error::new(format!("ERR at least 1 input key is needed for '{name}' command"))
        })?;
        let first = index + 1;
        if numkeys > call.len() - first {
            return Err(Error::SYNTAX);
        }
        for key in first..first + numkeys {
            check_type(call, call.key(key))?;
        }
        let mut query = CombineQuery {
            first,
            numkeys,
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            form: PairForm::Members,
            limit: 0,
        };
        query.read_options(call, operation, options)?;
        Ok(query)
    }

    fn read_options(&mut self, call: &Call<'_, '_, '_>, operation: SetOperation, options: OptionsTaken) -> Outcome {
        let scored = operation != SetOperation::Difference && options != OptionsTaken::Counts;
        let mut at = self.first + self.numkeys;
        while at < call.len() {
            let left = call.len() - at;
            if scored && left > self.numkeys && call.is(at, "weights") {
                self.weights = (at + 1..=at + self.numkeys)
                    .map(|index| resp::num::parse_f64(call.arg(index)).ok_or(WEIGHT_NOT_FLOAT))
                    .collect::<Result<_, _>>()?;
                at += 1 + self.numkeys;
            } else if scored && left >= 2 && call.is(at, "aggregate") {
                self.aggregate = aggregate(call.arg(at + 1))?;
                at += 2;
            } else if options == OptionsTaken::Replies && call.is(at, "withscores") {
                self.form = PairForm::Scores;
                at += 1;
            } else if options == OptionsTaken::Counts && left >= 2 && call.is(at, "limit") {
                self.limit = call.int(at + 1).ok().and_then(|n| usize::try_from(n).ok()).ok_or(LIMIT_NEGATIVE)?;
                at += 2;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(())
    }

    fn weight(&self, input: usize) -> f64 {
        self.weights.get(input).copied().unwrap_or(1.0)
    }
}

fn aggregate(word: &[u8]) -> Result<Aggregate, Error> {
    match word {
        word if word.eq_ignore_ascii_case(b"sum") => Ok(Aggregate::Sum),
        word if word.eq_ignore_ascii_case(b"min") => Ok(Aggregate::Min),
        word if word.eq_ignore_ascii_case(b"max") => Ok(Aggregate::Max),
        word if word.eq_ignore_ascii_case(b"count") => Ok(Aggregate::Count),
        _ => Err(Error::SYNTAX),
    }
}

/// Checks that a key holds a sorted set or a set; this counts as an access.
fn check_type(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Outcome {
    match call.db.view(key) {
        None | Some(store::entry::View::Object(Value::Set(_) | Value::ZSet(_))) => Ok(()),
        Some(_) => Err(Error::WRONG_TYPE),
    }
}

fn source<'d>(call: &'d Call<'_, '_, '_>, key: Key<'_>) -> Source<'d> {
    if let Ok(Some(zset)) = call.db.peek_object::<ZSet>(key) {
        return Source::ZSet(zset);
    }
    match call.db.peek_object::<Set>(key) {
        Ok(Some(set)) => Source::Set(set),
        _ => Source::Missing,
    }
}

/// Returns the inputs with their weights. Except for differences, the inputs are sorted by size: this needs fewer
/// lookups, and sums are computed in the same order as in Redis.
fn sources<'d>(call: &'d Call<'_, '_, '_>, query: &CombineQuery, operation: SetOperation) -> Vec<(Source<'d>, f64)> {
    let mut sources: Vec<(Source<'_>, f64)> =
        (0..query.numkeys).map(|i| (source(call, call.key(query.first + i)), query.weight(i))).collect();
    if operation != SetOperation::Difference {
        sources.sort_by_key(|(source, _)| source.len());
    }
    sources
}

fn combine(call: &Call<'_, '_, '_>, query: &CombineQuery, operation: SetOperation) -> ScoreMap {
    let sources = sources(call, query, operation);
    let mut result = ScoreMap::default();
    match operation {
        SetOperation::Union => {
            for (source, weight) in &sources {
                result.begin_source(source.len());
                source.for_each(|member, score| {
                    let score = not_nan(query.aggregate.part(score, *weight));
                    result.add(member, score, |before, score| query.aggregate.of(before, score));
                });
            }
        }
        SetOperation::Intersection => intersect(&sources, query, |member, score| {
            result.push(member, score);
            true
        }),
        SetOperation::Difference => {
            let Some(((first, _), others)) = sources.split_first() else { return result };
            first.for_each(|member, score| {
                if others.iter().all(|(other, _)| other.score(member).is_none()) {
                    result.push(member, score);
                }
            });
        }
    }
    result
}

/// Visits the members that all inputs have, until `visit` returns false.
fn intersect(sources: &[(Source<'_>, f64)], query: &CombineQuery, mut visit: impl FnMut(&[u8], f64) -> bool) {
    let Some(((first, weight), others)) = sources.split_first() else { return };
    first.visit_while(|member, score| {
        let mut score = not_nan(query.aggregate.part(score, *weight));
        for (other, weight) in others {
            let Some(value) = other.score(member) else { return true };
            // As in Redis, an infinity times 0 makes the whole sum 0, not only the term.
            score = query.aggregate.of(score, query.aggregate.part(value, *weight));
        }
        visit(member, score)
    });
}

fn reply(call: &mut Call<'_, '_, '_>, operation: SetOperation) -> Outcome {
    let query = CombineQuery::read(call, 1, operation, OptionsTaken::Replies)?;
    let result = combine(call, &query, operation);
    query.form.header(&mut call.reply, result.len());
    for (member, score) in result.sorted() {
        query.form.write(&mut call.reply, member, score);
    }
    Ok(())
}

fn reply_stored(call: &mut Call<'_, '_, '_>, operation: SetOperation, event: &'static str) -> Outcome {
    let query = CombineQuery::read(call, 2, operation, OptionsTaken::Stores)?;
    let result = combine(call, &query, operation).finish(call.rules.zset);
    let destination = call.key(1);
    let count = if matches!(query.aggregate, Aggregate::Count) {
        // Record the result, because older versions don't know the option.
        store_recorded(call, destination, result, 1, event)
    } else {
        store(call, destination, result, event)
    };
    call.reply.count(count);
    Ok(())
}

pub(super) fn zunion(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply(call, SetOperation::Union)
}

pub(super) fn zinter(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply(call, SetOperation::Intersection)
}

pub(super) fn zdiff(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply(call, SetOperation::Difference)
}

pub(super) fn zunionstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_stored(call, SetOperation::Union, "zunionstore")
}

pub(super) fn zinterstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_stored(call, SetOperation::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_stored(call, SetOperation::Difference, "zdiffstore")
}

pub(super) fn zintercard(call: &mut Call<'_, '_, '_>) -> Outcome {
    let query = CombineQuery::read(call, 1, SetOperation::Intersection, OptionsTaken::Counts)?;
    let mut count = 0;
    intersect(&sources(call, &query, SetOperation::Intersection), &query, |_, _| {
        count += 1;
        count != query.limit
    });
    call.reply.count(count);
    Ok(())
}
