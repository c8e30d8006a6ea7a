use super::*;

fn read_words(words: &[&str], surroundings: &Surroundings) -> Result<CliOptions, Exit> {
    read(&words.iter().map(OsString::from).collect::<Vec<_>>(), surroundings)
}

fn options(words: &[&str]) -> CliOptions {
    read_words(words, &Surroundings::default()).unwrap()
}

fn trouble(words: &[&str]) -> String {
    match read_words(words, &Surroundings::default()) {
        Err(Exit::Wrong(text)) => text,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.to_owned(), port }
}

#[test]
fn nothing_means_the_defaults() {
    let options = options(&[]);
    assert_eq!(options.address, tcp("127.0.0.1", 6379));
    assert_eq!((options.db, options.resp, options.repeat, options.interval), (0, 2, None, None));
    assert_eq!((options.style.form, options.mode), (ReplyFormat::Raw, Mode::Commands));
    assert!(options.command.is_empty() && !options.show_pushes);
}

#[test]
fn words_after_the_command_are_its_arguments() {
    let options = options(&["-p", "7000", "SET", "-p", "-1", "--raw", "--help", "-h"]);
    assert_eq!(options.address, tcp("127.0.0.1", 7000));
    assert_eq!(options.command, ["SET", "-p", "-1", "--raw", "--help", "-h"].map(str::as_bytes));
}

#[test]
fn values_may_look_like_flags() {
    let options = options(&["-D", "-x", "-d", "", "-r", "-1", "--pattern", "--raw"]);
    assert_eq!(options.style.reply_delimiter, b"-x");
    assert_eq!(options.style.element_delimiter, b"");
    assert_eq!(options.repeat, Some(-1));
    assert_eq!(options.pattern, Some(b"--raw".to_vec()));
    assert!(!options.stdin_last);
    assert_eq!(self::options(&["-D", "--", "echo", "--"]).style.reply_delimiter, b"--");
    assert_eq!(self::options(&["echo", "--", "-x"]).command, ["echo", "--", "-x"].map(str::as_bytes));
}

#[test]
fn the_last_form_counts() {
    assert_eq!(options(&["--raw", "--csv"]).style.form, ReplyFormat::Csv);
    assert_eq!(options(&["--csv", "--raw"]).style.form, ReplyFormat::Raw);
    assert_eq!(options(&["--csv", "--no-raw", "--no-raw"]).style.form, ReplyFormat::Standard);
    let terminal = Surroundings { stdout_is_terminal: true, ..Surroundings::default() };
    assert_eq!(read_words(&[], &terminal).unwrap().style.form, ReplyFormat::Standard);
    assert!(read_words(&[], &terminal).unwrap().show_pushes);
}

#[test]
fn json_prefers_resp3() {
    let protocol = |words: &[&str]| (options(words).resp, options(words).resp3_is_optional);
    assert_eq!(protocol(&["--json"]), (3, true));
    assert_eq!(protocol(&["--json", "-2"]), (2, false));
    assert_eq!(protocol(&["--quoted-json", "-3"]), (3, false));
    assert_eq!(protocol(&["-3"]), (3, false));
}

#[test]
fn uris_combine_with_flags() {
    let options = options(&["-u", "redis://me:p%40ss@example:7001/5"]);
    assert_eq!(options.address, tcp("example", 7001));
    assert_eq!((options.user, options.password, options.db), (Some(b"me".to_vec()), Some(b"p@ss".to_vec()), 5));
    assert!(options.password_is_exposed);
    let options = self::options(&["-p", "7002", "-u", "redis://example", "-n", "3", "-a", "x", "--no-auth-warning"]);
    assert_eq!((options.address, options.db), (tcp("example", 7002), 3));
    assert!(!options.password_is_exposed);
    let address = |words: &[&str]| self::options(words).address;
    assert_eq!(address(&["-p", "1", "-u", "redis://h:2"]), tcp("h", 2));
    assert_eq!(address(&["-u", "redis://h:2", "-p", "1", "-h", "g"]), tcp("g", 1));
    assert_eq!(self::options(&["-u", "unix:///run/x.sock"]).address, Address::Unix("/run/x.sock".into()));
    assert_eq!(self::options(&["-h", "h", "-s", "/run/y"]).address, Address::Unix("/run/y".into()));
    assert_eq!(trouble(&["-u", "http://x"]), "Invalid URI scheme");
    assert!(
        trouble(&["-u", "redis://x:99999"]).starts_with("penstock cli: "),
        "{}",
        trouble(&["-u", "redis://x:99999"])
    );
}

