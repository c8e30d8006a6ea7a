//! A connection's line in CLIENT LIST, and the kinds of connections that filters choose from.
//!
//! Source of the fields: Redis's "CLIENT LIST" page, as of 7.2, and what a running server shows; the last five are those of Redis 8.
//! The average length of its pipelines is a sum and how many there were.

use std::sync::atomic::Ordering::Relaxed;

use crate::clients::client::{Client, client_flag};
use crate::clients::client_memory::memory_bytes;
use crate::command_table::Table;
use crate::listening::tracking::tracking_flag;

/// A kind of connection, as filters and client-output-buffer-limit tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientKind {
    /// Any other, monitors included.
    Normal,
    /// The server that this one is a replica of.
    Master,
    /// A replica of this server.
    Replica,
    /// One that has subscribed to something.
    PubSub,
}

impl ClientKind {
    /// The kind with this name, in whatever case.
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

    /// The kind of a connection.
    pub(crate) fn of(client: &Client) -> ClientKind {
        match () {
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
    (client_flag::PUBSUB, 'P'),
    (client_flag::MULTI, 'x'),
    (client_flag::BLOCKED, 'b'),
    (client_flag::TRACKING, 't'),
    (client_flag::TRACKING_BROKEN, 'R'),
    (client_flag::TRACKING_BCAST, 'B'),
    (client_flag::DIRTY, 'd'),
    (client_flag::CLOSING, 'c'),
    (client_flag::UNIX_SOCKET, 'U'),
    (client_flag::NO_EVICT, 'e'),
    (client_flag::NO_TOUCH, 'T'),
    (client_flag::IMPORT_SOURCE, 'I'),
];

/// The letters of a connection's flags, in Redis's order.
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

/// The connection that gets this one's invalidations; 0 is itself, and -1 none, since it doesn't cache.
pub(crate) fn redirect(client: &Client) -> i64 {
    let tracker = client.tracker().filter(|tracker| tracker.has(tracking_flag::ON));
    tracker.map_or(-1, |tracker| i64::try_from(tracker.redirect()).unwrap_or(i64::MAX))
}

/// What is known of the connection that asks, and of no other.
#[derive(Clone, Copy)]
pub(crate) struct Own<'a> {
    /// The command that it is running.
    pub command: &'a str,
    /// Bytes of requests that have arrived and are in memory, the running one's among them.
    pub arrived_bytes: u64,
}

/// The line, without an end. Of a connection that isn't the one that asks, the last command is shown.
pub(crate) fn line(table: &Table, client: &Client, now_ms: u64, own: Option<Own<'_>>) -> String {
    let names = client.names().clone();
    let user = client.user_name();
    let seconds_since = |ms: u64| now_ms.saturating_sub(ms) / 1000;
    let [sub, psub, ssub] = client.subscriptions.each_ref().map(|count| count.load(Relaxed));
    let input = own.map_or_else(|| client.input_bytes.load(Relaxed), |own| own.arrived_bytes);
    // What is read into the thread's buffer leaves no room of the connection's own.
    let input_free = client.input_free_bytes.load(Relaxed);
    let (output, queued) = (client.output_memory.load(Relaxed), client.queued_bytes.load(Relaxed));
    let last = table.all().get(client.last_command.load(Relaxed) as usize).map_or("NULL", |c| &c.name);
    let commands = client.commands();
    // Of a client that has claimed any, as most never do.
    let capabilities = if client.has(client_flag::CAN_REDIRECT) { " capa=r" } else { "" };
    // What is queued of replies is a chain of segments; there is no fixed buffer beside it (rbs, rbp, obl).
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
