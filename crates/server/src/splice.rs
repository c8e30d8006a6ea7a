//! The replies of one run of a connection's requests, some of which other nodes of the cluster give (`cluster-forward`).
//!
//! The run's own replies stay in one piece. Each forwarded command has a place in them. The replies of the other nodes are kept in the order
//! of their arrival, and are put into their places once all have arrived.

use std::collections::BTreeMap;

use engine::slots::forward::Forwarded;
use resp::reply::Output;

/// A command may be redirected this many times. The client gets the next redirect.
const REDIRECTS_MAX: u8 = 3;

/// In place of a length: the reply does not come with those of the share.
const ELSEWHERE: usize = usize::MAX;

/// The replies of one node, in the order of its commands.
#[derive(Default)]
struct Replies {
    bytes: Vec<u8>,
    /// The length of each, or [`ELSEWHERE`].
    lengths: Vec<usize>,
    /// The number of replies that [`Replies::next`] has returned, and of their bytes.
    taken: (usize, usize),
}

impl Replies {
    fn with_room(replies: usize) -> Replies {
        Replies { lengths: Vec::with_capacity(replies), ..Replies::default() }
    }

    /// Returns the next reply. `None` if it does not come with the others.
    #[inline]
    fn next(&mut self) -> Option<&[u8]> {
        let (index, start) = self.taken;
        let length = self.lengths.get(index).copied().unwrap_or(ELSEWHERE);
        self.taken.0 += 1;
        if length == ELSEWHERE {
            return None;
        }
        self.taken.1 += length;
        self.bytes.get(start..start + length)
    }

    /// Returns the reply to a command, by its number among the node's commands.
    fn get(&self, number: usize) -> Option<&[u8]> {
        let length = self.lengths.get(number).copied().filter(|length| *length != ELSEWHERE)?;
        let start = self.lengths.iter().take(number).filter(|length| **length != ELSEWHERE).sum();
        self.bytes.get(start..start + length)
    }
}

/// See the module's documentation.
pub struct Splice {
    forwarded: Forwarded,
    /// The replies that have arrived with others of their share, by the index of the node.
    shares: Vec<Replies>,
    /// The other replies that have arrived, by the index of the command.
    others: BTreeMap<usize, Vec<u8>>,
    /// The number of redirects of a command.
    redirects: BTreeMap<usize, u8>,
    /// The bytes of all replies that have arrived.
    bytes: usize,
    missing: usize,
    /// True until the commands are sent, if they wait for the changes before them to be durable.
    is_held: bool,
}

impl Splice {
    /// Creates the places for the replies to these commands.
    pub fn new(forwarded: Forwarded) -> Splice {
        let missing = forwarded.commands.len();
        let shares = forwarded.shares.iter().map(|share| Replies::with_room(share.commands)).collect();
        let (others, redirects) = (BTreeMap::new(), BTreeMap::new());
        Splice { forwarded, shares, others, redirects, bytes: 0, missing, is_held: false }
    }

    /// The commands.
    pub fn forwarded(&self) -> &Forwarded {
        &self.forwarded
    }

    /// Holds the commands, or sends them. Returns the state before.
    pub fn set_held(&mut self, is_held: bool) -> bool {
        std::mem::replace(&mut self.is_held, is_held)
    }

    /// Returns the reply to a command; empty if it has not arrived.
    pub fn reply(&self, index: usize) -> &[u8] {
        let Some(command) = self.forwarded.commands.get(index) else { return &[] };
        let before = self.forwarded.commands.iter().take(index);
        let number = before.filter(|other| other.target == command.target).count();
        let of_share = self.shares.get(command.target).and_then(|replies| replies.get(number));
        of_share.or_else(|| self.others.get(&index).map(Vec::as_slice)).unwrap_or_default()
    }

    /// Replaces all replies by one.
    pub fn replace(&mut self, reply: &Output) {
        self.shares.iter_mut().for_each(|replies| *replies = Replies::default());
        let reply = reply.slices().collect::<Vec<_>>().concat();
        self.bytes = reply.len();
        self.others = BTreeMap::from([(0, reply)]);
    }

    /// The number of replies that have not arrived.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// The number of bytes of the replies that have arrived.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the reply to a command. Returns false if it is not the first one.
    pub fn fill(&mut self, index: usize, reply: &[u8]) -> bool {
        if index >= self.forwarded.commands.len() || self.others.contains_key(&index) {
            return false;
        }
        self.others.insert(index, reply.to_vec());
        self.bytes += reply.len();
        self.missing -= 1;
        true
    }

    /// Takes the replies to the next commands of a node. `lengths` has the length of each in `replies`.
    pub fn fill_share(&mut self, target: usize, replies: &[u8], lengths: &[usize]) {
        let Some(share) = self.shares.get_mut(target) else { return };
        share.bytes.extend_from_slice(replies);
        share.lengths.extend_from_slice(lengths);
        self.bytes += replies.len();
        self.missing -= lengths.len();
    }

    /// Notes that the reply to the next command of a node does not come with the others. Returns the command's index.
    pub fn skip_in_share(&mut self, target: usize) -> Option<usize> {
        let index = self.unanswered(target).next()?;
        self.shares.get_mut(target)?.lengths.push(ELSEWHERE);
        Some(index)
    }

    /// Returns the indexes of a node's commands whose replies have not come with the others, and are not expected elsewhere.
    pub fn unanswered(&self, target: usize) -> impl Iterator<Item = usize> {
        let answered = self.shares.get(target).map_or(0, |replies| replies.lengths.len());
        self.forwarded.indexes_of(target).skip(answered)
    }

