//! Chains: each reply names the next key in a form of its own.

use super::traffic::{ROUND_TRIP_NS, Traffic, trips};
use crate::findings::Kind;

/// A number that does not grow evenly, and is not the same for different places.
fn number(place: u64) -> u64 {
    1000 + place * place * 7919 % 8999
}

/// Bytes that differ from reply to reply.
fn noise(place: u64, len: usize) -> Vec<u8> {
    let bytes = (0..).scan(place, |state, _| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some((*state >> 33) as u8)
    });
    bytes.take(len).collect()
}

/// Reads the keys of 100 places one after the other, each with its text. Returns the number of trips of the finding; 0 if there is none.
fn read(key: impl Fn(u64) -> String, text: impl Fn(u64) -> Vec<u8>) -> u64 {
    let mut traffic = Traffic::logged_in();
    for place in 0..100 {
        let (key, text) = (key(place), text(place));
        let reply = [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
        traffic.send_words(&[b"GET", key.as_bytes()], 1, &reply);
    }
    traffic.groups().first().map_or(0, |group| trips(group).0)
}

fn page(place: u64) -> String {
    format!("page:{}", number(place))
}

#[test]
fn binary_numbers_of_the_next_page_are_a_chain() {
    let next = |place: u64| number(place + 1);
    let with_noise = |number: &[u8], place: u64| [number, &noise(place, 60)].concat();
    assert_eq!(read(page, |place| with_noise(&(next(place) as u32).to_be_bytes(), place)), 0);
    assert_eq!(read(page, |place| with_noise(&(next(place) as u16).to_le_bytes(), place)), 0);
    assert_eq!(read(page, |place| with_noise(&next(place).to_le_bytes(), place)), 0);
    assert_eq!(read(page, |place| [&noise(place, 400), &next(place).to_be_bytes()[..]].concat()), 0);
    let varint = |place: u64| vec![8, next(place) as u8 | 0x80, (next(place) >> 7) as u8, 0x12, 1, b'x'];
    assert_eq!(read(page, varint), 0);
    let tagged = |place: u64| [b"\x81\xa4next\xcd".as_slice(), &(next(place) as u16).to_be_bytes()].concat();
    assert_eq!(read(page, tagged), 0);
}

/// The numbers of an image are not those of the next one.
#[test]
fn images_are_a_loop() {
    assert_eq!(read(page, |place| noise(place, 64)), 100);
    assert_eq!(read(page, |place| noise(place, 5000)), 100);
}

/// The parts of a record of MessagePack are texts behind a byte with their length.
#[test]
fn names_in_binary_records_are_a_chain() {
    let name = |place: u64| number(place).to_string().bytes().map(|digit| (digit + 50) as char).collect::<String>();
    let record = |place: u64| [b"\x82\xa4next\xa4", name(place + 1).as_bytes(), b"\xa1n\x05"].concat();
    assert_eq!(read(|place| format!("node:{}", name(place)), record), 0);
}

#[test]
fn keys_at_the_end_of_a_reply_are_a_chain() {
    let text = |place: u64| format!("{{\"text\":\"{}\",\"older\":{}}}", "la ".repeat(110), number(place + 1));
    assert_eq!(read(page, |place| text(place).into_bytes()), 0);
}

/// A title names the next article. Its key has other letters, or other characters between them.
#[test]
fn keys_made_of_titles_are_a_chain() {
    let word = |place: u64| number(place).to_string().bytes().map(|digit| (digit + 50) as char).collect::<String>();
    let title = |place: u64| format!("The Old {}", word(place).to_uppercase());
    let text = |place: u64| format!("See also: {}.", title(place + 1)).into_bytes();
    assert_eq!(read(|place| format!("article:{}", title(place).to_lowercase().replace(' ', "-")), text), 0);
    assert_eq!(read(|place| format!("article:{}", title(place).replace(' ', "%20")), text), 0);
    assert_eq!(read(|place| format!("ARTICLE:{}", title(place)), |place| word(place + 1).into_bytes()), 0);
    let padded = |place: u64| format!("{}", number(place + 1)).into_bytes();
    assert_eq!(read(|place| format!("bill:{:010}", number(place)), padded), 0);
    assert_eq!(read(|place| format!("article:{}", word(place)), |place| word(place + 50).into_bytes()), 96);
}

/// A process that has just started sends a pipeline in parts, and most parts are one command. Long gaps come between the parts.
#[test]
fn the_first_pipeline_of_a_process_is_clean() {
    let send = |slowly: bool| {
        let mut traffic = Traffic::logged_in();
        for place in 0..200 {
            traffic.gap_ns = ROUND_TRIP_NS * if slowly && place % 40 == 5 { 50 } else { 1 };
            match slowly && place % 40 == 5 {
                true => traffic.batch(&format!("HGET {} weight", page(place)), 3),
                false => traffic.send(&format!("HGET {} weight", page(place)), &format!("{}", place * 7919 % 1009)),
            }
        }
        traffic
    };
    send(true).assert_clean();
    assert_eq!(trips(&send(false).of_kind(Kind::Loop)).0, 200);
}

/// A library writes the commands of a pipeline one by one, and the server sometimes answers the first one before the next one arrives.
#[test]
fn pipelines_of_requests_in_parts_are_no_small_pipelines() {
    let mut traffic = Traffic::logged_in();
    for request in 0..60 {
        traffic.pause(6 + request * 7 % 10);
        traffic.send(&format!("ZREVRANGE board 0 {request}"), &format!("player {}", number(request)));
        traffic.overlaps = request < 3;
        traffic.batch(&format!("ZCARD board{}", request / 100), 2);
        traffic.overlaps = false;
    }
    traffic.assert_clean();
}
