//! Requests: framing gives the same requests for a stream cut at any position, and never panics. Replies: the parser
//! never panics on any bytes, and every accepted reply can be written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::parse::{ReplyLimits, parse};
use resp::request::{Batch, Framer, Limits, Stop};

/// Frames a stream that arrives in pieces, as a connection does: the rest of one piece precedes the next. Frames up to
/// `window` requests at once.
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
    // A window of one, so that framing knows nothing about the previous request.
    let whole = frame(&[stream], &limits, 1);
    assert_eq!(whole, frame(&[stream], &limits, 64));
    assert_eq!(whole, frame(&[&stream[..cut], &stream[cut..]], &limits, 3));
    assert_eq!(whole, frame(&stream.chunks(step).collect::<Vec<_>>(), &limits, 3));

    if let Ok(Some((value, _))) = parse(stream, &ReplyLimits::default()) {
        // The bytes may differ: an integer may have a plus sign, which is not written.
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(parse(&bytes, &ReplyLimits::default()), Ok(Some((value, bytes.len()))));
    }
});
