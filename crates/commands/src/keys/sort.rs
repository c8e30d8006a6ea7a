//! SORT: sorts the elements of a list, a set or a sorted set.
//!
//! Text is compared byte by byte, as Redis does in the C locale. Unlike in Redis, sorting a sorted set leaves its
//! encoding unchanged.

mod items;
mod lookups;
mod order;

use std::ops::Range;

use resp::num;
use resp::request::Args;
use store::byte_order::number_word;
use store::db::{Db, Ttl};
use store::entry::View;
use store::hash::{pattern_slot, slot_of};
use store::keyspace::Key;
use store::types::list::{End, List};
use store::types::packed::Item;
use store::value::Value;

use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::lists::reply_item;
use crate::spec::Scope;

use items::Items;
use lookups::each_value;
use order::{Order, Ties, number};

/// A pattern for names of keys that depend on an element: the text around the first `*`, and optionally a hash's field.
enum Pattern<'c> {
    /// `#`: the element itself.
    Element,
    /// A pattern without `*` refers to no key.
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
}

/// Options of SORT.
struct SortOptions<'c> {
    descending: bool,
    alpha: bool,
    limit: Option<(i64, i64)>,
    by: Option<Pattern<'c>>,
    /// True if a BY pattern refers to no key: the elements keep their own order, even if there is another BY.
    keeps_order: bool,
    get: Vec<Pattern<'c>>,
    /// Index of the key for storing the result.
    store: Option<usize>,
}

impl<'c> SortOptions<'c> {
    /// Parses the options. `may_look_up` is true if the user may read every key, since BY and GET can refer to any key.
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

    /// Parses the option at `index` and returns the number of its arguments.
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
            // As in Redis, this includes GET of the element itself.
            1.. if is("get") && !may_look_up => return Err(denied("GET")),
            1.. if is("get") => {
                self.get.push(Pattern::parse(args.get(index + 1)));
                return Ok(1);
            }
            _ => return Err(Error::SYNTAX),
        }
        Ok(0)
    }

    fn has_patterns(&self) -> bool {
        self.by.is_some() || !self.get.is_empty()
    }

    fn looks_keys_up(&self) -> bool {
        self.by.iter().chain(&self.get).any(Pattern::is_key)
    }

    /// The range of results to return, out of `len` elements.
    fn window(&self, len: usize) -> Range<usize> {
        let Some((start, count)) = self.limit else { return 0..len };
        let start = usize::try_from(start).unwrap_or(0).min(len);
        // A negative count means all.
        let count = usize::try_from(count).unwrap_or(len).min(len - start);
        start..start + count
    }

    /// The range of elements to load, in stored order. If the elements keep their order, only the results are loaded; a
    /// descending order takes them from the end.
    fn loaded(&self, len: usize) -> Range<usize> {
        match self.window(len) {
            _ if !self.keeps_order => 0..len,
            window if self.descending => len - window.end..len - window.start,
            window => window,
        }
    }
}

/// The error for an option that could read keys without the user's permission.
fn denied(option: &str) -> Error {
    Error::new(format!("ERR {option} option of SORT denied due to insufficient ACL permissions."))
}

/// Returns the error for an option that could read keys of another slot than the sorted key's, if there is one.
fn denied_by_slot(args: Args<'_>) -> Option<Error> {
    let key = slot_of(args.get(1));
    let mut index = 2;
    while index < args.len() {
        let is = |name: &str| args.get(index).eq_ignore_ascii_case(name.as_bytes());
        if is("limit") {
            index += 2;
        } else if is("store") {
            index += 1;
        } else if is("by") || is("get") {
            let (option, pattern) = (args.get(index), args.get(index + 1));
            let means_keys = if is("by") { pattern.contains(&b'*') } else { pattern != b"#" };
            if means_keys && pattern_slot(pattern) != Some(key) {
                let option = String::from_utf8_lossy(option).to_uppercase();
                return Some(Error::new(format!(
                    "ERR {option} option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots."
                )));
            }
            index += 1;
        }
        index += 1;
    }
    None
}

/// The key of STORE among the arguments. Invalid arguments yield the same key as in Redis: SORT itself refuses them,
/// but COMMAND GETKEYS doesn't.
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

