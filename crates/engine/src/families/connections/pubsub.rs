//! Publish and subscribe: SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE, their opposites, PUBLISH, SPUBLISH and PUBSUB.
//!
//! Source of the semantics: Redis's "Pub/Sub" page and the command pages of the group "pubsub".

use commands::error::{Error, Outcome, SHOWN_BYTES, shown};
use commands::spec::flag::{FAST, LOADING, MAY_REPLICATE, NOSCRIPT, PUBSUB, STALE};
use commands::spec::key_flag::NOT_KEY;
use commands::spec::{Channels, Group, KeySpec, Spec, fact};
use resp::reply::{Proto, Reply};

use crate::clients::client_memory::{forget_name, note_name};
use crate::clients::session::ReplyMode;
use crate::families::help::help;
use crate::pubsub::{ChannelKind, Subscriber};
use crate::services::publishing::{catch_up, names, publish_from, subscriber};
use crate::worker::turn::{Run, Turn};

const SUBSCRIBING: u32 = PUBSUB | NOSCRIPT | LOADING | STALE;
const ASKING: u32 = PUBSUB | LOADING | STALE;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[
    Spec::new("subscribe", -2, SUBSCRIBING, Run::Session(subscribe))
        .facts(fact::HOLDS_CONNECTION)
        .facts(fact::FOR_SUBSCRIBERS | fact::SUBSCRIBES)
        .docs(
            Group::PubSub,
            "2.0.0",
            "O(N) where N is the number of channels",
            "Listens for messages published to channels.",
            "channel [channel ...]",
        ),
    Spec::new("unsubscribe", -1, SUBSCRIBING, Run::Session(unsubscribe))
        .facts(fact::HOLDS_CONNECTION)
        .facts(fact::FOR_SUBSCRIBERS)
        .docs(
            Group::PubSub,
            "2.0.0",
            "O(N) where N is the number of channels",
            "Stops listening to channels, or to all of them.",
            "[channel [channel ...]]",
        ),
    Spec::new("psubscribe", -2, SUBSCRIBING, Run::Session(psubscribe))
        .facts(fact::HOLDS_CONNECTION)
        .facts(fact::FOR_SUBSCRIBERS | fact::SUBSCRIBES_TO_PATTERNS)
        .docs(
            Group::PubSub,
            "2.0.0",
            "O(N) where N is the number of patterns",
            "Listens for messages published to channels that match patterns.",
            "pattern:pattern [pattern:pattern ...]",
        ),
    Spec::new("punsubscribe", -1, SUBSCRIBING, Run::Session(punsubscribe))
        .facts(fact::HOLDS_CONNECTION)
        .facts(fact::FOR_SUBSCRIBERS)
        .docs(
            Group::PubSub,
            "2.0.0",
            "O(N) where N is the number of patterns",
            "Stops listening to channels that match patterns, or any pattern.",
            "[pattern:pattern [pattern:pattern ...]]",
        ),
    Spec::new("ssubscribe", -2, SUBSCRIBING, Run::Session(ssubscribe))
        .facts(fact::HOLDS_CONNECTION)
        .facts(fact::FOR_SUBSCRIBERS | fact::SUBSCRIBES)
        .keys(&[KeySpec::range(1, -1, 1, NOT_KEY)])
        .docs(
            Group::PubSub,
            "7.0.0",
            "O(N) where N is the number of shard channels",
            "Listens for messages published to shard channels.",
            "shardchannel [shardchannel ...]",
        ),
    Spec::new("sunsubscribe", -1, SUBSCRIBING, Run::Session(sunsubscribe))
        .facts(fact::HOLDS_CONNECTION)
        .facts(fact::FOR_SUBSCRIBERS)
        .keys(&[KeySpec::range(1, -1, 1, NOT_KEY)])
        .docs(
            Group::PubSub,
            "7.0.0",
            "O(N) where N is the number of shard channels",
            "Stops listening to shard channels, or to all of them.",
            "[shardchannel [shardchannel ...]]",
        ),
    Spec::new("publish", 3, ASKING | FAST | MAY_REPLICATE, Run::Session(publish))
        .publishes(Channels::Plain)
        .brief()
        .docs(
            Group::PubSub,
            "2.0.0",
            "O(N+M) where N is the number of subscribers of the channel and M the number of patterns",
            "Sends a message to all who listen to a channel.",
            "channel message",
        ),
    Spec::new("spublish", 3, ASKING | FAST | MAY_REPLICATE, Run::Session(spublish))
        .publishes(Channels::Sharded)
        .keys(&[KeySpec::at(1, NOT_KEY)])
        .docs(
            Group::PubSub,
            "7.0.0",
            "O(N) where N is the number of subscribers of the shard channel",
            "Sends a message to all who listen to a shard channel.",
            "shardchannel message",
        ),
    Spec::new("pubsub", -2, 0, Run::Session(pubsub)).not_in_group_category().subcommands(SUBCOMMANDS).docs(
        Group::PubSub,
        "2.8.0",
        "Depends on the subcommand",
        "Shows subscriptions.",
        "",
    ),
];

