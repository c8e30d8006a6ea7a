//! Best-first search for the best suggestions that match a query.
//!
//! First, the search finds the nodes below which every text matches the query (`BestFirstSearch::agree`): few, unless
//! the search is fuzzy. Then it repeatedly takes the best item from a heap: a text becomes a result, a bucket is
//! replaced by its next text and the rest, and a fork by its next branch and the rest. Items that are never reached
//! have no better rank. Equal ranks are ordered by text, in the heap as well as in the results, so the results do not
//! depend on the shape of the tree.

use super::bucket::{Records, Stored};
use super::query::{Agreement, Outlook, Query};
use super::tree::{Fork, Summary, TrieNode};

/// The best suggestions, in order.
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
        /// Expected length of a title.
        const TEXT_BYTES: usize = 32;
        Best { texts: Vec::with_capacity(TEXT_BYTES * count), results: Vec::with_capacity(count) }
    }

    /// Adds a result without a payload, given its text in parts, and returns the text.
    pub(super) fn push(&mut self, parts: &[&[u8]], rank: f32) -> &[u8] {
        let start = self.texts.len();
        parts.iter().for_each(|part| self.texts.extend_from_slice(part));
        self.results.push(Ranked { text_end: self.texts.len(), rank, payload: None });
        &self.texts[start..]
    }

    /// Sets the payload of the last result.
    pub(super) fn set_payload(&mut self, payload: Option<&'a [u8]>) {
        if let Some(last) = self.results.last_mut() {
            last.payload = payload;
        }
    }

    /// Number of results.
    #[must_use]
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns true if there are no results.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Iterates over each text, its rank and its payload.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], f32, Option<&[u8]>)> {
        let mut start = 0;
        self.results.iter().map(move |result| {
            let text = &self.texts[std::mem::replace(&mut start, result.text_end)..result.text_end];
            (text, result.rank, result.payload)
        })
    }

    /// Removes results with a rank below a tenth of the first one's.
    pub fn trim(&mut self) {
        /// RediSearch's figure.
        const TRIM_FACTOR: f32 = 10.0;
        let best = self.results.first().map_or(0.0, |first| first.rank);
        let kept = self.results.iter().take_while(|result| best <= 0.0 || result.rank >= best / TRIM_FACTOR).count();
        self.results.truncate(kept);
    }
}

/// The score of the text that equals the query: RediSearch's `INT_MAX`.
pub(super) const SAME_SCORE: f32 = i32::MAX as f32;

/// A node below which all texts match the query, or a single matching text.
struct Start<'a> {
    /// The path to it.
    path: Vec<u8>,
    distance: u8,
    at: StartAt<'a>,
}

enum StartAt<'a> {
    Node(&'a TrieNode, Summary),
    Text(Stored<'a>),
}

/// A step of the path from a start to an item in the heap.
struct PathStep<'a> {
    /// The previous step; None at the start.
    parent: Option<u32>,
    /// The byte of the branch.
    byte: &'a [u8],
    label: &'a [u8],
    lead: Lead,
}

/// The first bytes behind a start's path, which distinguish most texts.
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

/// The key of the heap: best rank first, then in order of texts.
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
    /// The suggestion with the query as its text.
    same: Option<Stored<'a>>,
    starts: Vec<Start<'a>>,
    steps: Vec<PathStep<'a>>,
    found: Vec<Found<'a>>,
    heap: Vec<Priority>,
}

/// Initial capacity, enough for most searches.
const ROOM: usize = 200;

/// Returns up to `count` of the best.
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

/// Returns the number of items that a search for `count` results processes.
#[cfg(test)]
pub(super) fn visited(root: &TrieNode, query: &Query, count: usize) -> usize {
    let mut search = BestFirstSearch::new(root, query);
    search.run(count, &mut Best::default());
    search.found.len()
}

impl<'a, 'q> BestFirstSearch<'a, 'q> {
    /// Returns a search that has found its starts.
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

    /// Finds the starts at and below a node; `path` leads to it. The root has no summary.
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

    /// Adds a text as a start, if it matches.
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

    /// Puts the starts into the heap. The text that equals the query goes before all others with respect to rank.
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

    /// Takes the best item repeatedly, until there are `count` results.
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

    /// Creates the heap item for a node behind a branch.
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

    /// Returns true for the text that equals the query, which is already in the heap.
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

    /// Processes the first item: it becomes a result, or is replaced by its parts. Returns the item that is first
    /// afterwards.
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
        // Usually the part is the best of all, and need not enter the heap.
        match first {
            Some(first) => Some(self.exchange(first)),
            None => self.pop(),
        }
    }

    /// Appends the text, or the common prefix of texts, of a found item.
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

    /// Puts an item into the heap.
    fn push(&mut self, priority: Option<Priority>) {
        let Some(priority) = priority else { return };
        self.heap.push(priority);
        let mut at = self.heap.len() - 1;
        while at > 0 && self.is_before(self.heap[at], self.heap[(at - 1) / 2]) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Takes the first item out of the heap.
    fn pop(&mut self) -> Option<Priority> {
        let last = self.heap.pop()?;
        let Some(first) = self.heap.first_mut() else { return Some(last) };
        let popped = std::mem::replace(first, last);
        self.sink();
        Some(popped)
    }

    /// Returns the better of this item and the heap's first one, and leaves the other in the heap.
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

    /// Moves the first item of the heap to its place.
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

    /// Returns the text, or the common prefix of texts, of a heap item.
    #[cold]
    fn path(&self, priority: Priority) -> Vec<u8> {
        let Found { step, at } = &self.found[priority.found as usize];
        let rest = if let FoundAt::Text(stored) = at { stored.rest } else { b"" };
        let mut path = Vec::new();
        self.write_path(priority.start, *step, rest, &mut path);
        path
    }
}
