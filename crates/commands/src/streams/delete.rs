//! Deletion of entries that depends on the groups' pending entries: XDELEX, XACKDEL, and the options KEEPREF, DELREF
//! and ACKED of XADD and XTRIM.
//!
//! Source of the semantics: the pages of these commands in Redis 8.2, and a Redis server's replies. The journal records
//! XDEL, XACK and XTRIM, which older versions understand.

use std::collections::BTreeMap;

use store::keyspace::Key;
use store::types::stream::{Blocks, Group, Keep, Stream, StreamId, Trim};

use super::IdText;
use super::options::id;
use crate::Call;
use crate::effects::{Class, Concerns};
use crate::error::{Error, Outcome};

const NOT_POSITIVE: Error = Error::fixed("ERR Number of IDs must be a positive integer");
const WRONG_NUMBER: Error = Error::fixed("ERR The `numids` parameter must match the number of arguments");

/// Effect of deleting an entry on its deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum References {
    /// KEEPREF: deliveries stay pending.
    #[default]
    Keep,
    /// DELREF: deliveries are removed from all groups.
    Delete,
    /// ACKED: the entry is deleted only after every group has read and acknowledged it.
    Acknowledged,
}

impl References {
    /// Parses an option.
    pub fn of(word: &[u8]) -> Option<References> {
        match word {
            word if word.eq_ignore_ascii_case(b"keepref") => Some(References::Keep),
            word if word.eq_ignore_ascii_case(b"delref") => Some(References::Delete),
            word if word.eq_ignore_ascii_case(b"acked") => Some(References::Acknowledged),
            _ => None,
        }
    }
}

/// Result for an entry, as the numbers in XDELEX's and XACKDEL's replies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deleted {
    /// The entry doesn't exist, or wasn't pending.
    Missing = -1,
    Yes = 1,
    /// A group hasn't read the entry or has it pending.
    Referenced = 2,
}

/// Groups by name.
type Groups = BTreeMap<Box<[u8]>, Group>;

/// True if a group hasn't read the entry or has it pending.
fn is_referenced(groups: &Groups, id: StreamId) -> bool {
    groups.values().any(|group| id > group.last_id || group.pending().contains_key(&id))
}

/// Changes for the journal.
#[derive(Default)]
struct Changes {
    /// Deleted entries.
    deleted: Vec<StreamId>,
    /// Entries that are no longer pending, by group.
    released: BTreeMap<Box<[u8]>, Vec<StreamId>>,
}

impl Changes {
    /// Removes an entry from the pending entries of all groups.
    fn release(&mut self, groups: &mut Groups, id: StreamId) {
        for (name, group) in groups.iter_mut().filter(|(_, group)| group.pending().contains_key(&id)) {
            group.acknowledge(id);
            self.released.entry(name.clone()).or_default().push(id);
        }
    }

    /// Deletes an entry after its references were checked.
    fn delete(&mut self, stream: &mut Stream, id: StreamId) -> bool {
        let existed = stream.entries.remove(id);
        if existed {
            self.deleted.push(id);
        }
        existed
    }

    /// Deletes an entry, if `references` permits it.
    fn apply(&mut self, stream: &mut Stream, id: StreamId, references: References) -> Deleted {
        match references {
            References::Acknowledged if is_referenced(&stream.groups, id) => return Deleted::Referenced,
            References::Delete => self.release(&mut stream.groups, id),
            References::Keep | References::Acknowledged => {}
        }
        if self.delete(stream, id) { Deleted::Yes } else { Deleted::Missing }
    }