/// Flags and URI are read in order, like in redis-cli. Parts that a URI omits stay unchanged.
#[test]
fn the_last_of_flags_and_uri_counts() {
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    let db = |words: &[&str]| options(words).db;
    assert_eq!(db(&["-u", "redis://h/2", "-n", "3"]), 3);
    assert_eq!(db(&["-u", "redis://h/2", "-n", "0"]), 0);
    assert_eq!(db(&["-n", "3", "-u", "redis://h/0"]), 0);
    assert_eq!(db(&["-n", "3", "-u", "redis://h/"]), 3);
    let login = |words: &[&str]| (options(words).user, options(words).password);
    assert_eq!(login(&["-u", "redis://bob:pw@h", "--user", "eve"]), (bytes("eve"), bytes("pw")));
    assert_eq!(login(&["--user", "eve", "-u", "redis://bob:pw@h"]), (bytes("bob"), bytes("pw")));
    assert_eq!(login(&["--user", "eve", "-u", "redis://pw@h"]), (bytes("eve"), bytes("pw")));
    assert_eq!(login(&["-u", "redis://bob:pw@h", "-a", "x"]), (bytes("bob"), bytes("x")));
    assert_eq!(login(&["-u", "redis://bob:pw@h", "--pass", "x"]), (bytes("bob"), bytes("x")));
    assert_eq!(login(&["-a", "x", "-u", "redis://bob:pw@h"]), (bytes("bob"), bytes("pw")));
    assert_eq!(login(&["-a", "x", "-u", "redis://h"]), (None, bytes("x")));
    let address = |words: &[&str]| options(words).address;
    assert_eq!(address(&["-p", "1", "-u", "redis://h:6379"]), tcp("h", 6379));
    assert_eq!(address(&["-h", "g", "-u", "redis://127.0.0.1:2"]), tcp("127.0.0.1", 2));
    assert_eq!(address(&["-h", "g", "-p", "1", "-u", "redis://"]), tcp("g", 1));
    assert_eq!(address(&["-s", "/run/y", "-u", "unix:///run/x"]), Address::Unix("/run/x".into()));
    assert_eq!(address(&["-s", "/run/y", "-u", "redis://h"]), Address::Unix("/run/y".into()));
}

#[test]
fn parameters_of_a_uri() {
    let given = options(&["-u", "redis://h/2?x=y&protocol=3&client_name=me&read_timeout=1&connect_timeout=2"]);
    assert_eq!((given.db, given.resp, given.resp3_is_optional), (2, 3, false));
    assert_eq!(given.client_name, Some(b"me".to_vec()));
    assert_eq!(
        (given.read_timeout, given.connect_timeout),
        (Some(Duration::from_secs(1)), Some(Duration::from_secs(2)))
    );
    assert_eq!(options(&["-u", "redis://h?protocol=3", "-2"]).resp, 2);
    assert_eq!(options(&["-2", "-u", "redis://h?protocol=3"]).resp, 3);
    assert_eq!(options(&["-u", "redis://h?protocol=2", "--json"]).resp, 2);
    assert_eq!(options(&["-u", "redis://h?read_timeout=0"]).read_timeout, None);
    assert!(trouble(&["-u", "redis://h?protocol=4"]).contains("neither 2 nor 3"));
}

#[test]
fn passwords_have_an_order() {
    let auth = Surroundings { auth: Some("env".into()), ..Surroundings::default() };
    let password =
        |words: &[&str]| read_words(words, &auth).unwrap().password.map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(password(&[]).as_deref(), Some("env"));
    assert_eq!(password(&["-a", "x"]).as_deref(), Some("x"));
    assert_eq!(password(&["-a", "x", "--pass", "y"]).as_deref(), Some("y"));
    assert_eq!(password(&["-a", "x", "--askpass"]), None);
}

#[test]
fn modes() {
    assert_eq!(options(&["--memkeys"]).mode, Mode::MemKeys(None));
    assert_eq!(options(&["--memkeys-samples", "5"]).mode, Mode::MemKeys(Some(5)));
    assert_eq!(options(&["--pipe"]).mode, Mode::Pipe { timeout: Some(Duration::from_secs(30)) });
    assert_eq!(options(&["--pipe", "--pipe-timeout", "0"]).mode, Mode::Pipe { timeout: None });
    let eval = options(&["--eval", "f.lua", "k", ",", "a"]);
    assert_eq!((eval.mode, eval.command.len()), (Mode::Eval("f.lua".into()), 3));
    assert_eq!(options(&["--scan", "--quoted-pattern", "\"a\\x00\""]).pattern, Some(b"a\0".to_vec()));
    assert_eq!(options(&["--quoted-pattern", "\"a\"", "--pattern", "\"b\""]).pattern, Some(b"\"b\"".to_vec()));
    assert_eq!(options(&["--pattern", "b", "--quoted-pattern", "\"a\""]).pattern, Some(b"a".to_vec()));
    assert_eq!(options(&["-i", "0.5"]).interval, Some(Duration::from_millis(500)));
}

