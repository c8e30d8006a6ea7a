//! The commands of a remedy as one types them in redis-cli, for clients of a library without a table. `<word>` stands for a value, and
//! `...` for more values.

use super::{Remedy, calls, stages};
use crate::findings::{Finding, FindingStep};
use crate::loops::CHUNK;

/// Seconds that the blocking commands wait.
const WAIT_SECONDS: &str = "5";

/// Returns the commands of a remedy, a line each. Lines that begin with `#` explain them.
pub fn commands(remedy: Remedy, finding: &Finding) -> String {
    let plain = Plain { finding };
    let lines = match remedy {
        Remedy::ManyKeys(command) => vec![plain.many_keys(command)],
        Remedy::ManyMembers(command) => vec![plain.many_members(command)],
        Remedy::Sum(command) => {
            vec!["# sum: of the loop's increments".to_owned(), line(&[command, &plain.key(), "<sum>"])]
        }
        Remedy::Several("XREADGROUP") => plain.several_entries(),
        Remedy::Several(command) => vec![line(&[command, &plain.key(), "<count>"])],
        Remedy::Range => vec![line(&["LRANGE", &plain.key(), "<start>", "<stop>"])],
        Remedy::Omit => vec!["# leave it out: the next command shows that the connection works".to_owned()],
        Remedy::Pipeline | Remedy::Stages => plain.pipelines(),
        Remedy::AskOnce => vec!["# once; keep the answer".to_owned(), plain.call(plain.command())],
        Remedy::OneCommand(command) => vec![plain.call(command)],
        Remedy::Script => vec![plain.script()],
        Remedy::Wait(command) => vec![plain.wait(command)],
        Remedy::BeTold => plain.be_told(),
        Remedy::Transaction => plain.transaction(),
        Remedy::LargerPipelines => plain.in_one_pipeline(&finding.steps),
        Remedy::ScriptHash => plain.script_hash(&[]),
        Remedy::ScriptArguments => plain.script_hash(&["<value>"]),
        Remedy::WaitForLock => {
            vec![plain.wait("BLPOP"), "# the owner ends with RPUSH of a token to this list".to_owned()]
        }
        Remedy::WithoutPing => plain.without_ping(),
        Remedy::KeepConnection => vec!["# one connection for all commands".to_owned(), plain.call(plain.command())],
        Remedy::Chunks => {
            let mut lines = plain.in_one_pipeline(&finding.steps);
            lines.push(format!("# at most {CHUNK} commands; read their replies before the next pipeline"));
            lines
        }
        Remedy::Scan(command @ ("LRANGE" | "ZRANGE" | "ZREVRANGE")) => {
            vec![line(&[command, &plain.key(), "<start>", "<stop>"])]
        }
        Remedy::Scan("SCAN") => vec![line(&["SCAN", "<cursor>", "MATCH", "<pattern>", "COUNT", &CHUNK.to_string()])],
        Remedy::Scan(command) => vec![line(&[command, &plain.key(), "<cursor>", "COUNT", &CHUNK.to_string()])],
        Remedy::ClusterClient => vec!["# redis-cli -c follows the slots of a cluster".to_owned()],
    };
    lines.join("\n") + "\n"
}

fn line(words: &[&str]) -> String {
    words.join(" ")
}

/// Writes the commands for a finding.
struct Plain<'f> {
    finding: &'f Finding,
}