    /// Makes the journal reproduce the changes.
    fn record(&self, call: &mut Call<'_, '_, '_>, key: Key<'_>) {
        if !call.is_recorded() {
            return;
        }
        let mut record = |start: &[&[u8]], ids: &[StreamId]| {
            let texts: Vec<IdText> = ids.iter().map(|id| IdText::new(*id)).collect();
            let words: Vec<&[u8]> = start.iter().copied().chain(texts.iter().map(IdText::as_bytes)).collect();
            call.record_as(&words);
        };
        for (group, ids) in &self.released {
            record(&[b"XACK", key.bytes, group], ids);
        }
        if !self.deleted.is_empty() {
            record(&[b"XDEL", key.bytes], &self.deleted);
        }
    }
}

/// Arguments of XDELEX and XACKDEL after the key and group.
struct Request {
    references: References,
    /// Index of the first ID, and the number of IDs.
    first: usize,
    count: usize,
}

impl Request {
    /// Parses the arguments from `at` on. If IDS is repeated, the last one counts. As in Redis, a wrong type of key is
    /// reported first.
    fn read(call: &mut Call<'_, '_, '_>, mut at: usize) -> Result<Request, Error> {
        // XACKDEL reads first, so that a missing key is a miss.
        if at > 2 {
            call.db.object::<Stream>(call.key(1))?;
        } else {
            call.db.object_mut::<Stream>(call.key(1))?;
        }
        let (mut references, mut ids) = (None, None);
        while at < call.len() {
            if let Some(found) = References::of(call.arg(at)).filter(|_| references.is_none()) {
                references = Some(found);
                at += 1;
            } else if call.is(at, "ids") && at + 1 < call.len() {
                let count = resp::num::parse_i64(call.arg(at + 1)).filter(|&count| count > 0).ok_or(NOT_POSITIVE)?;
                let count = usize::try_from(count).ok().filter(|&count| count <= call.len() - at - 2);
                let count = count.ok_or(WRONG_NUMBER)?;
                ids = Some((at + 2, count));
                at += 2 + count;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        let (first, count) = ids.ok_or(Error::SYNTAX)?;
        Ok(Request { references: references.unwrap_or_default(), first, count })
    }

    fn ids(&self, call: &Call<'_, '_, '_>) -> Result<Vec<StreamId>, Error> {
        (self.first..self.first + self.count).map(|at| id(call.arg(at))).collect()
    }
}

/// Runs `run` for each ID and replies with the results. `group` is the name of a group that must exist.
fn reply_each(
    call: &mut Call<'_, '_, '_>,
    request: &Request,
    group: Option<&[u8]>,
    mut each: impl FnMut(&mut Stream, StreamId, &mut Changes) -> Deleted,
) -> Outcome {
    let key = call.key(1);
    let has_group = |stream: &Stream| group.is_none_or(|name| stream.groups.contains_key(name));
    let mut changes = Changes::default();
    if !call.db.object_mut::<Stream>(key)?.is_some_and(|stream| has_group(stream)) {
        // Redis doesn't check the IDs if there is nothing to delete.
        call.reply.array(request.count);
        (0..request.count).for_each(|_| call.reply.int(Deleted::Missing as i64));
        return Ok(());
    }
    let ids = request.ids(call)?;
    if let Some(stream) = call.db.object_mut::<Stream>(key)? {
        call.reply.array(ids.len());
        ids.into_iter().for_each(|id| call.reply.int(each(stream, id, &mut changes) as i64));
    }
    // An acknowledgement counts as a change, but a reference that is deleted with its entry doesn't.
    let acknowledged = group.and_then(|name| changes.released.get(name)).map_or(0, Vec::len);
    call.effects.count(if group.is_some() { acknowledged } else { changes.deleted.len() } as u64);
    if !changes.deleted.is_empty() {
        call.event_for(Concerns::Watchers, key, Class::Stream, "xdel");
    }
    changes.record(call, key);
    Ok(())
}

pub(super) fn xdelex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let request = Request::read(call, 2)?;
    let references = request.references;
    reply_each(call, &request, None, |stream, id, changes| changes.apply(stream, id, references))
}

pub(super) fn xackdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let request = Request::read(call, 3)?;
    let (references, name) = (request.references, call.arg(2));
    reply_each(call, &request, Some(name), |stream, id, changes| {
        if !stream.groups.get_mut(name).is_some_and(|group| group.acknowledge(id)) {
            return Deleted::Missing;
        }
        changes.released.entry(name.into()).or_default().push(id);
        // A pending entry counts as deleted, even if the entry was gone before.
        match changes.apply(stream, id, references) {
            Deleted::Missing => Deleted::Yes,
            deleted => deleted,
        }
    })
}

