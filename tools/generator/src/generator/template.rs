//! Requests are encoded once. Only their random numbers are rewritten.

use client::Request;
use client::cluster::TAG_BYTES;

use super::distribution::Numbers;
use super::random::Random;

/// Placeholder for a random number.
pub const RAND_INT: &str = "__rand_int__";
/// Placeholder for a value of `-d` bytes.
pub const DATA: &str = "__data__";
/// Placeholder for a hash tag, in a cluster. The word in the braces is as long as a tag, so that lengths in the request
/// stay valid.
pub const TAG: &str = "{tag}";
/// Digits of a random number. The placeholder has the same length, so that lengths in the request stay valid.
const DIGITS: usize = RAND_INT.len();
/// Distinguishes the random numbers for tags from those for keys.
const TAG_SEED: u64 = 0x7461_6773;
/// Maximum size of a rendered batch in bytes. It fits into a core's private cache together with the receive buffer.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// An encoded request with the positions of its random numbers.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    holes: Vec<usize>,
    /// Positions of hash tags, behind their braces.
    tags: Vec<usize>,
}

impl Template {
    /// Encodes a command. With `randomize`, each `__rand_int__` becomes a place for a number; otherwise it is sent
    /// literally.
    #[must_use]
    pub fn new(arguments: &[impl AsRef<[u8]>], data: &[u8], randomize: bool) -> Template {
        let with_data: Vec<Vec<u8>> = arguments.iter().map(|a| replace(a.as_ref(), DATA.as_bytes(), data)).collect();
        let mut bytes = Vec::new();
        with_data.pack(&mut bytes);
        Template::raw(bytes, randomize)
    }

    /// Creates a template from an encoded request, for example an inline command.
    #[must_use]
    pub fn raw(bytes: Vec<u8>, randomize: bool) -> Template {
        let holes = if randomize { positions(&bytes, RAND_INT.as_bytes()) } else { Vec::new() };
        Template { bytes, holes, tags: Vec::new() }
    }

