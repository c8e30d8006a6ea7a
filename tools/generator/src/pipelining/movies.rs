//! Filling an autocompletion index: a sorted set for every prefix of every word of a title contains the title.
//!
//! The experiment follows an article of 2012, "How I used 98840 commands less and saved 4 seconds", with its 10,000
//! titles. They have 108,894 prefixes, and a server counts this number of ZSCOREs for the article's script. The article
//! counted 108,840 lines of MONITOR.

use client::Command;

use super::experiments::{PREFIX, Plan};
use super::way::{Runner, Way, Work};
use crate::failure::Failure;
use crate::report::grouped;

/// Reads the score once and writes all data of one movie. KEYS are its index sets, followed by its data key.
const SCRIPT: &str = "\
local score = redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0
for i = 1, #KEYS - 1 do
  redis.call('ZADD', KEYS[i], score, ARGV[1])
end
return redis.call('HSET', KEYS[#KEYS], ARGV[1], ARGV[2])";

/// A movie with its keys.
struct Movie {
    title: String,
    about: String,
    index: Vec<String>,
    data: String,
}

impl Movie {
    fn new(number: u64) -> Movie {
        let title = format!("The Number{number}");
        let index = prefixes(&title).iter().map(|prefix| format!("{PREFIX}movies:index:{prefix}")).collect();
        let data = format!("{PREFIX}movies:data:Number{number}");
        Movie { title, about: format!("This is Number {number}"), index, data }
    }

    fn zscore(&self, index: &str) -> Command {
        Command::new("ZSCORE").arg(index).arg(&self.title)
    }

    fn zadd(&self, index: &str, score: i64) -> Command {
        Command::new("ZADD").arg(index).arg(score).arg(&self.title)
    }

    fn hset(&self) -> Command {
        Command::new("HSET").arg(&self.data).arg(&self.title).arg(&self.about)
    }

    fn writes(&self, score: i64) -> impl Iterator<Item = Command> {
        self.index.iter().map(move |index| self.zadd(index, score)).chain([self.hset()])
    }

    fn script(&self, sha1: &[u8]) -> Command {
        let keys = self.index.len() + 1;
        let call = Command::new("EVALSHA").arg(sha1).arg(keys).args(&self.index).arg(&self.data);
        call.arg(&self.title).arg(&self.about)
    }
}

/// Returns the prefixes of every word in lower case. A single letter is too short for an entry.
fn prefixes(title: &str) -> Vec<String> {
    let lower = title.to_lowercase();
    let of_word =
        |word: &str| (2..=word.len()).filter_map(|end| word.get(..end)).map(str::to_owned).collect::<Vec<_>>();
    lower.split(' ').flat_map(of_word).collect()
}

/// Returns the experiment with `count` movies.
#[must_use]
pub fn plan(count: u64) -> Plan<'static> {
    let way = |label: &str, document_s, work: Work<'static>| Way {
        label: label.to_owned(),
        parts: count,
        document_s,
        keeps_keys: false,
        does: "",
        work,
    };
    Plan {
        id: "movies",
        title: format!("{} movies into an autocompletion index", grouped(count)),
        note: "\"How I used 98840 commands less and saved 4 seconds\", an article of 2012: 20.448, 12.112 and 5.414 seconds \
               for 10,000 movies in the first three ways. It counted 108,840 lines with ZSCORE that MONITOR printed for the \
               first, 98,840 more than movies. Its titles have 108,894 prefixes; the table has what the server counted."
            .to_owned(),
        ways: vec![
            way("a ZSCORE for every prefix", Some(20.448), Box::new(score_for_every_prefix)),
            way("one ZSCORE per movie", Some(12.112), Box::new(score_for_every_movie)),
            way("writes in a pipeline", Some(5.414), Box::new(writes_in_a_pipeline)),
            way("one script per movie", None, Box::new(script_for_every_movie)),
            way("all scripts in a pipeline", None, Box::new(scripts_in_a_pipeline)),
        ],
        keys: keys(count),
    }
}

fn keys(count: u64) -> Vec<String> {
    let mut keys: Vec<String> =
        (1..=count).map(Movie::new).flat_map(|movie| [movie.index, vec![movie.data]].concat()).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Returns the score. A score from another run is kept; a missing one is 0, like the articles' `to_i`.
fn score(runner: &mut Runner<'_>, movie: &Movie, index: &str) -> Result<i64, Failure> {
    let reply = runner.step(&movie.zscore(index))?;
    let text = reply.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Ok(text.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) as i64)
}

fn score_for_every_prefix(runner: &mut Runner<'_>) -> Result<(), Failure> {
    while let Some(number) = runner.next_part() {
        let movie = Movie::new(number + 1);
        for index in &movie.index {
            let score = score(runner, &movie, index)?;
            runner.step(&movie.zadd(index, score))?;
        }
        runner.step(&movie.hset())?;
    }
    Ok(())
}

fn score_for_every_movie(runner: &mut Runner<'_>) -> Result<(), Failure> {
    while let Some(number) = runner.next_part() {
        let movie = Movie::new(number + 1);
        let score = score(runner, &movie, &movie.index[0])?;
        for write in movie.writes(score) {
            runner.step(&write)?;
        }
    }
    Ok(())
}

fn writes_in_a_pipeline(runner: &mut Runner<'_>) -> Result<(), Failure> {
    while let Some(number) = runner.next_part() {
        let movie = Movie::new(number + 1);
        let score = score(runner, &movie, &movie.index[0])?;
        runner.pipeline(movie.writes(score))?;
    }
    Ok(())
}

/// Loads the script and returns its hash.
fn load(runner: &mut Runner<'_>) -> Result<Vec<u8>, Failure> {
    let reply = runner.step(&["SCRIPT", "LOAD", SCRIPT])?;
    let sha1 = reply.bytes().map(<[u8]>::to_vec);
    sha1.ok_or_else(|| Failure::Server(format!("SCRIPT LOAD was answered with {reply:?}")))
}

fn script_for_every_movie(runner: &mut Runner<'_>) -> Result<(), Failure> {
    let sha1 = load(runner)?;
    while let Some(number) = runner.next_part() {
        runner.step(&Movie::new(number + 1).script(&sha1))?;
    }
    Ok(())
}

/// Runs all scripts in a pipeline. The script is loaded first, so that no EVALSHA fails with NOSCRIPT.
fn scripts_in_a_pipeline(runner: &mut Runner<'_>) -> Result<(), Failure> {
    let sha1 = load(runner)?;
    let count = runner.all_parts();
    runner.pipeline((1..=count).map(|number| Movie::new(number).script(&sha1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_titles_have_the_number_of_prefixes_that_a_server_counts() {
        assert_eq!(
            prefixes("The Number12"),
            ["th", "the", "nu", "num", "numb", "numbe", "number", "number1", "number12"]
        );
        let all: usize = (1..=10_000).map(|number| Movie::new(number).index.len()).sum();
        assert_eq!(all, 108_894);
    }

    #[test]
    fn all_ways_write_the_same_keys() {
        let keys = keys(12);
        assert!(keys.contains(&format!("{PREFIX}movies:index:number12")));
        assert!(keys.contains(&format!("{PREFIX}movies:data:Number12")));
        // "the" and "number" have 7 prefixes together; number1 to number12, and the data of 12 movies.
        assert_eq!(keys.len(), 7 + 12 + 12);
    }
}
