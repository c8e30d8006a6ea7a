use std::collections::BTreeMap;

use super::*;
use crate::random::Random;

type Model = BTreeMap<Vec<u8>, (f32, Option<Vec<u8>>)>;

/// Returns the minimum number of edits between the query and any prefix of the text, by the whole table.
fn distance(query: &[char], text: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=query.len()).collect();
    let mut least = query.len();
    for letter in text {
        let mut next = vec![row[0] + 1];
        for (at, wanted) in query.iter().enumerate() {
            let replaced = row[at] + usize::from(wanted != letter);
            next.push(replaced.min(row[at + 1] + 1).min(next[at] + 1));
        }
        row = next;
        least = least.min(row[query.len()]);
    }
    least
}

fn folded(text: &str) -> Vec<char> {
    // None of the tests' letters folds to two characters.
    text.to_lowercase().chars().collect()
}

/// Returns the expected results of a search, by inspecting every text.
fn expected(model: &Model, query: &str, fuzziness: Fuzziness, count: usize) -> Vec<(Vec<u8>, f32)> {
    let edits_max = usize::from(fuzziness == Fuzziness::Fuzzy);
    let mut found = Vec::new();
    for (text, (score, _)) in model {
        let shown = std::str::from_utf8(text).unwrap();
        let edits = distance(&folded(query), &folded(shown));
        if edits > edits_max {
            continue;
        }
        let is_same = shown.chars().collect::<Vec<_>>() == folded(query);
        let mut rank = if is_same { i32::MAX as f32 } else { *score };
        if edits > 0 {
            rank = (f64::from(rank) * (-2.0f64).exp()) as f32;
        }
        let difference = shown.chars().count().abs_diff(query.len());
        found.push((text.clone(), (f64::from(rank) / (1.0 + difference as f64).sqrt()) as f32));
    }
    found.sort_by(|one, other| other.1.partial_cmp(&one.1).unwrap().then_with(|| one.0.cmp(&other.0)));
    found.truncate(count);
    found
}

fn found(suggestions: &Suggestions, query: &str, fuzziness: Fuzziness, count: usize) -> Vec<(Vec<u8>, f32)> {
    let query = Query::new(query.as_bytes(), fuzziness).unwrap();
    suggestions.best(&query, count).iter().map(|(text, rank, _)| (text.to_vec(), rank)).collect()
}

fn contents(suggestions: &Suggestions) -> Model {
    let mut all = Model::new();
    suggestions.for_each(|SuggestionOf { text, score, payload }| {
        assert!(all.insert(text.to_vec(), (score, payload.map(<[u8]>::to_vec))).is_none(), "a text occurs twice");
    });
    all
}

/// Bytes of all allocations, counted anew.
fn counted(node: &TrieNode) -> usize {
    match node {
        TrieNode::Bucket(bucket) => bucket.allocated_bytes(),
        TrieNode::Fork(fork) => {
            let below: usize = fork.branches.iter().map(|branch| counted(&branch.node)).sum();
            let branches = fork.branches.capacity() * size_of_val(&fork.branches[0]);
            let own = fork.own.allocated_bytes() + fork.kept.allocated_bytes();
            size_of_val(&**fork) + fork.label.len() + branches + own + below
        }
    }
}

/// Panics unless a fork's branches are in order with correct summaries.
fn check(node: &TrieNode) {
    let TrieNode::Fork(fork) = node else { return };
    let shown = |summary: tree::Summary| (summary.shortest, summary.highest(), summary.heaviest());
    for branch in &fork.branches {
        assert_eq!(shown(branch.summary), shown(branch.node.summary()));
        check(&branch.node);
    }
    assert!(fork.branches.is_sorted_by(|one, other| {
        let (one_weight, other_weight) = (one.summary.heaviest(), other.summary.heaviest());
        one_weight > other_weight || (one_weight == other_weight && one.byte < other.byte)
    }));
    assert!(fork.branches.len() + fork.own.len() > 1, "a fork without a choice");
}

