//! SORT: the elements of a list, a set or a sorted set in an order of one's choice.
//!
//! Text is compared byte by byte, as Redis does in the C locale. Unlike Redis, sorting a sorted set leaves its encoding
//! alone.

use std::cmp::Ordering;
use std::ops::Range;

use resp::num;
use resp::request::Args;
use store::db::{Db, Ttl};
use store::entry::View;
use store::keyspace::Key;
use store::types::list::{End, List};
use store::types::packed::Item;
use store::value::Value;

use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::spec::Scope;

/// The names of keys that depend on an element: everything around the first `*`, and a field, if a hash is meant.
enum Pattern<'c> {
    /// `#`: the element itself.
    Element,
    /// Without a `*` no key is meant.
    Nothing,
    Key {
        prefix: &'c [u8],
        suffix: &'c [u8],
        field: Option<&'c [u8]>,
    },
}

impl<'c> Pattern<'c> {
    fn parse(text: &'c [u8]) -> Pattern<'c> {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|&b| b == b'*') else { return Pattern::Nothing };
        let (prefix, rest) = (&text[..star], &text[star + 1..]);
        match rest.windows(2).position(|pair| pair == b"->") {
            Some(arrow) if arrow + 2 < rest.len() => {
                Pattern::Key { prefix, suffix: &rest[..arrow], field: Some(&rest[arrow + 2..]) }
            }
            _ => Pattern::Key { prefix, suffix: rest, field: None },
        }
    }

    fn is_key(&self) -> bool {
        matches!(self, Pattern::Key { .. })
    }

    /// Hands the value that the pattern means for this element to `read`; none if there is no such value. `name` is
    /// room for a key's name.
    fn with_value<T>(
        &self,
        db: &mut Db<'_, '_>,
        element: &[u8],
        name: &mut Vec<u8>,
        read: impl FnOnce(Option<&[u8]>) -> T,
    ) -> T {
        let (prefix, suffix, field) = match self {
            Pattern::Element => return read(Some(element)),
            Pattern::Nothing => return read(None),
            Pattern::Key { prefix, suffix, field } => (prefix, suffix, field),
        };
        name.clear();
        [prefix, element, suffix].iter().for_each(|part| name.extend_from_slice(part));
        let now = db.due_ms();
        match (db.view(Key::new(name)), field) {
            (Some(View::Object(Value::Hash(hash))), Some(field)) => read(hash.get(field).as_deref()),
            (Some(View::Object(Value::TimedHash(hash))), Some(field)) => read(hash.living(now).get(field).as_deref()),
            (Some(View::Bytes(bytes)), None) => read(Some(bytes)),
            (Some(View::Int(int)), None) => read(Some(num::IntText::new().i64(int))),
            (Some(View::Object(Value::Str(bytes))), None) => read(Some(bytes)),
            _ => read(None),
        }
    }
}

/// What SORT is asked to do.
struct SortOptions<'c> {
    descending: bool,
    alpha: bool,
    limit: Option<(i64, i64)>,
    by: Option<Pattern<'c>>,
    /// BY a pattern that means no key: the elements stay in their own order, whatever other BY there is.
    keeps_order: bool,
    get: Vec<Pattern<'c>>,
    /// The argument that names the key to store the result in.
    store: Option<usize>,
}

