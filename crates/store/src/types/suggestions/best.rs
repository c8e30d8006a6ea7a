//! Finding the best suggestions that begin with something.
//!
//! First the places are found from which on every text agrees with the query (`BestFirstSearch::agree`): few, unless the search is fuzzy. Then the best of
//! what there is is taken from a heap, again and again: a text is a result, a bucket is replaced by its next text and the rest, a fork by its
//! next branch and the rest. What isn't reached has no better rank. Where ranks are equal the order of the texts decides, which is then that
//! of what the heap gives, too: so the results don't depend on the form that the tree has.

use super::bucket::{Records, Stored};
use super::query::{Agreement, Outlook, Query};
use super::tree::{Fork, Summary, TrieNode};

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
    Node(&'a TrieNode, Summary),
    Text(Stored<'a>),
}

/// A step of the path from a start to what is in the heap.
struct PathStep<'a> {
    /// The step before; the start itself, if none.
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
struct Priority {
    rank: f32,
    start: u32,
    lead: u64,
    found: u32,
}

struct Found<'a> {
    step: u32,
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

/// See the module's documentation.
struct BestFirstSearch<'a, 'q> {
    query: &'q Query,
    /// The suggestion whose text is the query's.
    same: Option<Stored<'a>>,
    starts: Vec<Start<'a>>,
    steps: Vec<PathStep<'a>>,
    found: Vec<Found<'a>>,
    heap: Vec<Priority>,
}

/// Room for what most searches find on their way.
const ROOM: usize = 200;

/// The best, up to `count`.
pub(super) fn find<'a>(root: &'a TrieNode, query: &Query, count: usize) -> Best<'a> {
    let mut best = Best::default();
    if count == 0 {
        return best;
    }
    let mut search = BestFirstSearch::new(root, query);
    best.results.reserve(count.min(ROOM));
    search.run(count, &mut best);
    best
}

/// How many things a search for so many has to do with.
#[cfg(test)]
pub(super) fn visited(root: &TrieNode, query: &Query, count: usize) -> usize {
    let mut search = BestFirstSearch::new(root, query);
    search.run(count, &mut Best::default());
    search.found.len()
}

impl<'a, 'q> BestFirstSearch<'a, 'q> {
    /// A search that has found where it starts.
    fn new(root: &'a TrieNode, query: &'q Query) -> BestFirstSearch<'a, 'q> {
        let mut search = BestFirstSearch {
            query,
            same: root.find(&query.folded).map(|stored| Stored { rest: b"", ..stored }),
            starts: Vec::new(),
            steps: Vec::with_capacity(ROOM),
            found: Vec::with_capacity(ROOM),
            heap: Vec::with_capacity(ROOM),
        };
        search.agree(root, None, query.start(), &mut Vec::new());
        search.begin();
        search
    }

    /// Finds the starts at and below a place, to which `path` leads; of the root, nothing is known of what is below it.
    fn agree(&mut self, node: &'a TrieNode, summary: Option<Summary>, mut agreement: Agreement, path: &mut Vec<u8>) {
        match self.query.outlook(&agreement) {
            Outlook::Found(distance) => {
                let at = StartAt::Node(node, summary.unwrap_or_else(|| node.summary()));
                return self.starts.push(Start { path: path.clone(), distance, at });
            }
            Outlook::Lost => return,
            Outlook::Open => {}
        }
        let fork = match node {
            TrieNode::Bucket(bucket) => {
                return bucket.records().for_each(|stored| self.agree_text(stored, agreement, path));
            }
            TrieNode::Fork(fork) => fork,
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
            let priority = match self.starts[start].at {
                StartAt::Node(node, summary) => self.enter(node, summary, start as u32, None, &[]),
                StartAt::Text(stored) => {
                    let step = self.add_step(None, &[], &[], Lead::default());
                    self.text(stored, start as u32, step)
                }
            };
            self.push(priority);
        }
        if let Some(stored) = self.same {
            let (path, at) = (self.query.folded.clone(), StartAt::Text(stored));
            let start = self.starts.len() as u32;
            self.starts.push(Start { path, distance: 0, at });
            let step = self.add_step(None, &[], &[], Lead::default());
            let rank = self.query.rank(SAME_SCORE, stored.characters, 0);
            let priority = self.priority(rank, start, Lead::default(), step, FoundAt::Text(stored));
            self.push(Some(priority));
        }
    }

    /// Takes the best of what there is, again and again, until there are so many results.
    fn run(&mut self, count: usize, best: &mut Best<'a>) {
        let mut next = self.pop();
        while best.len() < count
            && let Some(priority) = next
        {
            next = self.follow(priority, best);
        }
    }

    fn add_step(&mut self, parent: Option<u32>, byte: &'a [u8], label: &'a [u8], lead: Lead) -> u32 {
        self.steps.push(PathStep { parent, byte, label, lead });
        self.steps.len() as u32 - 1
    }

    /// What a place of the tree is in the heap, to which a branch has led.
    fn enter(
        &mut self,
        node: &'a TrieNode,
        summary: Summary,
        start: u32,
        parent: Option<u32>,
        byte: &'a [u8],
    ) -> Option<Priority> {
        let lead = parent.map_or(Lead::default(), |parent| self.steps[parent as usize].lead).and(byte);
        match node {
            TrieNode::Bucket(bucket) => {
                let step = self.add_step(parent, byte, &[], lead);
                self.records(bucket.records(), summary, start, step)
            }
            TrieNode::Fork(fork) => {
                let step = self.add_step(parent, byte, &fork.label, lead.and(&fork.label));
                if let Some(own) = fork.own.records().next() {
                    let priority = self.text(own, start, step);
                    self.push(priority);
                }
                self.branches(fork, 0, summary, start, step)
            }
        }
    }

