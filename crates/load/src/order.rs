//! The order in which a run of ZADDs leaves: that of a sorted set, by score and then by member.

use std::cmp::Ordering;

use crate::merge::score_and_member;

/// One of the run's commands.
struct Entry<'b> {
    score: f64,
    /// The member's first bytes behind what all members begin with: they decide in most cases.
    first: u64,
    member: &'b [u8],
    /// Its place in the input's order.
    index: u32,
}

impl<'b> Entry<'b> {
    /// What a ZADD adds, score and member, each as an argument in the wire format.
    fn new(index: u32, adds: &'b [u8]) -> Option<Entry<'b>> {
        let (score, member) = score_and_member(adds)?;
        let score = std::str::from_utf8(score).ok()?.parse().ok()?;
        Some(Entry { score, first: 0, member, index })
    }

    /// Looks at the bytes of the member that stand behind the first `common` ones.
    fn look_behind(&mut self, common: usize) {
        let mut first = [0; 8];
        let behind = self.member.get(common..).unwrap_or_default();
        let length = behind.len().min(first.len());
        first[..length].copy_from_slice(&behind[..length]);
        self.first = u64::from_be_bytes(first);
    }

    fn compare(&self, other: &Entry<'_>) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then_with(|| self.first.cmp(&other.first)).then_with(|| self.member.cmp(other.member))
    }
}

/// With how many bytes all members begin alike.
fn common_bytes(entries: &[Entry<'_>]) -> usize {
    let Some((one, others)) = entries.split_first() else { return 0 };
    others.iter().fold(one.member.len(), |common, other| {
        let alike = |(one, other): &(&u8, &u8)| one == other;
        one.member[..common].iter().zip(other.member).take_while(alike).count()
    })
}

/// The places, in the input's order, of what is to be sent first, second and so on. None if that is the input's order, or if
/// something isn't as it should be.
pub fn order<'b>(adds: impl Iterator<Item = &'b [u8]>) -> Option<Vec<u32>> {
    let entries: Option<Vec<Entry<'b>>> = (0..).zip(adds).map(|(index, adds)| Entry::new(index, adds)).collect();
    let mut entries = entries?;
    let common = common_bytes(&entries);
    entries.iter_mut().for_each(|entry| entry.look_behind(common));
    if entries.is_sorted_by(|one, next| one.compare(next).is_le()) {
        return None;
    }
    entries.sort_unstable_by(Entry::compare);
    Some(entries.iter().map(|entry| entry.index).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(pairs: &[(&str, &str)]) -> Option<Vec<u32>> {
        let arg = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let adds: Vec<String> = pairs.iter().map(|(score, member)| arg(score) + &arg(member)).collect();
        order(adds.iter().map(String::as_bytes))
    }

    #[test]
    fn scores_then_members() {
        assert_eq!(ordered(&[("10", "a"), ("9", "b"), ("-1.5", "c")]), Some(vec![2, 1, 0]));
        assert_eq!(ordered(&[("1", "b"), ("1", "a"), ("0", "c")]), Some(vec![2, 1, 0]));
        let long = [("1", "the film number 2"), ("1", "the film number 10"), ("1", "the film"), ("1", "the film\0")];
        assert_eq!(ordered(&long), Some(vec![2, 3, 1, 0]));
    }

    #[test]
    fn what_is_in_order_stays() {
        assert_eq!(ordered(&[("1", "a"), ("1", "b"), ("2", "a")]), None);
        assert_eq!(ordered(&[]), None);
        assert_eq!(order([&b"$1\r\n2\r\n$1\r\na\r\n"[..], b"$1\r\nx\r\n$1\r\na\r\n"].into_iter()), None);
    }
}