impl<'c> SortOptions<'c> {
    /// `may_look_up`: whether the user may read every key, as BY and GET may lead to any.
    fn parse(args: Args<'c>, may_store: bool, may_look_up: bool) -> Result<SortOptions<'c>, Error> {
        let mut options = SortOptions {
            descending: false,
            alpha: false,
            limit: None,
            by: None,
            keeps_order: false,
            get: Vec::new(),
            store: None,
        };
        let mut index = 2;
        while index < args.len() {
            index += 1 + options.option(args, index, may_store, may_look_up)?;
        }
        Ok(options)
    }

    /// Takes the option at `index` and gives how many arguments it has.
    fn option(&mut self, args: Args<'c>, index: usize, may_store: bool, may_look_up: bool) -> Result<usize, Error> {
        let is = |name: &str| args.get(index).eq_ignore_ascii_case(name.as_bytes());
        let left = args.len() - index - 1;
        let int = |index| num::parse_i64(args.get(index)).ok_or(Error::NOT_INTEGER);
        match left {
            _ if is("asc") => self.descending = false,
            _ if is("desc") => self.descending = true,
            _ if is("alpha") => self.alpha = true,
            2.. if is("limit") => {
                self.limit = Some((int(index + 1)?, int(index + 2)?));
                return Ok(2);
            }
            1.. if is("store") && may_store => {
                self.store = Some(index + 1);
                return Ok(1);
            }
            1.. if is("by") => {
                let by = Pattern::parse(args.get(index + 1));
                if by.is_key() && !may_look_up {
                    return Err(denied("BY"));
                }
                self.keeps_order |= !by.is_key();
                self.by = Some(by);
                return Ok(1);
            }
            // Even of the element itself, as in Redis.
            1.. if is("get") && !may_look_up => return Err(denied("GET")),
            1.. if is("get") => {
                self.get.push(Pattern::parse(args.get(index + 1)));
                return Ok(1);
            }
            _ => return Err(Error::SYNTAX),
        }
        Ok(0)
    }

    fn looks_keys_up(&self) -> bool {
        self.by.iter().chain(&self.get).any(Pattern::is_key)
    }

    /// Which of `len` elements are wanted.
    fn window(&self, len: usize) -> Range<usize> {
        let Some((start, count)) = self.limit else { return 0..len };
        let start = usize::try_from(start).unwrap_or(0).min(len);
        // A negative count means all.
        let count = usize::try_from(count).unwrap_or(len).min(len - start);
        start..start + count
    }

    /// Which of `len` elements in their own order are needed, counted from the first, whichever end one begins at.
    fn loaded(&self, len: usize) -> Range<usize> {
        match self.window(len) {
            _ if !self.keeps_order => 0..len,
            window if self.descending => len - window.end..len - window.start,
            window => window,
        }
    }
}

/// The error for an option that may lead to keys which the user may not read.
fn denied(option: &str) -> Error {
    Error::new(format!("ERR {option} option of SORT denied due to insufficient ACL permissions."))
}

/// The key of STORE among the arguments. Where they make no sense, it is what Redis takes for it: SORT itself refuses
/// them, but COMMAND GETKEYS doesn't.
pub(super) fn store_key(args: Args<'_>) -> Option<usize> {
    if let Ok(options) = SortOptions::parse(args, true, true) {
        return options.store;
    }
    let mut found = None;
    let mut index = 2;
    while index < args.len() {
        let is = |name: &str| args.get(index).eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("limit") => index += 2,
            () if is("by") || is("get") => index += 1,
            () if is("store") && index + 1 < args.len() => found = Some(index + 1),
            () => {}
        }
        index += 1;
    }
    found
}

/// SORT with patterns may read any key.
pub(super) fn scope(args: Args<'_>) -> Scope {
    let anywhere = SortOptions::parse(args, true, true).is_ok_and(|options| options.looks_keys_up());
    if anywhere { Scope::Whole } else { Scope::Keys }
}

/// Texts in a row, in one allocation.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }
}

/// The elements to sort; of those that keep their own order, only the wanted ones.
fn elements(call: &mut Call<'_, '_, '_>, options: &SortOptions<'_>) -> Result<Texts, Error> {
    let mut texts = Texts::default();
    let reverse = options.keeps_order && options.descending;
    match call.db.view(call.key(1)) {
        None => {}
        Some(View::Object(Value::List(list))) => {
            let mut push = |element: Item<'_>| element.with_bytes(|bytes| texts.push(bytes));
            let wanted = list.range(options.loaded(list.len()));
            if reverse { wanted.rev().for_each(&mut push) } else { wanted.for_each(&mut push) }
        }
        Some(View::Object(Value::Set(set))) => set.for_each(|member| texts.push(member)),
        Some(View::Object(Value::ZSet(zset))) => {
            let wanted = zset.range_by_rank(options.loaded(zset.len()), reverse);
            wanted.for_each(|(member, _)| texts.push(&member));
        }
        Some(_) => return Err(Error::WRONG_TYPE),
    }
    Ok(texts)
}

/// True if the key is a set, which has no order of its own.
fn is_set(call: &Call<'_, '_, '_>) -> bool {
    call.db.kind(call.key(1)) == Some(store::value::Type::Set)
}

/// What an element is sorted by.
struct Row {
    element: usize,
    /// Where numbers are compared.
    score: f64,
    /// Where texts of other keys are compared: which of the texts it is.
    text: Option<usize>,
}

/// The order of rows.
struct RowOrder<'t> {
    elements: &'t Texts,
    /// The texts to compare, where they are not the elements.
    texts: Option<Texts>,
    alpha: bool,
    descending: bool,
}

impl RowOrder<'_> {
    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let by_element = || self.elements.get(a.element).cmp(self.elements.get(b.element));
        let order = match &self.texts {
            // What has no text comes first.
            Some(texts) => a.text.map(|i| texts.get(i)).cmp(&b.text.map(|i| texts.get(i))),
            None if self.alpha => by_element(),
            // Equal numbers: by text, so that the result is always the same.
            None => a.score.partial_cmp(&b.score).unwrap_or(Ordering::Equal).then_with(by_element),
        };
        let order = if self.descending { order.reverse() } else { order };
        order.then(a.element.cmp(&b.element))
    }
}

/// A number as SORT reads it, with C's `strtod`: space in front is allowed, an empty text is zero, and the text ends at
/// its first zero byte.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|&b| b == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let start = text.iter().position(|b| !matches!(b, b' ' | b'\t'..=b'\r'))?;
    num::parse_f64(&text[start..])
}

