//! The replies of one run of a connection's requests, some of which other nodes of the cluster give (`cluster-forward`).
//!
//! The run's own replies stay in one piece. Each forwarded command has a place in them. The replies of the other nodes are kept in the order
//! of their arrival, and are put into their places once all have arrived.

use engine::slots::forward::Forwarded;
use resp::reply::Output;

/// A command may be redirected this many times. The client gets the next redirect.
const REDIRECTS_MAX: u8 = 3;

/// The reply to one forwarded command.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Its place in [`Splice::replies`].
    start: usize,
    len: usize,
    is_filled: bool,
    redirects: u8,
}

/// See the module's documentation.
pub struct Splice {
    forwarded: Forwarded,
    places: Vec<Place>,
    /// The replies that have arrived.
    replies: Vec<u8>,
    missing: usize,
    /// True until the commands are sent, if they wait for the changes before them to be durable.
    is_held: bool,
}

impl Splice {
    /// Creates the places for the replies to these commands.
    pub fn new(forwarded: Forwarded) -> Splice {
        let missing = forwarded.commands.len();
        Splice { places: vec![Place::default(); missing], replies: Vec::new(), missing, is_held: false, forwarded }
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
        let place = self.places.get(index).copied().unwrap_or_default();
        self.replies.get(place.start..place.start + place.len).unwrap_or_default()
    }

    /// Replaces all replies by one.
    pub fn replace(&mut self, reply: &Output) {
        self.replies.clear();
        reply.slices().for_each(|slice| self.replies.extend_from_slice(slice));
        for (index, place) in self.places.iter_mut().enumerate() {
            (place.start, place.len) = (0, if index == 0 { self.replies.len() } else { 0 });
        }
    }

    /// The number of replies that have not arrived.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// The number of bytes of the replies that have arrived.
    pub fn bytes(&self) -> usize {
        self.replies.len()
    }

    /// Takes the reply to a command. Returns false if it is not the first one.
    pub fn fill(&mut self, index: usize, reply: &[u8]) -> bool {
        let Some(place) = self.places.get_mut(index).filter(|place| !place.is_filled) else { return false };
        (place.start, place.len, place.is_filled) = (self.replies.len(), reply.len(), true);
        self.replies.extend_from_slice(reply);
        self.missing -= 1;
        true
    }

    /// Returns true if a command may be sent to another node once more, and counts that.
    pub fn may_redirect(&mut self, index: usize) -> bool {
        let Some(place) = self.places.get_mut(index).filter(|place| place.redirects < REDIRECTS_MAX) else {
            return false;
        };
        place.redirects += 1;
        true
    }

    /// Appends all replies to `output`, in the order of the requests. `own` are the run's own replies, and pushes behind them.
    pub fn assemble(&self, own: &Output, output: &mut Output) {
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
            output.extend(self.reply(index));
        }
        copy_until(usize::MAX, output);
    }
}

#[cfg(test)]
mod tests {
    use engine::slots::forward::ForwardedCommand;

    use super::*;

    fn commands_at(places: &[usize]) -> Forwarded {
        let (asks, only_reads, counted, attaches) = (false, true, None, false);
        let command =
            |&at: &usize| ForwardedCommand { at, target: 0, asks, only_reads, counted, attaches, skipped: 0, end: 0 };
        let mut forwarded = Forwarded::default();
        forwarded.commands = places.iter().map(command).collect();
        forwarded
    }

    fn assembled(splice: &Splice, own: &[u8]) -> String {
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
        assert_eq!(assembled(&splice, b"1234"), "<AB12C34D>");
    }

    #[test]
    fn a_run_of_foreign_commands_only_has_no_replies_of_its_own() {
        let mut splice = Splice::new(commands_at(&[0]));
        assert!(splice.fill(0, b"+OK\r\n") && !splice.fill(1, b"+OK\r\n"));
        assert_eq!(assembled(&splice, b""), "<+OK\r\n>");
    }

    #[test]
    fn one_reply_replaces_all() {
        let mut splice = Splice::new(commands_at(&[1, 1, 1]));
        assert!([2, 0, 1].iter().all(|index| splice.fill(*index, b"xyz")));
        splice.replace(&Output::from(b"one".to_vec()));
        assert_eq!((assembled(&splice, b"12"), splice.bytes()), ("<1one2>".into(), 3));
    }

    #[test]
    fn redirects_are_limited() {
        let mut splice = Splice::new(commands_at(&[0]));
        assert_eq!([(); 4].map(|()| splice.may_redirect(0)), [true, true, true, false]);
        assert!(!splice.may_redirect(1));
    }
}
