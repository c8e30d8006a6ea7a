//! The directives that are accepted, shown by CONFIG GET and kept by CONFIG REWRITE, but have no effect.
//!
//! Configuration files of Redis and Valkey contain them and tools read them, so an error would exclude users
//! needlessly. The server logs their use in a file, with the group's reason. If ignoring a value would be dangerous (a
//! replica that doesn't replicate, data that aren't saved), every value but the default is refused: those entries are
//! marked `missing`.

use super::directive::Directive;
use super::kind::ValueKind;
use super::special::check_oom_score_adj_values;

/// Directives without effect, for one reason.
pub(super) struct InertDirectives {
    /// The reason, as a sentence.
    pub(super) why: &'static str,
    /// True if they will have an effect once their feature exists.
    pub(super) awaits: bool,
    /// The entries; the group fills in their docs and effect.
    pub(super) directives: &'static [Directive],
}

const INT_MAX: i64 = i32::MAX as i64;

/// All of them, by reason.
pub(super) const STORED: &[InertDirectives] =
    &[PROCESS, NETWORK, SNAPSHOT, APPEND_ONLY, REPLICATION, CLUSTER, DIFFIE_HELLMAN, MODULES, DATA, MEMORY, EVICTION];

const PROCESS: InertDirectives = InertDirectives {
    why: "The log has no logo and shows no keys or values, and the service manager sets the process's properties.",
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
        Directive::bool("extended-redis-compatibility", "no"),
        Directive::text("hash-seed", "").immutable().sensitive(),
    ],
};

const NETWORK: InertDirectives = InertDirectives {
    why: "Every thread reads and sends for its own connections, each wakeup accepts all new connections, and sockets \
        are plain TCP.",
    awaits: false,
    directives: &[
        Directive::bool("io-threads-do-reads", "no").immutable(),
        Directive::int("socket-mark-id", 0, u32::MAX as i64, "0").immutable(),
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
    why: "The contents of a snapshot are always checked, and saving and loading always run at full speed.",
    awaits: false,
    directives: &[
        Directive::bool("rdb-del-sync-files", "no"),
        Directive::choice("rdb-version-check", &["strict", "relaxed"], "strict"),
        Directive::bool("key-memory-histograms", "no"),
        Directive::choice("sanitize-dump-payload", &["no", "yes", "clients"], "no"),
    ],
};

const APPEND_ONLY: InertDirectives = InertDirectives {
    why: "Files that the manifest of the append-only file no longer names are removed, and penstock check cuts off a \
        damaged tail.",
    awaits: false,
    directives: &[
        Directive::bool("aof-disable-auto-gc", "no").hidden(),
        Directive::bytes("aof-load-corrupt-tail-max-size", 0, "0"),
    ],
};

const REPLICATION: InertDirectives = InertDirectives {
    why: "Replicas share one snapshot, even if they connect while it is sent; a primary's data are always accepted.",
    awaits: false,
    directives: &[
        Directive::bool("replica-lazy-flush", "no").alias(&["slave-lazy-flush"]),
        Directive::bool("replica-ignore-maxmemory", "yes").alias(&["slave-ignore-maxmemory"]),
        Directive::bool("replica-ignore-disk-write-errors", "no"),
        Directive::natural("repl-diskless-sync-delay", "5"),
        Directive::natural("repl-diskless-sync-max-replicas", "0"),
        Directive::bool("repl-disable-tcp-nodelay", "no"),
        Directive::bytes("replica-full-sync-buffer-limit", 0, "0"),
        Directive::bool("dual-channel-replication-enabled", "no"),
        Directive::bool("repl-mptcp", "no").immutable(),
    ],
};

const CLUSTER: InertDirectives = InertDirectives {
    why: "Nodes are pinged once a second. Whole slots never move from here to Redis.",
    awaits: true,
    directives: &[
        Directive::int("cluster-ping-interval", 1, INT_MAX, "1000").hidden(),
        Directive::int("cluster-compatibility-sample-ratio", 0, 100, "0"),
        Directive::bytes("cluster-slot-migration-handoff-max-lag-bytes", 0, "1mb"),
        Directive::count("cluster-slot-migration-write-pause-timeout", "10000"),
    ],
};

const DIFFIE_HELLMAN: InertDirectives = InertDirectives {
    why: "Key exchange uses elliptic curves only.",
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
    why: "Evicted values are freed at once: memory that a background thread has not freed yet would still be in use, \
        and more keys than necessary would be evicted.",
    awaits: false,
    directives: &[Directive::bool("lazyfree-lazy-eviction", "no")],
};