    fn text(&mut self, stored: Stored<'a>, start: u32, step: u32) -> Option<Priority> {
        if self.is_same(&stored, start, step) {
            return None;
        }
        let distance = self.starts[start as usize].distance;
        let rank = self.query.rank(stored.score, stored.characters, distance);
        let lead = self.steps[step as usize].lead.and(stored.rest);
        Some(self.priority(rank, start, lead, step, FoundAt::Text(stored)))
    }

    /// True for the text that is the query: it is in the heap already.
    fn is_same(&self, stored: &Stored<'_>, start: u32, step: u32) -> bool {
        if self.same.is_none() || usize::from(stored.characters) != self.query.characters() {
            return false;
        }
        let mut text = Vec::new();
        self.write_path(start, step, stored.rest, &mut text);
        text == self.query.folded
    }

    fn records(&mut self, mut records: Records<'a>, summary: Summary, start: u32, step: u32) -> Option<Priority> {
        let first = records.next()?;
        let rank = self.bound(summary, first.weight(), start);
        let lead = self.steps[step as usize].lead;
        Some(self.priority(rank, start, lead, step, FoundAt::Records(first, records, summary)))
    }

    fn branches(&mut self, fork: &'a Fork, next: u16, summary: Summary, start: u32, step: u32) -> Option<Priority> {
        let branch = fork.branches.get(usize::from(next))?;
        let rank = self.bound(summary, branch.summary.heaviest(), start);
        let lead = self.steps[step as usize].lead;
        Some(self.priority(rank, start, lead, step, FoundAt::Branches(fork, next, summary)))
    }

    fn bound(&self, summary: Summary, weight: f32, start: u32) -> f32 {
        let distance = self.starts[start as usize].distance;
        self.query.bound(summary.shortest, summary.highest(), weight, distance)
    }

    /// What has come first is a result, or is replaced by what it consists of. Gives what comes first then.
    fn follow(&mut self, priority: Priority, best: &mut Best<'a>) -> Option<Priority> {
        let Priority { start, rank, .. } = priority;
        let Found { step, at } = self.found[priority.found as usize];
        let (first, rest) = match at {
            FoundAt::Text(stored) => {
                self.write_path(start, step, stored.rest, &mut best.texts);
                best.results.push(Ranked { text_end: best.texts.len(), rank, payload: stored.payload });
                return self.pop();
            }
            FoundAt::Records(stored, records, summary) => {
                (self.text(stored, start, step), self.records(records, summary, start, step))
            }
            FoundAt::Branches(fork, next, summary) => {
                let branch = &fork.branches[usize::from(next)];
                let byte = std::slice::from_ref(&branch.byte);
                let first = self.enter(&branch.node, branch.summary, start, Some(step), byte);
                (first, self.branches(fork, next + 1, summary, start, step))
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
    fn write_path(&self, start: u32, step: u32, rest: &[u8], out: &mut Vec<u8>) {
        let mut parts = Vec::new();
        let mut next = Some(step);
        while let Some(step) = next.map(|step| &self.steps[step as usize]) {
            parts.push((step.byte, step.label));
            next = step.parent;
        }
        out.extend_from_slice(&self.starts[start as usize].path);
        for (byte, label) in parts.iter().rev() {
            out.extend_from_slice(byte);
            out.extend_from_slice(label);
        }
        out.extend_from_slice(rest);
    }

    fn priority(&mut self, rank: f32, start: u32, lead: Lead, step: u32, at: FoundAt<'a>) -> Priority {
        self.found.push(Found { step, at });
        Priority { rank, start, lead: lead.bytes, found: self.found.len() as u32 - 1 }
    }

    /// Puts something into the heap.
    fn push(&mut self, priority: Option<Priority>) {
        let Some(priority) = priority else { return };
        self.heap.push(priority);
        let mut at = self.heap.len() - 1;
        while at > 0 && self.is_before(self.heap[at], self.heap[(at - 1) / 2]) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Takes the first out of the heap.
    fn pop(&mut self) -> Option<Priority> {
        let last = self.heap.pop()?;
        let Some(first) = self.heap.first_mut() else { return Some(last) };
        let popped = std::mem::replace(first, last);
        self.sink();
        Some(popped)
    }

    /// The first of the heap and this one; the other is in the heap then.
    fn exchange(&mut self, priority: Priority) -> Priority {
        match self.heap.first() {
            Some(first) if self.is_before(*first, priority) => {
                let popped = std::mem::replace(&mut self.heap[0], priority);
                self.sink();
                popped
            }
            _ => priority,
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
    fn is_before(&self, one: Priority, other: Priority) -> bool {
        if one.rank != other.rank {
            return one.rank > other.rank;
        }
        if (one.start, one.lead) != (other.start, other.lead) {
            return (one.start, one.lead) < (other.start, other.lead);
        }
        self.path(one) < self.path(other)
    }

    /// The text, or the beginning of texts, that a priority stands for.
    #[cold]
    fn path(&self, priority: Priority) -> Vec<u8> {
        let Found { step, at } = &self.found[priority.found as usize];
        let rest = if let FoundAt::Text(stored) = at { stored.rest } else { b"" };
        let mut path = Vec::new();
        self.write_path(priority.start, *step, rest, &mut path);
        path
    }
}
