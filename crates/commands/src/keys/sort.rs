//! SORT: the elements of a list, a set or a sorted set in an order of one's choice.
//!
//! Text is compared byte by byte, as Redis does in the C locale. Unlike Redis, sorting a sorted set leaves its encoding
//! alone.

mod items;
mod lookups;
mod order;

use std::ops::Range;

use resp::num;
use resp::request::Args;
use store::db::{Db, Ttl};
use store::entry::View;
use store::keyspace::Key;
use store::types::list::{End, List};
use store::types::packed::Item;
use store::value::Value;
use store::words::number_word;

use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::lists::reply_item;
use crate::spec::Scope;

use items::Items;
use lookups::each_value;
use order::{Order, Ties, number};

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

/// The elements to sort; of those that keep their own order, only the wanted ones.
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

/// The indexes of the elements in the order asked for.
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
        // What has no number counts as zero.
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

/// Visits what one pattern means for each element.
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

fn reply(call: &mut Call<'_, '_, '_>, elements: &Items, wanted: &[usize], get: &[Pattern<'_>]) -> Outcome {
    let Call { db, reply, .. } = call;
    reply.array(wanted.len() * get.len().max(1));
    each_result(db, elements, wanted, get, |value| match value {
        Some(item) => reply_item(reply, item),
        None => reply.null(),
    });
    Ok(())
}

/// Visits what SORT gives: the elements, or what GET's patterns mean for each.
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