/// Loads the elements to sort; if they keep their order, only the results.
fn elements(call: &mut Call<'_, '_, '_>, options: &SortOptions<'_>) -> Result<Items, Error> {
    let mut items = Items::default();
    let reverse = options.keeps_order && options.descending;
    match call.db.view(call.key(1)) {
        None => {}
        Some(View::Object(Value::List(list))) => {
            let wanted = list.range(options.loaded(list.len()));
            items.reserve(wanted.len());
            let mut push = |element: Item<'_>| items.push(element);
            if reverse { wanted.rev().for_each(&mut push) } else { wanted.for_each(&mut push) }
        }
        Some(View::Object(Value::Set(set))) => {
            items.reserve(set.len());
            match set.ints() {
                Some(ints) => ints.iter().for_each(|member| items.push(Item::Int(member))),
                None => set.for_each(|member| items.push(Item::Str(member))),
            }
        }
        Some(View::Object(Value::ZSet(zset))) => {
            let ranks = options.loaded(zset.len());
            items.reserve(ranks.len());
            zset.visit_ranks(ranks, reverse, |member, _| items.push(Item::Str(member)));
        }
        Some(_) => return Err(Error::WRONG_TYPE),
    }
    Ok(items)
}

/// True if the key is a set, which has no order of its own.
fn is_set(call: &Call<'_, '_, '_>) -> bool {
    call.db.kind(call.key(1)) == Some(store::value::Type::Set)
}

/// Returns the indexes of the elements in sorted order.
fn sorted(db: &mut Db<'_, '_>, elements: &Items, options: &SortOptions<'_>, alpha: bool) -> Result<Vec<usize>, Error> {
    let by = options.by.as_ref().filter(|_| !options.keeps_order);
    let mut order = Order::new(elements.len(), options.descending);
    let window = options.window(elements.len());
    if alpha {
        let mut texts = Items::default();
        if let Some(by) = by {
            each_value_of(db, by, elements, |value| texts.push_or_none(value));
        }
        let ties = if by.is_some() { Ties::Texts(&texts) } else { Ties::Elements(elements) };
        ties.items().order_words().for_each(|word| order.push(word));
        return Ok(order.sorted(&ties, window));
    }
    let mut is_number = true;
    let mut weigh = |value: Option<Item<'_>>| {
        // A missing value counts as zero.
        let score = value.map_or(Some(0.0), number);
        is_number &= score.is_some();
        order.push(number_word(score.unwrap_or_default()));
    };
    match by {
        Some(by) => each_value_of(db, by, elements, weigh),
        None => elements.iter().for_each(|element| weigh(Some(element))),
    }
    if !is_number {
        return Err(Error::new("ERR One or more scores can't be converted into double"));
    }
    Ok(order.sorted(&Ties::Elements(elements), window))
}

/// Visits the values that one pattern refers to, for each element.
fn each_value_of(db: &mut Db<'_, '_>, by: &Pattern<'_>, elements: &Items, visit: impl FnMut(Option<Item<'_>>)) {
    each_value(db, std::slice::from_ref(by), elements.len(), |index| elements.get(index), visit);
}

pub(super) fn sort(call: &mut Call<'_, '_, '_>) -> Outcome {
    sort_with(call, true)
}

pub(super) fn sort_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    sort_with(call, false)
}

fn sort_with(call: &mut Call<'_, '_, '_>, may_store: bool) -> Outcome {
    let options = SortOptions::parse(*call.args, may_store, !call.rules.denies_lookups)?;
    if options.has_patterns()
        && call.db.is_by_slot()
        && let Some(error) = denied_by_slot(*call.args)
    {
        return Err(error);
    }
    let elements = elements(call, &options)?;
    // Results that are stored or seen by a script must not depend on a set's encoding.
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

fn reply(call: &mut Call<'_, '_, '_>, elements: &Items, wanted: &[usize], get: &[Pattern<'_>]) -> Outcome {
    let Call { db, reply, .. } = call;
    reply.array(wanted.len() * get.len().max(1));
    each_result(db, elements, wanted, get, |value| match value {
        Some(item) => reply_item(reply, item),
        None => reply.null(),
    });
    Ok(())
}

/// Visits SORT's results: the elements, or the values of GET's patterns for each.
fn each_result(
    db: &mut Db<'_, '_>,
    elements: &Items,
    wanted: &[usize],
    get: &[Pattern<'_>],
    mut visit: impl FnMut(Option<Item<'_>>),
) {
    if get.is_empty() {
        wanted.iter().for_each(|&index| visit(Some(elements.get(index))));
    } else {
        each_value(db, get, wanted.len(), |at| elements.get(wanted[at]), visit);
    }
}

/// Makes the journal record the list itself: SORT's result depends on other keys and on the order of equal elements.
fn record_stored(call: &mut Call<'_, '_, '_>, key: Key<'_>, list: &List) {
    /// Number of elements per command, which limits the size of a request.
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
    elements: &Items,
    wanted: &[usize],
    get: &[Pattern<'_>],
) -> Outcome {
    let key = call.key(index);
    let limits = call.rules.list;
    let mut list = List::new();
    each_result(&mut call.db, elements, wanted, get, |value| match value {
        Some(item) => item.with_bytes(|bytes| list.push(End::Right, bytes, limits)),
        None => list.push(End::Right, b"", limits),
    });
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
