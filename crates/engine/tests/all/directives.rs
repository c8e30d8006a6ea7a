//! Tests of the directives of Redis and Valkey, from the list `peers.tsv`: each is known here, behaves as the page of
//! directives says, and has its line there. `UPDATE_DOCS=1 cargo test -p penstock-engine --test all directives::`
//! writes the lines anew.

use config::{Loader, Settings, Standing, TABLE, get, is_refused, standing};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
/// The lines before and after the table.
const BEGIN: &str = "<!-- directives: written by a test -->\n";
const END: &str = "<!-- end of directives -->\n";

/// Directives that occur only in files or on command lines, and their standing.
const BEYOND_THE_TABLE: &[(&str, &str)] = &[
    ("include", "same"),
    ("loadmodule", "refused: there are no modules"),
    ("rename-command", "same"),
    ("sentinel", "refused: there is no Sentinel mode"),
    ("user", "same"),
];

/// A directive of Redis or Valkey.
struct Peer {
    name: &'static str,
    /// The defaults in Redis and in Valkey.
    defaults: [Option<&'static str>; 2],
}

fn peers() -> Vec<Peer> {
    let lines = include_str!("peers.tsv").lines().filter(|line| !line.starts_with('#'));
    let peer = |line: &'static str| {
        let [name, redis, valkey] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let default = |text: &'static str| Some(text).filter(|text| *text != "absent");
        Peer { name, defaults: [default(redis), default(valkey)] }
    };
    lines.map(peer).collect()
}

/// Returns the value of a directive without a configuration.
fn own_default(name: &str) -> String {
    get(&Settings::new(), &[name.as_bytes()]).into_iter().map(|(_, value)| value).collect()
}

/// Loads one line, and returns the lines for the log.
fn load(name: &str, value: &str) -> Result<Vec<String>, String> {
    let settings = Settings::new();
    let mut loader = Loader::new(&settings);
    loader.directive(&[name.into(), value.into()])?;
    Ok(loader.notes())
}

#[test]
fn every_directive_of_redis_and_valkey_is_known() {
    let unknown: Vec<_> = peers().iter().map(|peer| peer.name).filter(|name| standing(name).is_none()).collect();
    assert_eq!(unknown, [""; 0]);
    assert!(peers().len() > 240);
}

#[test]
fn peer_defaults_are_accepted_and_directives_without_effect_are_logged() {
    for peer in peers() {
        let defaults = peer.defaults.into_iter().flatten();
        for default in defaults.filter(|_| peer.name != "dir") {
            let notes = load(peer.name, default).unwrap_or_else(|error| panic!("{} {default}: {error}", peer.name));
            match standing(peer.name).unwrap() {
                Standing::Same | Standing::Differs(_) => assert_eq!(notes, [""; 0], "{}", peer.name),
                Standing::NoMeaning(why) | Standing::NotYet(why) => {
                    assert_eq!(notes, [format!("Without effect here: {}. {why}", peer.name)]);
                }
            }
        }
    }
}

#[test]
fn directives_called_same_have_the_default_of_redis_or_valkey() {
    let differs = |peer: &Peer| {
        let own = own_default(peer.name);
        standing(peer.name) == Some(Standing::Same)
            && peer.name != "dir"
            && !peer.defaults.into_iter().flatten().any(|default| default == own)
    };
    let unlike: Vec<_> = peers().into_iter().filter(differs).map(|peer| peer.name).collect();
    assert_eq!(unlike, [""; 0], "say how in DIFFERS of config/standing.rs");
}

#[test]
fn dangerous_and_unknown_directives_are_refused() {
    assert!(is_refused("rdma-port"));
    let error = load("rdma-port", "1").unwrap_err();
    assert!(error.ends_with("remove this directive to do without"), "{error}");
    assert_eq!(
        load("nonsense", "1"),
        Err("Bad directive: there is no 'nonsense'; correct its name, or remove it".into())
    );
}

/// Returns one line of a table. No cell may contain a bar.
fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn shown(default: Option<&str>) -> String {
    match default {
        None => String::new(),
        Some("") => "`\"\"`".into(),
        Some(text) => format!("`{text}`"),
    }
}

fn told(name: &str) -> String {
    let refused = if is_refused(name) { "; other values are refused" } else { "" };
    let alias = TABLE.directives.iter().find(|directive| directive.aliases.contains(&name));
    let alias = alias.map_or_else(String::new, |directive| format!("; alias of `{}`", directive.name));
    let said = match standing(name) {
        None | Some(Standing::Same) => "same".into(),
        Some(Standing::Differs(how)) => format!("differs: {how}"),
        Some(Standing::NoMeaning(why)) => format!("no meaning: {why}").trim_end_matches('.').to_owned(),
        Some(Standing::NotYet(why)) => format!("not yet: {why}").trim_end_matches('.').to_owned(),
    };
    format!("{said}{refused}{alias}")
}

fn table() -> String {
    let mut table = String::from("| directive | Redis 8.6 | Valkey 9.1 | here |\n| --- | --- | --- | --- |\n");
    let peers = peers().into_iter().map(|peer| {
        let [redis, valkey] = peer.defaults.map(shown);
        (peer.name, line(&[format!("`{}`", peer.name), redis, valkey, told(peer.name)]))
    });
    let beyond = BEYOND_THE_TABLE
        .iter()
        .map(|(name, said)| (*name, line(&[format!("`{name}`"), String::new(), String::new(), (*said).to_owned()])));
    let mut lines: Vec<_> = peers.chain(beyond).collect();
    lines.sort();
    lines.iter().for_each(|(_, line)| table.push_str(line));
    table
}

#[test]
fn the_page_has_a_line_for_each() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (written, tail) = rest.split_once(END).unwrap();
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, format!("{head}{BEGIN}{table}{END}{tail}")).unwrap();
    } else {
        assert!(written == table, "docs/configuration.md is out of date; write it anew as this file's head says");
    }
}
