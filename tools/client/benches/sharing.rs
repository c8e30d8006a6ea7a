//! Measures automatic pipelining: threads that wait for every reply share one connection in turn, use one connection
//! each, or share one [`Client`].
//!
//!     cargo bench -p penstock-client --bench sharing [-- SECONDS]
//!
//! `PENSTOCK_BIN` names another server. Without `--bench` it makes one short round, so that ordinary tests keep it
//! working.

// A benchmark reports failures by panicking.
#![allow(clippy::unwrap_used, clippy::missing_docs_in_private_items)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, Config, Connection};
use tests::server::Server;

const SECONDS: f64 = 1.0;
const SECONDS_OF_A_TEST: f64 = 0.01;

/// Runs `get` in `threads` threads until the time is over. Returns commands per second, all threads together.
fn measure(threads: usize, seconds: f64, get: impl Fn(usize) + Sync) -> f64 {
    let over = AtomicBool::new(false);
    let start = Instant::now();
    let commands: u64 = thread::scope(|scope| {
        let run = |thread| {
            let (over, get) = (&over, &get);
            move || {
                let mut commands = 0;
                while !over.load(Ordering::Relaxed) {
                    get(thread);
                    commands += 1;
                }
                commands
            }
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        thread::sleep(Duration::from_secs_f64(seconds));
        over.store(true, Ordering::Relaxed);
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    commands as f64 / start.elapsed().as_secs_f64()
}

fn get(connection: &Mutex<Connection>) {
    connection.lock().unwrap().command(&["GET", "k"]).unwrap();
}

fn client(config: &Config, flights_max: usize) -> Client {
    let mut options = ClientOptions::default();
    options.flights_max = flights_max;
    Client::with_options(config, options).unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asked = args.iter().find_map(|arg| arg.parse().ok());
    let seconds = match args.iter().any(|arg| arg == "--bench") {
        true => asked.unwrap_or(SECONDS),
        false => SECONDS_OF_A_TEST,
    };
    let server = Server::penstock(&["--threads", "1"]);
    let config = Config::tcp("127.0.0.1", server.port());
    let connect = || Mutex::new(Connection::connect(&config).unwrap());
    connect().lock().unwrap().command(&["SET", "k", "0123456789abcdef"]).unwrap();
    println!("GET, thousand a second      one by one   a connection each   client, flights: 1        2        4");
    for threads in [1, 2, 8, 32, 128] {
        let one = connect();
        let each: Vec<_> = (0..threads).map(|_| connect()).collect();
        let mut figures =
            vec![measure(threads, seconds, |_| get(&one)), measure(threads, seconds, |thread| get(&each[thread]))];
        for flights_max in [1, 2, 4] {
            let client = client(&config, flights_max);
            figures.push(measure(threads, seconds, |_| drop(client.command(&["GET", "k"]).unwrap())));
        }
        let figures: Vec<f64> = figures.iter().map(|figure| figure / 1000.0).collect();
        println!(
            "{threads:4} threads {:25.1} {:19.1} {:20.1} {:8.1} {:8.1}",
            figures[0], figures[1], figures[2], figures[3], figures[4]
        );
    }
}
