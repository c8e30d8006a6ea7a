//! ADVISE: wasted round trips of clients, and better commands.
//!
//! The crate [`advisor`] makes the findings from the batches that [`crate::advice`] shows it. The family is Penstock's
//! own.

use advisor::advice::{advice, all_code};
use advisor::findings::{Finding, FindingStep, Group};
use advisor::report;
use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group as CommandGroup, Spec, fact};

use crate::families::help::help;
use crate::machine::version::PENSTOCK_VERSION;
use crate::worker::turn::{Run, Turn};

/// Default number of findings in LIST.
const SHOWN_BY_DEFAULT: i64 = 10;

const FLAGS: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("advise", -2, 0, Run::Session(advise_help))
    .docs(
        CommandGroup::Server,
        PENSTOCK_VERSION,
        "Depends on subcommand.",
        "Shows wasted round trips of clients, and better commands.",
        "",
    )
    .subcommands(&[
        Spec::new("get", 3, FLAGS, Run::Session(get))
            .facts(fact::TELLS)
            .docs(
                CommandGroup::Server,
                PENSTOCK_VERSION,
                "O(N) where N is the number of findings",
                "Returns all details of a finding, with better code.",
                "id",
            )
            .tips(&["nondeterministic_output", "request_policy:all_nodes"]),
        Spec::new("help", 2, LOADING | STALE, Run::Session(advise_help)).docs(
            CommandGroup::Server,
            PENSTOCK_VERSION,
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("list", -2, FLAGS, Run::Session(list))
            .facts(fact::TELLS)
            .docs(
                CommandGroup::Server,
                PENSTOCK_VERSION,
                "O(N*log(N)) where N is the number of findings",
                "Answers the findings that cost the most time.",
                "[COUNT count:integer] [CLIENT name] [TABLE]",
            )
            .tips(&["nondeterministic_output", "request_policy:all_nodes"]),
        Spec::new("reset", 2, FLAGS, Run::Session(reset))
            .docs(
                CommandGroup::Server,
                PENSTOCK_VERSION,
                "O(N) where N is the number of findings",
                "Forgets all findings, and the patterns of keys.",
                "",
            )
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ])];

/// The arguments of LIST.
struct ListRequest<'t> {
    count: usize,
    client: Option<&'t [u8]>,
    /// True for a text with a line for each finding.
    is_table: bool,
}

