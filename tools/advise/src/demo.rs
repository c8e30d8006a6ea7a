//! `penstock advise demo`: runs an import with too many round trips, shows its finding, and runs the rewritten import.
//!
//! The import follows an article of 2012, "How I used 98840 commands less and saved 4 seconds". It adds each movie to a
//! sorted set for each prefix of its title, and reads the movie's score again before each write. The article counted
//! 108,840 reads in MONITOR's output, of which 10,000 would do. A server counts 108,894.

use std::io::{self, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use advisor::report::count;
use client::{Command, Connection, Pipeline, Value};
use generator::{Embedded, Failure, Interrupt};

/// Time limit for the server to notice that the import's connection has ended.
const END_MAX: Duration = Duration::from_secs(5);
/// Interval at which the end is checked.
const INTERVAL: Duration = Duration::from_millis(20);
/// The language of the article's script.
const LANGUAGE: &[u8] = b"Ruby";

/// Runs the demonstration with this number of movies.
///
/// # Errors
/// Fails if the server does not start or the output can't be written.
pub fn run(movies: u64) -> Result<(), Failure> {
    let server = Embedded::start(&Interrupt::watch().map_err(local)?)?;
    let mut output = io::stdout().lock();
    say(&mut output, &format!("A Penstock server listens on {}.", server.config().address))?;
    let (commands, published) = timed(&server, movies, publish)?;
    say(
        &mut output,
        &format!("\n1. The import as published: ZSCORE and ZADD for each prefix of {} titles.", count(movies)),
    )?;
    say(&mut output, &format!("   {} commands one by one: {published:.2} s", count(commands)))?;
    say(&mut output, "\n2. ADVISE LIST and ADVISE GET show the repeated reads:")?;
    for line in finding(&server)? {
        say(&mut output, &format!("   {line}"))?;
    }
    let (fewer, rewritten) = timed(&server, movies, rewrite)?;
    say(&mut output, "\n3. The rewritten import: one ZSCORE for each movie, and its writes in one pipeline.")?;
    say(&mut output, &format!("   {} commands, {} round trips: {rewritten:.2} s", count(fewer), count(2 * movies)))?;
    let saved = published - rewritten;
    say(&mut output, &format!("\n{} commands less, {saved:.2} s saved", count(commands - fewer)))
}

fn say(output: &mut impl Write, text: &str) -> Result<(), Failure> {
    match writeln!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        written => written.map_err(local),
    }
}

fn local(error: io::Error) -> Failure {
    Failure::Local(error.to_string())
}

fn of_server(error: impl std::fmt::Display) -> Failure {
    Failure::Server(error.to_string())
}

/// Runs an import on an empty database. Returns the number of its commands, and its time in seconds.
fn timed(
    server: &Embedded,
    movies: u64,
    import: fn(&mut Connection, &Movie) -> Result<u64, Failure>,
) -> Result<(u64, f64), Failure> {
    connect(server, "setup")?.command(&["FLUSHALL"]).map_err(of_server)?;
    let mut connection = connect(server, "import")?;
    let (began, mut commands) = (Instant::now(), 0);
    for number in 1..=movies {
        commands += import(&mut connection, &Movie::new(number))?;
    }
    Ok((commands, began.elapsed().as_secs_f64()))
}