    /// Makes each `{tag}` a place for the hash tag of a slot. All tags of a request are equal.
    #[must_use]
    pub fn with_tags(mut self) -> Template {
        self.tags = positions(&self.bytes, TAG.as_bytes()).into_iter().map(|at| at + 1).collect();
        self
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

/// The requests of a load: one kind, or several in a ratio.
#[derive(Clone, Debug)]
pub struct Mix(Vec<Kind>);

/// Requests of one kind.
#[derive(Clone, Debug)]
struct Kind {
    template: Template,
    /// Number of requests up to this kind in each round of the ratio.
    up_to: u64,
}

impl From<Template> for Mix {
    fn from(template: Template) -> Mix {
        Mix(vec![Kind { template, up_to: 1 }])
    }
}

impl Mix {
    /// Returns a mix of requests. In every round, each template has the number of requests that is given with it.
    /// Templates with 0 are left out.
    #[must_use]
    pub fn of(kinds: impl IntoIterator<Item = (Template, u64)>) -> Mix {
        let mut up_to = 0;
        let kinds = kinds.into_iter().filter(|(_, share)| *share > 0).map(|(template, share)| {
            up_to += share;
            Kind { template, up_to }
        });
        Mix(kinds.collect())
    }

    /// Returns the kind of a request. Its number in the run determines it, so the ratio is exact.
    fn kind(&self, number: u64) -> Option<&Template> {
        let place = number % self.0.last()?.up_to.max(1);
        self.0.iter().find(|kind| place < kind.up_to).map(|kind| &kind.template)
    }

    fn only(&self) -> Option<&Template> {
        if let [kind] = &self.0[..] { Some(&kind.template) } else { None }
    }
}

/// A sequence of requests. One thread sends it repeatedly with new numbers.
pub struct Batch {
    bytes: Vec<u8>,
    mix: Mix,
    capacity: usize,
    /// The tags that requests get.
    tags: Vec<[u8; TAG_BYTES]>,
    seed: u64,
    numbers: Numbers,
}

impl Batch {
    /// Creates a batch for at most `requests` requests, or fewer if they are long.
    #[must_use]
    pub fn new(mix: &Mix, requests: usize, numbers: Numbers, seed: u64) -> Batch {
        let longest = mix.0.iter().map(|kind| kind.template.bytes.len()).max().unwrap_or_default();
        let fitting = (BATCH_BYTES_MAX / longest.max(1)).max(1);
        let capacity = requests.clamp(1, fitting);
        let bytes = mix.only().map_or_else(Vec::new, |template| template.bytes.repeat(capacity));
        Batch { bytes, mix: mix.clone(), capacity, tags: Vec::new(), seed, numbers }
    }

    /// Sets the hash tags for the next renderings.
    pub fn set_tags(&mut self, tags: Vec<[u8; TAG_BYTES]>) {
        self.tags = tags;
    }

    /// Adds a hash tag for the next renderings.
    pub fn add_tag(&mut self, tag: [u8; TAG_BYTES]) {
        if !self.tags.contains(&tag) {
            self.tags.push(tag);
        }
    }

    /// Removes a hash tag. The last one stays, because requests need one.
    pub fn remove_tag(&mut self, tag: [u8; TAG_BYTES]) {
        if self.tags.len() > 1 {
            self.tags.retain(|known| *known != tag);
        }
    }

    /// Returns the maximum number of requests per rendering.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Renders `requests` requests (at most the capacity); `first` is the number of the first one in the run. A
    /// request's number determines its bytes, independently of thread and time.
    pub fn render(&mut self, first: u64, requests: usize) -> &[u8] {
        let Some(template) = self.mix.only() else { return self.render_mixed(first, requests) };
        let request_bytes = template.bytes.len();
        let used = &mut self.bytes[..requests * request_bytes];
        if !template.holes.is_empty() {
            let mut random = Random::after(self.seed, first.wrapping_mul(template.holes.len() as u64));
            for request in used.chunks_exact_mut(request_bytes) {
                fill(request, &template.holes, &self.numbers, &mut random);
            }
        }
        if !template.tags.is_empty() && !self.tags.is_empty() {
            let mut random = Random::after(self.seed ^ TAG_SEED, first);
            for request in used.chunks_exact_mut(request_bytes) {
                set_tag(request, &template.tags, &self.tags, &mut random);
            }
        }
        used
    }

    /// Renders requests of several kinds. Their lengths differ, so they are copied each time.
    fn render_mixed(&mut self, first: u64, requests: usize) -> &[u8] {
        self.bytes.clear();
        let holes_max = self.mix.0.iter().map(|kind| kind.template.holes.len()).max().unwrap_or_default() as u64;
        for number in (first..).take(requests) {
            let Some(template) = self.mix.kind(number) else { break };
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&template.bytes);
            let request = &mut self.bytes[start..];
            let mut random = Random::after(self.seed, number.wrapping_mul(holes_max));
            fill(request, &template.holes, &self.numbers, &mut random);
            if !self.tags.is_empty() {
                set_tag(request, &template.tags, &self.tags, &mut Random::after(self.seed ^ TAG_SEED, number));
            }
        }
        &self.bytes
    }
}

/// Writes random numbers into the places of a request.
#[inline]
fn fill(request: &mut [u8], holes: &[usize], numbers: &Numbers, random: &mut Random) {
    for &hole in holes {
        write_digits(&mut request[hole..hole + DIGITS], numbers.draw(random));
    }
}

/// Writes one random tag into all places of a request.
fn set_tag(request: &mut [u8], places: &[usize], tags: &[[u8; TAG_BYTES]], random: &mut Random) {
    let tag = tags[random.below(tags.len() as u64) as usize];
    for &place in places {
        request[place..place + TAG_BYTES].copy_from_slice(&tag);
    }
}

/// Writes the last digits of a number, with leading zeros, into the available places.
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
    use super::super::distribution::Distribution;
    use super::*;

