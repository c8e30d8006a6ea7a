//! The directives that are accepted, shown by CONFIG GET and kept by CONFIG REWRITE, but have no effect.
//!
//! Configuration files of a real Redis contain them and tools ask for them, so that refusing them would keep users away
//! for nothing. Where ignoring a value would be dangerous (a replica that isn't one, data that isn't kept), every value
//! but the default is refused instead: those entries are marked `missing`.

use super::directive::Directive;
use super::kind::ValueKind;
use super::special::{check_hostname, check_oom_score_adj_values};

/// Directives without effect that share the reason for it.
pub(super) struct Group {
    /// The reason, as a sentence.
    pub(super) why: &'static str,
    /// The entries; their docs and effect are filled in from the group.
    pub(super) directives: &'static [Directive],
}

const INT_MAX: i64 = i32::MAX as i64;
const INT_MIN: i64 = i32::MIN as i64;

/// All of them, by reason.
pub(super) const STORED: &[Group] =
    &[PROCESS, SNAPSHOT, APPEND_ONLY, REPLICATION, CLUSTER, TLS, ACCESS, DATA, MEMORY, EVICTION];

const PROCESS: Group = Group {
    why: "The server stays in the foreground, logs without decoration and leaves its process's properties to whoever \
          starts it.",
    directives: &[
        Directive::bool("daemonize", "no").immutable(),
        Directive::bool("always-show-logo", "no").immutable(),
        Directive::bool("syslog-enabled", "no").immutable().missing("syslog"),
        Directive::text("syslog-ident", "redis").immutable(),
        Directive::choice("syslog-facility", FACILITIES, "local0").immutable(),
        Directive::bool("crash-log-enabled", "yes"),
        Directive::bool("crash-memcheck-enabled", "yes"),
        Directive::bool("use-exit-on-panic", "no").hidden(),
        Directive::choice("oom-score-adj", &["no", "yes", "relative", "absolute"], "no"),
        Directive::new("oom-score-adj-values", ValueKind::Words(check_oom_score_adj_values), "0 200 800"),
        Directive::text("server_cpulist", "").immutable(),
        Directive::text("bio_cpulist", "").immutable(),
        Directive::text("aof_rewrite_cpulist", "").immutable(),
        Directive::text("bgsave_cpulist", "").immutable(),
        Directive::bool("io-threads-do-reads", "no").immutable(),
        Directive::int("socket-mark-id", 0, u32::MAX as i64, "0").immutable(),
        Directive::text("bind-source-addr", ""),
        Directive::text("ignore-warnings", ""),
        Directive::text("locale-collate", ""),
    ],
};

const FACILITIES: &[&str] = &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"];

const SNAPSHOT: Group = Group {
    why: "What a snapshot has is checked in any case, and nothing is saved or loaded more slowly than it can be.",
    directives: &[
        Directive::bool("rdb-del-sync-files", "no"),
        Directive::choice("sanitize-dump-payload", &["no", "yes", "clients"], "no"),
        Directive::int("key-load-delay", INT_MIN, INT_MAX, "0").hidden(),
        Directive::int("rdb-key-save-delay", INT_MIN, INT_MAX, "0").hidden(),
        Directive::int("loading-process-events-interval-bytes", 1024, INT_MAX, "2097152").hidden(),
    ],
};

const APPEND_ONLY: Group = Group {
    why: "What the manifest of the append-only file no longer names is removed.",
    directives: &[Directive::bool("aof-disable-auto-gc", "no").hidden()],
};

const REPLICATION: Group = Group {
    why: "Replication doesn't exist yet.",
    directives: &[
        Directive::bool("replica-lazy-flush", "no").alias(&["slave-lazy-flush"]),
        Directive::bool("replica-ignore-maxmemory", "yes").alias(&["slave-ignore-maxmemory"]),
        Directive::bool("replica-ignore-disk-write-errors", "no"),
        Directive::bool("repl-diskless-sync", "yes"),
        Directive::natural("repl-diskless-sync-delay", "5"),
        Directive::natural("repl-diskless-sync-max-replicas", "0"),
        Directive::choice("repl-diskless-load", &["disabled", "on-empty-db", "swapdb"], "disabled"),
        Directive::bool("repl-disable-tcp-nodelay", "no"),
        Directive::int("repl-ping-replica-period", 1, INT_MAX, "10").alias(&["repl-ping-slave-period"]),
        Directive::bytes("repl-backlog-size", 1, "1mb"),
        Directive::count("repl-backlog-ttl", "3600"),
        Directive::natural("min-replicas-to-write", "0").alias(&["min-slaves-to-write"]).missing("replication"),
        Directive::natural("min-replicas-max-lag", "10").alias(&["min-slaves-max-lag"]),
        Directive::choice("propagation-error-behavior", &["ignore", "panic", "panic-on-replicas"], "ignore"),
        Directive::natural("shutdown-timeout", "10"),
    ],
};

