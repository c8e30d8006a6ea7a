//! Pipelines that stop at their first failure, with Penstock.

#![allow(clippy::unwrap_used)]

use crate::common::{config, connect};
use client::{Connection, Pipeline, Proto, Script, StopAt, Value};
use tests::server::Server;

/// Returns a pipeline of three SETs with a failing command between them.
fn failing(words: &[&str]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    pipeline.add(&["SET", "a", "1"]).add(words).add(&["SET", "a", "2"]).add(&["SET", "a", "3"]);
    pipeline
}

#[test]
fn commands_behind_a_failure_do_not_run() {
    let server = Server::penstock(&[]);
    for proto in [Proto::Resp2, Proto::Resp3] {
        let mut config = config(&server);
        config.proto = proto;
        let mut connection = Connection::connect(&config).unwrap();
        let outcome = failing(&["LPUSH", "a", "x"]).run_until_failure(&mut connection, StopAt::Failures).unwrap();
        let (index, error) = outcome.failure.unwrap();
        assert_eq!((index, outcome.skipped, outcome.replies.len()), (Some(1), 2, 2));
        assert!(error.to_string().starts_with("WRONGTYPE"), "{error}");
        assert_eq!(connection.command(&["GET", "a"]).unwrap(), Value::Bulk(b"1".to_vec()));
        // The mode ends with the pipeline.
        let replies = failing(&["LPUSH", "a", "x"]).run(&mut connection).unwrap();
        assert!(matches!(&replies[..], [Value::Simple(_), Value::Error(_), Value::Simple(_), Value::Simple(_)]));
    }
}

#[test]
fn a_pipeline_without_failures_runs_to_its_end() {
    let server = Server::penstock(&[]);
    let mut connection = connect(&server);
    for (words, at) in [(["GET", "a"], StopAt::Failures), (["INCR", "t"], StopAt::Redirects)] {
        connection.command(&["SET", "t", "text"]).unwrap();
        let outcome = failing(&words).run_until_failure(&mut connection, at).unwrap();
        assert_eq!((outcome.failure, outcome.skipped, outcome.replies.len()), (None, 0, 4));
    }
}

#[test]
fn the_index_of_the_failure_does_not_count_the_loading_of_scripts() {
    let server = Server::penstock(&[]);
    let mut connection = connect(&server);
    let mut pipeline = Pipeline::new();
    pipeline.add(&["PING"]).script(&Script::new("return redis.error_reply('MY x')"), &[] as &[&str], &[] as &[&str]);
    pipeline.add(&["PING"]);
    let outcome = pipeline.run_until_failure(&mut connection, StopAt::Errors).unwrap();
    let (index, error) = outcome.failure.unwrap();
    assert_eq!((index, error.to_string().as_str(), outcome.skipped), (Some(1), "MY x", 1));
}

#[test]
fn a_server_without_the_mode_runs_nothing() {
    let server = Server::oracle(&[]);
    let mut connection = connect(&server);
    let refused = failing(&["PING"]).run_until_failure(&mut connection, StopAt::Failures).unwrap_err();
    assert_eq!((refused.answered, refused.sent), (0, 0));
    assert_eq!(connection.command(&["EXISTS", "a"]).unwrap(), Value::Int(0));
}