/// Compares a fork's kept suggestions with the first ones for each length, among everything below it.
fn check_kept(node: &TrieNode, beginning: &[u8], forks: &mut [usize; 2]) {
    let TrieNode::Fork(fork) = node else { return };
    let way = [beginning, &fork.label].concat();
    for branch in &fork.branches {
        check_kept(&branch.node, &[&*way, &[branch.byte]].concat(), forks);
    }
    let Some(kept) = fork.kept.records() else { return forks[0] += 1 };
    forks[1] += 1;
    let has = |text: &[u8]| kept.records().any(|stored| [&*way, stored.rest].concat() == text);
    for len in 0..=way.iter().take_while(|byte| byte.is_ascii()).count() {
        let query = Query::new(&vec![b'a'; len], Fuzziness::Exact).unwrap();
        let mut all = Vec::new();
        node.each(&mut beginning.to_vec(), &mut |SuggestionOf { text, score, payload }| {
            let rank = query.rank(score, letters::count(text) as u8, 0);
            all.push((text.to_vec(), rank, payload.is_some()));
        });
        all.sort_by(|one, other| other.1.partial_cmp(&one.1).unwrap().then_with(|| one.0.cmp(&other.0)));
        all.truncate(kept::KEPT_FOR);
        all.iter()
            .for_each(|(text, ..)| assert!(has(text), "{:?} is not kept at {way:?}", String::from_utf8_lossy(text)));
    }
    for stored in kept.records() {
        let text = [&*way, stored.rest].concat();
        let there = node.find(&text[beginning.len()..]).unwrap();
        assert_eq!(
            (stored.score, stored.characters, stored.payload.is_some()),
            (there.score, there.characters, there.payload.is_some())
        );
    }
}

/// Returns a text of few different letters, so that many share prefixes.
fn text(random: &mut Random, letters_max: usize) -> String {
    const LETTERS: [char; 9] = ['a', 'a', 'b', 'A', 'B', 'é', 'É', '€', '😀'];
    let len = 1 + random.below(letters_max);
    (0..len).map(|_| LETTERS[random.below(LETTERS.len())]).collect()
}

fn score(random: &mut Random) -> f32 {
    match random.below(12) {
        0 => -(random.below(5) as f32),
        1 => 0.0,
        2 => [1e9, 1e-40, 1.000_000_1, f32::INFINITY, f32::NEG_INFINITY][random.below(5)],
        3..6 => 1.0,
        _ => random.below(1000) as f32 / 8.0,
    }
}

const SEEDS: u64 = if cfg!(miri) { 2 } else { 25 };
const STEPS: usize = if cfg!(miri) { 60 } else { 800 };

#[test]
fn searches_agree_with_a_scan_of_all_texts() {
    for seed in 0..SEEDS {
        let random = &mut Random::new(seed);
        let (mut suggestions, mut model) = (Suggestions::default(), Model::new());
        let (mut searches, mut forks) = ([0; 2], [0; 2]);
        let letters_max = 2 + random.below(8);
        let removals = random.below(7);
        for step in 0..STEPS {
            let name = text(random, letters_max).into_bytes();
            if random.below(10) < removals {
                assert_eq!(suggestions.remove(&name), model.remove(&name).is_some());
            } else {
                let payload = (random.below(4) == 0).then(|| vec![b'p'; 1 + random.below(300)]);
                let score = score(random);
                let is_new = suggestions.set(&name, score, payload.as_deref());
                let kept = model.get(&name).and_then(|(_, payload)| payload.clone());
                assert_eq!(is_new, model.insert(name.clone(), (score, payload.or(kept))).is_none());
            }
            assert_eq!(suggestions.len(), model.len());
            let stored = suggestions.get(&name).map(|(score, payload)| (score, payload.map(<[u8]>::to_vec)));
            assert_eq!(stored, model.get(&name).cloned());
            let query = if random.below(10) == 0 { String::new() } else { text(random, letters_max) };
            let fuzziness = if random.below(2) == 0 { Fuzziness::Exact } else { Fuzziness::Fuzzy };
            let count = [1, 2, 3, 10, 1000][random.below(5)];
            let wanted = expected(&model, &query, fuzziness, count);
            assert_eq!(
                found(&suggestions, &query, fuzziness, count),
                wanted,
                "{seed} {step} {query:?} {fuzziness:?} {count}"
            );
            let query = Query::new(query.as_bytes(), fuzziness).unwrap();
            searches[usize::from(direct::find(&suggestions.root, &query, count).is_some())] += 1;
            if step % 200 == 0 {
                check_kept(&suggestions.root, b"", &mut forks);
            }
            if step % 50 == 0 {
                check(&suggestions.root);
                assert_eq!(suggestions.bytes, counted(&suggestions.root));
                assert_eq!(contents(&suggestions), model);
            }
        }
        assert!(cfg!(miri) || (searches[1] > 20 && forks[1] > forks[0]), "{searches:?} {forks:?}");
        assert_eq!(contents(&suggestions.clone()), model);
        let names: Vec<Vec<u8>> = model.keys().cloned().collect();
        names.iter().for_each(|name| assert!(suggestions.remove(name)));
        assert!(suggestions.is_empty() && matches!(&suggestions.root, TrieNode::Bucket(bucket) if bucket.is_empty()));
        assert_eq!(suggestions.bytes, 0);
    }
}