/// The indexes of the elements in the order asked for.
fn sorted(db: &mut Db<'_, '_>, elements: &Texts, options: &SortOptions<'_>, alpha: bool) -> Result<Vec<usize>, Error> {
    let by = options.by.as_ref().filter(|_| !options.keeps_order);
    let mut order = RowOrder { elements, texts: None, alpha, descending: options.descending };
    let mut texts = Texts::default();
    let mut rows = Vec::with_capacity(elements.len());
    let mut name = Vec::new();
    for index in 0..elements.len() {
        let element = elements.get(index);
        let mut row = Row { element: index, score: 0.0, text: None };
        let mut weigh = |value: Option<&[u8]>| match value {
            Some(value) if !alpha => {
                row.score = number(value).ok_or(Error::new("ERR One or more scores can't be converted into double"))?;
                Ok(())
            }
            Some(value) if by.is_some() => {
                row.text = Some(texts.len());
                texts.push(value);
                Ok(())
            }
            _ => Ok::<(), Error>(()),
        };
        match by {
            Some(by) => by.with_value(db, element, &mut name, weigh)?,
            None => weigh(Some(element))?,
        }
        rows.push(row);
    }
    if alpha && by.is_some() {
        order.texts = Some(texts);
    }
    let window = options.window(rows.len());
    if (1..rows.len()).contains(&window.end) {
        // Only the first few are wanted: no need to sort the others.
        rows.select_nth_unstable_by(window.end, |a, b| order.compare(a, b));
        rows.truncate(window.end);
    }
    rows.sort_unstable_by(|a, b| order.compare(a, b));
    Ok(rows.get(window).unwrap_or_default().iter().map(|row| row.element).collect())
}

pub(super) fn sort(call: &mut Call<'_, '_, '_>) -> Outcome {
    sort_with(call, true)
}

pub(super) fn sort_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    sort_with(call, false)
}

fn sort_with(call: &mut Call<'_, '_, '_>, may_store: bool) -> Outcome {
    let options = SortOptions::parse(*call.args, may_store, !call.rules.denies_lookups)?;
    let elements = elements(call, &options)?;
    // What is stored, and what a script sees, must not depend on how a set happens to be kept.
    let orders_set = options.keeps_order && (options.store.is_some() || call.in_script) && is_set(call);
    let wanted = if orders_set || !options.keeps_order {
        sorted(&mut call.db, &elements, &options, options.alpha || orders_set)?
    } else if is_set(call) {
        options.window(elements.len()).collect()
    } else {
        (0..elements.len()).collect()
    };
    match options.store {
        Some(index) => store(call, index, &elements, &wanted, &options.get),
        None => reply(call, &elements, &wanted, &options.get),
    }
}

fn reply(call: &mut Call<'_, '_, '_>, elements: &Texts, wanted: &[usize], get: &[Pattern<'_>]) -> Outcome {
    let Call { db, reply, .. } = call;
    reply.array(wanted.len() * get.len().max(1));
    each_result(db, elements, wanted, get, |value| reply.bulk_or_null(value));
    Ok(())
}

/// Visits what SORT gives: the elements, or what GET's patterns mean for each.
fn each_result(
    db: &mut Db<'_, '_>,
    elements: &Texts,
    wanted: &[usize],
    get: &[Pattern<'_>],
    mut visit: impl FnMut(Option<&[u8]>),
) {
    let mut name = Vec::new();
    for element in wanted.iter().map(|&index| elements.get(index)) {
        if get.is_empty() {
            visit(Some(element));
        }
        for pattern in get {
            pattern.with_value(db, element, &mut name, &mut visit);
        }
    }
}

/// Has the journal reproduce the list itself: what SORT gives depends on other keys and on how equal elements are
/// ordered.
fn record_stored(call: &mut Call<'_, '_, '_>, key: Key<'_>, list: &List) {
    /// Elements of a command, so that no request becomes too large.
    const ELEMENTS: usize = 512;
    if !call.is_recorded() {
        return;
    }
    call.record_as(&[b"DEL", key.bytes]);
    let mut elements: Vec<Vec<u8>> = Vec::new();
    let mut record = |elements: &mut Vec<Vec<u8>>| {
        let words = [&b"RPUSH"[..], key.bytes].into_iter().chain(elements.iter().map(Vec::as_slice));
        call.effects.record_as(call.db.index(), words.collect::<Vec<_>>().into_iter());
        elements.clear();
    };
    for element in list.iter() {
        elements.push(element.to_vec());
        if elements.len() == ELEMENTS {
            record(&mut elements);
        }
    }
    if !elements.is_empty() {
        record(&mut elements);
    }
}

fn store(
    call: &mut Call<'_, '_, '_>,
    index: usize,
    elements: &Texts,
    wanted: &[usize],
    get: &[Pattern<'_>],
) -> Outcome {
    let key = call.key(index);
    let limits = call.rules.list;
    let mut list = List::new();
    each_result(&mut call.db, elements, wanted, get, |value| list.push(End::Right, value.unwrap_or_default(), limits));
    let count = list.len();
    record_stored(call, key, &list);
    call.overwrite(key);
    if count > 0 {
        call.db.set_object(key, Value::List(list), Ttl::Clear);
        call.changed_by(count, key, Class::List, "sortstore");
    } else {
        call.store_nothing(key);
    }
    call.reply.count(count);
    Ok(())
}
