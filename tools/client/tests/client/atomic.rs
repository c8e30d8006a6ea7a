//! Scripts and transactions, end to end, with Penstock and Redis.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::thread;
use std::time::Duration;

use crate::common::{bulk, config, connect, ok, on_both, on_those_with_scripts};
use client::{Client, Command, Config, Connection, Error, Fate, Pipeline, Proto, Script, Transaction, Value};
use tests::server::Server;

const NO_KEYS: &[&str] = &[];

fn number(value: &Value) -> i64 {
    value.bytes().map_or(0, |text| String::from_utf8_lossy(text).parse().unwrap())
}

#[test]
fn a_script_is_loaded_when_it_is_unknown() {
    on_those_with_scripts(|server| {
        let script = Script::new("return {KEYS[1], ARGV[1], ARGV[2]}");
        let expected = Value::Array(vec![bulk("k"), bulk("1"), bulk("b")]);
        let client = Client::connect(&config(server)).unwrap();
        let mut connection = connect(server);
        for _ in 0..2 {
            assert_eq!(client.script(&script, &["k"], &["1", "b"]).unwrap(), expected);
            connection.command(&["SCRIPT", "FLUSH"]).unwrap();
            assert_eq!(connection.script(&script, &["k"], &["1", "b"]).unwrap(), expected);
            connection.command(&["SCRIPT", "FLUSH"]).unwrap();
        }
        for error in [
            client.script(&Script::new("not lua"), NO_KEYS, NO_KEYS).unwrap_err(),
            connection.script(&Script::new("not lua"), NO_KEYS, NO_KEYS).unwrap_err(),
        ] {
            assert!(error.to_string().contains("Error compiling script"), "{error}");
        }
    });
}

#[test]
fn scripts_are_loaded_before_a_pipeline_calls_them() {
    on_those_with_scripts(|server| {
        let (one, two) = (Script::new("return 1"), Script::new("return ARGV[1]"));
        let mut pipeline = Pipeline::new();
        for i in 0..100 {
            pipeline.script(&one, NO_KEYS, NO_KEYS).add(&["PING"]).script(&two, NO_KEYS, &[i]);
        }
        let check = |replies: &[Value]| {
            assert_eq!(replies.len(), 300);
            for (i, three) in replies.chunks(3).enumerate() {
                assert_eq!(three, [Value::Int(1), Value::Simple(b"PONG".into()), bulk(&i.to_string())]);
            }
        };
        let client = Client::connect(&config(server)).unwrap();
        let mut connection = connect(server);
        for _ in 0..2 {
            check(&pipeline.run(&mut connection).unwrap());
            check(&client.pipeline(&pipeline).unwrap());
            // Another client flushes the scripts. The next pipeline loads them again.
            connect(server).command(&["SCRIPT", "FLUSH"]).unwrap();
        }
    });
}

#[test]
fn a_pipeline_whose_script_does_not_compile_runs_nothing() {
    on_those_with_scripts(|server| {
        let mut pipeline = Pipeline::new();
        pipeline.add(&["SET", "k", "v"]).script(&Script::new("not lua"), NO_KEYS, NO_KEYS);
        let mut connection = connect(server);
        let client = Client::connect(&config(server)).unwrap();
        for interrupted in [pipeline.run(&mut connection).unwrap_err(), client.pipeline(&pipeline).unwrap_err()] {
            assert!(interrupted.error.to_string().contains("compiling"), "{interrupted}");
            assert_eq!((interrupted.answered, interrupted.sent), (0, 0));
            assert_eq!(Error::from(interrupted).fate(), Fate::Answered);
        }
        assert_eq!(connection.command(&["EXISTS", "k"]).unwrap(), Value::Int(0));
    });
}

#[test]
fn a_transaction_runs_as_a_whole_or_not_at_all() {
    on_both(&[], |server| {
        let mut good = Transaction::new();
        good.add(&["SET", "k", "v"]).add(&["INCR", "k"]).add(&["GET", "k"]);
        assert_eq!(good.len(), 3);
        let mut bad = Transaction::new();
        bad.add(&["SET", "k", "other"]).add(&["NONSENSE"]);
        let client = Client::connect(&config(server)).unwrap();
        let mut connection = connect(server);
        for replies in [client.transaction(&good).unwrap(), good.run(&mut connection).unwrap().unwrap()] {
            assert_eq!(replies.len(), 3);
            assert_eq!(replies[0], ok());
            assert!(replies[1].error().is_some());
            assert_eq!(replies[2], bulk("v"));
        }
        for error in [client.transaction(&bad).unwrap_err(), bad.run(&mut connection).unwrap_err()] {
            assert!(error.to_string().starts_with("ERR unknown command 'NONSENSE'"), "{error}");
        }
        assert_eq!(connection.command(&["GET", "k"]).unwrap(), bulk("v"));
        assert_eq!(client.transaction(&Transaction::new()).unwrap(), []);
    });
}