const SUBCOMMANDS: &[Spec<Run>] = &[
    Spec::new("channels", -2, ASKING, Run::Session(channels)).facts(fact::TELLS).docs(
        Group::PubSub,
        "2.8.0",
        "O(N) where N is the number of active channels",
        "Lists the channels that somebody listens to.",
        "[pattern:pattern]",
    ),
    Spec::new("numsub", -2, ASKING, Run::Session(numsub)).facts(fact::TELLS).docs(
        Group::PubSub,
        "2.8.0",
        "O(N) where N is the number of channels asked for",
        "Counts the listeners of channels.",
        "[channel [channel ...]]",
    ),
    Spec::new("numpat", 2, ASKING, Run::Session(numpat)).facts(fact::TELLS).docs(
        Group::PubSub,
        "2.8.0",
        "O(1)",
        "Counts the patterns that somebody listens to.",
        "",
    ),
    Spec::new("shardchannels", -2, ASKING, Run::Session(shardchannels)).facts(fact::TELLS).docs(
        Group::PubSub,
        "7.0.0",
        "O(N) where N is the number of active shard channels",
        "Lists the shard channels that somebody listens to.",
        "[pattern:pattern]",
    ),
    Spec::new("shardnumsub", -2, ASKING, Run::Session(shardnumsub)).facts(fact::TELLS).docs(
        Group::PubSub,
        "7.0.0",
        "O(N) where N is the number of shard channels asked for",
        "Counts the listeners of shard channels.",
        "[shardchannel [shardchannel ...]]",
    ),
    Spec::new("help", 2, LOADING | STALE, Run::Session(pubsub_help)).not_in_group_category().docs(
        Group::PubSub,
        "6.2.0",
        "O(1)",
        "Explains the subcommands.",
        "",
    ),
];

/// Returns the words for subscribing and unsubscribing in replies.
fn words(kind: ChannelKind) -> [&'static str; 2] {
    match kind {
        ChannelKind::Channel => ["subscribe", "unsubscribe"],
        ChannelKind::Pattern => ["psubscribe", "punsubscribe"],
        ChannelKind::Shard => ["ssubscribe", "sunsubscribe"],
    }
}

/// Confirms a subscription or its end. The confirmations are pushes: CLIENT REPLY does not silence them.
fn confirm(turn: &mut Turn<'_, '_>, kind: ChannelKind, word: &str, name: Option<&[u8]>) {
    let session = &mut *turn.session;
    let count = match kind {
        ChannelKind::Shard => session.subscriptions.shard_channels.len(),
        ChannelKind::Channel | ChannelKind::Pattern => session.subscriptions.count(),
    };
    let write = |reply: &mut Reply<'_>| {
        reply.push(3);
        reply.bulk(word);
        reply.bulk_or_null(name);
        reply.count(count);
    };
    if session.reply_mode() == ReplyMode::On {
        write(&mut turn.reply);
    } else {
        write(&mut Reply::new(&mut session.pushes, session.proto));
    }
}

fn subscribe_to(turn: &mut Turn<'_, '_>, kind: ChannelKind) -> Outcome {
    let who = subscriber(turn.session);
    for name in turn.args.from(1) {
        if names(&mut turn.session.subscriptions, kind).insert(name.into()) {
            note_name(&turn.session.client, name);
            turn.engine().pubsub.subscribe(kind, name, who);
        }
        confirm(turn, kind, words(kind)[0], Some(name));
    }
    turn.session.publish_subscriptions();
    Ok(())
}

