//! The promises that the cluster has given to clients, and the faults that excuse a lost write.
//!
//! A write may be lost if its primary failed before a replica had it, or if its primary was cut off from the majority: then a fault hit the
//! primary or one of its replicas at the time of the write (S4). A key that moves to another node begins a new time of that kind. A write
//! that WAIT has confirmed at a replica is never lost if that replica wins, with its data.

use std::collections::BTreeSet;

use super::client::{WriteEnd, WriteId};

/// A process with the data of one start, and without other data since.
pub type Lineage = (usize, u64);

/// A write.
#[derive(Clone, Debug)]
pub struct Write {
    /// The list.
    pub key: usize,
    /// The client.
    pub client: usize,
    /// The process.
    pub process: usize,
    /// The end, once it is known.
    pub end: Option<WriteEnd>,
    /// The time of the acknowledgement, in microseconds.
    pub acknowledged_us: u64,
    /// The processes of the shard at that time, a bit for each.
    pub members: u64,
    /// The processes with the write when WAIT had confirmed it.
    pub holders: Vec<Lineage>,
    /// True if a fault excuses its loss.
    pub is_excused: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Promises {
    /// All writes. The number of a write is its place, and its element.
    pub writes: Vec<Write>,
    /// The writes of each list.
    by_key: Vec<Vec<WriteId>>,
    /// The times at which a list moved to another node.
    moved_us: Vec<Vec<u64>>,
    /// The times of faults of each process: start and end.
    faults: Vec<Vec<(u64, u64)>>,
    window_us: u64,
}

/// Longest time in which a replica receives a write without a fault, in microseconds.
const COPY_US: u64 = 400_000;

impl Promises {
    /// Returns the promises of a world without writes. `window_us`: the time for which a process may be behind after a fault.
    #[must_use]
    pub fn new(processes: usize, keys: usize, window_us: u64) -> Promises {
        Promises {
            by_key: vec![Vec::new(); keys],
            moved_us: vec![Vec::new(); keys],
            faults: vec![Vec::new(); processes],
            window_us,
            ..Promises::default()
        }
    }

    /// Notes a write, and returns its number.
    pub fn begin(&mut self, client: usize, process: usize, key: usize) -> WriteId {
        let write = self.writes.len();
        self.by_key[key].push(write);
        self.writes.push(Write {
            key,
            client,
            process,
            end: None,
            acknowledged_us: 0,
            members: 0,
            holders: Vec::new(),
            is_excused: false,
        });
        write
    }

    /// Notes that a list has moved to another node.
    pub fn note_moved(&mut self, key: usize, now_us: u64) {
        self.moved_us[key].push(now_us);
    }

    /// Notes that a process is faulty until [`Promises::end_faults`] is called, or for a moment.
    pub fn note_fault(&mut self, process: usize, now_us: u64, lasts: bool) {
        self.faults[process].push((now_us, if lasts { u64::MAX } else { now_us }));
    }

    /// Notes the end of all faults of a process.
    pub fn end_faults(&mut self, process: usize, now_us: u64) {
        self.faults[process].iter_mut().for_each(|(_, end)| *end = (*end).min(now_us));
    }

    /// Returns true if a fault hit one of these processes in a time.
    #[must_use]
    pub fn were_hit(&self, members: u64, from_us: u64, to_us: u64) -> bool {
        let hit = |faults: &Vec<(u64, u64)>| faults.iter().any(|(from, to)| *from <= to_us && *to >= from_us);
        self.faults.iter().enumerate().any(|(process, faults)| members >> process & 1 == 1 && hit(faults))
    }

    /// Compares a list in a process that begins to serve it, or has it in the end, with the acknowledged writes. Returns the number of
    /// lost writes that a fault excuses from now on.
    ///
    /// # Errors
    /// A lost write without an excuse.
    pub fn check_list(
        &mut self,
        key: usize,
        found: &[String],
        lineage: Lineage,
        members: u64,
    ) -> Result<usize, String> {
        let mut lost = 0;
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        for write in self.by_key[key].clone() {
            let is_there = found.contains(write.to_string().as_str());
            let of = &self.writes[write];
            if is_there || of.is_excused || of.end != Some(WriteEnd::Acknowledged) {
                continue;
            }
            if of.holders.contains(&lineage) {
                return Err(format!(
                    "S4: process {} lacks write {write}, which WAIT had confirmed there: {of:?}",
                    lineage.0
                ));
            }
            if !self.is_excused(of, members) {
                return Err(format!(
                    "S4: process {} lacks write {write} without a fault, and has {} others: {of:?}",
                    lineage.0,
                    found.len()
                ));
            }
            self.writes[write].is_excused = true;
            lost += 1;
        }
        Ok(lost)
    }

    fn is_excused(&self, write: &Write, members: u64) -> bool {
        let moved = self.moved_us[write.key].iter().copied().filter(|moved_us| *moved_us >= write.acknowledged_us);
        let mut times = std::iter::once(write.acknowledged_us).chain(moved);
        let members = members | write.members | 1 << write.process;
        times.any(|at_us| self.were_hit(members, at_us.saturating_sub(self.window_us), at_us + COPY_US))
    }

    /// Checks a list at the end: no refused write, no write twice, and acknowledged writes of one client in their order.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_content(&self, key: usize, found: &[String]) -> Result<(), String> {
        let (mut seen, mut last) = (BTreeSet::new(), std::collections::BTreeMap::new());
        for element in found {
            let write = element.parse::<WriteId>().ok().filter(|write| self.by_key[key].contains(write));
            let Some(write) = write else { return Err(format!("list {key} has {element}, which no client wrote")) };
            let of = &self.writes[write];
            if !seen.insert(write) {
                return Err(format!("S5: list {key} has write {write} twice: {found:?}"));
            }
            if of.end == Some(WriteEnd::Refused) {
                return Err(format!("list {key} has write {write}, which was refused: {of:?}"));
            }
            if of.end == Some(WriteEnd::Acknowledged)
                && let Some(before) = last.insert(of.client, write).filter(|before| *before > write)
            {
                return Err(format!("list {key} has write {before} before {write}: {found:?}"));
            }
        }
        Ok(())
    }
}
