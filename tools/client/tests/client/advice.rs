//! The report of a process on its own wasted round trips.

use std::time::Duration;

use crate::common::{config, on_both};
use client::{Advice, Client, Command, Connection, Pipeline};

#[test]
fn a_loop_is_found_and_a_pipeline_is_not() {
    on_both(&[], |server| {
        let advice = Advice::new();
        let mut connection = Connection::connect(&advice.watch(&config(server))).unwrap();
        assert!(advice.report().contains("No wasted round trips"), "{}", advice.report());
        let mut pipeline = Pipeline::new();
        for number in 0..500 {
            pipeline.add(&Command::new("SET").arg(format!("user:{number}")).arg("x"));
        }
        pipeline.run(&mut connection).unwrap();
        assert_eq!(advice.time_lost(), Duration::ZERO, "{}", advice.report());
        for number in 0..500 {
            connection.command(&Command::new("GET").arg(format!("user:{number}"))).unwrap();
        }
        drop(connection);
        let report = advice.report();
        let has = |part: &str| assert!(report.contains(part), "{part} in {report}");
        has("loop");
        has("GET user:<n>");
        has("this process");
        has("MGET");
        assert!(!report.contains("SET user"), "{report}");
        assert!(advice.time_lost() > Duration::ZERO);
        assert!(advice.json().contains("\"GET\""), "{}", advice.json());
    });
}

#[test]
fn a_shared_client_is_watched() {
    on_both(&[], |server| {
        let advice = Advice::new();
        let client = Client::connect(&advice.watch(&config(server))).unwrap();
        for number in 0..300 {
            client.command(&Command::new("HGET").arg("settings").arg(number)).unwrap();
        }
        // The report includes connections that are still open.
        assert!(advice.report().contains("HMGET"), "{}", advice.report());
        drop(client);
    });
}