fn subscribe(turn: &mut Turn<'_, '_>) -> Outcome {
    subscribe_to(turn, ChannelKind::Channel)
}

fn psubscribe(turn: &mut Turn<'_, '_>) -> Outcome {
    subscribe_to(turn, ChannelKind::Pattern)
}

fn ssubscribe(turn: &mut Turn<'_, '_>) -> Outcome {
    // Unlike SUBSCRIBE, it is refused in a transaction.
    if turn.session.in_exec {
        return Err(Error::new("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    subscribe_to(turn, ChannelKind::Shard)
}

fn unsubscribe_from(turn: &mut Turn<'_, '_>, kind: ChannelKind) -> Outcome {
    let given: Vec<Box<[u8]>> = turn.args.from(1).map(Into::into).collect();
    let all = given.is_empty();
    let leaving = if all { names(&mut turn.session.subscriptions, kind).iter().cloned().collect() } else { given };
    let (who, engine) = (subscriber(turn.session), turn.engine());
    let had_any = !turn.session.subscriptions.is_empty();
    for name in &leaving {
        if names(&mut turn.session.subscriptions, kind).contains(name) {
            engine.pubsub.unsubscribe(kind, name, who);
        }
    }
    if had_any {
        // No more messages will come; earlier ones are delivered before the client reads the confirmation.
        catch_up(turn);
    }
    for name in &leaving {
        if names(&mut turn.session.subscriptions, kind).remove(name) {
            forget_name(&turn.session.client, name);
        }
        confirm(turn, kind, words(kind)[1], Some(name));
    }
    if leaving.is_empty() {
        confirm(turn, kind, words(kind)[1], None);
    }
    turn.session.publish_subscriptions();
    Ok(())
}

fn unsubscribe(turn: &mut Turn<'_, '_>) -> Outcome {
    unsubscribe_from(turn, ChannelKind::Channel)
}

fn punsubscribe(turn: &mut Turn<'_, '_>) -> Outcome {
    unsubscribe_from(turn, ChannelKind::Pattern)
}

fn sunsubscribe(turn: &mut Turn<'_, '_>) -> Outcome {
    unsubscribe_from(turn, ChannelKind::Shard)
}

fn publish_to(turn: &mut Turn<'_, '_>, kind: ChannelKind) -> Outcome {
    let (channel, payload) = (turn.arg(1), turn.arg(2));
    turn.worker.notify(Some(&mut *turn.session));
    let receivers = publish_from(turn.worker, Some(&mut *turn.session), kind, channel, payload);
    turn.reply.count(receivers);
    if turn.engine().slots.are_on() {
        turn.engine().host.publish(channel, payload, kind == ChannelKind::Shard);
    } else if turn.engine().replication.stream.is_own() {
        let name: &[u8] = if kind == ChannelKind::Shard { b"SPUBLISH" } else { b"PUBLISH" };
        turn.worker.effects.record_message([name, channel, payload].into_iter());
    }
    Ok(())
}

fn publish(turn: &mut Turn<'_, '_>) -> Outcome {
    publish_to(turn, ChannelKind::Channel)
}

fn spublish(turn: &mut Turn<'_, '_>) -> Outcome {
    publish_to(turn, ChannelKind::Shard)
}

/// Runs without a subcommand, which is an error.
fn pubsub(_: &mut Turn<'_, '_>) -> Outcome {
    Err(Error::arity("pubsub"))
}

fn list_active(turn: &mut Turn<'_, '_>, kind: ChannelKind) -> Outcome {
    if turn.len() > 3 {
        return Err(bad_subcommand(turn));
    }
    let pattern = (turn.len() == 3).then(|| turn.arg(2));
    let found = turn.engine().pubsub.active(kind, pattern);
    turn.reply.array(found.len());
    found.iter().for_each(|name| turn.reply.bulk(name));
    Ok(())
}

/// Returns Redis's error for surplus arguments that the entry's arity can't refuse.
fn bad_subcommand(turn: &Turn<'_, '_>) -> Error {
    let given = shown(turn.arg(1), SHOWN_BYTES);
    let text: [&[u8]; 3] =
        [b"ERR unknown subcommand or wrong number of arguments for '", given, b"'. Try PUBSUB HELP."];
    Error::quoting(text.concat())
}

fn channels(turn: &mut Turn<'_, '_>) -> Outcome {
    list_active(turn, ChannelKind::Channel)
}

fn shardchannels(turn: &mut Turn<'_, '_>) -> Outcome {
    list_active(turn, ChannelKind::Shard)
}

fn count_subscribers(turn: &mut Turn<'_, '_>, kind: ChannelKind) -> Outcome {
    let asked = turn.args.from(2);
    turn.reply.array(asked.len() * 2);
    for name in asked {
        turn.reply.bulk(name);
        turn.reply.count(turn.worker.engine.pubsub.subscribers(kind, name));
    }
    Ok(())
}

fn numsub(turn: &mut Turn<'_, '_>) -> Outcome {
    count_subscribers(turn, ChannelKind::Channel)
}

fn shardnumsub(turn: &mut Turn<'_, '_>) -> Outcome {
    count_subscribers(turn, ChannelKind::Shard)
}

fn numpat(turn: &mut Turn<'_, '_>) -> Outcome {
    let count = turn.engine().pubsub.pattern_count();
    turn.reply.count(count);
    Ok(())
}

fn pubsub_help(turn: &mut Turn<'_, '_>) -> Outcome {
    help(
        turn,
        &[
            "CHANNELS [<pattern>]",
            "    Return the currently active channels matching a <pattern> (default: '*').",
            "NUMPAT",
            "    Return number of subscriptions to patterns.",
            "NUMSUB [<channel> ...]",
            "    Return the number of subscribers for the specified channels, excluding",
            "    pattern subscriptions(default: no channels).",
            "SHARDCHANNELS [<pattern>]",
            "    Return the currently active shard level channels matching a <pattern> (default: '*').",
            "SHARDNUMSUB [<shardchannel> ...]",
            "    Return the number of subscribers for the specified shard level channel(s)",
        ],
    )
}

/// Switches a session's messages to another protocol version.
pub(crate) fn follow_proto(turn: &mut Turn<'_, '_>, proto: Proto) {
    let pubsub = &turn.engine().pubsub;
    let before = subscriber(turn.session);
    let after = Subscriber { proto, ..before };
    for kind in [ChannelKind::Channel, ChannelKind::Pattern, ChannelKind::Shard] {
        for name in names(&mut turn.session.subscriptions, kind).iter() {
            pubsub.replace(kind, name, before, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Bench, check, check_resp3};

    #[test]
    fn subscriptions_are_counted_and_confirmed_one_by_one() {
        check(&[
            ("unsubscribe", "*3|$11|unsubscribe|$-1|:0"),
            ("subscribe a b a", "*3|$9|subscribe|$1|a|:1|*3|$9|subscribe|$1|b|:2|*3|$9|subscribe|$1|a|:2"),
            ("psubscribe x*", "*3|$10|psubscribe|$2|x*|:3"),
            ("ssubscribe s", "*3|$10|ssubscribe|$1|s|:1"),
            ("unsubscribe nosuch", "*3|$11|unsubscribe|$6|nosuch|:3"),
            ("punsubscribe", "*3|$12|punsubscribe|$2|x*|:2"),
            ("sunsubscribe s", "*3|$12|sunsubscribe|$1|s|:0"),
            ("unsubscribe b", "*3|$11|unsubscribe|$1|b|:1"),
            ("unsubscribe", "*3|$11|unsubscribe|$1|a|:0"),
            ("unsubscribe", "*3|$11|unsubscribe|$-1|:0"),
        ]);
        check_resp3(&[("subscribe a", ">3|$9|subscribe|$1|a|:1"), ("unsubscribe b", ">3|$11|unsubscribe|$1|b|:1")]);
    }

    #[test]
    fn shard_channels_are_not_subscribed_to_in_transactions() {
        check(&[
            ("multi", "+OK"),
            ("subscribe a", "+QUEUED"),
            ("ssubscribe a", "+QUEUED"),
            ("exec", "*2|*3|$9|subscribe|$1|a|:1|-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"),
        ]);
    }

    #[test]
    fn subscribers_may_do_little_in_resp2_and_everything_in_resp3() {
        let refused = "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                       allowed in this context";
        check(&[
            ("ssubscribe a", "*3|$10|ssubscribe|$1|a|:1"),
            ("get k", refused),
            ("ping", "*2|$4|pong|$0|"),
            ("ping x", "*2|$4|pong|$1|x"),
            ("reset", "+RESET"),
            ("get k", "$-1"),
        ]);
        check_resp3(&[("subscribe a", ">3|$9|subscribe|$1|a|:1"), ("get k", "_"), ("ping", "+PONG")]);
    }

    #[test]
    fn messages_reach_each_subscription() {
        let mut bench = Bench::default();
        let (mut a, mut b, mut c) = (bench.open(), bench.open_with(resp::reply::Proto::Resp3), bench.open());
        bench.line(&mut a, "subscribe news");
        bench.line(&mut a, "psubscribe n*");
        bench.line(&mut b, "subscribe news");
        bench.line(&mut b, "ssubscribe news");
        bench.check(
            &mut c,
            &[
                ("publish news hi", ":3"),
                ("publish nobody hi", ":1"),
                ("publish other hi", ":0"),
                ("spublish news yo", ":1"),
                ("pubsub channels", "*1|$4|news"),
                ("pubsub channels x*", "*0"),
                ("pubsub numsub news x", "*4|$4|news|:2|$1|x|:0"),
                ("pubsub numpat", ":1"),
                ("pubsub shardchannels", "*1|$4|news"),
                ("pubsub shardnumsub news", "*2|$4|news|:1"),
            ],
        );
        let pattern = |channel: &str| format!("*4|$8|pmessage|$2|n*|${}|{channel}|$2|hi", channel.len());
        let expected = format!("*3|$7|message|$4|news|$2|hi|{}|{}", pattern("news"), pattern("nobody"));
        assert_eq!(bench.arrived(&mut a), expected);
        assert_eq!(bench.arrived(&mut b), ">3|$7|message|$4|news|$2|hi|>3|$8|smessage|$4|news|$2|yo");
        bench.worker.close(&mut a);
        bench.worker.close(&mut b);
        bench.check(&mut c, &[("publish news hi", ":0"), ("pubsub channels", "*0"), ("pubsub numpat", ":0")]);
    }

    #[test]
    fn own_messages_follow_the_reply() {
        check_resp3(&[
            ("subscribe a", ">3|$9|subscribe|$1|a|:1"),
            ("publish a 1", ":1|>3|$7|message|$1|a|$1|1"),
            ("multi", "+OK"),
            ("publish a 2", "+QUEUED"),
            ("echo x", "+QUEUED"),
            ("exec", "*2|:1|$1|x|>3|$7|message|$1|a|$1|2"),
            ("client reply off", ""),
            ("publish a 3", ">3|$7|message|$1|a|$1|3"),
            ("subscribe b", ">3|$9|subscribe|$1|b|:2"),
            ("client reply on", "+OK"),
        ]);
    }

    #[test]
    fn messages_come_before_the_end_of_their_subscription_and_in_its_version() {
        for (end, confirmed) in [
            ("unsubscribe a", ">3|$11|unsubscribe|$1|a|:1"),
            ("reset", "+RESET"),
            (
                "hello 2",
                "*14|$6|server|$5|redis|$7|version|$5|7.4.0|$5|proto|:2|$2|id|:1|$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0",
            ),
        ] {
            let mut bench = Bench::default();
            let mut a = bench.open_with(resp::reply::Proto::Resp3);
            let mut b = bench.open();
            bench.line(&mut a, "subscribe a b");
            bench.line(&mut b, "publish a 1");
            assert_eq!(bench.line(&mut a, end), format!(">3|$7|message|$1|a|$1|1|{confirmed}"));
            assert_eq!(bench.arrived(&mut a), "", "{end}");
        }
    }

    #[test]
    fn messages_after_hello_use_the_new_protocol() {
        let mut bench = Bench::default();
        let (mut a, mut b) = (bench.open(), bench.open());
        bench.line(&mut a, "hello 3");
        bench.line(&mut a, "subscribe a");
        bench.line(&mut a, "hello 2");
        bench.check(&mut b, &[("publish a 1", ":1")]);
        assert_eq!(bench.arrived(&mut a), "*3|$7|message|$1|a|$1|1");
    }
}