impl Plain<'_> {
    fn command(&self) -> &str {
        self.finding.steps.first().map_or("", |step| &step.command)
    }

    fn pattern(&self) -> &str {
        self.finding.steps.first().map_or("", |step| &step.pattern)
    }

    /// The first step's key.
    fn key(&self) -> String {
        key(self.pattern())
    }

    /// A command with the first step's key.
    fn call(&self, command: &str) -> String {
        call(command, self.pattern())
    }

    /// MGET, MSET, DEL and other commands with many keys.
    fn many_keys(&self, command: &str) -> String {
        let element = if command == "MSET" { line(&[&self.key(), "<value>"]) } else { self.key() };
        line(&[command, &element, &element, "..."])
    }

    /// SADD, HMGET, ZMSCORE and other commands with many members of one key.
    fn many_members(&self, command: &str) -> String {
        let mut words: Vec<String> = arguments(self.command(), self.pattern()).skip(1).collect();
        let group = if command == "XACK" { format!(" {}", words.remove(0)) } else { String::new() };
        let element = words.join(" ");
        format!("{command} {}{group} {element} {element} ...", self.key())
    }

    /// XREADGROUP of several entries.
    fn several_entries(&self) -> Vec<String> {
        let pattern = self.finding.steps.iter().find(|step| !step.pattern.is_empty());
        let key = pattern.map_or("<stream>".to_owned(), |step| key(&step.pattern));
        vec![
            format!("XREADGROUP GROUP <group> <consumer> COUNT 100 STREAMS {key} >"),
            format!("XACK {key} <group> <entry> <entry> ..."),
        ]
    }

    fn in_one_pipeline<'s>(&self, steps: impl IntoIterator<Item = &'s FindingStep>) -> Vec<String> {
        let calls = steps.into_iter().map(|step| call(&step.command, &step.pattern));
        [vec!["# in one pipeline, for all keys:".to_owned()], calls.collect()].concat()
    }

    fn pipelines(&self) -> Vec<String> {
        stages(&self.finding.steps).into_iter().flat_map(|stage| self.in_one_pipeline(stage)).collect()
    }

    fn without_ping(&self) -> Vec<String> {
        self.in_one_pipeline(self.finding.steps.iter().filter(|step| &*step.command != "PING"))
    }

    fn script(&self) -> String {
        let write = self.finding.steps.get(1).map_or("SET", |step| &step.command);
        let (read, mut passed) = calls::in_script(self.command(), true, 0, None);
        let (write, more) = calls::in_script(write, true, passed.len(), Some("updated"));
        passed.extend(more);
        let values: String = passed.iter().map(|name| format!(" <{name}>")).collect();
        let body = format!("local value = redis.call({read}) local updated = value return redis.call({write})");
        format!("EVAL \"{body}\" 1 {}{values}", self.key())
    }

    fn wait(&self, command: &str) -> String {
        let key = self.key();
        match command {
            "BLMOVE" => line(&[command, &key, "<destination>", "RIGHT", "LEFT", WAIT_SECONDS]),
            "BLMPOP" => line(&[command, WAIT_SECONDS, "1", &key, "LEFT"]),
            "BZMPOP" => line(&[command, WAIT_SECONDS, "1", &key, "MIN"]),
            "XREAD" => line(&[command, "BLOCK", "5000", "STREAMS", &key, "<entry>"]),
            "XREADGROUP" => {
                let options = [command, "GROUP", "<group>", "<consumer>", "BLOCK", "5000", "STREAMS", &key, ">"];
                line(&options)
            }
            _ => line(&[command, &key, WAIT_SECONDS]),
        }
    }

    fn be_told(&self) -> Vec<String> {
        let channel = key(&format!("__keyspace@0__:{}", self.pattern()));
        vec!["CONFIG SET notify-keyspace-events K$gxh".to_owned(), format!("SUBSCRIBE {channel}")]
    }

    fn transaction(&self) -> Vec<String> {
        let call = self.call(self.command());
        vec![
            "# as one pipeline:".to_owned(),
            "MULTI".to_owned(),
            call,
            "# and the other commands".to_owned(),
            "EXEC".to_owned(),
        ]
    }

    fn script_hash(&self, values: &[&str]) -> Vec<String> {
        let key = if self.pattern().is_empty() { "0".to_owned() } else { format!("1 {}", self.key()) };
        let words = [&["EVALSHA", "<sha>", &key], values].concat();
        vec!["# once; the reply is the hash".to_owned(), "SCRIPT LOAD <script>".to_owned(), line(&words)]
    }
}

/// Returns a key pattern as an argument.
fn key(pattern: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":._-<>{}@/".contains(&byte);
    if !pattern.is_empty() && pattern.bytes().all(is_plain) { pattern.to_owned() } else { format!("\"{pattern}\"") }
}

/// Returns a command's arguments, from the key on.
fn arguments(command: &str, pattern: &str) -> impl Iterator<Item = String> {
    let words = calls::form(command, !pattern.is_empty()).split(' ').filter(|word| !word.is_empty());
    words.map(move |word| match word {
        "KEY" => key(pattern),
        "fields" => "<field> <field> ...".to_owned(),
        word if calls::is_variable(word) => format!("<{word}>"),
        literal => literal.to_owned(),
    })
}

fn call(command: &str, pattern: &str) -> String {
    let words = std::iter::once(calls::name(command).to_owned()).chain(arguments(command, pattern));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding;
    use crate::advice::plain;
    use crate::findings::Kind;

    #[test]
    fn commands_are_as_one_types_them() {
        let of = |kind, steps: &[&str], one_key| plain(&finding(kind, steps, one_key));
        assert_eq!(of(Kind::Loop, &["GET user:<n>:name"], false), "MGET user:<n>:name user:<n>:name ...\n");
        assert_eq!(of(Kind::Loop, &["SET a \\\"b"], false), "MSET \"a \\\"b\" <value> \"a \\\"b\" <value> ...\n");
        assert_eq!(of(Kind::Loop, &["ZADD board"], true), "ZADD board <score> <member> <score> <member> ...\n");
        assert_eq!(of(Kind::Loop, &["XACK events"], true), "XACK events <group> <entry> <entry> ...\n");
        assert_eq!(
            of(Kind::InterleavedLoop, &["GET a:<n>", "SET b:<n>"], false),
            "# in one pipeline, for all keys:\nGET a:<n>\n# in one pipeline, for all keys:\nSET b:<n> <value>\n"
        );
        assert_eq!(
            of(Kind::ReadComputeWrite, &["LRANGE log:<n>", "LTRIM log:<n>"], false),
            "EVAL \"local value = redis.call('LRANGE', KEYS[1], ARGV[1], ARGV[2]) \
             local updated = value return redis.call('LTRIM', KEYS[1], ARGV[3], ARGV[4])\" 1 log:<n> <start> <stop> <start> <stop>\n"
        );
        assert_eq!(of(Kind::Loop, &["INCR visits"], true), "# sum: of the loop's increments\nINCRBY visits <sum>\n");
        assert_eq!(
            of(Kind::Loop, &["HMGET a:<n>"], false),
            "# in one pipeline, for all keys:\nHMGET a:<n> <field> <field> ...\n"
        );
        assert_eq!(of(Kind::Polling, &["RPOP mail"], true), "BRPOP mail 5\n");
    }
}