fn connect(server: &Embedded, name: &str) -> Result<Connection, Failure> {
    let mut config = server.config();
    config.client_name = Some(name.as_bytes().to_vec());
    Connection::connect(&config).map_err(of_server)
}

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
        let words = title.to_lowercase();
        // A single letter is too short for an entry.
        let prefixes = words.split(' ').flat_map(|word| (2..=word.len()).filter_map(|end| word.get(..end)));
        let index = prefixes.map(|prefix| format!("testing:redis:index:{prefix}")).collect();
        let data = format!("testing:redis:data:Number{number}");
        Movie { about: format!("This is Number {number}"), index, data, title }
    }

    /// Reads the movie's score from one of its sets. A missing score counts as 0.
    fn score(&self, connection: &mut Connection, index: &str) -> Result<Vec<u8>, Failure> {
        let reply = connection.command(&Command::new("ZSCORE").arg(index).arg(&self.title)).map_err(of_server)?;
        Ok(reply.bytes().unwrap_or(b"0").to_vec())
    }

    fn zadd(&self, index: &str, score: &[u8]) -> Command {
        Command::new("ZADD").arg(index).arg(score).arg(&self.title)
    }

    fn hset(&self) -> Command {
        Command::new("HSET").arg(&self.data).arg(&self.title).arg(&self.about)
    }
}

/// Imports a movie as published: reads the score before each write.
fn publish(connection: &mut Connection, movie: &Movie) -> Result<u64, Failure> {
    for index in &movie.index {
        let score = movie.score(connection, index)?;
        connection.command(&movie.zadd(index, &score)).map_err(of_server)?;
    }
    connection.command(&movie.hset()).map_err(of_server)?;
    Ok(2 * movie.index.len() as u64 + 1)
}

/// Imports a movie with one read and one pipeline.
fn rewrite(connection: &mut Connection, movie: &Movie) -> Result<u64, Failure> {
    let score = movie.score(connection, movie.index.first().map_or("", String::as_str))?;
    let mut pipeline = Pipeline::new();
    for index in &movie.index {
        pipeline.add(&movie.zadd(index, &score));
    }
    pipeline.add(&movie.hset());
    pipeline.run(connection).map_err(of_server)?;
    Ok(pipeline.len() as u64 + 1)
}

/// Returns the lines about the repeated reads: the traffic, the remedy, and the code.
fn finding(server: &Embedded) -> Result<Vec<String>, Failure> {
    let mut connection = connect(server, "setup")?;
    wait_for_end(&mut connection)?;
    let list = connection.command(&["ADVISE", "LIST", "COUNT", "-1"]).map_err(of_server)?;
    let Value::Array(findings) = list else { return Ok(Vec::new()) };
    let is_repeated = |finding: &&Value| field(finding, b"kind").and_then(Value::bytes) == Some(b"repeated-read");
    let Some(found) = findings.iter().find(is_repeated) else { return Ok(vec!["nothing".to_owned()]) };
    let text = |value: Option<&Value>| {
        let bytes = value.and_then(Value::bytes).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let id = text(field(found, b"id"));
    let all = connection.command(&["ADVISE", "GET", &id]).map_err(of_server)?;
    let code = text(field(&all, b"code").and_then(|code| field(code, LANGUAGE)));
    let about = [text(field(found, b"seen")), format!("-> {}", text(field(found, b"remedy")))];
    Ok(about.into_iter().chain(code.lines().map(|line| format!("   {line}"))).collect())
}

/// Waits until the server has closed all other connections, because it reports unfinished loops at their end.
fn wait_for_end(connection: &mut Connection) -> Result<(), Failure> {
    let began = Instant::now();
    while began.elapsed() < END_MAX {
        let list = connection.command(&["CLIENT", "LIST"]).map_err(of_server)?;
        if list.bytes().is_some_and(|list| list.trim_ascii_end().iter().all(|byte| *byte != b'\n')) {
            break;
        }
        sleep(INTERVAL);
    }
    Ok(())
}

/// Returns a field of a flat map in RESP2.
fn field<'v>(map: &'v Value, name: &[u8]) -> Option<&'v Value> {
    let Value::Array(parts) = map else { return None };
    parts.chunks_exact(2).find(|pair| pair[0].bytes() == Some(name)).map(|pair| &pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_titles_have_as_many_prefixes_as_the_script_reads() {
        let prefixes: usize = (1..=10_000).map(|number| Movie::new(number).index.len()).sum();
        assert_eq!(prefixes, 108_894);
    }
}
