//! URLs of servers to [`Config`]. The grammar is described at [`Config::parse`].

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use resp::reply::Proto;

use crate::config::{Config, DEFAULT_PORT};
use crate::error::Error;

const HOST: &str = "127.0.0.1";

pub(crate) fn parse(url: &str) -> Result<Config, Error> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(wrong("it has no scheme; write redis://host:port"));
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut config = match scheme.to_ascii_lowercase().as_str() {
        "redis" | "valkey" => parse_tcp(rest)?,
        "rediss" | "valkeys" => Config { tls: true, ..parse_tcp(rest)? },
        "unix" | "redis+unix" | "valkey+unix" => parse_unix(rest)?,
        other => return Err(wrong(&format!("the scheme is '{other}', not redis, rediss or unix"))),
    };
    query.split('&').filter(|pair| !pair.is_empty()).try_for_each(|pair| apply(&mut config, pair))?;
    Ok(config)
}

fn wrong(what: &str) -> Error {
    Error::Config(format!("this URL can't be used: {what}"))
}

fn decode(text: &str) -> Result<Vec<u8>, Error> {
    let is_code = |code: &str| code.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    // A password with a '%' in it that isn't encoded would become another one.
    match text.split('%').skip(1).all(is_code) {
        true => Ok(percent_decode_str(text).collect()),
        false => Err(wrong("a '%' is not followed by two hexadecimal digits; write %25 for the character itself")),
    }
}

fn decode_text(text: &str, name: &str) -> Result<String, Error> {
    String::from_utf8(decode(text)?).map_err(|_| wrong(&format!("its {name} isn't UTF-8")))
}

fn number<T: FromStr>(text: &str, name: &str) -> Result<T, Error> {
    text.parse().map_err(|_| wrong(&format!("its {name} is '{text}', which is no such number")))
}

/// What stands before the last `@` of `authority`, and what follows it.
fn split_credentials(authority: &str) -> (Option<&str>, &str) {
    match authority.rsplit_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, authority),
    }
}

fn set_credentials(config: &mut Config, credentials: Option<&str>) -> Result<(), Error> {
    let Some(credentials) = credentials.filter(|text| !text.is_empty()) else { return Ok(()) };
    // A lone word is the password, as for redis-cli: a name alone couldn't authenticate anybody.
    let (user, password) = credentials.split_once(':').unwrap_or(("", credentials));
    config.user = Some(decode(user)?).filter(|user| !user.is_empty());
    config.password = Some(decode(password)?);
    Ok(())
}

fn parse_tcp(rest: &str) -> Result<Config, Error> {
    let (authority, db) = split_path(rest);
    let (credentials, place) = split_credentials(authority);
    let (host, port) = split_port(place)?;
    let host = if host.is_empty() { HOST.to_owned() } else { decode_text(host, "host")? };
    let port = if port.is_empty() { DEFAULT_PORT } else { number(port, "port")? };
    let mut config = Config::tcp(host, port);
    set_credentials(&mut config, credentials)?;
    if !db.is_empty() {
        config.db = number(db, "database")?;
    }
    Ok(config)
}

/// The authority and the path without its slash. Passwords that aren't encoded may hold a slash: the first one behind
/// the last `@` counts.
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

fn parse_unix(rest: &str) -> Result<Config, Error> {
    let (credentials, path) = match rest.starts_with('/') {
        true => (None, rest),
        false => split_credentials(rest),
    };
    if !path.starts_with('/') {
        return Err(wrong("a socket's path begins with a slash: unix:///run/redis.sock"));
    }
    let mut config = Config::unix(OsString::from_vec(decode(path)?));
    set_credentials(&mut config, credentials)?;
    Ok(config)
}

fn apply(config: &mut Config, pair: &str) -> Result<(), Error> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    match name {
        "db" => config.db = number(value, "database")?,
        "protocol" => {
            config.proto = match value {
                "2" => Proto::Resp2,
                "3" => Proto::Resp3,
                _ => return Err(wrong("protocol is neither 2 nor 3")),
            }
        }
        "client_name" => config.client_name = Some(decode(value)?),
        "connect_timeout" => {
            config.connect_timeout = seconds(value, name)?.ok_or_else(|| wrong("connect_timeout can't be 0"))?;
        }
        "read_timeout" => config.read_timeout = seconds(value, name)?,
        "write_timeout" => config.write_timeout = seconds(value, name)?,
        _ => {
            let known = "db, protocol, client_name, connect_timeout, read_timeout, write_timeout";
            return Err(wrong(&format!("it has a parameter '{name}'; known are {known}")));
        }
    }
    Ok(())
}

fn seconds(text: &str, name: &str) -> Result<Option<Duration>, Error> {
    let duration = Duration::try_from_secs_f64(number(text, name)?);
    let duration = duration.map_err(|_| wrong(&format!("its {name} is '{text}', which is no time in seconds")))?;
    Ok(Some(duration).filter(|duration| !duration.is_zero()))
}

#[cfg(test)]
mod tests;