fn parse_list<'t>(turn: &Turn<'t, '_>) -> Result<ListRequest<'t>, Error> {
    let mut request = ListRequest { count: SHOWN_BY_DEFAULT as usize, client: None, is_table: false };
    let mut at = 2;
    while at < turn.len() {
        if turn.is(at, "table") {
            request.is_table = true;
            at += 1;
            continue;
        } else if at + 1 == turn.len() {
            return Err(Error::SYNTAX);
        } else if turn.is(at, "count") {
            let count = turn.int(at + 1).ok().filter(|&count| count >= -1);
            let count = count.ok_or(Error::new("ERR count should be greater than or equal to -1"))?;
            request.count = usize::try_from(count).unwrap_or(usize::MAX);
        } else if turn.is(at, "client") {
            request.client = Some(turn.arg(at + 1));
        } else {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    Ok(request)
}

/// Returns the findings of all threads, optionally only of clients with this name. Unfinished work on other threads'
/// connections is added after a moment of silence.
fn groups(turn: &mut Turn<'_, '_>, client: Option<&[u8]>) -> Vec<Group> {
    let now_ns = turn.worker.clock.present_us() * 1000;
    let (worker, session) = (&mut *turn.worker, &*turn.session);
    worker.advice.settle(now_ns);
    // This connection's previous work has ended with this command.
    worker.advice.end_unit(&session.round_trips, &session.client, now_ns);
    let is_asked_for = |known: &advisor::client::Client| client.is_none_or(|name| known.name.as_bytes() == name);
    turn.engine().advice.merged().groups_of(is_asked_for)
}

fn list(turn: &mut Turn<'_, '_>) -> Outcome {
    let ListRequest { count, client, is_table } = parse_list(turn)?;
    let mut groups = groups(turn, client);
    groups.truncate(count);
    if is_table {
        turn.reply.verbatim("txt", report::table(&groups));
        return Ok(());
    }
    turn.reply.array(groups.len());
    for group in &groups {
        turn.reply.map(BRIEF_FIELDS);
        brief(turn, group);
    }
    Ok(())
}

fn get(turn: &mut Turn<'_, '_>) -> Outcome {
    let id = turn.arg(2).to_ascii_lowercase();
    let groups = groups(turn, None);
    match groups.iter().find(|group| report::id(&group.total).as_bytes() == id) {
        None => turn.reply.null(),
        Some(group) => {
            turn.reply.map(BRIEF_FIELDS + DETAILS);
            brief(turn, group);
            details(turn, group);
        }
    }
    Ok(())
}

/// Number of fields that [`brief`] writes.
const BRIEF_FIELDS: usize = 10;
/// Number of fields that [`details`] writes.
const DETAILS: usize = 11;

/// Writes the fields of a finding for LIST and GET.
fn brief(turn: &mut Turn<'_, '_>, group: &Group) {
    let finding = &group.total;
    let advice = advice(finding);
    text(turn, "id", &report::id(finding));
    text(turn, "kind", finding.kind.name());
    text(turn, "confidence", finding.sums.confidence().name());
    turn.reply.bulk("steps");
    turn.reply.array(finding.steps.len());
    finding.steps.iter().for_each(|step| turn.reply.bulk(step.to_string()));
    number(turn, "round-trips-made", finding.made());
    number(turn, "round-trips-needed", finding.sums.needed);
    number(turn, "time-lost-us", finding.lost_ns() / 1000);
    text(turn, "client", &finding.client.to_string());
    text(turn, "seen", &advice.seen);
    text(turn, "remedy", &advice.remedy);
}

/// Writes the additional fields for GET. Times are in seconds of Unix time.
fn details(turn: &mut Turn<'_, '_>, group: &Group) {
    let finding = &group.total;
    let sums = &finding.sums;
    text(turn, "followed-by", &followed_by(finding));
    number(turn, "count", sums.count);
    number(turn, "bytes", sums.bytes);
    number(turn, "busy-us", sums.busy_ns / 1000);
    number(turn, "first-seen", sums.since_ns / 1_000_000_000);
    number(turn, "last-seen", sums.last_ns / 1_000_000_000);
    number(turn, "without-replies", sums.without_replies);
    number(turn, "clients", group.clients);
    number(turn, "several-connections", u64::from(sums.several_connections));
    turn.reply.bulk("samples");
    turn.reply.array(finding.samples.len());
    finding.samples.iter().for_each(|sample| turn.reply.bulk(sample));
    turn.reply.bulk("code");
    let codes = all_code(finding);
    turn.reply.map(codes.len());
    for (language, code) in codes {
        text(turn, language, &code);
    }
}

/// Returns the command that nearly always follows; empty if there is none.
fn followed_by(finding: &Finding) -> String {
    finding.after.as_ref().filter(|_| finding.is_followed()).map(FindingStep::to_string).unwrap_or_default()
}

fn text(turn: &mut Turn<'_, '_>, name: &str, value: &str) {
    turn.reply.bulk(name);
    turn.reply.bulk(value);
}

fn number(turn: &mut Turn<'_, '_>, name: &str, value: u64) {
    turn.reply.bulk(name);
    turn.reply.int(i64::try_from(value).unwrap_or(i64::MAX));
}

fn reset(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.engine().advice.reset();
    turn.worker.advice.follow_resets();
    turn.reply.ok();
    Ok(())
}

fn advise_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "GET <id>",
        "    Return all details of a finding, with better code for each library.",
        "LIST [COUNT <count>] [CLIENT <name>] [TABLE]",
        "    Return the findings that cost the most time (default: 10, -1 means all), of clients",
        "    with this name if one is given. TABLE returns a text with a line for each finding.",
        "RESET",
        "    Forget all findings, and the patterns of keys.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Bench, check};

    #[test]
    fn arguments_are_checked() {
        check(&[
            ("advise list", "*0"),
            ("advise list count 5 client x", "*0"),
            ("advise list client x count -1", "*0"),
            ("advise list count -2", "-ERR count should be greater than or equal to -1"),
            ("advise list count x", "-ERR count should be greater than or equal to -1"),
            ("advise list count", "-ERR syntax error"),
            ("advise list nosuch 1", "-ERR syntax error"),
            ("advise list table count", "-ERR syntax error"),
            ("advise get 00000000", "$-1"),
            ("advise reset", "+OK"),
        ]);
    }

    #[test]
    fn a_loop_is_reported_until_a_reset() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for key in 0..100 {
            // Longer than a command takes on a busy machine.
            bench.now_us += 100_000;
            bench.line(&mut session, &format!("set key:{key} v"));
        }
        let list = bench.line(&mut session, "advise list");
        assert!(list.starts_with("*1|*20|$2|id|$8|") && list.contains("|$4|loop|"), "{list}");
        let table = bench.line(&mut session, "advise list count 5 table");
        assert!(table.contains("id ") && table.contains("SET key:<n>"), "{table}");
        let id = list.split('|').nth(5).unwrap().to_owned();
        let all = bench.line(&mut session, &format!("advise get {id}"));
        assert!(all.starts_with("*42|$2|id|") && all.contains("|SET key:<n>|$16|round-trips-made|:100|"), "{all}");
        bench.check(&mut session, &[("advise list count 0", "*0"), ("advise list client other", "*0")]);
        bench.check(&mut session, &[("advise reset", "+OK"), ("advise list", "*0")]);
    }
}
