//! Routing of requests by method, path and query.

use percent_encoding::percent_decode_str;

/// Query parameter from which other servers take a token.
const TOKEN_IN_QUERY: &str = "_token";

/// Meaning of an HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET, HEAD.
    Get,
    /// POST, PUT.
    Post,
}

impl Verb {
    /// Returns the verb of a supported method.
    #[must_use]
    pub fn of(method: &str) -> Option<Verb> {
        match method {
            "GET" | "HEAD" => Some(Verb::Get),
            "POST" | "PUT" => Some(Verb::Post),
            _ => None,
        }
    }
}

/// Target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Metrics for Prometheus.
    Metrics,
    /// A file of the console, by its name; the page itself has an empty name.
    Console(String),
    /// Commands from the console, in the body.
    ConsoleRun,
    /// The history of the server's figures, for the console.
    ConsoleHistory {
        /// Length of the requested time in seconds.
        span_s: u64,
        /// Unix time in seconds; only later points are requested.
        since_s: u64,
    },
    /// Commands as they run, for the console; rate and filter are in the body.
    ConsoleMonitor,
    /// Published messages, for the console; channels are in the body.
    ConsoleMessages,
    /// The process serves HTTP.
    Health,
    /// Clients can use the server.
    Readiness,
    /// The file under this path, without the prefix and not decoded.
    File(String),
    /// One command, in the body.
    One,
    /// Several commands, in the body.
    Pipeline,
    /// A transaction, in the body.
    Transaction,
    /// A command in the path. The body is an argument, too.
    Path {
        /// Arguments before the body.
        args: Vec<Vec<u8>>,
        /// Arguments after the body.
        behind: Vec<Vec<u8>>,
    },
}

/// Returns the target of a request.
///
/// # Errors
/// Returns an error text for an invalid path or query.
pub fn route(verb: Verb, path: &str, query: Option<&str>) -> Result<Route, &'static str> {
    let is_post = verb == Verb::Post;
    if query.is_some_and(|query| pairs(query).any(|(name, _)| name == TOKEN_IN_QUERY)) {
        return Err(
            "ERR a token in the URL would appear in logs and histories: send it in the header 'Authorization: Bearer TOKEN'",
        );
    }
    if let Some(name) = path.strip_prefix("/console/") {
        return console(name, is_post, query);
    }
    if let Some(path) = path.strip_prefix("/files/") {
        return Ok(Route::File(path.to_owned()));
    }
    match path {
        "/metrics" => Ok(Route::Metrics),
        "/healthz" => Ok(Route::Health),
        "/readyz" => Ok(Route::Readiness),
        // Browsers request it for pages without an icon of their own.
        "/favicon.ico" => Ok(Route::Console("icon.svg".to_owned())),
        "/" | "" if is_post => Ok(Route::One),
        "/" | "" => Ok(Route::Console(String::new())),
        "/pipeline" if is_post => Ok(Route::Pipeline),
        "/multi-exec" if is_post => Ok(Route::Transaction),
        "/pipeline" | "/multi-exec" => Err("ERR this path takes POST, with the commands as JSON in the body"),
        _ => Ok(command(path, query)),
    }
}

/// Returns the target of a request of the console.
fn console(name: &str, is_post: bool, query: Option<&str>) -> Result<Route, &'static str> {
    Ok(match name {
        "run" if is_post => Route::ConsoleRun,
        "monitor" if is_post => Route::ConsoleMonitor,
        "messages" if is_post => Route::ConsoleMessages,
        "history" => Route::ConsoleHistory { span_s: number(query, "span")?, since_s: number(query, "since")? },
        name => Route::Console(name.to_owned()),
    })
}

/// Parses a number in the query; 0 if it is missing.
fn number(query: Option<&str>, wanted: &str) -> Result<u64, &'static str> {
    match pairs(query.unwrap_or_default()).find(|(name, _)| *name == wanted) {
        None => Ok(0),
        Some((_, value)) => {
            value.and_then(|text| text.parse().ok()).ok_or("ERR span and since must be numbers of seconds")
        }
    }
}

/// Parses a command in the path, with further arguments in the query: `/set/key?EX=100`.
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

/// The pairs of a query, not decoded. A part without `=`, or without a value, is only a name.
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
    fn paths_select_routes() {
        let check = |verb, path, expected| assert_eq!(route(verb, path, None), Ok(expected), "{path}");
        check(Verb::Get, "/", Route::Console("".into()));
        check(Verb::Post, "/", Route::One);
        check(Verb::Get, "/metrics", Route::Metrics);
        check(Verb::Get, "/console/console.js", Route::Console("console.js".into()));
        check(Verb::Post, "/console/run", Route::ConsoleRun);
        check(Verb::Post, "/console/monitor", Route::ConsoleMonitor);
        check(Verb::Get, "/console/monitor", Route::Console("monitor".into()));
        check(Verb::Get, "/healthz", Route::Health);
        check(Verb::Get, "/readyz", Route::Readiness);
        check(Verb::Get, "/favicon.ico", Route::Console("icon.svg".into()));
        check(Verb::Get, "/files/a/b.html", Route::File("a/b.html".into()));
        check(Verb::Post, "/pipeline", Route::Pipeline);
        check(Verb::Post, "/multi-exec", Route::Transaction);
        assert!(route(Verb::Get, "/pipeline", None).is_err());
    }

    #[test]
    fn the_history_has_a_span_and_a_start() {
        let check = |query, span_s, since_s| {
            let expected = Route::ConsoleHistory { span_s, since_s };
            assert_eq!(route(Verb::Get, "/console/history", query), Ok(expected), "{query:?}");
        };
        check(None, 0, 0);
        check(Some("span=900"), 900, 0);
        check(Some("since=7&span=900"), 900, 7);
        for query in ["span=", "span=x", "span=-1", "since=99999999999999999999"] {
            assert!(route(Verb::Get, "/console/history", Some(query)).is_err(), "{query}");
        }
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