    /// Returns true if a command may be sent to another node once more, and counts that.
    pub fn may_redirect(&mut self, index: usize) -> bool {
        if index >= self.forwarded.commands.len() {
            return false;
        }
        let redirects = self.redirects.entry(index).or_default();
        let may_redirect = *redirects < REDIRECTS_MAX;
        *redirects += u8::from(may_redirect);
        may_redirect
    }

    /// Appends all replies to `output`, in the order of the requests. `own` are the run's own replies, and pushes behind them. The replies
    /// can be read once.
    pub fn assemble(&mut self, own: &Output, output: &mut Output) {
        let (mut slices, mut slice, mut at) = (own.slices(), &b""[..], 0);
        let mut copy_until = |end: usize, output: &mut Output| {
            while at < end {
                if slice.is_empty() {
                    let Some(next) = slices.next() else { return };
                    slice = next;
                }
                let (part, rest) = slice.split_at(slice.len().min(end - at));
                output.extend(part);
                (slice, at) = (rest, at + part.len());
            }
        };
        for (index, command) in self.forwarded.commands.iter().enumerate() {
            copy_until(command.at, output);
            match self.shares.get_mut(command.target).and_then(Replies::next) {
                Some(reply) => output.extend(reply),
                None => output.extend(self.others.get(&index).map_or(&[][..], Vec::as_slice)),
            }
        }
        copy_until(usize::MAX, output);
    }
}

#[cfg(test)]
mod tests {
    use engine::slots::forward::{ForwardedCommand, Share};

    use super::*;

    fn commands_at(places: &[usize]) -> Forwarded {
        commands_for(&places.iter().map(|at| (*at, 0)).collect::<Vec<_>>())
    }

    /// Returns commands with these places, for these nodes.
    fn commands_for(commands: &[(usize, usize)]) -> Forwarded {
        let (asks, only_reads, counted, attaches) = (false, true, None, false);
        let command = |&(at, target): &(usize, usize)| ForwardedCommand {
            at,
            target,
            asks,
            only_reads,
            counted,
            attaches,
            skipped: 0,
            end: 0,
        };
        let mut forwarded = Forwarded::default();
        forwarded.commands = commands.iter().map(command).collect();
        forwarded.shares = vec![Share::empty(), Share::empty()];
        forwarded
    }

    fn assembled(splice: &mut Splice, own: &[u8]) -> String {
        let (mut own, mut output) = (Output::from(own.to_vec()), Output::from(b"<".to_vec()));
        own.extend(b">");
        splice.assemble(&own, &mut output);
        String::from_utf8(output.slices().collect::<Vec<_>>().concat()).unwrap()
    }

    #[test]
    fn replies_get_into_their_places_in_any_order_of_arrival() {
        let mut splice = Splice::new(commands_at(&[0, 0, 2, 4]));
        for (index, reply) in [(3, b"D"), (0, b"A"), (2, b"C"), (1, b"B")] {
            assert!(splice.missing() > 0 && splice.fill(index, reply) && !splice.fill(index, b"again"));
        }
        assert_eq!((splice.missing(), splice.bytes()), (0, 4));
        assert_eq!(assembled(&mut splice, b"1234"), "<AB12C34D>");
    }

    #[test]
    fn a_run_of_foreign_commands_only_has_no_replies_of_its_own() {
        let mut splice = Splice::new(commands_at(&[0]));
        assert!(splice.fill(0, b"+OK\r\n") && !splice.fill(1, b"+OK\r\n"));
        assert_eq!(assembled(&mut splice, b""), "<+OK\r\n>");
    }

    #[test]
    fn the_replies_of_each_node_get_into_their_places() {
        let mut splice = Splice::new(commands_for(&[(0, 1), (0, 0), (2, 1), (2, 1), (4, 0), (4, 1)]));
        splice.fill_share(1, b"AC", &[1, 1]);
        assert_eq!(splice.skip_in_share(1), Some(3));
        splice.fill_share(0, b"Bb", &[2]);
        assert_eq!(splice.unanswered(0).collect::<Vec<_>>(), [4]);
        splice.fill_share(0, b"", &[0]);
        assert_eq!((splice.missing(), splice.skip_in_share(0)), (2, None));
        splice.fill_share(1, b"F", &[1]);
        assert!(splice.fill(3, b"D") && !splice.fill(3, b"again"));
        assert_eq!((splice.missing(), splice.bytes()), (0, 6));
        let replies: Vec<_> = (0..7).map(|index| String::from_utf8_lossy(splice.reply(index)).into_owned()).collect();
        assert_eq!(replies, ["A", "Bb", "C", "D", "", "F", ""]);
        assert_eq!(assembled(&mut splice, b"1234"), "<ABb12CD34F>");
    }

    #[test]
    fn one_reply_replaces_all() {
        let mut splice = Splice::new(commands_at(&[1, 1, 1]));
        assert!([2, 0, 1].iter().all(|index| splice.fill(*index, b"xyz")));
        splice.replace(&Output::from(b"one".to_vec()));
        assert_eq!((assembled(&mut splice, b"12"), splice.bytes()), ("<1one2>".into(), 3));
    }

    #[test]
    fn redirects_are_limited() {
        let mut splice = Splice::new(commands_at(&[0]));
        assert_eq!([(); 4].map(|()| splice.may_redirect(0)), [true, true, true, false]);
        assert!(!splice.may_redirect(1));
    }
}
