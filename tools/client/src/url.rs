//! Parses the URL of a server and converts it to a [`Config`]. [`Config::parse`] describes the grammar.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use resp::reply::Proto;

use crate::config::{Config, DEFAULT_PORT};
use crate::error::Error;

const HOST: &str = "127.0.0.1";

const DATABASE: &str = "its database is not a number from 0 up";

/// The parameters of a URL's query.
const PARAMETERS: &str = "db, protocol, client_name, connect_timeout, read_timeout, write_timeout";

/// The contents of a URL, for programs that have other sources of settings, too. Missing parts are `None`;
/// [`Config::parse`] replaces them by defaults.
#[derive(Default)]
#[non_exhaustive]
pub struct Url {
    /// True if the scheme asks for TLS.
    pub tls: bool,
    /// Name or address of the server; an IPv6 address has no brackets.
    pub host: Option<String>,
    /// Port of the server.
    pub port: Option<u16>,
    /// Unix socket of the server. Host and port are `None` then.
    pub socket: Option<PathBuf>,
    /// User name for authentication.
    pub user: Option<Vec<u8>>,
    /// Password.
    pub password: Option<Vec<u8>>,
    /// Database, from the path or the parameter.
    pub db: Option<u32>,
    /// Protocol version.
    pub proto: Option<Proto>,
    /// Client name for CLIENT LIST.
    pub client_name: Option<Vec<u8>>,
    /// See [`Config::connect_timeout`].
    pub connect_timeout: Option<Duration>,
    /// See [`Config::read_timeout`]; `Some(None)` is unlimited.
    pub read_timeout: Option<Option<Duration>>,
    /// See [`Config::write_timeout`]; `Some(None)` is unlimited.
    pub write_timeout: Option<Option<Duration>>,
    /// Names of unknown parameters.
    pub unknown: Vec<String>,
}

impl Url {
    /// Parses a URL. Unknown parameters are no errors.
    ///
    /// # Errors
    /// Returns [`Error::Config`] with a description that never contains a password.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("it has no scheme; write redis://host:port"));
        };
        let (rest, query) = split_query(rest);
        let mut url = match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => parse_tcp(rest)?,
            "rediss" | "valkeys" => Url { tls: true, ..parse_tcp(rest)? },
            "unix" | "redis+unix" | "valkey+unix" => parse_unix(rest)?,
            _ => return Err(wrong("its scheme is not redis, rediss or unix")),
        };
        query.split('&').filter(|pair| !pair.is_empty()).try_for_each(|pair| url.apply(pair))?;
        Ok(url)
    }

    fn apply(&mut self, pair: &str) -> Result<(), Error> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "db" => self.db = Some(number(value, DATABASE)?),
            "protocol" => {
                self.proto = Some(match value {
                    "2" => Proto::Resp2,
                    "3" => Proto::Resp3,
                    _ => return Err(wrong("protocol is neither 2 nor 3")),
                });
            }
            "client_name" => self.client_name = Some(decode(value)?),
            "connect_timeout" => {
                let timeout = seconds(value, name)?.ok_or_else(|| wrong("connect_timeout can't be 0"))?;
                self.connect_timeout = Some(timeout);
            }
            "read_timeout" => self.read_timeout = Some(seconds(value, name)?),
            "write_timeout" => self.write_timeout = Some(seconds(value, name)?),
            unknown => self.unknown.push(unknown.to_owned()),
        }
        Ok(())
    }

    fn into_config(self) -> Config {
        let mut config = match self.socket {
            Some(path) => Config::unix(path),
            None => Config::tcp(self.host.unwrap_or_else(|| HOST.to_owned()), self.port.unwrap_or(DEFAULT_PORT)),
        };
        config.tls = self.tls;
        config.user = self.user;
        config.password = self.password;
        config.client_name = self.client_name;
        config.db = self.db.unwrap_or(config.db);
        config.proto = self.proto.unwrap_or(config.proto);
        config.connect_timeout = self.connect_timeout.unwrap_or(config.connect_timeout);
        config.read_timeout = self.read_timeout.unwrap_or(config.read_timeout);
        config.write_timeout = self.write_timeout.unwrap_or(config.write_timeout);
        config
    }
}

pub(crate) fn parse(text: &str) -> Result<Config, Error> {
    let url = Url::parse(text)?;
    match url.unknown.is_empty() {
        true => Ok(url.into_config()),
        false => Err(wrong(&format!("it has an unknown parameter; known are {PARAMETERS}"))),
    }
}

/// Creates an error. Its text contains no part of the URL, because an unparsable part may belong to a password that
/// isn't encoded.
fn wrong(what: &str) -> Error {
    Error::Config(format!("invalid URL: {what}"))
}