#[test]
fn equal_letters_in_other_bytes_are_found() {
    let mut suggestions = Suggestions::default();
    let few = ["so", "ſo", "ßo", "Ko", "ko", "\u{212A}o", "™o", "éo", "\u{1F600}o"];
    let many: Vec<String> = few.iter().flat_map(|text| (0..9).map(move |n| format!("{text}{n}"))).collect();
    for texts in [few.map(str::to_owned).as_slice(), &many] {
        texts.iter().for_each(|text| assert!(suggestions.set(text.as_bytes(), 1.0, None)));
        for (query, letters) in [("so", "sſß"), ("SO", "sſß"), ("ko", "kK\u{212A}"), ("k", "kK\u{212A}"), ("s", "sſß")]
        {
            let wanted = texts.iter().filter(|text| letters.contains(text.chars().next().unwrap())).count();
            let shown = found(&suggestions, query, Fuzziness::Exact, 3);
            let all = found(&suggestions, query, Fuzziness::Exact, 1000);
            assert_eq!(shown, all[..3], "{query}");
            assert!(all.len() >= wanted, "{query}: {all:?}");
        }
    }
}

#[test]
fn long_texts_are_found_though_they_are_not_kept() {
    let (mut suggestions, mut model) = (Suggestions::default(), Model::new());
    let text = |number: usize| format!("a{number:03}{}", "x".repeat(if number < 50 { 5 } else { 100 })).into_bytes();
    let steps = (0..100).map(|number| (number, true)).chain((50..100).map(|number| (number, false)));
    for (number, is_added) in steps {
        if is_added {
            let score = if number < 50 { 1.0 } else { 1000.0 + number as f32 };
            suggestions.set(&text(number), score, None);
            model.insert(text(number), (score, None));
        } else {
            suggestions.remove(&text(number));
            model.remove(&text(number));
        }
        assert_eq!(found(&suggestions, "a", Fuzziness::Exact, 3), expected(&model, "a", Fuzziness::Exact, 3));
        assert_eq!(suggestions.bytes, counted(&suggestions.root));
        let TrieNode::Fork(fork) = &suggestions.root else { continue };
        assert!(number < 53 || fork.kept.records().is_none(), "{number} {is_added}");
    }
}

#[test]
fn payloads_of_kept_suggestions_are_found() {
    let mut suggestions = Suggestions::default();
    for number in 0..200 {
        let payload = format!("payload {number}");
        let payload = (number % 2 == 0).then_some(payload.as_bytes());
        suggestions.set(format!("text {number}").as_bytes(), number as f32, payload);
    }
    let query = Query::new(b"text", Fuzziness::Exact).unwrap();
    assert!(direct::find(&suggestions.root, &query, 3).is_some());
    let payloads = |suggestions: &Suggestions| -> Vec<Option<Vec<u8>>> {
        suggestions.best(&query, 3).iter().map(|(.., payload)| payload.map(<[u8]>::to_vec)).collect()
    };
    assert_eq!(payloads(&suggestions), [None, Some(b"payload 198".to_vec()), None]);
    suggestions.set(b"text 199", 199.0, Some(b"new"));
    suggestions.set(b"text 198", 198.0, None);
    assert_eq!(payloads(&suggestions), [Some(b"new".to_vec()), Some(b"payload 198".to_vec()), None]);
}

#[test]
fn ranks_are_those_of_redisearch() {
    let mut suggestions = Suggestions::default();
    for i in 0..10u8 {
        assert!(suggestions.set(&[b't', b'e', b's', b't', b'0' + i], f32::from(i) + 1.0, None));
    }
    let shown = |suggestions: &Suggestions, query: &str, fuzziness| -> Vec<String> {
        let found = found(suggestions, query, fuzziness, 3);
        found.iter().map(|(text, rank)| format!("{} {}", String::from_utf8_lossy(text), f64::from(*rank))).collect()
    };
    // From the tests of RediSearch.
    let wanted = ["test9 7.071067810058594", "test8 6.363961219787598", "test7 5.656854152679443"];
    assert_eq!(shown(&suggestions, "test", Fuzziness::Exact), wanted);
    assert_eq!(shown(&suggestions, "TEST", Fuzziness::Exact), wanted);
    // The text that equals the query is first, if it is already folded.
    assert_eq!(shown(&suggestions, "test0", Fuzziness::Exact), ["test0 2147483648"]);
    suggestions.set(b"Test", 1.0, None);
    assert_eq!(shown(&suggestions, "Test", Fuzziness::Exact)[0], wanted[0]);
    assert_eq!(
        shown(&suggestions, "tset9", Fuzziness::Fuzzy),
        [] as [&str; 0],
        "two letters in each other's place are two edits"
    );
    assert_eq!(shown(&suggestions, "tst9", Fuzziness::Fuzzy)[0], "test9 0.956964910030365");
}

