//! Finding the best suggestions that begin with something.
//!
//! First the places are found from which on every text agrees with the query (`Search::agree`): few, unless the search is fuzzy. Then the best of
//! what there is is taken from a heap, again and again: a text is a result, a bucket is replaced by its next text and the rest, a fork by its
//! next branch and the rest. What isn't reached has no better rank. Where ranks are equal the order of the texts decides, which is then that
//! of what the heap gives, too: so the results don't depend on the form that the tree has.

use super::bucket::{Records, Stored};
use super::query::{Agreement, Outlook, Query};
use super::tree::{Fork, Node, Summary};

/// The best suggestions, in their order.
#[derive(Default)]
pub struct Best<'a> {
    texts: Vec<u8>,
    results: Vec<Ranked<'a>>,
}

struct Ranked<'a> {
    text_end: usize,
    rank: f32,
    payload: Option<&'a [u8]>,
}

impl<'a> Best<'a> {
    pub(super) fn with_capacity(count: usize) -> Self {
        /// Room for a title.
        const TEXT_BYTES: usize = 32;
        Best { texts: Vec::with_capacity(TEXT_BYTES * count), results: Vec::with_capacity(count) }
    }

    /// Adds a result without a payload, given its text in parts, and gives the text.
    pub(super) fn push(&mut self, parts: &[&[u8]], rank: f32) -> &[u8] {
        let start = self.texts.len();
        parts.iter().for_each(|part| self.texts.extend_from_slice(part));
        self.results.push(Ranked { text_end: self.texts.len(), rank, payload: None });
        &self.texts[start..]
    }

    /// Gives the last result a payload.
    pub(super) fn set_payload(&mut self, payload: Option<&'a [u8]>) {
        if let Some(last) = self.results.last_mut() {
            last.payload = payload;
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Each one's text, its rank, and what was added to it.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], f32, Option<&[u8]>)> {
        let mut start = 0;
        self.results.iter().map(move |result| {
            let text = &self.texts[std::mem::replace(&mut start, result.text_end)..result.text_end];
            (text, result.rank, result.payload)
        })
    }

    /// Leaves out those whose rank is less than a tenth of the first's.
    pub fn trim(&mut self) {
        /// RediSearch's figure.
        const TRIM_FACTOR: f32 = 10.0;
        let best = self.results.first().map_or(0.0, |first| first.rank);
        let kept = self.results.iter().take_while(|result| best <= 0.0 || result.rank >= best / TRIM_FACTOR).count();
        self.results.truncate(kept);
    }
}

/// What the text that is the query itself has for its score: RediSearch's `INT_MAX`.
pub(super) const SAME_SCORE: f32 = i32::MAX as f32;

/// Where all texts agree with the query, or a text that does.
struct Start<'a> {
    /// The way there.
    path: Vec<u8>,
    distance: u8,
    at: StartAt<'a>,
}

enum StartAt<'a> {
    Node(&'a Node, Summary),
    Text(Stored<'a>),
}

/// A step of the way from a start to what is in the heap.
struct Place<'a> {
    /// The place before; the start's own, if none.
    parent: Option<u32>,
    /// The byte of the branch.
    byte: &'a [u8],
    label: &'a [u8],
    lead: Lead,
}

/// The first bytes behind a start's path, by which most texts are told apart.
#[derive(Clone, Copy, Default)]
struct Lead {
    bytes: u64,
    len: u8,
}

impl Lead {
    fn and(mut self, more: &[u8]) -> Lead {
        const BYTES: usize = size_of::<u64>();
        if usize::from(self.len) < BYTES {
            let (mut next, len) = ([0; BYTES], more.len().min(BYTES));
            next[..len].copy_from_slice(&more[..len]);
            self.bytes |= u64::from_be_bytes(next) >> (8 * self.len);
            self.len = (self.len + len as u8).min(BYTES as u8);
        }
        self
    }
}

/// What the heap orders: the best rank first, then the order of the texts.
#[derive(Clone, Copy)]
struct Key {
    rank: f32,
    start: u32,
    lead: u64,
    found: u32,
}

struct Found<'a> {
    place: u32,
    at: FoundAt<'a>,
}

