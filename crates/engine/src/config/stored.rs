//! The directives that are accepted, shown by CONFIG GET and kept by CONFIG REWRITE, but have no effect.
//!
//! Configuration files of Redis and Valkey contain them and tools ask for them, so that refusing them would keep users away
//! for nothing. A file that has one leaves a line in the log, with the group's reason. Where ignoring a value would be
//! dangerous (a replica that isn't one, data that isn't kept), every value but the default is refused instead: those entries
//! are marked `missing`.

use super::directive::Directive;
use super::kind::ValueKind;
use super::special::{check_hostname, check_oom_score_adj_values};

/// Directives without effect that share the reason for it.
pub(super) struct InertDirectives {
    /// The reason, as a sentence.
    pub(super) why: &'static str,
    /// Whether they will have an effect once the feature exists that they belong to.
    pub(super) awaits: bool,
    /// The entries; their docs and effect are filled in from the group.
    pub(super) directives: &'static [Directive],
}

const INT_MAX: i64 = i32::MAX as i64;
const INT_MIN: i64 = i32::MIN as i64;

/// All of them, by reason.
pub(super) const STORED: &[InertDirectives] =
    &[PROCESS, NETWORK, SNAPSHOT, APPEND_ONLY, REPLICATION, CLUSTER, DIFFIE_HELLMAN, MODULES, DATA, MEMORY, EVICTION];

const PROCESS: InertDirectives = InertDirectives {
    why: "The log has no logo and shows no keys or values, and the process's properties are left to what starts it.",
    awaits: false,
    directives: &[
        Directive::bool("always-show-logo", "no").immutable(),
        Directive::bool("hide-user-data-from-log", "yes"),
        Directive::bool("crash-log-enabled", "yes"),
        Directive::bool("crash-memcheck-enabled", "yes"),
        Directive::bool("use-exit-on-panic", "no").hidden(),
        Directive::natural("watchdog-period", "0").hidden(),
        Directive::choice("oom-score-adj", &["no", "yes", "relative", "absolute"], "no"),
        Directive::new("oom-score-adj-values", ValueKind::Words(check_oom_score_adj_values), "0 200 800"),
        Directive::text("server-cpulist", "").alias(&["server_cpulist"]).immutable(),
        Directive::text("bio-cpulist", "").alias(&["bio_cpulist"]).immutable(),
        Directive::text("aof-rewrite-cpulist", "").alias(&["aof_rewrite_cpulist"]).immutable(),
        Directive::text("bgsave-cpulist", "").alias(&["bgsave_cpulist"]).immutable(),
        Directive::text("ignore-warnings", ""),
        Directive::text("locale-collate", ""),
        Directive::text("availability-zone", ""),
        Directive::bool("extended-redis-compatibility", "no"),
        Directive::text("hash-seed", "").immutable().sensitive(),
    ],
};

const NETWORK: InertDirectives = InertDirectives {
    why: "Every thread reads and sends for its own connections, each wakeup takes all that wait to be accepted, and sockets \
          are plain TCP.",
    awaits: false,
    directives: &[
        Directive::bool("io-threads-do-reads", "no").immutable(),
        Directive::int("socket-mark-id", 0, u32::MAX as i64, "0").immutable(),
        Directive::text("bind-source-addr", ""),
        Directive::int("max-new-connections-per-cycle", 1, 1000, "10"),
        Directive::int("max-new-tls-connections-per-cycle", 1, 1000, "1"),
        Directive::int("events-per-io-thread", 0, INT_MAX, "2").hidden(),
        Directive::int("lookahead", 1, INT_MAX, "16"),
        Directive::int("prefetch-batch-max-size", 0, 128, "16"),
        Directive::bool("mptcp", "no").immutable(),
        Directive::port("rdma-port", "0").missing("RDMA"),
        Directive::text("rdma-bind", ""),
        Directive::int("rdma-rx-size", 65536, 16 << 20, "1048576").immutable(),
        Directive::int("rdma-completion-vector", -1, 1024, "-1").immutable(),
    ],
};

const SNAPSHOT: InertDirectives = InertDirectives {
    why: "What a snapshot has is checked in any case, and nothing is saved or loaded more slowly than it can be.",
    awaits: false,
    directives: &[
        Directive::bool("rdb-del-sync-files", "no"),
        Directive::choice("rdb-version-check", &["strict", "relaxed"], "strict"),
        Directive::bool("key-memory-histograms", "no"),
        Directive::choice("sanitize-dump-payload", &["no", "yes", "clients"], "no"),
        Directive::int("key-load-delay", INT_MIN, INT_MAX, "0").hidden(),
        Directive::int("rdb-key-save-delay", INT_MIN, INT_MAX, "0").hidden(),
        Directive::int("loading-process-events-interval-bytes", 1024, INT_MAX, "2097152").hidden(),
    ],
};

