//! Requests: whatever arrives, wherever it is cut, framing gives the same requests and never panics. Replies: whatever
//! a server sends, the parser never panics, and what it accepts it can write again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::parse::{ReplyLimits, parse};
use resp::request::{Batch, Framer, Limits, Stop};

/// Frames a stream that arrives in pieces, as a connection does: what is left of one piece stands before the next. So
/// many requests at once.
fn frame(pieces: &[&[u8]], limits: &Limits, window: usize) -> (Vec<Vec<Vec<u8>>>, Option<Stop>) {
    let (mut framer, mut batch) = (Framer::default(), Batch::default());
    let (mut kept, mut all) = (Vec::new(), Vec::new());
    for piece in pieces {
        kept.extend_from_slice(piece);
        let mut at = 0;
        loop {
            batch.clear();
            let (next, stop) = framer.frame(kept[..].into(), at, limits, window, &mut batch);
            for (i, request) in batch.requests().iter().enumerate() {
                let args: Vec<_> = batch.args(request, kept[..].into()).from(0).map(<[u8]>::to_vec).collect();
                let same = |before: &Vec<Vec<u8>>| before.len() == args.len() && before[0] == args[0];
                assert!(!request.repeats || i > 0 && all.last().is_some_and(same));
                all.push(args);
            }
            at = next;
            match stop {
                Stop::Full => {}
                Stop::Incomplete => break,
                error => return (all, Some(error)),
            }
        }
        kept.drain(..at);
    }
    (all, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&[first, second], stream)) = data.split_first_chunk::<2>() else { return };
    let limits = Limits { unauthenticated: first & 1 == 1, ..Limits::default() };
    let cut = usize::from(first) * (stream.len() + 1) / 256;
    let step = usize::from(second) + 1;
    // One by one, so that nothing is known of the request before.
    let whole = frame(&[stream], &limits, 1);
    assert_eq!(whole, frame(&[stream], &limits, 64));
    assert_eq!(whole, frame(&[&stream[..cut], &stream[cut..]], &limits, 3));
    assert_eq!(whole, frame(&stream.chunks(step).collect::<Vec<_>>(), &limits, 3));

    if let Ok(Some((value, _))) = parse(stream, &ReplyLimits::default()) {
        // Not the same bytes: an integer may come with a plus sign, which is not written.
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(parse(&bytes, &ReplyLimits::default()), Ok(Some((value, bytes.len()))));
    }
});