#[derive(Clone, Copy)]
enum FoundAt<'a> {
    Text(Stored<'a>),
    /// A bucket from this text on.
    Records(Stored<'a>, Records<'a>, Summary),
    /// A fork from this branch on.
    Branches(&'a Fork, u16, Summary),
}

struct Search<'a, 'q> {
    query: &'q Query,
    /// The suggestion whose text is the query's.
    same: Option<Stored<'a>>,
    starts: Vec<Start<'a>>,
    places: Vec<Place<'a>>,
    found: Vec<Found<'a>>,
    heap: Vec<Key>,
}

/// Room for what most searches find on their way.
const ROOM: usize = 200;

/// The best, up to `count`.
pub(super) fn find<'a>(root: &'a Node, query: &Query, count: usize) -> Best<'a> {
    let mut best = Best::default();
    if count == 0 {
        return best;
    }
    let mut search = Search::new(root, query);
    best.results.reserve(count.min(ROOM));
    search.run(count, &mut best);
    best
}

/// How many things a search for so many has to do with.
#[cfg(test)]
pub(super) fn visited(root: &Node, query: &Query, count: usize) -> usize {
    let mut search = Search::new(root, query);
    search.run(count, &mut Best::default());
    search.found.len()
}

impl<'a, 'q> Search<'a, 'q> {
    /// A search that has found where it starts.
    fn new(root: &'a Node, query: &'q Query) -> Search<'a, 'q> {
        let mut search = Search {
            query,
            same: root.find(&query.folded).map(|stored| Stored { rest: b"", ..stored }),
            starts: Vec::new(),
            places: Vec::with_capacity(ROOM),
            found: Vec::with_capacity(ROOM),
            heap: Vec::with_capacity(ROOM),
        };
        search.agree(root, None, query.start(), &mut Vec::new());
        search.begin();
        search
    }

    /// Finds the starts at and below a place, to which `path` leads; of the root, nothing is known of what is below it.
    fn agree(&mut self, node: &'a Node, summary: Option<Summary>, mut agreement: Agreement, path: &mut Vec<u8>) {
        match self.query.outlook(&agreement) {
            Outlook::Found(distance) => {
                let at = StartAt::Node(node, summary.unwrap_or_else(|| node.summary()));
                return self.starts.push(Start { path: path.clone(), distance, at });
            }
            Outlook::Lost => return,
            Outlook::Open => {}
        }
        let fork = match node {
            Node::Bucket(bucket) => {
                return bucket.records().for_each(|stored| self.agree_text(stored, agreement, path));
            }
            Node::Fork(fork) => fork,
        };
        for byte in &fork.label {
            self.query.go_on(&mut agreement, *byte);
            match self.query.outlook(&agreement) {
                Outlook::Found(distance) => {
                    let at = StartAt::Node(node, summary.unwrap_or_else(|| node.summary()));
                    return self.starts.push(Start { path: path.clone(), distance, at });
                }
                Outlook::Lost => return,
                Outlook::Open => {}
            }
        }
        let len = path.len();
        path.extend_from_slice(&fork.label);
        fork.own.records().for_each(|stored| self.agree_text(stored, agreement, path));
        for branch in &fork.branches {
            if !self.query.may_go_on(&agreement, branch.byte) {
                continue;
            }
            let mut agreement = agreement;
            self.query.go_on(&mut agreement, branch.byte);
            if self.query.outlook(&agreement) != Outlook::Lost {
                path.push(branch.byte);
                self.agree(&branch.node, Some(branch.summary), agreement, path);
                path.pop();
            }
        }
        path.truncate(len);
    }

    /// Makes a text a start, if it agrees.
    fn agree_text(&mut self, stored: Stored<'a>, mut agreement: Agreement, path: &[u8]) {
        let mut outlook = self.query.outlook(&agreement);
        for byte in stored.rest {
            if outlook != Outlook::Open {
                break;
            }
            self.query.go_on(&mut agreement, *byte);
            outlook = self.query.outlook(&agreement);
        }
        let distance = match outlook {
            Outlook::Found(distance) => Some(distance),
            Outlook::Lost => None,
            Outlook::Open => self.query.end(agreement),
        };
        if let Some(distance) = distance {
            let at = StartAt::Text(Stored { rest: b"", ..stored });
            self.starts.push(Start { path: [path, stored.rest].concat(), distance, at });
        }
    }

