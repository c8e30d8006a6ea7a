use super::*;
use crate::config::Address;

fn parsed(url: &str) -> Config {
    parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn check_tcp(url: &str, host: &str, port: u16, db: u32) {
    let config = parsed(url);
    assert_eq!(config.address, Address::Tcp { host: host.to_owned(), port }, "{url}");
    assert_eq!(config.db, db, "{url}");
}

fn check_credentials(url: &str, user: Option<&str>, password: Option<&str>) {
    let config = parsed(url);
    assert_eq!(config.user.as_deref(), user.map(str::as_bytes), "{url}");
    assert_eq!(config.password.as_deref(), password.map(str::as_bytes), "{url}");
}

fn check_wrong(url: &str, part: &str) {
    match parse(url) {
        Ok(config) => panic!("{url} became {config:?}"),
        Err(error) => assert!(error.to_string().contains(part), "{url}: {error}"),
    }
}

#[test]
fn hosts_ports_and_databases() {
    check_tcp("redis://", "127.0.0.1", 6379, 0);
    check_tcp("redis://example.com", "example.com", 6379, 0);
    check_tcp("REDIS://example.com/", "example.com", 6379, 0);
    check_tcp("valkey://example.com:7000/3", "example.com", 7000, 3);
    check_tcp("redis://:7000", "127.0.0.1", 7000, 0);
    check_tcp("redis://[::1]:7000/1", "::1", 7000, 1);
    check_tcp("redis://[::1]", "::1", 6379, 0);
    check_tcp("redis://a@h:1/2", "h", 1, 2);
    check_tcp("redis://h/2?db=5", "h", 6379, 5);
    assert!(parsed("rediss://h").tls && parsed("valkeys://h").tls && !parsed("redis://h").tls);
}

#[test]
fn credentials() {
    check_credentials("redis://h", None, None);
    check_credentials("redis://u:p@h", Some("u"), Some("p"));
    check_credentials("redis://:p@h", None, Some("p"));
    check_credentials("redis://p@h", None, Some("p"));
    check_credentials("redis://u:a%40b%3a%2F@h", Some("u"), Some("a@b:/"));
    check_credentials("redis://u:a:b/c#@h/1", Some("u"), Some("a:b/c#"));
    check_credentials("unix://u:p@/run/x", Some("u"), Some("p"));
    check_credentials("unix:///run/a@b", None, None);
}

#[test]
fn a_password_that_is_not_encoded_may_hold_question_marks() {
    check_credentials("redis://u2:pa?ss@h", Some("u2"), Some("pa?ss"));
    check_credentials("redis://u:?p??@h:1/2?db=3", Some("u"), Some("?p??"));
    check_tcp("redis://u:pa?ss@h:7000/2?db=3", "h", 7000, 3);
    check_tcp("redis://u:pa?s=s&t@h:7000/2", "h", 7000, 2);
    check_credentials("unix://u:pa?ss@/run/x?db=1", Some("u"), Some("pa?ss"));
    assert_eq!(parsed("unix://u:pa?ss@/run/x?db=1").address, Address::Unix("/run/x".into()));
    // The rest is a query, even with an `@` in it.
    check_credentials("redis://h?client_name=a@b", None, None);
    check_credentials("redis://u:p@h?client_name=a@b&db=4", Some("u"), Some("p"));
    check_tcp("redis://u:p@h?client_name=a@b&db=4", "h", 6379, 4);
    assert_eq!(parsed("unix:///run/x?client_name=a@b").client_name.as_deref(), Some(&b"a@b"[..]));
    check_wrong("unix:///run/x?a@b", "known are db");
}

#[test]
fn sockets_in_the_file_system() {
    for url in ["unix:///run/a%20b?db=2", "redis+unix:///run/a%20b?db=2", "valkey+unix:///run/a%20b?db=2"] {
        let config = parsed(url);
        assert_eq!(config.address, Address::Unix("/run/a b".into()), "{url}");
        assert_eq!(config.db, 2, "{url}");
    }
}

#[test]
fn parameters() {
    let config = parsed("redis://h?protocol=3&client_name=a%20b&connect_timeout=0.5&read_timeout=0&write_timeout=2");
    assert_eq!(config.proto, Proto::Resp3);
    assert_eq!(config.client_name.as_deref(), Some(&b"a b"[..]));
    assert_eq!(config.connect_timeout, Duration::from_millis(500));
    assert_eq!(config.read_timeout, None);
    assert_eq!(config.write_timeout, Some(Duration::from_secs(2)));
}

#[test]
fn missing_parts_are_none() {
    let url = |text| Url::parse(text).unwrap();
    let bare = url("redis://");
    assert!(bare.host.is_none() && bare.port.is_none() && bare.db.is_none() && bare.password.is_none());
    assert!(bare.proto.is_none() && bare.read_timeout.is_none() && bare.connect_timeout.is_none());
    let default = url("redis://127.0.0.1:6379/0?protocol=2&read_timeout=0");
    assert_eq!((default.host.as_deref(), default.port, default.db), (Some("127.0.0.1"), Some(6379), Some(0)));
    assert_eq!((default.proto, default.read_timeout), (Some(Proto::Resp2), Some(None)));
    assert_eq!(url("unix:///run/x").socket, Some("/run/x".into()));
    assert_eq!(url("redis://h?retries=3&db=1&x").unknown, ["retries", "x"]);
}

#[test]
fn invalid_urls_get_a_message() {
    check_wrong("localhost:6379", "no scheme");
    check_wrong("http://h", "scheme");
    check_wrong("redis://h:port", "port is no number");
    check_wrong("redis://h:70000", "port is no number from 0 to 65535");
    check_wrong("redis://h/one", "database is not a number");
    check_wrong("redis://h/-1", "database is not a number");
    check_wrong("redis://::1", "brackets");
    check_wrong("redis://[::1", "']'");
    check_wrong("redis://[::1]x", "']'");
    check_wrong("unix://relative", "slash");
    check_wrong("redis://h?protocol=4", "neither 2 nor 3");
    check_wrong("redis://h?connect_timeout=0", "can't be 0");
    check_wrong("redis://h?read_timeout=-1", "no time in seconds");
    check_wrong("redis://h?read_timeout=NaN", "no time in seconds");
    check_wrong("redis://h?retries=3", "unknown parameter; known are db, protocol, client_name");
    check_wrong("redis://%ff", "UTF-8");
    for url in [
        "redis://:100%@h",
        "redis://:a%zz@h",
        "redis://:a%4@h",
        "redis://%é",
        "unix:///a%",
        "redis://h?client_name=%x1",
    ] {
        check_wrong(url, "write %25");
    }
}

#[test]
fn a_password_stays_secret() {
    assert!(!format!("{:?}", parsed("redis://u:hush@h")).contains("hush"));
    check_wrong("redis://u:hush@h:port", "port is no number");
    for url in [
        "redis://u:hush@h:port",
        "redis://u:hush@h/x",
        "unix://u:hush@x",
        "redis://u:hush?db=1@h",
        "redis://u:1?db=hush@h",
        "redis://u:1?protocol=hush@h",
        "redis://u:1?read_timeout=hush@h",
        "redis://u:1?read_timeout=1&hush=@h",
        "redis://u:1?hush",
        "redis://u:hush",
        "redis://h/hush",
        "hush://redis://h",
    ] {
        assert!(!parse(url).unwrap_err().to_string().contains("hush"), "{url}");
    }
}
