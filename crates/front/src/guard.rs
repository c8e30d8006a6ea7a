//! Protection against web pages of other origins that use a visitor's browser to reach the server.
//!
//! Browsers don't add tokens by themselves, so a request with a token is intentional. A server without passwords must
//! rely on the browser's headers: the origin of the request (`Origin`, `Sec-Fetch-Site`), and the server's name in the
//! URL, which must be a name that no foreign DNS server can supply (DNS rebinding).

use std::net::IpAddr;

use hyper::Version;
use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::http::uri::Authority;

/// Headers that the decision is based on, unmodified.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traces<'h> {
    /// `Host`.
    pub host: Option<&'h str>,
    /// `Origin`.
    pub origin: Option<&'h str>,
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<&'h str>,
}

/// Returns the target host of a request: the host of an absolute URI, or else the header `Host`.
///
/// Source: RFC 9112, 3.2 and 3.2.2.
///
/// # Errors
/// The reason why the request is bad.
pub fn host(request: &Parts) -> Result<Option<&str>, &'static str> {
    let mut values = request.headers.get_all(HOST).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err("ERR a request has one header Host");
    }
    if value.is_none() && request.version == Version::HTTP_11 {
        return Err("ERR a request of HTTP/1.1 has a header Host");
    }
    let value = value.map(|value| value.to_str().ok().filter(|value| is_host(value)).ok_or(BAD_HOST)).transpose()?;
    match request.uri.authority().map(Authority::as_str) {
        Some(authority) if is_host(authority) => Ok(Some(authority)),
        Some(_) => Err(BAD_HOST),
        None => Ok(value),
    }
}

const BAD_HOST: &str = "ERR the host of a request is a name or an address, and a port if need be";

/// Returns true if a text is a host with an optional port, or empty. A target without an authority has an empty `Host`.
fn is_host(text: &str) -> bool {
    text.is_empty() || (!text.contains('@') && text.parse::<Authority>().is_ok())
}

/// Checks that a request without a token may run commands.
///
/// # Errors
/// Returns an error text with the reason and the remedy.
pub fn check(traces: Traces<'_>) -> Result<(), &'static str> {
    if !matches!(traces.fetch_site, None | Some("same-origin" | "none")) {
        return Err("ERR a request from another site's web page needs a token");
    }
    let host = traces.host.unwrap_or_default();
    if let Some(origin) = traces.origin
        && !is_same(origin, host)
    {
        return Err("ERR a request from another origin's web page needs a token");
    }
    match traces.host.is_none_or(is_own_name) {
        true => Ok(()),
        false => Err(
            "ERR without a token, the server must be addressed by IP address, as localhost, or by a name without dots",
        ),
    }
}

/// True if an origin (`http://localhost:8080`) has this host.
fn is_same(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(host))
}

/// True if a `Host` is a name that can't belong to a foreign domain.
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
    fn a_request_is_for_one_host() {
        let check = |version: Version, uri: &str, hosts: &[&str], expected: Option<Option<&str>>| {
            let mut request = hyper::Request::builder().version(version).uri(uri);
            for host in hosts {
                request = request.header("host", *host);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(host(&parts).ok(), expected, "{uri} {hosts:?}");
        };
        let (old, new) = (Version::HTTP_10, Version::HTTP_11);
        check(new, "/", &["localhost:1"], Some(Some("localhost:1")));
        check(new, "/", &["[::1]:1"], Some(Some("[::1]:1")));
        check(new, "/", &[""], Some(Some("")));
        check(new, "/", &[], None);
        check(old, "/", &[], Some(None));
        check(new, "/", &["a", "a"], None);
        check(old, "/", &["a", "b"], None);
        check(new, "/", &["a b"], None);
        check(new, "/", &["user@a"], None);
        check(new, "/", &["a/b"], None);
        // The target's host counts.
        check(new, "http://evil.example/", &["localhost"], Some(Some("evil.example")));
        check(new, "http://localhost:1/get/k", &["localhost:1"], Some(Some("localhost:1")));
        check(new, "http://localhost:1/get/k", &[], None);
    }

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
        // A different port is a different origin.
        check(Some("localhost:8080"), Some("http://localhost:3000"), None, false);
        check(Some("localhost:8080"), Some("null"), None, false);
        check(Some("localhost:8080"), None, Some("cross-site"), false);
        check(Some("localhost:8080"), None, Some("same-site"), false);
        // DNS rebinding: the page and the server appear to have the same origin.
        check(Some("evil.example:8080"), Some("http://evil.example:8080"), Some("same-origin"), false);
        check(Some("127.0.0.1.evil.example"), None, None, false);
    }
}