    /// Puts the starts into the heap. The text that is the query itself comes before all others, as far as ranks go.
    fn begin(&mut self) {
        self.starts.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        for start in 0..self.starts.len() {
            let key = match self.starts[start].at {
                StartAt::Node(node, summary) => self.enter(node, summary, start as u32, None, &[]),
                StartAt::Text(stored) => {
                    let place = self.add_place(None, &[], &[], Lead::default());
                    self.text(stored, start as u32, place)
                }
            };
            self.push(key);
        }
        if let Some(stored) = self.same {
            let (path, at) = (self.query.folded.clone(), StartAt::Text(stored));
            let start = self.starts.len() as u32;
            self.starts.push(Start { path, distance: 0, at });
            let place = self.add_place(None, &[], &[], Lead::default());
            let rank = self.query.rank(SAME_SCORE, stored.characters, 0);
            let key = self.key(rank, start, Lead::default(), place, FoundAt::Text(stored));
            self.push(Some(key));
        }
    }

    /// Takes the best of what there is, again and again, until there are so many results.
    fn run(&mut self, count: usize, best: &mut Best<'a>) {
        let mut next = self.pop();
        while best.len() < count
            && let Some(key) = next
        {
            next = self.follow(key, best);
        }
    }

    fn add_place(&mut self, parent: Option<u32>, byte: &'a [u8], label: &'a [u8], lead: Lead) -> u32 {
        self.places.push(Place { parent, byte, label, lead });
        self.places.len() as u32 - 1
    }

    /// What a place of the tree is in the heap, to which a branch has led.
    fn enter(
        &mut self,
        node: &'a Node,
        summary: Summary,
        start: u32,
        parent: Option<u32>,
        byte: &'a [u8],
    ) -> Option<Key> {
        let lead = parent.map_or(Lead::default(), |parent| self.places[parent as usize].lead).and(byte);
        match node {
            Node::Bucket(bucket) => {
                let place = self.add_place(parent, byte, &[], lead);
                self.records(bucket.records(), summary, start, place)
            }
            Node::Fork(fork) => {
                let place = self.add_place(parent, byte, &fork.label, lead.and(&fork.label));
                if let Some(own) = fork.own.records().next() {
                    let key = self.text(own, start, place);
                    self.push(key);
                }
                self.branches(fork, 0, summary, start, place)
            }
        }
    }

    fn text(&mut self, stored: Stored<'a>, start: u32, place: u32) -> Option<Key> {
        if self.is_same(&stored, start, place) {
            return None;
        }
        let distance = self.starts[start as usize].distance;
        let rank = self.query.rank(stored.score, stored.characters, distance);
        let lead = self.places[place as usize].lead.and(stored.rest);
        Some(self.key(rank, start, lead, place, FoundAt::Text(stored)))
    }

    /// True for the text that is the query: it is in the heap already.
    fn is_same(&self, stored: &Stored<'_>, start: u32, place: u32) -> bool {
        if self.same.is_none() || usize::from(stored.characters) != self.query.characters() {
            return false;
        }
        let mut text = Vec::new();
        self.write_path(start, place, stored.rest, &mut text);
        text == self.query.folded
    }

    fn records(&mut self, mut records: Records<'a>, summary: Summary, start: u32, place: u32) -> Option<Key> {
        let first = records.next()?;
        let rank = self.bound(summary, first.weight(), start);
        let lead = self.places[place as usize].lead;
        Some(self.key(rank, start, lead, place, FoundAt::Records(first, records, summary)))
    }

    fn branches(&mut self, fork: &'a Fork, next: u16, summary: Summary, start: u32, place: u32) -> Option<Key> {
        let branch = fork.branches.get(usize::from(next))?;
        let rank = self.bound(summary, branch.summary.heaviest(), start);
        let lead = self.places[place as usize].lead;
        Some(self.key(rank, start, lead, place, FoundAt::Branches(fork, next, summary)))
    }

