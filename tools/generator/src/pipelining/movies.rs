//! Filling an autocompletion index: every prefix of every word of a title leads to the title, in a sorted set.
//!
//! From an article of 2012, "How I used 98840 commands less and saved 4 seconds", with its 10,000 titles. Those have
//! 108,894 prefixes, and so many ZSCOREs a server counts for its script; the article counted 108,840 lines of MONITOR.

use client::Command;

use super::experiments::{PREFIX, Plan, grouped};
use super::way::{Runner, Way, Work};
use crate::failure::Failure;

/// Reads the score once and writes everything about one movie: KEYS are its index sets and last its data.
const SCRIPT: &str = "\
local score = redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0
for i = 1, #KEYS - 1 do
  redis.call('ZADD', KEYS[i], score, ARGV[1])
end
return redis.call('HSET', KEYS[#KEYS], ARGV[1], ARGV[2])";

/// One movie and where it is written.
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

/// Of every word in small letters; a single letter is no prefix worth an entry.
fn prefixes(title: &str) -> Vec<String> {
    let lower = title.to_lowercase();
    let of_word =
        |word: &str| (2..=word.len()).filter_map(|end| word.get(..end)).map(str::to_owned).collect::<Vec<_>>();
    lower.split(' ').flat_map(of_word).collect()
}

/// The experiment with so many movies.
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
        note: "An article of 2012: 20.448, 12.112 and 5.414 seconds for 10,000 movies in the first three ways. It counted 108,840 lines \
               with ZSCORE that MONITOR printed for the first, 98,840 more than movies. Its titles have 108,894 prefixes; \
               the table has what the server counted."
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

/// A score of another run stays; the articles' `to_i` makes 0 of none.
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

/// Loads the script; its name by hash.
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

/// That the script is loaded first makes sure that no EVALSHA of the pipeline can fail for want of it.
fn scripts_in_a_pipeline(runner: &mut Runner<'_>) -> Result<(), Failure> {
    let sha1 = load(runner)?;
    let count = runner.all_parts();
    runner.pipeline((1..=count).map(|number| Movie::new(number).script(&sha1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_titles_have_as_many_prefixes_as_the_article_would_have_counted() {
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
        // th, the, nu..number: 7; number1 to number12; data of 12.
        assert_eq!(keys.len(), 7 + 12 + 12);
    }
}
