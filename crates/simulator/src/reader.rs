//! A client that reads from any process, a replica as well as the primary: it never sees what no client has written, nor half of a
//! transaction, nor goes back in time while the process has not been given other data.

use std::collections::BTreeSet;

use engine::testing::request;
use store::random::Random;

use crate::Wrong;
use crate::network::WireId;
use crate::reply::{SimReply, parse_reply};
use crate::writer::{ClientTurn, check_count};

struct ReaderPlace {
    wire: WireId,
    process: usize,
    rewinds: u64,
    /// What the last look has shown of each list.
    seen: Vec<Vec<String>>,
    /// The list that is being read.
    reads: Option<usize>,
    replies: Vec<SimReply>,
    read: Vec<u8>,
}

/// See the module's documentation.
pub struct ReaderClient {
    random: Random,
    writers: usize,
    place: Option<ReaderPlace>,
    /// Looks that have been answered.
    pub looks: u64,
}

impl ReaderClient {
    /// A client that reads what so many clients write.
    #[must_use]
    pub fn new(seed: u64, writers: usize) -> ReaderClient {
        ReaderClient { random: Random::new(seed), writers, place: None, looks: 0 }
    }

    /// A step. `runs` are the processes that run, each with how often its data have been replaced.
    ///
    /// # Errors
    /// What must not be seen.
    pub fn step(
        &mut self,
        turn: &mut ClientTurn<'_>,
        runs: &[(usize, u64)],
        ever: &[&BTreeSet<String>],
    ) -> Result<(), Wrong> {
        let Some(place) = &mut self.place else {
            let Some(&(process, rewinds)) = runs.get(self.random.below(runs.len())) else { return Ok(()) };
            let Some(wire) = turn.network.open([None, Some(process)]) else { return Ok(()) };
            let seen = vec![Vec::new(); self.writers];
            let (replies, read) = (Vec::new(), Vec::new());
            self.place = Some(ReaderPlace { wire, process, rewinds, seen, reads: None, replies, read });
            return Ok(());
        };
        let (bytes, has_ended) = turn.network.receive(place.wire, 0, turn.now_us);
        place.read.extend_from_slice(&bytes);
        let rewinds = runs.iter().find(|(process, _)| *process == place.process).map(|(_, rewinds)| *rewinds);
        while let Some((reply, len)) = parse_reply(&place.read) {
            place.read.drain(..len);
            place.replies.push(reply);
        }
        if place.replies.len() >= 4 {
            let replies = std::mem::take(&mut place.replies);
            self.looks += 1;
            if rewinds == Some(place.rewinds) {
                check(place, &replies, ever)?;
            }
            place.reads = None;
        }
        if has_ended || rewinds != Some(place.rewinds) || self.random.below(200) == 0 {
            turn.network.close(place.wire, 0);
            self.place = None;
        } else if place.reads.is_none() {
            let writer = self.random.below(self.writers);
            place.reads = Some(writer);
            let (list, count) = (format!("list:{writer}"), format!("count:{writer}"));
            let commands: [&[&str]; 4] = [&["MULTI"], &["LRANGE", &list, "0", "-1"], &["GET", &count], &["EXEC"]];
            let bytes: Vec<u8> = commands.iter().flat_map(|words| request(words)).collect();
            turn.network.send(place.wire, 0, &bytes, turn.now_us);
        }
        Ok(())
    }
}

fn check(place: &mut ReaderPlace, replies: &[SimReply], ever: &[&BTreeSet<String>]) -> Result<(), Wrong> {
    let items = replies.last().map_or(&[][..], SimReply::items);
    let (Some(writer), [list, count]) = (place.reads, items) else {
        // The process loads its data.
        return Ok(());
    };
    let found: Vec<&str> = list.items().iter().map(SimReply::text).collect();
    let process = place.process;
    if let Some(stray) = found.iter().find(|element| !ever[writer].contains(**element)) {
        return Err(format!("process {process} shows {stray}, which writer {writer} never wrote"));
    }
    check_count(&found, count).map_err(|why| format!("process {process}, writer {writer}: {why}"))?;
    let before = &place.seen[writer];
    if before.len() > found.len() || before.iter().zip(&found).any(|(before, found)| before != found) {
        return Err(format!(
            "process {process} goes back in time: list of writer {writer} had {} elements, and has {}",
            before.len(),
            found.len()
        ));
    }
    place.seen[writer] = found.into_iter().map(str::to_owned).collect();
    Ok(())
}