    fn bound(&self, summary: Summary, weight: f32, start: u32) -> f32 {
        let distance = self.starts[start as usize].distance;
        self.query.bound(summary.shortest, summary.highest(), weight, distance)
    }

    /// What has come first is a result, or is replaced by what it consists of. Gives what comes first then.
    fn follow(&mut self, key: Key, best: &mut Best<'a>) -> Option<Key> {
        let Key { start, rank, .. } = key;
        let Found { place, at } = self.found[key.found as usize];
        let (first, rest) = match at {
            FoundAt::Text(stored) => {
                self.write_path(start, place, stored.rest, &mut best.texts);
                best.results.push(Ranked { text_end: best.texts.len(), rank, payload: stored.payload });
                return self.pop();
            }
            FoundAt::Records(stored, records, summary) => {
                (self.text(stored, start, place), self.records(records, summary, start, place))
            }
            FoundAt::Branches(fork, next, summary) => {
                let branch = &fork.branches[usize::from(next)];
                let byte = std::slice::from_ref(&branch.byte);
                let first = self.enter(&branch.node, branch.summary, start, Some(place), byte);
                (first, self.branches(fork, next + 1, summary, start, place))
            }
        };
        self.push(rest);
        // Mostly it is the best of all, and needs no place in the heap.
        match first {
            Some(first) => Some(self.exchange(first)),
            None => self.pop(),
        }
    }

    /// Appends the text, or the beginning of texts, that something found has.
    fn write_path(&self, start: u32, place: u32, rest: &[u8], out: &mut Vec<u8>) {
        let mut parts = Vec::new();
        let mut next = Some(place);
        while let Some(place) = next.map(|place| &self.places[place as usize]) {
            parts.push((place.byte, place.label));
            next = place.parent;
        }
        out.extend_from_slice(&self.starts[start as usize].path);
        for (byte, label) in parts.iter().rev() {
            out.extend_from_slice(byte);
            out.extend_from_slice(label);
        }
        out.extend_from_slice(rest);
    }

    fn key(&mut self, rank: f32, start: u32, lead: Lead, place: u32, at: FoundAt<'a>) -> Key {
        self.found.push(Found { place, at });
        Key { rank, start, lead: lead.bytes, found: self.found.len() as u32 - 1 }
    }

    /// Puts something into the heap.
    fn push(&mut self, key: Option<Key>) {
        let Some(key) = key else { return };
        self.heap.push(key);
        let mut at = self.heap.len() - 1;
        while at > 0 && self.is_before(self.heap[at], self.heap[(at - 1) / 2]) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Takes the first out of the heap.
    fn pop(&mut self) -> Option<Key> {
        let last = self.heap.pop()?;
        let Some(first) = self.heap.first_mut() else { return Some(last) };
        let popped = std::mem::replace(first, last);
        self.sink();
        Some(popped)
    }

    /// The first of the heap and this one; the other is in the heap then.
    fn exchange(&mut self, key: Key) -> Key {
        match self.heap.first() {
            Some(first) if self.is_before(*first, key) => {
                let popped = std::mem::replace(&mut self.heap[0], key);
                self.sink();
                popped
            }
            _ => key,
        }
    }

    /// Moves the first of the heap to where it belongs.
    fn sink(&mut self) {
        let (mut at, len) = (0, self.heap.len());
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= len {
                return;
            }
            let child = if right < len && self.is_before(self.heap[right], self.heap[left]) { right } else { left };
            if !self.is_before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    #[inline]
    fn is_before(&self, one: Key, other: Key) -> bool {
        if one.rank != other.rank {
            return one.rank > other.rank;
        }
        if (one.start, one.lead) != (other.start, other.lead) {
            return (one.start, one.lead) < (other.start, other.lead);
        }
        self.path(one) < self.path(other)
    }

    /// The text, or the beginning of texts, that a key stands for.
    #[cold]
    fn path(&self, key: Key) -> Vec<u8> {
        let Found { place, at } = &self.found[key.found as usize];
        let rest = if let FoundAt::Text(stored) = at { stored.rest } else { b"" };
        let mut path = Vec::new();
        self.write_path(key.start, *place, rest, &mut path);
        path
    }
}
