//! Published messages, end to end, with Penstock and Redis.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::common::{Fuse, NO_FUSE, PATIENCE, Proxy, config, connect, on_both};
use client::{Client, Command, Config, Error, Proto, PubSub};
use tests::server::Server;

/// Runs `check` with both protocols on both servers.
fn on_all(check: impl Fn(&Server, Config)) {
    on_both(&[], |server| {
        for proto in [Proto::Resp2, Proto::Resp3] {
            let mut config = config(server);
            config.proto = proto;
            check(server, config);
        }
    });
}

fn publish(server: &Server, channel: &str, payload: &str) {
    connect(server).command(&["PUBLISH", channel, payload]).unwrap();
}

fn check_next(subscriber: &mut PubSub, pattern: Option<&str>, channel: &str, payload: &str) {
    let message = subscriber.next(PATIENCE).unwrap().unwrap();
    let found = (message.pattern.as_deref(), message.channel.as_slice(), message.payload.as_slice());
    assert_eq!(found, (pattern.map(str::as_bytes), channel.as_bytes(), payload.as_bytes()));
}

#[test]
fn messages_of_channels_patterns_and_shards() {
    on_all(|server, config| {
        let client = Client::connect(&config).unwrap();
        let mut subscriber = client.subscribe(&["a", "b"]).unwrap();
        subscriber.psubscribe(&["n*"]).unwrap();
        subscriber.ssubscribe(&["s"]).unwrap();
        publish(server, "a", "1");
        publish(server, "news", "2");
        connect(server).command(&["SPUBLISH", "s", "3"]).unwrap();
        publish(server, "b", "");
        check_next(&mut subscriber, None, "a", "1");
        check_next(&mut subscriber, Some("n*"), "news", "2");
        check_next(&mut subscriber, None, "s", "3");
        check_next(&mut subscriber, None, "b", "");
        assert_eq!(subscriber.next(Duration::from_millis(10)).unwrap(), None);
        subscriber.unsubscribe(&["a"]).unwrap();
        subscriber.punsubscribe(&["n*"]).unwrap();
        subscriber.sunsubscribe(&["s"]).unwrap();
        for channel in ["a", "news", "b"] {
            publish(server, channel, "4");
        }
        check_next(&mut subscriber, None, "b", "4");
        assert_eq!(subscriber.next(Duration::ZERO).unwrap(), None);
    });
}

#[test]
fn messages_during_a_subscription_are_kept() {
    on_all(|server, mut config| {
        config.pushes_max = 3;
        let mut subscriber = PubSub::connect(&config).unwrap();
        subscriber.subscribe(&["a"]).unwrap();
        for payload in ["1", "2", "3", "4", "5"] {
            publish(server, "a", payload);
        }
        // The messages precede the confirmation.
        subscriber.subscribe(&["b"]).unwrap();
        assert_eq!(subscriber.dropped(), 2);
        for payload in ["3", "4", "5"] {
            check_next(&mut subscriber, None, "a", payload);
        }
    });
}

#[test]
fn a_lost_connection_is_reported_once_and_replaced() {
    on_all(|server, config| {
        let mut subscriber = PubSub::connect(&config).unwrap();
        subscriber.subscribe(&["a"]).unwrap();
        subscriber.psubscribe(&["n*"]).unwrap();
        connect(server).command(&Command::new("CLIENT KILL TYPE PUBSUB")).unwrap();
        let error = subscriber.next(PATIENCE).unwrap_err();
        assert!(matches!(error, Error::Lost { .. }), "{error:?}");
        assert_eq!(subscriber.next(Duration::ZERO).unwrap(), None);
        publish(server, "a", "1");
        publish(server, "news", "2");
        check_next(&mut subscriber, None, "a", "1");
        check_next(&mut subscriber, Some("n*"), "news", "2");
    });
}

#[test]
fn subscriptions_can_change_after_a_loss() {
    on_all(|server, config| {
        let mut subscriber = PubSub::connect(&config).unwrap();
        subscriber.subscribe(&["a", "b"]).unwrap();
        let lose = |subscriber: &mut PubSub| {
            connect(server).command(&Command::new("CLIENT KILL TYPE PUBSUB")).unwrap();
            subscriber.next(PATIENCE).unwrap_err();
        };
        lose(&mut subscriber);
        subscriber.subscribe(&["c"]).unwrap();
        publish(server, "c", "1");
        check_next(&mut subscriber, None, "c", "1");
        lose(&mut subscriber);
        subscriber.psubscribe(&["n*"]).unwrap();
        publish(server, "news", "2");
        check_next(&mut subscriber, Some("n*"), "news", "2");
        lose(&mut subscriber);
        subscriber.ssubscribe(&["s"]).unwrap();
        connect(server).command(&["SPUBLISH", "s", "3"]).unwrap();
        check_next(&mut subscriber, None, "s", "3");
        lose(&mut subscriber);
        subscriber.unsubscribe(&["a"]).unwrap();
        lose(&mut subscriber);
        subscriber.punsubscribe(&["n*"]).unwrap();
        for channel in ["a", "b", "c", "news"] {
            publish(server, channel, "4");
        }
        check_next(&mut subscriber, None, "b", "4");
        check_next(&mut subscriber, None, "c", "4");
        assert_eq!(subscriber.next(Duration::ZERO).unwrap(), None);
    });
}

#[test]
fn messages_come_whole_or_not_at_all() {
    on_all(|server, config| {
        for back in (0..400).step_by(23) {
            let proxy =
                Proxy::start(server.port(), move |number| if number == 0 { Fuse { back, ..NO_FUSE } } else { NO_FUSE });
            let mut config = config.clone();
            config.address = proxy.config().address;
            // Broken handshakes are covered by another test.
            let Ok(mut subscriber) = PubSub::connect(&config) else { continue };
            if subscriber.subscribe(&["a"]).is_err() {
                continue;
            }
            let mut errors = 0;
            for number in 0..20 {
                let payload = format!("{number}");
                let receivers = connect(server).command(&["PUBLISH", "a", &payload]).unwrap();
                match subscriber.next(PATIENCE) {
                    Ok(message) => assert_eq!(message.unwrap().payload, payload.as_bytes(), "{receivers:?}"),
                    Err(error) => {
                        assert!(matches!(error, Error::Lost { .. }), "{error:?}");
                        errors += 1;
                        assert_eq!(subscriber.next(Duration::ZERO).unwrap(), None);
                    }
                }
            }
            assert!(errors <= 1, "{errors}");
        }
    });
}

#[test]
fn refusals_of_the_server_are_errors() {
    on_both(&[], |server| {
        let mut subscriber = PubSub::connect(&config(server)).unwrap();
        let refused = connect(server).command(&["ACL", "SETUSER", "default", "resetchannels"]);
        if refused.is_err() {
            return;
        }
        let error = subscriber.subscribe(&["a"]).unwrap_err();
        assert_eq!(error.server().map(|error| error.code()), Some(&b"NOPERM"[..]), "{error:?}");
    });
}