const CLUSTER: Group = Group {
    why: "Cluster mode doesn't exist yet.",
    directives: &[
        Directive::bool("cluster-enabled", "no").immutable().missing("cluster mode"),
        Directive::text("cluster-config-file", "nodes.conf").immutable(),
        Directive::port("cluster-port", "0").immutable(),
        Directive::count("cluster-node-timeout", "15000"),
        Directive::natural("cluster-migration-barrier", "1"),
        Directive::natural("cluster-replica-validity-factor", "10").alias(&["cluster-slave-validity-factor"]),
        Directive::bool("cluster-replica-no-failover", "no").alias(&["cluster-slave-no-failover"]),
        Directive::bool("cluster-require-full-coverage", "yes"),
        Directive::bool("cluster-allow-reads-when-down", "no"),
        Directive::bool("cluster-allow-pubsubshard-when-down", "yes"),
        Directive::bool("cluster-allow-replica-migration", "yes"),
        Directive::bytes("cluster-link-sendbuf-limit", 0, "0"),
        Directive::text("cluster-announce-ip", ""),
        Directive::text("cluster-announce-hostname", "").checked(check_hostname),
        Directive::text("cluster-announce-human-nodename", ""),
        Directive::port("cluster-announce-port", "0"),
        Directive::port("cluster-announce-bus-port", "0"),
        Directive::port("cluster-announce-tls-port", "0"),
        Directive::choice("cluster-preferred-endpoint-type", &["ip", "hostname", "unknown-endpoint"], "ip"),
    ],
};

const TLS: Group = Group {
    why: "TLS doesn't exist yet.",
    directives: &[
        Directive::port("tls-port", "0").missing("TLS"),
        Directive::bool("tls-replication", "no"),
        Directive::bool("tls-cluster", "no"),
        Directive::choice("tls-auth-clients", &["no", "yes", "optional"], "yes"),
        Directive::text("tls-cert-file", ""),
        Directive::text("tls-key-file", ""),
        Directive::text("tls-key-file-pass", "").sensitive(),
        Directive::text("tls-client-cert-file", ""),
        Directive::text("tls-client-key-file", ""),
        Directive::text("tls-client-key-file-pass", "").sensitive(),
        Directive::text("tls-dh-params-file", ""),
        Directive::text("tls-ca-cert-file", ""),
        Directive::text("tls-ca-cert-dir", ""),
        Directive::text("tls-protocols", ""),
        Directive::text("tls-ciphers", ""),
        Directive::text("tls-ciphersuites", ""),
        Directive::bool("tls-prefer-server-ciphers", "no"),
        Directive::bool("tls-session-caching", "yes"),
        Directive::natural("tls-session-cache-size", "20480"),
        Directive::natural("tls-session-cache-timeout", "300"),
    ],
};

const ACCESS: Group = Group {
    why: "There is one user, default, and there are no modules and no client-side caching yet.",
    directives: &[
        Directive::text("aclfile", "").immutable().missing("a file of users"),
        Directive::count("acllog-max-len", "128"),
        Directive::choice("acl-pubsub-default", &["allchannels", "resetchannels"], "resetchannels"),
        Directive::choice("enable-module-command", &["no", "yes", "local"], "no").immutable(),
        Directive::count("tracking-table-max-keys", "1000000"),
    ],
};

const DATA: Group =
    Group { why: "Lists aren't compressed.", directives: &[Directive::natural("list-compress-depth", "0")] };

const MEMORY: Group = Group {
    why: "The keyspace grows its tables bit by bit and needs no help from a rehashing timer or an allocator's thread.",
    directives: &[
        Directive::bool("activerehashing", "yes"),
        Directive::bool("dynamic-hz", "yes"),
        Directive::bool("jemalloc-bg-thread", "yes"),
    ],
};

const EVICTION: Group = Group {
    why: "Evicted values are freed on the spot: memory that a thread in the background has yet to free is still in use, \
          and more keys than necessary would go.",
    directives: &[Directive::bool("lazyfree-lazy-eviction", "no")],
};