/// Starts Redis with a user that may do everything except MULTI. Returns a configuration for this user, and a
/// connection of the default user.
fn without_multi() -> (Server, Config, Connection) {
    let server = Server::oracle(&[]);
    let mut admin = connect(&server);
    admin.command(&Command::new("ACL SETUSER nm on >p ~* &* +@all -multi")).unwrap();
    let mut config = config(&server);
    (config.user, config.password) = (Some(b"nm".into()), Some(b"p".into()));
    (server, config, admin)
}

fn two_payments() -> Transaction {
    let mut transaction = Transaction::new();
    transaction.add(&["INCRBY", "alice", "10"]).add(&["INCRBY", "bob", "10"]);
    transaction
}

#[test]
fn nothing_runs_if_multi_is_refused() {
    let (_server, config, mut admin) = without_multi();
    let client = Client::connect(&config).unwrap();
    let mut connection = Connection::connect(&config).unwrap();
    for _ in 0..2 {
        for error in [
            client.transaction(&two_payments()).unwrap_err(),
            two_payments().run(&mut connection).unwrap_err(),
            client.optimistic(&["alice"], |_| Ok(Some(two_payments()))).unwrap_err(),
        ] {
            assert_eq!(error.server().map(|error| error.code()), Some(&b"NOPERM"[..]), "{error:?}");
        }
    }
    assert_eq!(admin.command(&["EXISTS", "alice", "bob"]).unwrap(), Value::Int(0));
    // Both are still usable, and notice that MULTI is allowed now.
    admin.command(&Command::new("ACL SETUSER nm +multi")).unwrap();
    assert_eq!(client.transaction(&two_payments()).unwrap(), [Value::Int(10), Value::Int(10)]);
    assert_eq!(two_payments().run(&mut connection).unwrap().unwrap(), [Value::Int(20), Value::Int(20)]);
}

#[test]
fn a_later_refusal_of_multi_reports_the_commands_that_ran() {
    let (_server, config, mut admin) = without_multi();
    admin.command(&Command::new("ACL SETUSER nm +multi")).unwrap();
    let client = Client::connect(&config).unwrap();
    let mut connection = Connection::connect(&config).unwrap();
    client.transaction(&Transaction::new()).unwrap();
    Transaction::new().run(&mut connection).unwrap();
    admin.command(&Command::new("ACL SETUSER nm -multi")).unwrap();
    for (error, sum) in
        [(client.transaction(&two_payments()).unwrap_err(), 10), (two_payments().run(&mut connection).unwrap_err(), 20)]
    {
        assert_eq!(error.fate(), Fate::Answered);
        assert!(error.to_string().contains("one by one"), "{error}");
        let Error::NoTransaction { refused, replies } = error else { panic!("{error:?}") };
        assert_eq!(refused.code(), b"NOPERM");
        assert_eq!(replies, [Value::Int(sum), Value::Int(sum)]);
    }
    // Both wait for MULTI's reply from now on.
    assert_eq!(client.transaction(&two_payments()).unwrap_err().server().unwrap().code(), b"NOPERM");
    assert_eq!(two_payments().run(&mut connection).unwrap_err().server().unwrap().code(), b"NOPERM");
    assert_eq!(admin.command(&["GET", "bob"]).unwrap(), bulk("20"));
}

/// Doubles the value of a key in the client.
fn double(connection: &mut Connection, key: &str) -> Result<Option<Transaction>, Error> {
    let value = number(&connection.command(&["GET", key])?);
    let mut transaction = Transaction::new();
    transaction.add(&Command::new("SET").arg(key).arg(value * 2));
    Ok(Some(transaction))
}

#[test]
fn an_optimistic_change_begins_anew_when_others_interfere() {
    on_both(&[], |server| {
        let client = Client::connect(&config(server)).unwrap();
        client.command(&["SET", "k", "1"]).unwrap();
        let mut attempts = 0;
        let replies = client.optimistic(&["k"], |connection| {
            attempts += 1;
            let transaction = double(connection, "k");
            if attempts == 1 {
                client.command(&["SET", "k", "50"])?;
            }
            transaction
        });
        assert_eq!(replies.unwrap(), Some(vec![ok()]));
        assert_eq!(attempts, 2);
        assert_eq!(client.command(&["GET", "k"]).unwrap(), bulk("100"));
        let nothing = client.optimistic(&["k"], |_| Ok(None)).unwrap();
        assert_eq!(nothing, None);
    });
}

#[test]
fn optimistic_changes_of_many_threads_all_count() {
    on_both(&[], |server| {
        let client = Client::connect(&config(server)).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let added = client.optimistic(&["sum"], |connection| {
                            let value = number(&connection.command(&["GET", "sum"])?);
                            let mut transaction = Transaction::new();
                            transaction.add(&Command::new("SET").arg("sum").arg(value + 1));
                            Ok(Some(transaction))
                        });
                        added.unwrap();
                    }
                });
            }
        });
        assert_eq!(client.command(&["GET", "sum"]).unwrap(), bulk("100"));
    });
}

