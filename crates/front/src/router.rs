//! What a request asks for, by its method, path and query.

use percent_encoding::percent_decode_str;

/// The part of the query that other servers take a token from.
const TOKEN_IN_QUERY: &str = "_token";

/// What a method means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET, HEAD.
    Get,
    /// POST, PUT.
    Post,
}

impl Verb {
    /// The verb of a method, if it is one of those that are understood.
    #[must_use]
    pub fn of(method: &str) -> Option<Verb> {
        match method {
            "GET" | "HEAD" => Some(Verb::Get),
            "POST" | "PUT" => Some(Verb::Post),
            _ => None,
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The figures, for Prometheus.
    Metrics,
    /// A file of the console, by its name; the page itself is ``.
    Console(String),
    /// Commands that the console runs, in the body.
    ConsoleRun,
    /// The file under this path, without the prefix and not decoded.
    File(String),
    /// One command, in the body.
    One,
    /// Commands, in the body.
    Pipeline,
    /// A transaction, in the body.
    Transaction,
    /// A command in the path: its arguments, and those behind the body, which is an argument, too.
    Path {
        /// Before the body.
        args: Vec<Vec<u8>>,
        /// Behind it.
        behind: Vec<Vec<u8>>,
    },
}

/// Tells what is asked for.
///
/// # Errors
/// What is wrong with the path or the query.
pub fn route(verb: Verb, path: &str, query: Option<&str>) -> Result<Route, &'static str> {
    let is_post = verb == Verb::Post;
    if query.is_some_and(|query| pairs(query).any(|(name, _)| name == TOKEN_IN_QUERY)) {
        return Err(
            "ERR a token in the URL ends up in logs and histories: send it as the header 'Authorization: Bearer TOKEN'",
        );
    }
    if let Some(name) = path.strip_prefix("/console/") {
        return Ok(if name == "run" && is_post { Route::ConsoleRun } else { Route::Console(name.to_owned()) });
    }
    if let Some(path) = path.strip_prefix("/files/") {
        return Ok(Route::File(path.to_owned()));
    }
    match path {
        "/metrics" => Ok(Route::Metrics),
        "/" | "" if is_post => Ok(Route::One),
        "/" | "" => Ok(Route::Console(String::new())),
        "/pipeline" if is_post => Ok(Route::Pipeline),
        "/multi-exec" if is_post => Ok(Route::Transaction),
        "/pipeline" | "/multi-exec" => Err("ERR this path takes POST, with the commands as JSON in the body"),
        _ => Ok(command(path, query)),
    }
}

/// A command in the path, and the rest of it in the query: `/set/key?EX=100`.
fn command(path: &str, query: Option<&str>) -> Route {
    let decode = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let args = path.strip_prefix('/').unwrap_or(path).split('/').map(decode).collect();
    let mut behind = Vec::new();
    for (name, value) in pairs(query.unwrap_or_default()) {
        behind.push(decode(name));
        behind.extend(value.map(decode));
    }
    Route::Path { args, behind }
}

/// The pairs of a query, not decoded. What has no `=`, or nothing behind it, is a name alone.
fn pairs(query: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| match part.split_once('=') {
        Some((name, value)) if !value.is_empty() => (name, Some(value)),
        Some((name, _)) => (name, None),
        None => (part, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn paths_are_told_apart() {
        let check = |verb, path, expected| assert_eq!(route(verb, path, None), Ok(expected), "{path}");
        check(Verb::Get, "/", Route::Console("".into()));
        check(Verb::Post, "/", Route::One);
        check(Verb::Get, "/metrics", Route::Metrics);
        check(Verb::Get, "/console/console.js", Route::Console("console.js".into()));
        check(Verb::Post, "/console/run", Route::ConsoleRun);
        check(Verb::Get, "/files/a/b.html", Route::File("a/b.html".into()));
        check(Verb::Post, "/pipeline", Route::Pipeline);
        check(Verb::Post, "/multi-exec", Route::Transaction);
        assert!(route(Verb::Get, "/pipeline", None).is_err());
    }

    #[test]
    fn a_path_is_a_command() {
        let check = |path, query, args: &[&str], behind: &[&str]| {
            let expected = Route::Path { args: words(args), behind: words(behind) };
            assert_eq!(route(Verb::Post, path, query), Ok(expected), "{path} {query:?}");
        };
        check("/set/foo/bar", None, &["set", "foo", "bar"], &[]);
        check("/set/foo", Some("EX=100&NX"), &["set", "foo"], &["EX", "100", "NX"]);
        check("/set/a%2Fb/c%20d", None, &["set", "a/b", "c d"], &[]);
        check("/set/foo/", None, &["set", "foo", ""], &[]);
        check("/echo/%", Some("&x=&"), &["echo", "%"], &["x"]);
    }

    #[test]
    fn secrets_in_urls_are_refused() {
        assert!(route(Verb::Get, "/get/foo", Some("_token=x")).is_err());
        assert!(route(Verb::Get, "/metrics", Some("a=b&_token")).is_err());
    }
}
