//! Requests that are encoded once; only the random numbers in them are written anew.

use client::Request;

use super::random::Random;

/// What stands in an argument for a random number.
pub const RAND_INT: &str = "__rand_int__";
/// What stands in an argument for the data of `-d` bytes.
pub const DATA: &str = "__data__";
/// Digits of a random number; by design as many as its placeholder has bytes, so that writing one changes no length.
const DIGITS: usize = RAND_INT.len();
/// Requests that are rendered at once: bytes that still fit into a core's own cache, with what reads them.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// One encoded request and where its random numbers stand.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    holes: Vec<usize>,
}

impl Template {
    /// Encodes a command. With `randomize`, each `__rand_int__` becomes a place for a number; else it is sent as it is.
    #[must_use]
    pub fn new(arguments: &[impl AsRef<[u8]>], data: &[u8], randomize: bool) -> Template {
        let with_data: Vec<Vec<u8>> = arguments.iter().map(|a| replace(a.as_ref(), DATA.as_bytes(), data)).collect();
        let mut bytes = Vec::new();
        with_data.pack(&mut bytes);
        Template::raw(bytes, randomize)
    }

    /// A request that is encoded already, such as an inline one.
    #[must_use]
    pub fn raw(bytes: Vec<u8>, randomize: bool) -> Template {
        let holes = if randomize { positions(&bytes, RAND_INT.as_bytes()) } else { Vec::new() };
        Template { bytes, holes }
    }
}

fn positions(text: &[u8], word: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].windows(word.len()).position(|window| window == word) {
        found.push(at + next);
        at += next + word.len();
    }
    found
}

fn replace(text: &[u8], word: &[u8], by: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut from = 0;
    for at in positions(text, word) {
        replaced.extend_from_slice(&text[from..at]);
        replaced.extend_from_slice(by);
        from = at + word.len();
    }
    replaced.extend_from_slice(&text[from..]);
    replaced
}

/// A run of equal requests, which one thread sends again and again with new numbers.
pub struct Batch {
    bytes: Vec<u8>,
    request_bytes: usize,
    holes: Vec<usize>,
    seed: u64,
    numbers: u64,
}

impl Batch {
    /// Room for at most `requests` requests, or fewer where they are long. Numbers go from 0 to `numbers` - 1.
    #[must_use]
    pub fn new(template: &Template, requests: usize, numbers: u64, seed: u64) -> Batch {
        let fitting = (BATCH_BYTES_MAX / template.bytes.len().max(1)).max(1);
        Batch {
            bytes: template.bytes.repeat(requests.clamp(1, fitting)),
            request_bytes: template.bytes.len(),
            holes: template.holes.clone(),
            seed,
            numbers,
        }
    }

    /// How many requests one rendering holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len() / self.request_bytes.max(1)
    }

    /// The bytes of `requests` requests (not above the capacity) of the run, of which `first` is the first one's
    /// number: the same number gives the same bytes, whichever thread renders them and when.
    pub fn render(&mut self, first: u64, requests: usize) -> &[u8] {
        let used = &mut self.bytes[..requests * self.request_bytes];
        if !self.holes.is_empty() {
            let mut random = Random::after(self.seed, first.wrapping_mul(self.holes.len() as u64));
            for request in used.chunks_exact_mut(self.request_bytes) {
                for &hole in &self.holes {
                    write_digits(&mut request[hole..hole + DIGITS], random.below(self.numbers));
                }
            }
        }
        used
    }
}

/// Writes the last digits of a number, with zeros before it, as many as there is room for.
fn write_digits(digits: &mut [u8], mut number: u64) {
    for pair in digits.rchunks_exact_mut(2) {
        let two = (number % 100) as u8;
        number /= 100;
        pair[0] = b'0' + two / 10;
        pair[1] = b'0' + two % 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_encoded_with_its_data() {
        let template = Template::new(&["SET", "k:__rand_int__", "<__data__>"], b"abc", false);
        assert_eq!(template.bytes, b"*3\r\n$3\r\nSET\r\n$14\r\nk:__rand_int__\r\n$5\r\n<abc>\r\n");
        assert!(template.holes.is_empty());
    }

    #[test]
    fn every_rendering_has_new_numbers_within_the_range() {
        let template = Template::new(&["MSET", "__rand_int__", "v", "x__rand_int__", "v"], b"", true);
        let mut batch = Batch::new(&template, 3, 1000, 7);
        assert_eq!(batch.capacity(), 3);
        let mut seen = std::collections::BTreeSet::new();
        for i in 0..50 {
            let text = String::from_utf8(batch.render(2 * i, 2).to_vec()).unwrap();
            let numbers: Vec<&str> = text.lines().filter(|l| l.len() >= 12).map(|l| &l[l.len() - 12..]).collect();
            assert_eq!(numbers.len(), 4, "{text}");
            assert!(numbers.iter().all(|n| n.parse::<u64>().unwrap() < 1000), "{text}");
            seen.extend(numbers.iter().map(|n| n.to_string()));
        }
        assert!(seen.len() > 100, "{seen:?}");
    }

    #[test]
    fn a_request_has_its_numbers_in_any_batch() {
        let template = Template::new(&["SET", "__rand_int__", "__rand_int__"], b"", true);
        let mut batch = Batch::new(&template, 10, 1 << 40, 7);
        let together = batch.render(3, 4).to_vec();
        let mut another = Batch::new(&template, 10, 1 << 40, 7);
        let one_by_one: Vec<u8> = (3..7).flat_map(|number| another.render(number, 1).to_vec()).collect();
        assert_eq!(together, one_by_one);
        assert_ne!(together, batch.render(4, 4));
    }

    #[test]
    fn digits_are_those_of_the_number() {
        let mut digits = [0; DIGITS];
        write_digits(&mut digits, 1_234_567_890);
        assert_eq!(&digits, b"001234567890");
    }

    #[test]
    fn long_requests_are_rendered_one_at_a_time() {
        let template = Template::new(&["SET", "k", DATA], &vec![b'x'; 1 << 20], false);
        let mut batch = Batch::new(&template, 100, 1, 1);
        assert_eq!(batch.capacity(), 1);
        assert!(batch.render(0, 1).len() > 1 << 20);
    }
}
