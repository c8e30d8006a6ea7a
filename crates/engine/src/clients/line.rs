//! A connection's line in CLIENT LIST, and the kinds of connections that filters choose from.
//!
//! Source of the fields: Redis's "CLIENT LIST" page, as of 7.2, and the output of a running server; the last five are
//! from Redis 8. The average pipeline length is shown as its sum and its count.

use std::sync::atomic::Ordering::Relaxed;

use crate::clients::client::{Client, client_flag};
use crate::clients::client_memory::memory_bytes;
use crate::listening::tracking::tracking_flag;
use commands::table::Table;

/// A kind of connection, as in filters and client-output-buffer-limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientKind {
    /// Any other client, including monitors.
    Normal,
    /// The primary of this server.
    Master,
    /// A replica of this server.
    Replica,
    /// A client with subscriptions.
    PubSub,
}

impl ClientKind {
    /// Returns the kind with this name, in any case.
    pub(crate) fn named(name: &[u8]) -> Option<ClientKind> {
        let kinds = [
            ("normal", ClientKind::Normal),
            ("master", ClientKind::Master),
            ("primary", ClientKind::Master),
            ("replica", ClientKind::Replica),
            ("slave", ClientKind::Replica),
            ("pubsub", ClientKind::PubSub),
        ];
        kinds.into_iter().find(|(word, _)| name.eq_ignore_ascii_case(word.as_bytes())).map(|(_, kind)| kind)
    }

    /// Returns the kind of a connection.
    pub(crate) fn of(client: &Client) -> ClientKind {
        match () {
            () if client.has(client_flag::PRIMARY) => ClientKind::Master,
            () if client.has(client_flag::REPLICA) => ClientKind::Replica,
            () if client.has(client_flag::PUBSUB) => ClientKind::PubSub,
            () => ClientKind::Normal,
        }
    }
}

/// The letters of CLIENT LIST's flags, in Redis's order.
const LETTERS: &[(u32, char)] = &[
    (client_flag::REPLICA, 'S'),
    (client_flag::MONITOR, 'O'),
    (client_flag::PRIMARY, 'M'),
    (client_flag::PUBSUB, 'P'),
    (client_flag::MULTI, 'x'),
    (client_flag::BLOCKED, 'b'),
    (client_flag::TRACKING, 't'),
    (client_flag::TRACKING_BROKEN, 'R'),
    (client_flag::TRACKING_BCAST, 'B'),
    (client_flag::DIRTY, 'd'),
    (client_flag::CLOSING, 'c'),
    (client_flag::UNIX_SOCKET, 'U'),
    (client_flag::READS_REPLICA, 'r'),
    (client_flag::NO_EVICT, 'e'),
    (client_flag::NO_TOUCH, 'T'),
    (client_flag::IMPORT_SOURCE, 'I'),
];

// Each letter has a bit of its own.
const _: () = {
    let (mut seen, mut index) = (0, 0);
    while index < LETTERS.len() {
        let flag = LETTERS[index].0;
        assert!(flag.is_power_of_two() && seen & flag == 0);
        seen |= flag;
        index += 1;
    }
};

/// Returns the letters of a connection's flags, in Redis's order.
pub(crate) fn flags(client: &Client) -> String {
    let dirty = if client.mark.load(Relaxed) { client_flag::DIRTY } else { 0 };
    let tracking = client.tracking_flags();
    let tracked = [
        (tracking_flag::ON, client_flag::TRACKING),
        (tracking_flag::BROKEN, client_flag::TRACKING_BROKEN),
        (tracking_flag::BCAST, client_flag::TRACKING_BCAST),
    ];
    let tracked = tracked.into_iter().filter(|(flag, _)| tracking & flag != 0).fold(0, |all, (_, shown)| all | shown);
    let all = client.flags.load(Relaxed) | dirty | tracked;
    let letters: String = LETTERS.iter().filter(|(flag, _)| all & flag != 0).map(|(_, letter)| letter).collect();
    if letters.is_empty() { "N".into() } else { letters }
}

/// Returns the connection that gets this client's invalidations: 0 is the client itself, -1 means that tracking is off.
pub(crate) fn redirect(client: &Client) -> i64 {
    let tracker = client.tracker().filter(|tracker| tracker.has(tracking_flag::ON));
    tracker.map_or(-1, |tracker| i64::try_from(tracker.redirect()).unwrap_or(i64::MAX))
}

/// Figures that are known only of the calling connection.
#[derive(Clone, Copy)]
pub(crate) struct Own<'a> {
    /// The running command.
    pub command: &'a str,
    /// Bytes of received requests in memory, including the running one.
    pub arrived_bytes: u64,
}

/// Formats the line, without a line end. For connections other than the caller it shows the last command.
pub(crate) fn line(table: &Table, client: &Client, now_ms: u64, own: Option<Own<'_>>) -> String {
    let names = client.names().clone();
    let user = client.user_name();
    let seconds_since = |ms: u64| now_ms.saturating_sub(ms) / 1000;
    let [sub, psub, ssub] = client.subscriptions.each_ref().map(|count| count.load(Relaxed));
    let input = own.map_or_else(|| client.input_bytes.load(Relaxed), |own| own.arrived_bytes);
    // The worker's shared buffer is not part of the connection.
    let input_free = client.input_free_bytes.load(Relaxed);
    let (output, queued) = (client.output_memory.load(Relaxed), client.queued_bytes.load(Relaxed));
    let last = table.all().get(client.last_command.load(Relaxed) as usize).map_or("NULL", |c| &c.name);
    let commands = client.commands();
    // Most clients claim no capabilities.
    let capabilities = if client.has(client_flag::CAN_REDIRECT) { " capa=r" } else { "" };
    // Unsent replies are a chain of segments; there is no fixed buffer beside it (rbs, rbp, obl).
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={}{capabilities} db={} sub={sub} psub={psub} ssub={ssub} \
         multi={} watch={} qbuf={input} qbuf-free={input_free} argv-mem={} multi-mem={queued} rbs=0 rbp=0 obl=0 oll={} omem={output} \
         tot-mem={} events={} cmd={} user={user} redir={} resp={} lib-name={} lib-ver={} \
         tot-net-in={} tot-net-out={} tot-cmds={commands} avg-pipeline-len-sum={commands} avg-pipeline-len-cnt={}",
        client.id,
        client.addr,
        client.laddr,
        client.fd,
        names.name,
        seconds_since(client.created_ms),
        seconds_since(client.active_ms.load(Relaxed)),
        flags(client),
        client.db.load(Relaxed),
        client.queued.load(Relaxed),
        client.watched.load(Relaxed),
        client.args_bytes.load(Relaxed),
        client.output_segments.load(Relaxed),
        memory_bytes(client),
        if output > 0 { "rw" } else { "r" },
        own.map_or(last.as_ref(), |own| own.command),
        redirect(client),
        client.resp.load(Relaxed),
        names.lib_name,
        names.lib_ver,
        client.net_bytes[0].load(Relaxed),
        client.net_bytes[1].load(Relaxed),
        client.batches(),
    )
}