const APPEND_ONLY: InertDirectives = InertDirectives {
    why: "What the manifest of the append-only file no longer names is removed, and a damaged tail is for penstock check to \
          cut off.",
    awaits: false,
    directives: &[
        Directive::bool("aof-disable-auto-gc", "no").hidden(),
        Directive::bytes("aof-load-corrupt-tail-max-size", 0, "0"),
    ],
};

const REPLICATION: InertDirectives = InertDirectives {
    why: "Replicas share one snapshot, also those that come while it is sent; what a primary sends is taken in any case.",
    awaits: false,
    directives: &[
        Directive::bool("replica-lazy-flush", "no").alias(&["slave-lazy-flush"]),
        Directive::bool("replica-ignore-maxmemory", "yes").alias(&["slave-ignore-maxmemory"]),
        Directive::bool("replica-ignore-disk-write-errors", "no"),
        Directive::natural("repl-diskless-sync-delay", "5"),
        Directive::natural("repl-diskless-sync-max-replicas", "0"),
        Directive::bool("repl-disable-tcp-nodelay", "no"),
        Directive::choice("propagation-error-behavior", &["ignore", "panic", "panic-on-replicas"], "ignore"),
        Directive::bytes("replica-full-sync-buffer-limit", 0, "0"),
        Directive::bool("dual-channel-replication-enabled", "no"),
        Directive::bool("repl-mptcp", "no").immutable(),
    ],
};

const CLUSTER: InertDirectives = InertDirectives {
    why: "Cluster mode doesn't exist yet.",
    awaits: true,
    directives: &[
        Directive::bool("cluster-enabled", "no").immutable().missing("cluster mode"),
        Directive::text("cluster-config-file", "nodes.conf").immutable(),
        Directive::port("cluster-port", "0").immutable(),
        Directive::count("cluster-node-timeout", "15000"),
        Directive::natural("cluster-migration-barrier", "1"),
        Directive::int("cluster-ping-interval", 1, INT_MAX, "1000").hidden(),
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
        Directive::text("cluster-announce-client-ipv4", ""),
        Directive::text("cluster-announce-client-ipv6", ""),
        Directive::port("cluster-announce-client-port", "0"),
        Directive::port("cluster-announce-client-tls-port", "0"),
        Directive::natural("cluster-blacklist-ttl", "60"),
        Directive::int("cluster-compatibility-sample-ratio", 0, 100, "0"),
        Directive::choice("cluster-config-save-behavior", &["sync", "best-effort"], "sync"),
        Directive::int("cluster-databases", 1, INT_MAX, "1").immutable(),
        Directive::natural("cluster-manual-failover-timeout", "5000"),
        Directive::bytes("cluster-slot-migration-handoff-max-lag-bytes", 0, "1mb"),
        Directive::count("cluster-slot-migration-log-max-len", "1000"),
        Directive::count("cluster-slot-migration-write-pause-timeout", "10000"),
        Directive::bool("cluster-slot-stats-enabled", "no"),
        Directive::bytes("slot-migration-max-failover-repl-bytes", 0, "0"),
        Directive::choice("cluster-preferred-endpoint-type", &["ip", "hostname", "unknown-endpoint"], "ip"),
    ],
};

const DIFFIE_HELLMAN: InertDirectives = InertDirectives {
    why: "Keys are agreed on by elliptic curves alone.",
    awaits: false,
    directives: &[Directive::text("tls-dh-params-file", "")],
};

const MODULES: InertDirectives = InertDirectives {
    why: "There are no modules and no vector sets.",
    awaits: false,
    directives: &[
        Directive::choice("enable-module-command", &["no", "yes", "local"], "no").immutable(),
        Directive::bool("vset-force-single-threaded-execution", "no"),
    ],
};

const DATA: InertDirectives = InertDirectives {
    why: "Lists aren't compressed.",
    awaits: false,
    directives: &[Directive::natural("list-compress-depth", "0")],
};

const MEMORY: InertDirectives = InertDirectives {
    why: "The keyspace grows its tables bit by bit and needs no help from a rehashing timer or an allocator's thread.",
    awaits: false,
    directives: &[
        Directive::bool("activerehashing", "yes"),
        Directive::int("active-defrag-cycle-us", 0, 100_000, "500"),
        Directive::bool("dynamic-hz", "yes"),
        Directive::bool("jemalloc-bg-thread", "yes"),
    ],
};

const EVICTION: InertDirectives = InertDirectives {
    why: "Evicted values are freed on the spot: memory that a thread in the background has yet to free is still in use, \
          and more keys than necessary would go.",
    awaits: false,
    directives: &[Directive::bool("lazyfree-lazy-eviction", "no")],
};