    fn batch_of(template: &Template, requests: usize, limit: u64) -> Batch {
        Batch::new(&Mix::from(template.clone()), requests, Numbers::new(limit, Distribution::Uniform), 7)
    }

    #[test]
    fn a_mix_has_its_ratio_and_equal_requests_in_any_batch() {
        let set = Template::new(&["SET", "{tag}k:__rand_int__", "v"], b"", true).with_tags();
        let get = Template::new(&["GET", "{tag}k:__rand_int__"], b"", true).with_tags();
        let unused = Template::new(&["DEL", "k"], b"", true);
        let mix = Mix::of([(set, 1), (unused, 0), (get, 3)]);
        let numbers = Numbers::new(1 << 40, Distribution::Uniform);
        let mut batch = Batch::new(&mix, 100, numbers, 7);
        batch.set_tags(vec![*b"aaa", *b"bbb"]);
        let together = batch.render(2, 41).to_vec();
        let one_by_one: Vec<u8> = (2..43).flat_map(|number| batch.render(number, 1).to_vec()).collect();
        assert_eq!(together, one_by_one);
        let text = String::from_utf8(together).unwrap();
        let kinds: String = text.lines().filter(|line| ["SET", "GET"].contains(line)).map(|line| &line[..1]).collect();
        assert_eq!(kinds, format!("{}G", "GGSG".repeat(10)));
        assert!(text.contains("{aaa}k:") && text.contains("{bbb}k:") && !text.contains("{tag}"));
        assert!(!text.contains("__rand_int__"));
    }

    #[test]
    fn a_command_is_encoded_with_its_data() {
        let template = Template::new(&["SET", "k:__rand_int__", "<__data__>"], b"abc", false);
        assert_eq!(template.bytes, b"*3\r\n$3\r\nSET\r\n$14\r\nk:__rand_int__\r\n$5\r\n<abc>\r\n");
        assert!(template.holes.is_empty());
    }

    #[test]
    fn all_tags_of_a_request_are_equal() {
        let template = Template::new(&["MSET", "a{tag}", "{tag}", "b{tag}:__rand_int__", "v"], b"", true).with_tags();
        let mut batch = batch_of(&template, 8, 1000);
        batch.set_tags(vec![*b"aaa", *b"ccc"]);
        batch.add_tag(*b"bbb");
        batch.remove_tag(*b"ccc");
        let mut seen = std::collections::BTreeSet::new();
        for first in (0..80).step_by(8) {
            let text = String::from_utf8(batch.render(first, 8).to_vec()).unwrap();
            for request in text.split("*5\r\n").filter(|request| !request.is_empty()) {
                let tags: Vec<&str> = request.split('{').skip(1).map(|rest| &rest[..4]).collect();
                assert!(tags.len() == 3 && tags.iter().all(|tag| *tag == tags[0]), "{request}");
                seen.insert(tags[0].to_owned());
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["aaa}", "bbb}"]);
        // The last tag stays, and without tags the word is sent literally.
        batch.remove_tag(*b"aaa");
        batch.remove_tag(*b"bbb");
        assert!(batch.render(0, 1).windows(5).any(|word| word == b"{bbb}"));
        assert!(batch_of(&template, 1, 1).render(0, 1).windows(5).any(|word| word == b"{tag}"));
    }

    #[test]
    fn every_rendering_has_new_numbers_within_the_range() {
        let template = Template::new(&["MSET", "__rand_int__", "v", "x__rand_int__", "v"], b"", true);
        let mut batch = batch_of(&template, 3, 1000);
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
        let mut batch = batch_of(&template, 10, 1 << 40);
        let together = batch.render(3, 4).to_vec();
        let mut another = batch_of(&template, 10, 1 << 40);
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
        let mut batch = batch_of(&template, 100, 1);
        assert_eq!(batch.capacity(), 1);
        assert!(batch.render(0, 1).len() > 1 << 20);
    }
}