#[test]
fn invalid_command_lines_get_a_message() {
    for (words, text) in [
        (&["--zz"][..], "Unrecognized option or bad number of args for: '--zz'"),
        (&["-p"], "Unrecognized option or bad number of args for: '-p'"),
        (&["-", "x"], "Unrecognized option or bad number of args for: '-'"),
        (&["-2", "-3"], "Options -2 and -3 are mutually exclusive."),
        (&["-x", "-X", "t"], "Options -x and -X are mutually exclusive."),
        (&["--show-pushes", "maybe"], "Unknown --show-pushes value 'maybe' (valid: '[y]es', '[n]o')"),
        (&["-csv", "GET", "s"], "Unrecognized option or bad number of args for: '-csv'"),
        (&["-23"], "Unrecognized option or bad number of args for: '-23'"),
        (&["-n2"], "Unrecognized option or bad number of args for: '-n2'"),
        (&["--pattern=x"], "Unrecognized option or bad number of args for: '--pattern=x'"),
        (&["--raw=1"], "Unrecognized option or bad number of args for: '--raw=1'"),
        (&["--", "x"], "Unrecognized option or bad number of args for: '--'"),
        (&["--quoted-pattern", ""], "Invalid quoted string specified for --quoted-pattern."),
        (&["--quoted-pattern", "\"x"], "Invalid quoted string specified for --quoted-pattern."),
        (&["-p", "abc"], "penstock cli: 'abc' is not a valid number for -p"),
        (&["-p", "70000"], "penstock cli: '70000' is not a valid number for -p"),
        (&["-i", "-1"], "penstock cli: '-1' is not a valid number for -i"),
        (&["--pipe-timeout", "x", "PING"], "penstock cli: 'x' is not a valid number for --pipe-timeout"),
        (&["--stat", "--intrinsic-latency", "-1"], "penstock cli: '-1' is not a valid number for --intrinsic-latency"),
        (&["--bigkeys", "--cluster-slots", "1.5"], "penstock cli: '1.5' is not a valid number for --cluster-slots"),
        (&["--pipe", "--memkeys-samples", ""], "penstock cli: '' is not a valid number for --memkeys-samples"),
        (&["--eval", "f", "--ldb"], "penstock cli: '--ldb' is not supported: there is no Lua debugger; use redis-cli"),
    ] {
        assert_eq!(trouble(words), text, "{words:?}");
    }
}

#[test]
fn help_and_version() {
    for words in [&["--help"][..], &["-h"], &["-v"], &["--version"], &["-p", "1", "-h"]] {
        assert!(matches!(read_words(words, &Surroundings::default()), Err(Exit::Answer(_))), "{words:?}");
    }
}

#[test]
fn encryption_is_asked_for() {
    assert_eq!(options(&["--cacert", "ca.pem"]).tls, None);
    assert_eq!(options(&["-u", "rediss://x"]).tls, Some(TlsOptions::default()));
    let tls = options(&["--tls", "--cacert", "ca.pem", "--sni", "name", "--cert", "c", "--key", "k", "--insecure"])
        .tls
        .unwrap();
    assert_eq!((tls.ca_file, tls.server_name), (Some("ca.pem".into()), Some("name".to_owned())));
    assert_eq!((tls.cert_file, tls.key_file, tls.insecure), (Some("c".into()), Some("k".into()), true));
}

#[test]
fn colours_are_for_terminals_unless_the_flag_says_otherwise() {
    let colours = |words: &[&str], shows_colours| {
        read_words(words, &Surroundings { shows_colours, ..Surroundings::default() }).unwrap().style.colours
    };
    for (words, in_a_pipe, on_a_terminal) in [
        (&[][..], false, true),
        (&["--color", "auto"], false, true),
        (&["--color", "always"], true, true),
        (&["--color", "never"], false, false),
        (&["--color", "never", "--color", "always"], true, true),
    ] {
        assert_eq!((colours(words, false), colours(words, true)), (in_a_pipe, on_a_terminal), "{words:?}");
    }
    let refusal = "penstock cli: invalid value 'red' for '--color <when>' [possible values: auto, always, never]";
    assert_eq!(trouble(&["--color", "red"]), refusal);
}
