//! Keeps web pages of other origins from using a visitor's browser to reach the server.
//!
//! A browser adds no token by itself, so a request that has one was meant. A server without passwords has only what browsers say of
//! themselves: where a request comes from (`Origin`, `Sec-Fetch-Site`), and the name by which the server was found, which must be one
//! that no stranger's domain server can give out (DNS rebinding).

use std::net::IpAddr;

/// The headers that the decision rests on, as they came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traces<'h> {
    /// `Host`.
    pub host: Option<&'h str>,
    /// `Origin`.
    pub origin: Option<&'h str>,
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<&'h str>,
}

/// Whether a request without a token may run commands.
///
/// # Errors
/// Why not, and what to do.
pub fn check(traces: Traces<'_>) -> Result<(), &'static str> {
    if !matches!(traces.fetch_site, None | Some("same-origin" | "none")) {
        return Err("ERR a web page of another site asks: without a token that is refused");
    }
    let host = traces.host.unwrap_or_default();
    if let Some(origin) = traces.origin
        && !is_same(origin, host)
    {
        return Err("ERR a web page of another origin asks: without a token that is refused");
    }
    match traces.host.is_none_or(is_own_name) {
        true => Ok(()),
        false => Err(
            "ERR without a token, the server must be addressed by IP address, as localhost, or by a name without dots",
        ),
    }
}

/// Whether an origin, such as `http://localhost:8080`, is that of this host.
fn is_same(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(host))
}

/// Whether a `Host` is a name that can't belong to a stranger.
fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.parse::<IpAddr>().is_ok() || !name.contains('.') || name.to_ascii_lowercase().ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_origins_are_refused() {
        let check = |host, origin, fetch_site, expected: bool| {
            let traces = Traces { host, origin, fetch_site };
            assert_eq!(check(traces).is_ok(), expected, "{traces:?}");
        };
        check(Some("localhost:8080"), None, None, true);
        check(None, None, None, true);
        check(Some("127.0.0.1:8080"), Some("http://127.0.0.1:8080"), Some("same-origin"), true);
        check(Some("[::1]:8080"), Some("http://[::1]:8080"), None, true);
        check(Some("cache:8080"), None, Some("none"), true);
        check(Some("a.localhost"), None, None, true);
        // Another port is another origin.
        check(Some("localhost:8080"), Some("http://localhost:3000"), None, false);
        check(Some("localhost:8080"), Some("null"), None, false);
        check(Some("localhost:8080"), None, Some("cross-site"), false);
        check(Some("localhost:8080"), None, Some("same-site"), false);
        // Rebinding: the page and the server seem to be the same.
        check(Some("evil.example:8080"), Some("http://evil.example:8080"), Some("same-origin"), false);
        check(Some("127.0.0.1.evil.example"), None, None, false);
    }
}