fn decode(text: &str) -> Result<Vec<u8>, Error> {
    let is_code = |code: &str| code.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    // Decoding would silently change an unencoded password with a '%' in it.
    match text.split('%').skip(1).all(is_code) {
        true => Ok(percent_decode_str(text).collect()),
        false => Err(wrong("a '%' is not followed by two hexadecimal digits; write %25 for the character itself")),
    }
}

fn decode_text(text: &str, name: &str) -> Result<String, Error> {
    String::from_utf8(decode(text)?).map_err(|_| wrong(&format!("its {name} isn't UTF-8")))
}

fn number<T: FromStr>(text: &str, otherwise: &str) -> Result<T, Error> {
    text.parse().map_err(|_| wrong(otherwise))
}

/// Splits off the query. Unencoded passwords may contain question marks: a `?` before an `@` begins the query only if a
/// known parameter follows it, as in `?client_name=a@b`. A path at the beginning is not followed by credentials.
fn split_query(rest: &str) -> (&str, &str) {
    let credentials_end = if rest.starts_with('/') { 0 } else { rest.rfind('@').unwrap_or(0) };
    let mut marks = rest.match_indices('?').map(|(at, _)| (&rest[..at], &rest[at + 1..]));
    marks.find(|(before, query)| before.len() >= credentials_end || is_parameter(query)).unwrap_or((rest, ""))
}

fn is_parameter(query: &str) -> bool {
    query.split_once('=').is_some_and(|(name, _)| PARAMETERS.split(", ").any(|known| known == name))
}

/// Splits `authority` at its last `@` into credentials and the rest.
fn split_credentials(authority: &str) -> (Option<&str>, &str) {
    match authority.rsplit_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, authority),
    }
}

fn set_credentials(url: &mut Url, credentials: Option<&str>) -> Result<(), Error> {
    let Some(credentials) = credentials.filter(|text| !text.is_empty()) else { return Ok(()) };
    // A single word is the password, as in redis-cli, because a user name alone can't authenticate.
    let (user, password) = credentials.split_once(':').unwrap_or(("", credentials));
    url.user = Some(decode(user)?).filter(|user| !user.is_empty());
    url.password = Some(decode(password)?);
    Ok(())
}

fn parse_tcp(rest: &str) -> Result<Url, Error> {
    let (authority, db) = split_path(rest);
    let (credentials, place) = split_credentials(authority);
    let (host, port) = split_port(place)?;
    let mut url = Url::default();
    if !host.is_empty() {
        url.host = Some(decode_text(host, "host")?);
    }
    if !port.is_empty() {
        url.port = Some(number(port, "its port is no number from 0 to 65535")?);
    }
    set_credentials(&mut url, credentials)?;
    if !db.is_empty() {
        url.db = Some(number(db, DATABASE)?);
    }
    Ok(url)
}

/// Splits into the authority and the path without its slash. Unencoded passwords may contain a slash: the first slash
/// after the last `@` counts.
fn split_path(rest: &str) -> (&str, &str) {
    let authority_min = rest.rfind('@').unwrap_or(0);
    match rest[authority_min..].find('/') {
        Some(slash) => (&rest[..authority_min + slash], rest[authority_min + slash + 1..].trim_end_matches('/')),
        None => (rest, ""),
    }
}

fn split_port(place: &str) -> Result<(&str, &str), Error> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("its IPv6 address lacks the closing ']'"))?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, port)),
            None if rest.is_empty() => Ok((host, "")),
            None => Err(wrong("something other than a port follows the ']'")),
        };
    }
    let (host, port) = place.split_once(':').unwrap_or((place, ""));
    if port.contains(':') {
        return Err(wrong("an IPv6 address must stand in brackets: redis://[::1]:6379"));
    }
    Ok((host, port))
}

fn parse_unix(rest: &str) -> Result<Url, Error> {
    let (credentials, path) = match rest.starts_with('/') {
        true => (None, rest),
        false => split_credentials(rest),
    };
    if !path.starts_with('/') {
        return Err(wrong("a socket's path begins with a slash: unix:///run/redis.sock"));
    }
    let mut url = Url { socket: Some(OsString::from_vec(decode(path)?).into()), ..Url::default() };
    set_credentials(&mut url, credentials)?;
    Ok(url)
}

fn seconds(text: &str, name: &str) -> Result<Option<Duration>, Error> {
    let no_time = format!("its {name} is no time in seconds");
    let duration = Duration::try_from_secs_f64(number(text, &no_time)?).map_err(|_| wrong(&no_time))?;
    Ok(Some(duration).filter(|duration| !duration.is_zero()))
}

#[cfg(test)]
mod tests;
