//! The movie script of "How I used 98840 commands less and saved 4 seconds": for ten thousand movies it sends ZSCORE
//! and ZADD for each prefix of the name, then HSET.

use super::traffic::{Traffic, steps, trips};
use crate::findings::{Confidence, Group, Kind};

const MOVIES: u64 = 10_000;
/// The number of commands that the author counted. The script makes 54 more: `grep` wrote to a file, and its last 4 KB
/// were still in its buffer when it was interrupted.
const COUNTED: u64 = 108_840;
const MADE: u64 = 108_894;

/// The prefixes of "The Number17", as the script makes them.
fn prefixes(movie: u64) -> Vec<String> {
    let words = ["the".to_owned(), format!("number{movie}")];
    words.iter().flat_map(|word| (2..=word.len()).map(|len| word[..len].to_owned())).collect()
}

/// Runs the script. `score` answers ZSCORE. The first `without` movies with ten prefixes leave out one prefix each.
pub fn run(traffic: &mut Traffic, score: impl Fn(u64) -> String, mut without: u64) {
    for movie in 1..=MOVIES {
        let name = format!("The Number{movie}");
        let mut prefixes = prefixes(movie);
        if without > 0 && prefixes.len() == 10 {
            prefixes.pop();
            without -= 1;
        }
        for prefix in prefixes {
            let key = format!("testing:redis:index:{prefix}");
            let score = score(movie);
            traffic.send_words(&[b"zscore", key.as_bytes(), name.as_bytes()], 1, &super::traffic::reply(&score));
            let score = if score == "nil" { "0".to_owned() } else { score };
            let words = [b"zadd".as_slice(), key.as_bytes(), score.as_bytes(), name.as_bytes()];
            traffic.send_words(&words, 1, b":1\r\n");
        }
        let key = format!("testing:redis:data:Number{movie}");
        let text = format!("This is Number {movie}");
        traffic.send_words(&[b"hset", key.as_bytes(), name.as_bytes(), text.as_bytes()], 1, b":1\r\n");
    }
}

fn of_kind(groups: &[Group], kind: Kind) -> &Group {
    groups.iter().find(|group| group.total.kind == kind).unwrap_or_else(|| panic!("no {kind:?} in {groups:#?}"))
}

fn check(groups: &[Group], reads: u64, confidence: Confidence) {
    let repeated = of_kind(groups, Kind::RepeatedRead);
    assert_eq!(steps(repeated), ["ZSCORE testing:redis:index:<word>"]);
    assert_eq!(trips(repeated), (reads, MOVIES));
    assert_eq!(repeated.total.sums.confidence(), confidence);
    let rest = of_kind(groups, Kind::InterleavedLoop);
    assert_eq!(steps(rest), ["ZSCORE testing:redis:index:<word>", "ZADD testing:redis:index:<word>"]);
    // One read and one pipeline for each movie remain. Patterns are learned in the first movies.
    let (made, needed) = trips(rest);
    assert!(made.abs_diff(reads + MOVIES) < 100, "{made}");
    assert!(needed.abs_diff(2 * MOVIES) < 10, "{needed}");
    assert!(rest.total.is_followed());
    assert_eq!(rest.total.after.as_ref().unwrap().to_string(), "HSET testing:redis:data:Number<n>");
    assert_eq!(groups.len(), 2, "{groups:#?}");
}

#[test]
fn ten_thousand_reads_would_do() {
    let mut traffic = Traffic::new();
    run(&mut traffic, |_| "nil".to_owned(), MADE - COUNTED);
    let groups = traffic.groups();
    check(&groups, COUNTED, Confidence::Medium);
    assert_eq!(of_kind(&groups, Kind::RepeatedRead).total.sums.wasted(), 98_840);
}

#[test]
fn informative_answers_give_high_confidence() {
    let mut traffic = Traffic::new();
    run(&mut traffic, |movie| format!("{}", 1000 + movie * 31 % 977), 0);
    check(&traffic.groups(), MADE, Confidence::High);
}

#[test]
fn without_replies_the_finding_depends_on_equal_answers() {
    let mut traffic = Traffic::new();
    traffic.shows_replies = false;
    run(&mut traffic, |_| "nil".to_owned(), 0);
    check(&traffic.groups(), MADE, Confidence::Low);
}

#[test]
fn scores_that_differ_by_prefix_are_needed() {
    let mut traffic = Traffic::new();
    for movie in 0..1000 {
        for (place, prefix) in prefixes(movie).iter().enumerate() {
            let score = format!("{}", movie * 100 + place as u64 * 1000);
            traffic.send(&format!("ZSCORE index:{prefix} movie{movie}"), &score);
            traffic.send(&format!("ZADD index:{prefix} {score} movie{movie}"), ":0");
        }
    }
    let groups = traffic.groups();
    assert!(groups.iter().all(|group| group.total.kind == Kind::ReadComputeWrite), "{groups:#?}");
}

#[test]
fn the_script_with_a_pipeline_for_each_movie_is_clean() {
    let mut traffic = Traffic::new();
    for movie in 1..=MOVIES {
        traffic.send_words(&[b"zscore", b"testing:redis:index:th", format!("m{movie}").as_bytes()], 1, b"$-1\r\n");
        traffic.batch(&format!("zadd testing:redis:index:th 0 m{movie}"), 10);
    }
    traffic.assert_clean();
}