#[test]
fn contention_ends_with_an_error_and_no_watched_keys() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        let mut other = connect(server);
        let error = connection.optimistic(&["k"], 3, |connection| {
            other.command(&["INCR", "k"])?;
            double(connection, "k")
        });
        assert!(matches!(error, Err(Error::Contended { attempts: 3 })), "{error:?}");
        let refused = connection.optimistic(&["k"], 3, |connection| connection.command(&["NONSENSE"]).map(|_| None));
        assert!(matches!(refused, Err(Error::Server(_))), "{refused:?}");
        other.command(&["SET", "k", "x"]).unwrap();
        // If a key were still watched, this transaction would not run.
        let mut transaction = Transaction::new();
        transaction.add(&["PING"]);
        assert!(transaction.run(&mut connection).unwrap().is_some());
    });
}

#[test]
fn state_that_an_optimistic_change_sets_ends_with_it() {
    on_both(&[], |server| {
        let mut config = config(server);
        config.client_name = Some(b"as-new".into());
        let client = Client::connect(&config).unwrap();
        let other = Connection::connect(&config).unwrap();
        let mut other = Some(other);
        type Change<'a> = &'a mut dyn FnMut(&mut Connection) -> Result<Option<Transaction>, Error>;
        let mut in_transaction = Transaction::new();
        in_transaction.add(&["SELECT", "5"]);
        let changes: [Change<'_>; 7] = [
            &mut |connection| connection.command(&["SELECT", "5"]).map(|_| None),
            &mut |connection| connection.command(&["CLIENT", "SETNAME", "other"]).map(|_| None),
            &mut |connection| connection.command(&["HELLO", "3"]).map(|_| None),
            // Leaves a transaction open, in which later commands would only be queued.
            &mut |connection| connection.command(&["MULTI"]).map(|_| None),
            &mut |connection| {
                let mut pipeline = Pipeline::new();
                pipeline.add(&["PING"]).add(&["SELECT", "5"]);
                pipeline.run(connection)?;
                Ok(None)
            },
            &mut |_| Ok(Some(in_transaction.clone())),
            // Replaces the connection by another one.
            &mut |connection| {
                let mut other = other.take().unwrap();
                other.command(&["SELECT", "5"])?;
                *connection = other;
                Ok(None)
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            client.optimistic(&["k"], change).unwrap();
            let mut next = client.dedicated().unwrap();
            let info = next.command(&["CLIENT", "INFO"]).unwrap();
            let info = String::from_utf8_lossy(info.bytes().unwrap()).into_owned();
            for part in [" db=0 ", " name=as-new ", " resp=2"] {
                assert!(info.contains(part), "after {number}: {part} in {info}");
            }
            client.command(&["RPUSH", "list", "x"]).unwrap();
            assert_eq!(client.command(&["BLPOP", "list", "1"]).unwrap(), Value::Array(vec![bulk("list"), bulk("x")]));
        }
    });
}

#[test]
fn an_attempt_finds_its_connection_as_new() {
    on_both(&[], |server| {
        let client = Client::connect(&config(server)).unwrap();
        client.command(&["SET", "k", "1"]).unwrap();
        let mut attempts = 0;
        let replies = client.optimistic(&["k"], |connection| {
            attempts += 1;
            let value = number(&connection.command(&["GET", "k"])?);
            connection.command(&["SELECT", "5"])?;
            if attempts == 1 {
                client.command(&["SET", "k", "50"])?;
            }
            let mut transaction = Transaction::new();
            transaction.add(&Command::new("SET").arg("copy").arg(value));
            Ok(Some(transaction))
        });
        assert_eq!(replies.unwrap(), Some(vec![ok()]));
        let mut other = connect(server);
        other.command(&["SELECT", "5"]).unwrap();
        assert_eq!(other.command(&["GET", "copy"]).unwrap(), bulk("50"));
    });
}

#[test]
fn client_side_state_of_a_connection_is_reset_too() {
    on_both(&[], |server| {
        let mut config = config(server);
        config.proto = Proto::Resp3;
        let client = Client::connect(&config).unwrap();
        let mut first = Value::NullBulk;
        client
            .optimistic(&["k"], |connection| {
                connection.set_read_timeout(Some(Duration::from_millis(50)));
                first = connection.command(&["CLIENT", "ID"])?;
                Ok(None)
            })
            .unwrap();
        // The pool returns the same connection, with the read timeout of the configuration.
        let mut next = client.dedicated().unwrap();
        assert_eq!(next.command(&["CLIENT", "ID"]).unwrap(), first);
        assert!(next.command(&["BLPOP", "nothing", "0.2"]).is_ok());
    });
}
