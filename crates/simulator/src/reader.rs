//! A client that reads from any process, primary or replica. Its checks: every value was written by some client, no
//! transaction is visible in part, and a list never returns to an earlier state unless other data replaced the process's data.

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
    /// The last contents of each list.
    seen: Vec<Vec<String>>,
    /// The list of the current request.
    reads: Option<usize>,
    replies: Vec<SimReply>,
    read: Vec<u8>,
}

/// See the module's documentation.
pub struct ReaderClient {
    random: Random,
    writers: usize,
    place: Option<ReaderPlace>,
    /// Number of answered reads.
    pub looks: u64,
}

impl ReaderClient {
    /// Returns a client that reads the lists of `writers` writers.
    #[must_use]
    pub fn new(seed: u64, writers: usize) -> ReaderClient {
        ReaderClient { random: Random::new(seed), writers, place: None, looks: 0 }
    }

    /// Runs a step. `runs` are the running processes, each with the number of times that its data was replaced.
    ///
    /// # Errors
    /// An inconsistent read.
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
        // The process is loading its data.
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
            "process {process} goes back in time: the list of writer {writer} had {} elements, now {}",
            before.len(),
            found.len()
        ));
    }
    place.seen[writer] = found.into_iter().map(str::to_owned).collect();
    Ok(())
}