#[test]
fn invalid_texts_are_refused() {
    let mut suggestions = Suggestions::default();
    let (long, longest) = ("é".repeat(256), "é".repeat(255));
    for wrong in [&b""[..], long.as_bytes(), &[b'a'; 513]] {
        assert!(!suggestions.set(wrong, 1.0, None) && !suggestions.remove(wrong), "{}", wrong.len());
    }
    assert!(!suggestions.set(b"a", f32::NAN, None));
    assert!(suggestions.is_empty());
    assert!(suggestions.set(longest.as_bytes(), f32::INFINITY, Some(b"")));
    assert_eq!(suggestions.get(longest.as_bytes()), Some((f32::INFINITY, None)));
    assert_eq!(found(&suggestions, "éé", Fuzziness::Exact, 9), [(longest.into_bytes(), f32::INFINITY)]);
    let too_long = |text: &[u8]| Query::new(text, Fuzziness::Exact).err();
    assert_eq!(too_long(&[b'a'; 201]), Some(QueryTooLong::Bytes));
    assert_eq!(too_long(&[b'a'; 101]), Some(QueryTooLong::Characters));
    assert_eq!(too_long(&[b'a'; 100]), None);
}

#[test]
fn any_bytes_are_a_valid_text() {
    let mut suggestions = Suggestions::default();
    let texts = [&b"\xFF\0a"[..], b"\xFF\0\xC3", b"\xC3\xA9t\xC3\xA9", b"\0", b"\xF0\x9F\x98\x80 smile"];
    texts.iter().for_each(|text| assert!(suggestions.set(text, 1.0, None)));
    for text in texts {
        for len in 1..=text.len() {
            // A query that ends within a character matches its bytes only.
            let is_cut = std::str::from_utf8(text).is_ok() && std::str::from_utf8(&text[..len]).is_err();
            let query = Query::new(&text[..len], Fuzziness::Exact).unwrap();
            let best = suggestions.best(&query, 10);
            assert_eq!(best.iter().any(|(found, ..)| found == text), !is_cut, "{text:?} {len}");
        }
    }
}

#[test]
fn a_search_does_not_visit_all_texts_of_equal_rank() {
    let mut suggestions = Suggestions::default();
    for number in 0..if cfg!(miri) { 300 } else { 100_000 } {
        suggestions.set(format!("title {number:06}").as_bytes(), 1.0, None);
    }
    let query = Query::new(b"t", Fuzziness::Exact).unwrap();
    let looked_at = best::visited(&suggestions.root, &query, 10);
    assert!(looked_at < 150, "{looked_at}");
    let first = found(&suggestions, "t", Fuzziness::Exact, 2);
    assert_eq!(first.iter().map(|(text, _)| &**text).collect::<Vec<_>>(), [b"title 000000", b"title 000001"]);
}

#[test]
fn a_search_visits_little_beside_its_results() {
    let random = &mut Random::new(1);
    let mut suggestions = Suggestions::default();
    for _ in 0..if cfg!(miri) { 300 } else { 100_000 } {
        let letters: String = (0..5 + random.below(30)).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        suggestions.set(letters.as_bytes(), random.below(1000) as f32, None);
    }
    for query in ["", "a", "ab", "abc"] {
        let looked_at = best::visited(&suggestions.root, &Query::new(query.as_bytes(), Fuzziness::Exact).unwrap(), 10);
        assert!(looked_at < 700, "{query} {looked_at}");
    }
}

#[test]
fn trimming_removes_results_of_low_rank() {
    let mut suggestions = Suggestions::default();
    for (text, score) in [("ha", 100.0), ("hb", 10.0), ("hc", 9.9), ("hd", 1.0)] {
        suggestions.set(text.as_bytes(), score, None);
    }
    let query = Query::new(b"h", Fuzziness::Exact).unwrap();
    let mut best = suggestions.best(&query, 10);
    assert_eq!(best.len(), 4);
    best.trim();
    assert_eq!(best.iter().map(|(text, ..)| text).collect::<Vec<_>>(), [b"ha", b"hb"]);
}
