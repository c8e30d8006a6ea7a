//! The default tests: redis-benchmark's, with its names and in its order.

use crate::generator::{TAG, Template};

/// A test: its name in reports, its names for `-t`, and its request.
pub struct Test {
    /// Name in reports.
    pub title: &'static str,
    /// Names for `-t`, in lower case.
    names: &'static [&'static str],
    request: Request,
}

enum Request {
    /// An inline command.
    Inline(&'static str),
    /// A command; blanks separate its words.
    Words(&'static str),
    /// MSET with ten keys and values.
    Mset,
}

const LIST_LENGTH_MAX: &[&str] = &["lrange", "lrange_100", "lrange_300", "lrange_500", "lrange_600"];

const fn test(title: &'static str, names: &'static [&'static str], words: &'static str) -> Test {
    Test { title, names, request: Request::Words(words) }
}

/// All tests.
pub const TESTS: &[Test] = &[
    Test { title: "PING_INLINE", names: &["ping_inline", "ping"], request: Request::Inline("PING\r\n") },
    test("PING_MBULK", &["ping_mbulk", "ping"], "PING"),
    test("SET", &["set"], "SET key:__rand_int__ __data__"),
    test("GET", &["get"], "GET key:__rand_int__"),
    test("INCR", &["incr"], "INCR counter:__rand_int__"),
    test("LPUSH", &["lpush"], "LPUSH mylist __data__"),
    test("RPUSH", &["rpush"], "RPUSH mylist __data__"),
    test("LPOP", &["lpop"], "LPOP mylist"),
    test("RPOP", &["rpop"], "RPOP mylist"),
    test("SADD", &["sadd"], "SADD myset element:__rand_int__"),
    test("HSET", &["hset"], "HSET myhash element:__rand_int__ __data__"),
    test("SPOP", &["spop"], "SPOP myset"),
    test("ZADD", &["zadd"], "ZADD myzset __rand_int__ element:__rand_int__"),
    test("ZPOPMIN", &["zpopmin"], "ZPOPMIN myzset"),
    test("LPUSH (needed to benchmark LRANGE)", LIST_LENGTH_MAX, "LPUSH mylist __data__"),
    test("LRANGE_100 (first 100 elements)", &["lrange", "lrange_100"], "LRANGE mylist 0 99"),
    test("LRANGE_300 (first 300 elements)", &["lrange", "lrange_300"], "LRANGE mylist 0 299"),
    test("LRANGE_500 (first 500 elements)", &["lrange", "lrange_500"], "LRANGE mylist 0 499"),
    test("LRANGE_600 (first 600 elements)", &["lrange", "lrange_600"], "LRANGE mylist 0 599"),
    Test { title: "MSET (10 keys)", names: &["mset"], request: Request::Mset },
];

impl Test {
    /// Returns the request of the test.
    #[must_use]
    pub fn template(&self, data: &[u8], randomize: bool) -> Template {
        match self.request {
            Request::Inline(line) => Template::raw(line.as_bytes().to_vec(), false),
            Request::Words(words) => {
                let words: Vec<&str> = words.split(' ').map(|word| numeric_score(word, randomize)).collect();
                Template::new(&words, data, randomize)
            }
            Request::Mset => Template::new(&mset("key:__rand_int__"), data, randomize),
        }
    }

    /// Returns the request of the test for a cluster: the keys contain a hash tag.
    #[must_use]
    pub fn cluster_template(&self, data: &[u8], randomize: bool) -> Template {
        match self.request {
            Request::Inline(_) => self.template(data, randomize),
            Request::Words(words) => {
                let mut words: Vec<String> =
                    words.split(' ').map(|word| numeric_score(word, randomize).to_owned()).collect();
                if let Some(key) = words.get_mut(1) {
                    *key = with_tag(key);
                }
                Template::new(&words, data, randomize).with_tags()
            }
            Request::Mset => Template::new(&mset(&with_tag("key:__rand_int__")), data, randomize).with_tags(),
        }
    }
}

fn mset(key: &str) -> Vec<&str> {
    [&["MSET"], [key, "__data__"].repeat(10).as_slice()].concat()
}

/// Returns a key with a hash tag before its number, like redis-benchmark's.
fn with_tag(key: &str) -> String {
    let (name, number) = key.split_at(key.find(':').unwrap_or(key.len()));
    format!("{name}{TAG}{number}")
}

/// Without random numbers a placeholder is sent literally, which isn't a valid score. redis-benchmark sends 0 in this
/// case, too.
fn numeric_score(word: &'static str, randomize: bool) -> &'static str {
    if word == "__rand_int__" && !randomize { "0" } else { word }
}

/// Returns the tests in a list like `set,get`, in the order of the table. An unknown name is an error.
pub fn choose(list: Option<&str>) -> Result<Vec<&'static Test>, String> {
    let Some(list) = list else { return Ok(TESTS.iter().collect()) };
    let wanted: Vec<String> = list.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    for name in &wanted {
        if !TESTS.iter().any(|test| test.names.contains(&name.as_str())) {
            return Err(format!("there is no test {name:?}; the tests are {}", known_names().join(", ")));
        }
    }
    Ok(TESTS.iter().filter(|test| test.names.iter().any(|name| wanted.iter().any(|w| w == name))).collect())
}

fn known_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for name in TESTS.iter().flat_map(|test| test.names) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_as_those_of_redis_benchmark() {
        let titles = |list| choose(Some(list)).unwrap().iter().map(|test| test.title).collect::<Vec<_>>();
        assert_eq!(titles("get,SET"), ["SET", "GET"]);
        assert_eq!(titles("ping"), ["PING_INLINE", "PING_MBULK"]);
        assert_eq!(titles("lrange_300"), ["LPUSH (needed to benchmark LRANGE)", "LRANGE_300 (first 300 elements)"]);
        assert_eq!(choose(None).unwrap().len(), 20);
        assert!(choose(Some("get,nope")).is_err_and(|text| text.contains("\"nope\"") && text.contains("lrange_600")));
    }

    #[test]
    fn keys_of_a_cluster_have_tags() {
        let text = |list| format!("{:?}", choose(Some(list)).unwrap()[0].cluster_template(b"xyz", true));
        let has = |list, words: &[&str]| {
            let bytes = |word: &str| word.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
            words.iter().all(|word| text(list).contains(&bytes(word)))
        };
        assert!(has("set", &["key{tag}:__rand_int__", "xyz"]));
        assert!(has("lpush", &["mylist{tag}"]) && has("mset", &["key{tag}:__rand_int__"]));
        assert_eq!(with_tag("counter:__rand_int__"), "counter{tag}:__rand_int__");
    }

    #[test]
    fn every_test_has_one_title() {
        for (i, test) in TESTS.iter().enumerate() {
            assert!(TESTS[i + 1..].iter().all(|other| other.title != test.title), "{}", test.title);
        }
    }
}