/// Result of a trim.
#[derive(Default)]
pub(super) struct Trimmed {
    /// Number of removed entries.
    pub count: u64,
    /// Blocks to be freed.
    pub blocks: Blocks,
    changes: Changes,
    is_from_front: bool,
}

impl Trimmed {
    /// True if the removed entries were the first ones, so that the new length describes the trim completely.
    pub fn is_from_front(&self) -> bool {
        self.is_from_front
    }

    /// Makes the journal reproduce the changes that the length doesn't describe.
    pub fn record(&self, call: &mut Call<'_, '_, '_>, key: Key<'_>) {
        self.changes.record(call, key);
    }
}

/// Trims a stream according to its groups' references.
pub(super) fn trim(stream: &mut Stream, trim: Trim, references: References) -> Trimmed {
    // Without groups, nothing refers to an entry.
    match if stream.groups.is_empty() { References::Keep } else { references } {
        References::Keep => {
            let (count, blocks) = stream.entries.trim(trim);
            Trimmed { count, blocks, is_from_front: true, ..Trimmed::default() }
        }
        References::Delete => {
            let first = first_ids(stream, trim);
            let (count, blocks) = stream.entries.trim(trim);
            let mut changes = Changes::default();
            first.into_iter().take(count as usize).for_each(|id| changes.release(&mut stream.groups, id));
            Trimmed { count, blocks, changes, is_from_front: true }
        }
        References::Acknowledged => {
            let mut changes = Changes::default();
            for id in acknowledged_ids(stream, trim) {
                changes.delete(stream, id);
            }
            let count = changes.deleted.len() as u64;
            Trimmed { count, changes, ..Trimmed::default() }
        }
    }
}

/// Number of entries beyond the limit, if the limit is a number of entries.
fn excess(stream: &Stream, keep: Keep) -> usize {
    match keep {
        Keep::Last(len) => usize::try_from(stream.entries.len().saturating_sub(len)).unwrap_or(usize::MAX),
        Keep::From(_) => usize::MAX,
    }
}

/// The highest ID that a trim may remove.
fn last_to_go(keep: Keep) -> Option<StreamId> {
    match keep {
        Keep::Last(_) => Some(StreamId::MAX),
        Keep::From(id) => id.previous(),
    }
}

/// The IDs of the entries that a full trim removes.
fn first_ids(stream: &Stream, trim: Trim) -> Vec<StreamId> {
    let Some(last) = last_to_go(trim.keep) else { return Vec::new() };
    let entries = stream.entries.range(StreamId::MIN, last).take(excess(stream, trim.keep));
    entries.map(|entry| entry.id).collect()
}

/// The IDs of the first entries that no group needs, as many as should be removed. Blocks don't matter here, because a
/// needed entry may be anywhere.
fn acknowledged_ids(stream: &Stream, trim: Trim) -> Vec<StreamId> {
    let read_by_all = stream.groups.values().map(|group| group.last_id).min().unwrap_or(StreamId::MAX);
    let Some(last) = last_to_go(trim.keep).map(|last| last.min(read_by_all)) else { return Vec::new() };
    let limit = usize::try_from(trim.limit).ok().filter(|&limit| limit > 0).unwrap_or(usize::MAX);
    let ids = stream.entries.range(StreamId::MIN, last).map(|entry| entry.id);
    ids.filter(|&id| !is_referenced(&stream.groups, id)).take(excess(stream, trim.keep).min(limit)).collect()
}
