//! The directives with an effect, each with its typed field, and [`Settings`], which consists of these fields.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cell::{Bytes, BytesOrPercent, Cell, Choice, Choices, Flag, Int, OutputLimits, StoredValue, Text, Value};
use super::directive::{Apply, Directive};
use super::kind::ValueKind;
use super::special::{
    SavePoint, check_announced_ip, check_append_dir_name, check_append_file_name, check_base_name, check_bind,
    check_hostname, check_ipv4, check_ipv6, check_node_name, check_percentiles, check_replicaof, check_shutdown,
    check_title_template, missing, save_points,
};
use super::table::TABLE;

/// Upper bound for the limit of incomplete requests, in bytes. A compile-time check in the server verifies that their
/// buffer has room for its other contents, so that requests are always framed or refused.
pub const QUERY_BYTES_MAX: u64 = 3 << 30;
/// Redis's minimum, and Penstock's maximum.
const QUERY_BYTES: ValueKind = ValueKind::Bytes { min: 1 << 20, max: QUERY_BYTES_MAX, keep_min: 0 };

/// Declares an enum with a directive's words as variants, in the order of Redis's error text.
macro_rules! choices {
    ($(#[$docs:meta])* $name:ident, $words:ident { $($(#[$variant_docs:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_docs])* $variant,)+ }

        const $words: &[&str] = &[$($word),+];

        impl $name {
            /// Returns the word in the configuration.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }

        impl Choices for $name {
            const ALL: &'static [(&'static str, Self)] = &[$(($word, $name::$variant)),+];
        }
    };
}

choices! {
    /// The keys to evict once `maxmemory` is reached.
    MaxmemoryPolicy, POLICIES {
        /// The least recently used of the keys that expire.
        VolatileLru = "volatile-lru",
        /// The least frequently used of the keys that expire.
        VolatileLfu = "volatile-lfu",
        /// Any of the keys that expire.
        VolatileRandom = "volatile-random",
        /// The key that expires soonest.
        VolatileTtl = "volatile-ttl",
        /// The least recently used key.
        AllkeysLru = "allkeys-lru",
        /// The least frequently used key.
        AllkeysLfu = "allkeys-lfu",
        /// Any key.
        AllkeysRandom = "allkeys-random",
        /// No key: commands that need memory fail.
        Noeviction = "noeviction",
    }
}

choices! {
    /// The amount of logging.
    LogLevel, LOG_LEVELS {
        /// Everything, for debugging.
        Debug = "debug",
        /// More than operators need.
        Verbose = "verbose",
        /// Events of interest to operators.
        Notice = "notice",
        /// Only events that need attention.
        Warning = "warning",
        /// Nothing at all.
        Nothing = "nothing",
    }
}

choices! {
    /// The form of a log line.
    LogFormat, LOG_FORMATS {
        /// Redis's: process, role, time, a mark for the level, text.
        Legacy = "legacy",
        /// Keys and values, as Valkey writes them.
        Logfmt = "logfmt",
    }
}

choices! {
    /// The form of the time in the log.
    LogTimestamp, LOG_TIMESTAMPS {
        /// Redis's: day, name of the month, year, time of day in milliseconds.
        Legacy = "legacy",
        /// ISO 8601, with the offset from UTC.
        Iso8601 = "iso8601",
        /// Milliseconds since 1970.
        Milliseconds = "milliseconds",
    }
}

choices! {
    /// The syslog facility of log lines.
    SyslogFacility, FACILITIES {
        /// Programs in general.
        User = "user",
        /// Local use.
        Local0 = "local0",
        /// Local use.
        Local1 = "local1",
        /// Local use.
        Local2 = "local2",
        /// Local use.
        Local3 = "local3",
        /// Local use.
        Local4 = "local4",
        /// Local use.
        Local5 = "local5",
        /// Local use.
        Local6 = "local6",
        /// Local use.
        Local7 = "local7",
    }
}

choices! {
    /// Handling of a replica's data while it loads its primary's.
    DisklessLoad, DISKLESS_LOADS {
        /// If there are old data, the snapshot goes to a file first. The old data are deleted once the file is complete.
        Disabled = "disabled",
        /// Like `Disabled`. In Redis, `Disabled` uses a file without old data, too.
        OnEmptyDb = "on-empty-db",
        /// The old data are deleted when the snapshot begins to arrive.
        FlushBeforeLoad = "flush-before-load",
        /// Clients read the old data until the new data are complete.
        Swapdb = "swapdb",
    }
}

choices! {
    /// The time at which the append-only file is synced.
    AppendFsync, APPEND_FSYNC {
        /// Once a second.
        EverySecond = "everysec",
        /// Before the reply to any client that depends on the write.
        Always = "always",
        /// At a time of the operating system's choice.
        No = "no",
    }
}

choices! {
    /// The reaction to a command of the append-only file or of the primary that answers an error.
    PropagationErrors, PROPAGATION_ERRORS {
        /// The error is logged.
        Ignore = "ignore",
        /// The server ends.
        Panic = "panic",
        /// The server ends if the command came from the primary.
        PanicOnReplicas = "panic-on-replicas",
    }
}

choices! {
    /// Client certificates on the TLS port.
    AuthClients, AUTH_CLIENTS {
        /// Not requested.
        No = "no",
        /// Required.
        Yes = "yes",
        /// Requested but not required; a certificate must be valid if shown.
        Optional = "optional",
    }
}

choices! {
    /// The field of a client's certificate that names its user.
    CertificateUser, CERTIFICATE_USER {
        /// The subject's common name.
        CommonName = "CN",
        /// The first URI among the alternative names.
        Uri = "URI",
        /// None.
        Off = "off",
    }
}

choices! {
    /// The supervisor that is notified when the server is ready.
    Supervised, SUPERVISED {
        /// Upstart, which is not notified.
        Upstart = "upstart",
        /// systemd.
        Systemd = "systemd",
        /// systemd, if it is running.
        Auto = "auto",
        /// None.
        No = "no",
    }
}

choices! {
    /// The clients that may use a feature that is off by default.
    Access, ACCESS {
        /// None.
        No = "no",
        /// Everybody.
        Yes = "yes",
        /// Connections from this machine.
        Local = "local",
    }
}

choices! {
    /// Permissions of the HTTP port's console.
    HttpConsole, HTTP_CONSOLE {
        /// No console.
        No = "no",
        /// The permissions of its user.
        Yes = "yes",
        /// Only reading.
        ReadOnly = "read-only",
    }
}

choices! {
    /// The channels that a new user may use.
    NewChannels, NEW_CHANNELS {
        /// All.
        All = "allchannels",
        /// None.
        None = "resetchannels",
    }
}

choices! {
    /// The form of a node's address in redirects and lists.
    ClusterEndpoint, CLUSTER_ENDPOINTS {
        /// The IP address.
        Ip = "ip",
        /// The host name.
        Hostname = "hostname",
        /// No host: clients keep the host that they are connected to.
        Unknown = "unknown-endpoint",
    }
}

choices! {
    /// The reaction of a node that can't save the cluster's state.
    ClusterSave, CLUSTER_SAVES {
        /// The process ends.
        Sync = "sync",
        /// The node continues, without votes and elections.
        BestEffort = "best-effort",
    }
}

choices! {
    /// The admission of commands and transactions with keys in several slots, at a node of a cluster.
    CrossSlot, CROSS_SLOTS {
        /// The node refuses them.
        No = "no",
        /// The node runs them if it serves all of the slots.
        Local = "local",
    }
}

choices! {
    /// The treatment of commands whose keys are at other nodes of the cluster.
    ClusterForward, CLUSTER_FORWARDS {
        /// The client is redirected.
        No = "no",
        /// The node has the owner run them. Commands for different nodes may run at the same time.
        Yes = "yes",
        /// Like `Yes`, and each command of a connection runs after the one before it.
        Strict = "strict",
    }
}

/// Maximum number of worker threads: more than any suitable machine has, and far fewer than exhaust one.
const THREADS_MAX: i64 = 1024;

/// The maximum that PIPELINE START accepts.
pub const PIPELINE_TOKEN_TTL_S_MAX: i64 = u32::MAX as i64;

macro_rules! settings {
    ($($(#[doc = $docs:literal])+ $field:ident: $cell:ty = $directive:expr;)+) => {
        /// All settings, shared by all threads. Read through the fields, changed only by [`super::set`].
        #[derive(Debug)]
        pub struct Settings {
            $($(#[doc = $docs])+ pub $field: $cell,)+
            /// The values of directives without a field, by their index in the table.
            pub(super) stored: Box<[StoredValue]>,
            /// `rename-command`: pairs of old and new name, in the file's order.
            pub(super) renames: Mutex<Vec<(String, String)>>,
            /// `user`: names with their rules, in the file's order.
            pub(super) users: Mutex<Vec<Vec<String>>>,
            /// The names of users in included files, with the files.
            pub(super) included_users: Mutex<Vec<(String, String)>>,
            /// Held by the thread that changes or rewrites settings, to serialize changes.
            change: Mutex<()>,
        }

        /// The table's entries that have a field.
        pub(super) const FIELDS: &[Directive] = &[
            $($directive.at(concat!($($docs),+), |settings| &settings.$field),)+
        ];

        impl Settings {
            /// Creates cells with the value zero, which may be invalid.
            fn blank() -> Settings {
                Settings {
                    $($field: Default::default(),)+
                    stored: TABLE.directives.iter().map(|_| StoredValue::default()).collect(),
                    renames: Mutex::default(),
                    users: Mutex::default(),
                    included_users: Mutex::default(),
                    change: Mutex::default(),
                }
            }
        }
    };
}

settings! {
    /// TCP port to listen on, 0 for none.
    port: Int = Directive::port("port", "6379").applied(Apply::Port);
    /// TCP port to listen on for TLS, 0 for none.
    tls_port: Int = Directive::port("tls-port", "0").applied(Apply::Port);
    /// File with the server's certificate and its chain, in PEM.
    tls_cert_file: Text = Directive::text("tls-cert-file", "").applied(Apply::Tls).refers();
    /// File of the certificate's private key, in PEM.
    tls_key_file: Text = Directive::text("tls-key-file", "").applied(Apply::Tls).refers();
    /// Password of the private key's file, empty for none.
    tls_key_file_pass: Text = Directive::text("tls-key-file-pass", "").sensitive().applied(Apply::Tls);
    /// File with the trusted authorities for client certificates, in PEM.
    tls_ca_cert_file: Text = Directive::text("tls-ca-cert-file", "").applied(Apply::Tls).refers();
    /// Directory with files of trusted authorities.
    tls_ca_cert_dir: Text = Directive::text("tls-ca-cert-dir", "").applied(Apply::Tls).refers();
    /// Client certificates on the TLS port: required, optional or not requested.
    tls_auth_clients: Choice<AuthClients> = Directive::choice("tls-auth-clients", AUTH_CLIENTS, "yes")
        .applied(Apply::Tls);
    /// The field of a client's certificate that names the user for authentication.
    tls_auth_clients_user: Choice<CertificateUser> = Directive::choice("tls-auth-clients-user", CERTIFICATE_USER, "off")
        .applied(Apply::Tls);
    /// TLS versions, separated by blanks; empty for 1.2 and 1.3.
    tls_protocols: Text = Directive::text("tls-protocols", "").applied(Apply::Tls);
    /// TLS 1.2 ciphers, by OpenSSL's names, separated by colons; empty for all.
    tls_ciphers: Text = Directive::text("tls-ciphers", "").applied(Apply::Tls);
    /// TLS 1.3 ciphers, by OpenSSL's names, separated by colons; empty for all.
    tls_ciphersuites: Text = Directive::text("tls-ciphersuites", "").applied(Apply::Tls);
    /// Prefers the server's order of ciphers to the client's.
    tls_prefer_server_ciphers: Flag = Directive::bool("tls-prefer-server-ciphers", "no").applied(Apply::Tls);
    /// Enables abbreviated handshakes for returning clients.
    tls_session_caching: Flag = Directive::bool("tls-session-caching", "yes").applied(Apply::Tls);
    /// Number of cached TLS sessions, 0 for the default.
    tls_session_cache_size: Int = Directive::natural("tls-session-cache-size", "20480").applied(Apply::Tls);
    /// Lifetime of cached TLS sessions, in seconds.
    tls_session_cache_timeout_s: Int = Directive::natural("tls-session-cache-timeout", "300").applied(Apply::Tls);
    /// Seconds between checks of the TLS files for changes, 0 for never.
    tls_auto_reload_interval_s: Int = Directive::natural("tls-auto-reload-interval", "0");
    /// Addresses to listen on, separated by blanks; `*` and `::*` mean all. An address with a leading `-` may be
    /// unavailable.
    bind: Text = Directive::new("bind", ValueKind::Words(check_bind), "* -::*").applied(Apply::Bind);
    /// Source address of connections to other servers, empty for any.
    bind_source_addr: Text = Directive::text("bind-source-addr", "");
    /// Path of the Unix socket to listen on, empty for none.
    unixsocket: Text = Directive::text("unixsocket", "").startup();
    /// Mode of the Unix socket's file, 0 for the umask's default.
    unixsocketperm: Int = Directive::new("unixsocketperm", ValueKind::Octal { max: 0o777 }, "0").startup();
    /// Group of the Unix socket's file, by name; empty for the process's own.
    unixsocketgroup: Text = Directive::text("unixsocketgroup", "").startup();
    /// TCP port for HTTP (metrics, REST, the console), 0 for none.
    http_port: Int = Directive::port("http-port", "0").startup();
    /// Encrypts the HTTP port with the certificate of `tls-cert-file`: HTTPS.
    http_tls: Flag = Directive::bool("http-tls", "no").applied(Apply::Tls);
    /// Addresses to listen on for HTTP, in the syntax of `bind`. The default is only this machine, because HTTP carries
    /// passwords.
    http_bind: Text = Directive::new("http-bind", ValueKind::Words(check_bind), "127.0.0.1 -::1").startup();
    /// The HTTP port's console: on, off or read-only.
    http_console: Choice<HttpConsole> = Directive::choice("http-console", HTTP_CONSOLE, "yes");
    /// Enables commands over HTTP (REST).
    http_rest: Flag = Directive::bool("http-rest", "yes");
    /// Directory of public files, served by the HTTP port under `/files/`; empty for none.
    http_files: Text = Directive::text("http-files", "").protected().checked(check_http_files);
    /// Maximum number of simultaneous HTTP connections.
    http_max_connections: Int = Directive::int("http-max-connections", 1, 100_000, "256");
    /// Maximum number of simultaneous HTTP requests, each on its own connection to the server; further requests wait.
    http_max_running: Int = Directive::int("http-max-running", 1, 10_000, "32").startup();
    /// Maximum size of an HTTP request's body, in bytes.
    http_max_body: Bytes = Directive::bytes("http-max-body", 1 << 10, "16mb");
    /// Maximum size of the replies to an HTTP request, in bytes.
    http_max_reply: Bytes = Directive::bytes("http-max-reply", 1 << 10, "64mb");
    /// Timeout for receiving an HTTP request, for running it, and for idle HTTP connections, in seconds.
    http_timeout_s: Int = Directive::int("http-timeout", 1, 86_400, "60");
    /// Maximum rate of HTTP requests without a known password, per address and second; further ones are refused.
    http_unauthenticated_rate: Int = Directive::int("http-unauthenticated-rate", 1, 1_000_000, "20");
    /// Length of the queue of connections to be accepted, for listen(2).
    tcp_backlog: Int = Directive::natural("tcp-backlog", "511").startup();
    /// Refuses connections from other machines while the default user has no password.
    protected_mode: Flag = Directive::bool("protected-mode", "yes");
    /// Maximum number of simultaneous connections.
    maxclients: Int = Directive::int("maxclients", 1, u32::MAX as i64, "10000").applied(Apply::MaxClients);
    /// Number of connections beyond `maxclients` that are accepted only for administration commands.
    operator_connections: Int = Directive::int("operator-connections", 0, 1000, "3");
    /// Idle timeout of connections in seconds, 0 for never.
    timeout_s: Int = Directive::natural("timeout", "0");
    /// Seconds without traffic until TCP probes the client, 0 for never.
    tcp_keepalive_s: Int = Directive::natural("tcp-keepalive", "300");
    /// Number of worker threads, 0 for one per core.
    threads: Int = Directive::int("threads", 0, THREADS_MAX, "0").alias(&["io-threads"]).startup();
    /// Number of databases.
    databases: Int = Directive::int("databases", 1, i32::MAX as i64, "16").startup();
    /// Password of the default user, empty for none.
    requirepass: Text = Directive::text("requirepass", "").sensitive();
    /// File of users, relative to `dir`, empty for none. Excludes `user` lines in the configuration.
    aclfile: Text = Directive::text("aclfile", "").startup();
    /// Maximum number of entries of ACL LOG, 0 for none.
    acllog_max_len: Int = Directive::count("acllog-max-len", "128");
    /// The channels that a new user may use: all or none.
    acl_pubsub_default: Choice<NewChannels> = Directive::choice("acl-pubsub-default", NEW_CHANNELS, "resetchannels");
    /// The clients that may change protected settings, for example `dir`, with CONFIG SET.
    enable_protected_configs: Choice<Access> = Directive::choice("enable-protected-configs", ACCESS, "no").startup();
    /// The clients that may use DEBUG.
    enable_debug_command: Choice<Access> = Directive::choice("enable-debug-command", ACCESS, "no").startup();

    /// Maximum size of one argument, in bytes.
    proto_max_bulk_len: Bytes = Directive::new("proto-max-bulk-len", QUERY_BYTES, "512mb");
    /// Maximum size of unexecuted requests per connection, in bytes.
    client_query_buffer_limit: Bytes = Directive::new("client-query-buffer-limit", QUERY_BYTES, "1gb");
    /// Maximum size of the unexecuted requests of all unauthenticated connections, in bytes.
    unauthenticated_input_total: Bytes = Directive::bytes("unauthenticated-input-total", 1 << 20, "16mb");
    /// Maximum size of unsent replies per connection and class in bytes, on disk and in memory.
    client_output_buffer_limit: OutputLimits = Directive::new("client-output-buffer-limit", ValueKind::OutputLimits,
        "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60");
    /// Microseconds that a thread polls before it sleeps if a client is about to send its next request; 0 for never.
    busy_poll_us: Int = Directive::int("busy-poll-us", 0, 1000, "100");
    /// Memory for one connection's unread replies, in bytes.
    reply_memory_limit: Bytes = Directive::bytes("reply-memory-limit", 64 << 10, "1mb");
    /// Memory for the unread replies of all connections, in bytes, divided equally among the connections that have
    /// some.
    reply_memory_total: Bytes = Directive::bytes("reply-memory-total", 1 << 20, "256mb");
    /// Directory of the files for replies that exceed memory, empty for `dir`.
    reply_spill_dir: Text = Directive::text("reply-spill-dir", "").checked(check_spill_dir);
    /// Disk space for one connection's replies, in bytes, 0 for none.
    reply_spill_limit: Bytes = Directive::bytes("reply-spill-limit", 0, "4gb");
    /// Disk space for the replies of all connections, in bytes.
    reply_spill_total: Bytes = Directive::bytes("reply-spill-total", 0, "16gb");
    /// Disk space that replies leave free, in bytes.
    reply_spill_keep_free: Bytes = Directive::bytes("reply-spill-keep-free", 0, "1gb");
    /// Timeout of connections without room for their replies that read none, in seconds, 0 for never.
    reply_stall_timeout_s: Int = Directive::natural("reply-stall-timeout", "60");
    /// Memory for the buffers of all connections, in bytes, 0 for no limit.
    maxmemory_clients: BytesOrPercent = Directive::new("maxmemory-clients", ValueKind::BytesOrPercent, "0");

    /// Maximum number of tokens of PIPELINE START.
    pipeline_tokens_max: Int = Directive::natural("pipeline-tokens-max", "10000");
    /// Lifetime of a PIPELINE token without a connection, in seconds, unless START sets another.
    pipeline_token_ttl_s: Int = Directive::int("pipeline-token-ttl", 1, PIPELINE_TOKEN_TTL_S_MAX, "3600");

    /// Maximum size of the data in bytes, 0 for no limit.
    maxmemory: Bytes = Directive::new("maxmemory", ValueKind::Bytes { min: 0, max: u64::MAX, keep_min: 0 }, "0")
        .applied(Apply::MemoryLimit);
    /// The action once `maxmemory` is reached.
    maxmemory_policy: Choice<MaxmemoryPolicy> = Directive::choice("maxmemory-policy", POLICIES, "noeviction");
    /// Number of keys to sample for each eviction.
    maxmemory_samples: Int = Directive::int("maxmemory-samples", 1, 64, "5");
    /// The delay that eviction may cause, from 0 to 100.
    maxmemory_eviction_tenacity: Int = Directive::int("maxmemory-eviction-tenacity", 0, 100, "10");
    /// Controls the number of hits that saturate a key's usage counter: more with a higher value.
    lfu_log_factor: Int = Directive::natural("lfu-log-factor", "10");
    /// Minutes after which a key's usage counter is decremented.
    lfu_decay_time_min: Int = Directive::natural("lfu-decay-time", "1");
    /// Disables transparent huge pages for the process: the kernel would clear 2 MB to provide one.
    disable_thp: Flag = Directive::bool("disable-thp", "yes").immutable();
    /// Returns the memory of half-empty pages to the system: the engine's `memory::compaction` does it. Redis's default is no.
    activedefrag: Flag = Directive::bool("activedefrag", "yes");
    /// Minimum waste to begin compaction, in bytes beyond the memory in use. Redis's default is 100mb.
    active_defrag_ignore_bytes: Bytes = Directive::bytes("active-defrag-ignore-bytes", 1, "16mb");
    /// Minimum waste to begin compaction, in percent of the memory in use. Redis's default is 10.
    active_defrag_threshold_lower: Int = Directive::int("active-defrag-threshold-lower", 0, 1000, "5");
    /// Waste at which compaction takes its maximum of time, in percent of the memory in use.
    active_defrag_threshold_upper: Int = Directive::int("active-defrag-threshold-upper", 0, 1000, "100");
    /// Minimum share of a thread's time during compaction, in percent; beyond it, compaction takes only idle time.
    active_defrag_cycle_min: Int = Directive::int("active-defrag-cycle-min", 1, 99, "1");
    /// Maximum share of a thread's time during compaction, in percent.
    active_defrag_cycle_max: Int = Directive::int("active-defrag-cycle-max", 1, 99, "25");
    /// Maximum number of elements of a value that compaction scans in one step.
    active_defrag_max_scan_fields: Int = Directive::int("active-defrag-max-scan-fields", 1, i64::MAX, "1000");
    /// Frees expired values in the background.
    lazyfree_lazy_expire: Flag = Directive::bool("lazyfree-lazy-expire", "yes");
    /// Frees values that RENAME and similar commands replace in the background.
    lazyfree_lazy_server_del: Flag = Directive::bool("lazyfree-lazy-server-del", "yes");
    /// Makes DEL free in the background, like UNLINK.
    lazyfree_lazy_user_del: Flag = Directive::bool("lazyfree-lazy-user-del", "yes");
    /// Makes FLUSHALL and FLUSHDB default to ASYNC.
    lazyfree_lazy_user_flush: Flag = Directive::bool("lazyfree-lazy-user-flush", "yes");
    /// Redis's background runs per second, 1 to 500. Only shown by INFO: background work here has its own schedule.
    hz: Int = Directive::new("hz", ValueKind::Int { min: 0, max: i32::MAX as i64, keep: (1, 500) }, "10");
    /// Effort of the search for expired keys, 1 to 10: as long as there are any, it takes up to 25 percent of a
    /// thread's time, and 2 more for each step.
    active_expire_effort: Int = Directive::int("active-expire-effort", 1, 10, "1");

    /// Memory of scripts on each thread in bytes, including their code.
    lua_memory_limit: Bytes = Directive::bytes("lua-memory-limit", 1 << 20, "256mb");
    /// Maximum elements of a list's packed block (positive), or its size class (-1 is 4 kB, up to -5, 64 kB).
    list_max_listpack_size: Int = Directive::int("list-max-listpack-size", i32::MIN as i64, i32::MAX as i64, "-2")
        .alias(&["list-max-ziplist-size"]);
    /// Maximum fields of a packed hash.
    hash_max_listpack_entries: Int = Directive::count("hash-max-listpack-entries", "512")
        .alias(&["hash-max-ziplist-entries"]);
    /// Maximum size of a field or value of a packed hash, in bytes.
    hash_max_listpack_value: Bytes = Directive::bytes("hash-max-listpack-value", 0, "64")
        .alias(&["hash-max-ziplist-value"]);
    /// Maximum members of a compact set of integers.
    set_max_intset_entries: Int = Directive::count("set-max-intset-entries", "512");
    /// Maximum members of a packed set.
    set_max_listpack_entries: Int = Directive::count("set-max-listpack-entries", "128");
    /// Maximum size of a member of a packed set, in bytes.
    set_max_listpack_value: Int = Directive::count("set-max-listpack-value", "64");
    /// Maximum members of a packed sorted set.
    zset_max_listpack_entries: Int = Directive::count("zset-max-listpack-entries", "128")
        .alias(&["zset-max-ziplist-entries"]);
    /// Maximum size of a member of a packed sorted set, in bytes.
    zset_max_listpack_value: Bytes = Directive::bytes("zset-max-listpack-value", 0, "64")
        .alias(&["zset-max-ziplist-value"]);
    /// Maximum size of a sparse HyperLogLog in bytes, including the header; a longer one becomes dense.
    hll_sparse_max_bytes: Bytes = Directive::bytes("hll-sparse-max-bytes", 0, "3000");
    /// Maximum size of a stream's packed block in bytes, 0 for no limit.
    stream_node_max_bytes: Bytes = Directive::bytes("stream-node-max-bytes", 0, "4096");
    /// Maximum entries of a stream's packed block, 0 for no limit.
    stream_node_max_entries: Int = Directive::count("stream-node-max-entries", "100");
    /// Seconds that a new stream remembers producers' message ids (XADD IDMP).
    stream_idmp_duration: Int = Directive::int("stream-idmp-duration", 1, 86400, "100");
    /// Number of message ids that a new stream remembers for each producer.
    stream_idmp_maxsize: Int = Directive::int("stream-idmp-maxsize", 1, 10_000, "100");

    /// Threshold of the slow log in microseconds; 0 logs all commands, -1 none.
    slowlog_log_slower_than_us: Int = Directive::int("slowlog-log-slower-than", -1, i64::MAX, "10000")
        .alias(&["commandlog-execution-slower-than"]);
    /// Maximum entries of the slow log.
    slowlog_max_len: Int = Directive::count("slowlog-max-len", "128").alias(&["commandlog-slow-execution-max-len"]);
    /// Threshold of the log of slow batches (BATCHLOG) in microseconds; 0 logs all batches, -1 none.
    batchlog_log_slower_than_us: Int = Directive::int("batchlog-log-slower-than", -1, i64::MAX, "10000");
    /// Maximum entries of the log of slow batches.
    batchlog_max_len: Int = Directive::count("batchlog-max-len", "128");
    /// Threshold of the log of large requests (COMMANDLOG) in bytes; 0 logs all, -1 none.
    commandlog_request_larger_than: Int = Directive::int("commandlog-request-larger-than", -1, i64::MAX, "1048576");
    /// Maximum entries of the log of large requests.
    commandlog_large_request_max_len: Int = Directive::count("commandlog-large-request-max-len", "128");
    /// Threshold of the log of large replies (COMMANDLOG) in bytes; 0 logs all, -1 none.
    commandlog_reply_larger_than: Int = Directive::int("commandlog-reply-larger-than", -1, i64::MAX, "1048576");
    /// Maximum entries of the log of large replies.
    commandlog_large_reply_max_len: Int = Directive::count("commandlog-large-reply-max-len", "128");
    /// Maximum number of keys remembered for caching clients (CLIENT TRACKING), 0 for no limit. Clients are told to
    /// drop keys beyond it.
    tracking_table_max_keys: Int = Directive::count("tracking-table-max-keys", "1000000");

    /// Threshold of the latency monitor in milliseconds, 0 for none.
    latency_monitor_threshold_ms: Int = Directive::count("latency-monitor-threshold", "0");
    /// Keeps a histogram of durations for each command.
    latency_tracking: Flag = Directive::bool("latency-tracking", "yes");
    /// Percentiles in INFO latencystats, separated by blanks.
    latency_tracking_info_percentiles: Text = Directive::new("latency-tracking-info-percentiles",
        ValueKind::Words(check_percentiles), "50 99 99.9");
    /// The published keyspace events: bits of [`super::keyspace_events`].
    notify_keyspace_events: Int = Directive::new("notify-keyspace-events", ValueKind::KeyspaceEvents, "");
    /// Milliseconds until other clients get a BUSY error during a script, 0 for never.
    busy_reply_threshold_ms: Int = Directive::count("busy-reply-threshold", "5000").alias(&["lua-time-limit"]);

    /// Enables the advisor, which analyzes clients' round trips: the engine's `advice` feeds it.
    advisor: Flag = Directive::bool("advisor", "yes");
    /// Memory of the advisor, in bytes.
    advisor_memory: Bytes = Directive::bytes("advisor-memory", 1 << 20, "16mb");
    /// Stores a few keys of each finding, beside their patterns.
    advisor_samples: Flag = Directive::bool("advisor-samples", "yes");

    /// Password for the primary. Without `masteruser`, only the password is sent.
    masterauth: Text = Directive::text("masterauth", "").alias(&["primaryauth"]).sensitive();
    /// User for the primary; see `masterauth`.
    masteruser: Text = Directive::text("masteruser", "").alias(&["primaryuser"]).sensitive();
    /// Serves clients from old data while the link to the primary is down.
    replica_serve_stale_data: Flag = Directive::bool("replica-serve-stale-data", "yes")
        .alias(&["slave-serve-stale-data"]);
    /// Import mode: nothing expires, and nothing is evicted.
    import_mode: Flag = Directive::bool("import-mode", "no");
    /// Makes a replica read-only for clients.
    replica_read_only: Flag = Directive::bool("replica-read-only", "yes").alias(&["slave-read-only"]);
    /// Makes Sentinel list this server among the replicas.
    replica_announced: Flag = Directive::bool("replica-announced", "yes");
    /// Address of this server as announced to the primary; empty for its own.
    replica_announce_ip: Text = Directive::text("replica-announce-ip", "").alias(&["slave-announce-ip"]);
    /// Port of this server as announced to the primary; 0 for its own.
    replica_announce_port: Int = Directive::port("replica-announce-port", "0").alias(&["slave-announce-port"]);
    /// Priority for promotion by Sentinel: the lowest number is promoted first; 0 means never.
    replica_priority: Int = Directive::natural("replica-priority", "100").alias(&["slave-priority"]);
    /// Timeout of a silent link between primary and replica, in seconds.
    repl_timeout_s: Int = Directive::int("repl-timeout", 1, i32::MAX as i64, "60");
    /// Interval of pings to replicas, in seconds.
    repl_ping_replica_period_s: Int = Directive::int("repl-ping-replica-period", 1, i32::MAX as i64, "10")
        .alias(&["repl-ping-slave-period"]);
    /// Size of the backlog for replicas with a broken link, in bytes.
    repl_backlog_size: Bytes = Directive::new("repl-backlog-size",
        ValueKind::Bytes { min: 1, max: i64::MAX as u64, keep_min: 16 << 10 }, "10mb");
    /// Seconds that the stream continues without replicas, 0 for ever.
    repl_backlog_ttl_s: Int = Directive::count("repl-backlog-ttl", "3600");
    /// Seconds that the shutdown waits for replicas to receive everything.
    shutdown_timeout_s: Int = Directive::natural("shutdown-timeout", "10");
    /// Sends snapshots to replicas during their creation, rather than afterwards.
    repl_diskless_sync: Flag = Directive::bool("repl-diskless-sync", "yes");
    /// Handling of the old data while the primary's are loaded.
    repl_diskless_load: Choice<DisklessLoad> = Directive::choice("repl-diskless-load", DISKLESS_LOADS, "disabled");
    /// Minimum number of replicas in sync; with fewer, write commands are refused.
    min_replicas_to_write: Int = Directive::natural("min-replicas-to-write", "0").alias(&["min-slaves-to-write"]);
    /// Maximum age of a replica's last acknowledgement for it to be in sync, in seconds.
    min_replicas_max_lag_s: Int = Directive::natural("min-replicas-max-lag", "10").alias(&["min-slaves-max-lag"]);
    /// Number of replicas that must have a write before its reply is sent; 0 for none.
    durability_replicas: Int = Directive::natural("durability-replicas", "0");
    /// Maximum wait of a reply for these replicas in milliseconds, followed by an error; 0 for ever.
    durability_timeout_ms: Int = Directive::count("durability-timeout", "5000");
    /// Encrypts the link to the primary.
    tls_replication: Flag = Directive::bool("tls-replication", "no");
    /// Encrypts connections to other servers: those of MIGRATE.
    tls_cluster: Flag = Directive::bool("tls-cluster", "no");
    /// Makes the server a node of a cluster.
    cluster_enabled: Flag = Directive::bool("cluster-enabled", "no").startup();
    /// TCP port of the cluster's bus; 0 for the clients' port plus 10,000.
    cluster_port: Int = Directive::port("cluster-port", "0").startup();
    /// File of the cluster's state, relative to `dir`.
    cluster_config_file: Text = Directive::text("cluster-config-file", "nodes.conf").startup();
    /// Number of databases of a node.
    cluster_databases: Int = Directive::int("cluster-databases", 1, i32::MAX as i64, "1").startup();
    /// Milliseconds without an answer after which a node is suspected to have failed.
    cluster_node_timeout_ms: Int = Directive::count("cluster-node-timeout", "15000").applied(Apply::Cluster);
    /// Minimum number of working replicas that a primary keeps when another of its replicas moves to a primary without any.
    cluster_migration_barrier: Int = Directive::natural("cluster-migration-barrier", "1").applied(Apply::Cluster);
    /// Maximum age of a replica's data in an election, in node timeouts; 0 for any age.
    cluster_replica_validity_factor: Int = Directive::natural("cluster-replica-validity-factor", "10")
        .alias(&["cluster-slave-validity-factor"]).applied(Apply::Cluster);
    /// Keeps this node from automatic failover.
    cluster_replica_no_failover: Flag = Directive::bool("cluster-replica-no-failover", "no")
        .alias(&["cluster-slave-no-failover"]).applied(Apply::Cluster);
    /// Refuses all commands on keys while a slot has no working owner.
    cluster_require_full_coverage: Flag = Directive::bool("cluster-require-full-coverage", "yes").applied(Apply::Cluster);
    /// Serves reads while the cluster is down.
    cluster_allow_reads_when_down: Flag = Directive::bool("cluster-allow-reads-when-down", "no").applied(Apply::Cluster);
    /// Serves shard channels while the cluster is down.
    cluster_allow_pubsubshard_when_down: Flag = Directive::bool("cluster-allow-pubsubshard-when-down", "yes")
        .applied(Apply::Cluster);
    /// Lets replicas move to primaries without replicas, and lets a primary that has lost its slots follow their new owner.
    cluster_allow_replica_migration: Flag = Directive::bool("cluster-allow-replica-migration", "yes")
        .applied(Apply::Cluster);
    /// Maximum size of the queue to a node in bytes, 0 for no limit.
    cluster_link_sendbuf_limit: Bytes = Directive::new("cluster-link-sendbuf-limit",
        ValueKind::Bytes { min: 0, max: u64::MAX, keep_min: 0 }, "0").applied(Apply::Cluster);
    /// Number of nodes in the gossip of a PING, in percent of the known nodes; at least three nodes.
    cluster_message_gossip_perc: Int = Directive::int("cluster-message-gossip-perc", 1, 100, "10").hidden()
        .applied(Apply::Cluster);
    /// Address that the node announces; empty for the address that other nodes connect to.
    cluster_announce_ip: Text = Directive::text("cluster-announce-ip", "").checked(check_announced_ip).applied(Apply::Cluster);
    /// Host name that the node announces, empty for none.
    cluster_announce_hostname: Text = Directive::text("cluster-announce-hostname", "").checked(check_hostname)
        .applied(Apply::Cluster);
    /// Human-readable name that the node announces, empty for none.
    cluster_announce_human_nodename: Text = Directive::text("cluster-announce-human-nodename", "")
        .checked(check_node_name).applied(Apply::Cluster);
    /// Port that the node announces, 0 for its own.
    cluster_announce_port: Int = Directive::port("cluster-announce-port", "0").applied(Apply::Cluster);
    /// Port of the bus that the node announces, 0 for its own.
    cluster_announce_bus_port: Int = Directive::port("cluster-announce-bus-port", "0").applied(Apply::Cluster);
    /// TLS port that the node announces, 0 for its own.
    cluster_announce_tls_port: Int = Directive::port("cluster-announce-tls-port", "0").applied(Apply::Cluster);
    /// Address shown to clients that connect over IPv4, empty for the node's.
    cluster_announce_client_ipv4: Text = Directive::text("cluster-announce-client-ipv4", "").checked(check_ipv4)
        .applied(Apply::Cluster);
    /// Address shown to clients that connect over IPv6, empty for the node's.
    cluster_announce_client_ipv6: Text = Directive::text("cluster-announce-client-ipv6", "").checked(check_ipv6)
        .applied(Apply::Cluster);
    /// Port shown to clients, 0 for the node's.
    cluster_announce_client_port: Int = Directive::port("cluster-announce-client-port", "0").applied(Apply::Cluster);
    /// TLS port shown to clients, 0 for the node's.
    cluster_announce_client_tls_port: Int = Directive::port("cluster-announce-client-tls-port", "0").applied(Apply::Cluster);
    /// Zone of the data centre that the node announces, empty for none.
    availability_zone: Text = Directive::text("availability-zone", "").applied(Apply::Cluster);
    /// The form of a node's address in redirects and lists.
    cluster_preferred_endpoint_type: Choice<ClusterEndpoint> = Directive::choice("cluster-preferred-endpoint-type",
        CLUSTER_ENDPOINTS, "ip").applied(Apply::Cluster);
    /// Time in seconds during which gossip does not add a node again after CLUSTER FORGET.
    cluster_blacklist_ttl_s: Int = Directive::natural("cluster-blacklist-ttl", "60").applied(Apply::Cluster);
    /// The reaction to a failed save of the cluster's state.
    cluster_config_save_behavior: Choice<ClusterSave> = Directive::choice("cluster-config-save-behavior", CLUSTER_SAVES,
        "sync").applied(Apply::Cluster);
    /// Time limit of CLUSTER FAILOVER in milliseconds.
    cluster_manual_failover_timeout_ms: Int = Directive::int("cluster-manual-failover-timeout", 1,
        i32::MAX as i64, "5000").applied(Apply::Cluster);
    /// The admission of commands and transactions with keys in several slots.
    cluster_cross_slot: Choice<CrossSlot> = Directive::choice("cluster-cross-slot", CROSS_SLOTS, "no");
    /// Length of the log of moves of slots. Moves that are under way are always in the log.
    cluster_slot_migration_log_max_len: Int = Directive::count("cluster-slot-migration-log-max-len", "1000");
    /// Bytes of changes that the target of moving slots may lack when writes are held; -1 for any number.
    slot_migration_max_failover_repl_bytes: Int = Directive::new("slot-migration-max-failover-repl-bytes",
        ValueKind::BytesOrUnlimited, "0");
    /// The treatment of commands whose keys are at other nodes.
    cluster_forward: Choice<ClusterForward> = Directive::choice("cluster-forward", CLUSTER_FORWARDS, "no");
    /// User for forwarded commands at other nodes; empty for `masteruser`.
    cluster_forward_user: Text = Directive::text("cluster-forward-user", "").sensitive();
    /// Password of `cluster-forward-user`; empty for `masterauth`.
    cluster_forward_password: Text = Directive::text("cluster-forward-password", "").sensitive();
    /// Counts processor time and bytes for each slot.
    cluster_slot_stats_enabled: Flag = Directive::bool("cluster-slot-stats-enabled", "no");
    /// Client certificate for the primary; empty for the server's own.
    tls_client_cert_file: Text = Directive::text("tls-client-cert-file", "").refers();
    /// Private key of `tls-client-cert-file`.
    tls_client_key_file: Text = Directive::text("tls-client-key-file", "").refers();
    /// Password of the file of `tls-client-key-file`.
    tls_client_key_file_pass: Text = Directive::text("tls-client-key-file-pass", "").sensitive();
    /// The primary, as host and port; empty for none.
    replicaof: Text = Directive::new("replicaof", ValueKind::Words(check_replicaof), "").alias(&["slaveof"]).immutable();

    /// Writes changes to the append-only file, and reads them at the start.
    appendonly: Flag = Directive::bool("appendonly", "no").applied(Apply::AppendOnly);
    /// The time at which the append-only file is synced.
    appendfsync: Choice<AppendFsync> = Directive::choice("appendfsync", APPEND_FSYNC, "everysec");
    /// Suspends the sync of the append-only file each second while its new base is written.
    no_appendfsync_on_rewrite: Flag = Directive::bool("no-appendfsync-on-rewrite", "no");
    /// Writes timestamps into the append-only file, once a second.
    aof_timestamp_enabled: Flag = Directive::bool("aof-timestamp-enabled", "no");
    /// Starts although the last record of the append-only file is incomplete.
    aof_load_truncated: Flag = Directive::bool("aof-load-truncated", "yes");
    /// The reaction to a command of the append-only file or of the primary that answers an error.
    propagation_error_behavior: Choice<PropagationErrors> =
        Directive::choice("propagation-error-behavior", PROPAGATION_ERRORS, "ignore");
    /// Directory of the server's files, absolute.
    dir: Text = Directive::new("dir", ValueKind::Directory, "").protected().applied(Apply::Directory);
    /// Name of the snapshot's file, in `dir`.
    dbfilename: Text = Directive::text("dbfilename", "dump.rdb").protected().checked(check_dbfilename);
    /// Name of the append-only file, or prefix of its parts' names.
    appendfilename: Text = Directive::text("appendfilename", "appendonly.aof").checked(check_append_file_name).startup();
    /// Name of the directory of the append-only file's parts, in `dir`.
    appenddirname: Text = Directive::text("appenddirname", "appendonlydir").checked(check_append_dir_name).startup();
    /// Conditions for a snapshot; see [`Settings::save_points`].
    save: Text = Directive::new("save", ValueKind::Save, "3600 1 300 100 60 10000");
    /// Refuses write commands while snapshots fail.
    stop_writes_on_bgsave_error: Flag = Directive::bool("stop-writes-on-bgsave-error", "yes");
    /// Compresses strings in snapshots.
    rdbcompression: Flag = Directive::bool("rdbcompression", "yes");
    /// Ends snapshots with a checksum.
    rdbchecksum: Flag = Directive::bool("rdbchecksum", "yes").immutable();
    /// Syncs a snapshot repeatedly while it is written, rather than only at its end.
    rdb_save_incremental_fsync: Flag = Directive::bool("rdb-save-incremental-fsync", "yes");
    /// Microseconds per key that a snapshot in the background takes longer, for tests.
    rdb_key_save_delay_us: Int = Directive::int("rdb-key-save-delay", -(1 << 31), (1 << 31) - 1, "0").hidden();
    /// Microseconds that the load of a snapshot takes longer for each key, for tests; a negative number -n is a microsecond for n keys.
    key_load_delay_us: Int = Directive::int("key-load-delay", -(1 << 31), (1 << 31) - 1, "0").hidden();
    /// Size of a primary's snapshot up to which commands wait for its load, if it is loaded from a file. They are refused during a longer load.
    loading_process_events_interval_bytes: Int =
        Directive::int("loading-process-events-interval-bytes", 1024, (1 << 31) - 1, "2097152").hidden();
    /// Writes a new base of the append-only file as a snapshot, rather than as commands.
    aof_use_rdb_preamble: Flag = Directive::bool("aof-use-rdb-preamble", "yes");
    /// Syncs the base of the append-only file repeatedly while it is written.
    aof_rewrite_incremental_fsync: Flag = Directive::bool("aof-rewrite-incremental-fsync", "yes");
    /// Growth beyond its base at which the append-only file is rewritten, in percent; 0 for never.
    auto_aof_rewrite_percentage: Int = Directive::natural("auto-aof-rewrite-percentage", "100");
    /// Minimum size of the append-only file for an automatic rewrite, in bytes.
    auto_aof_rewrite_min_size: Bytes = Directive::bytes("auto-aof-rewrite-min-size", 0, "64mb");
    /// Actions at SIGINT: `default`, or some of `save`, `nosave`, `now` and `force`.
    shutdown_on_sigint: Text = Directive::new("shutdown-on-sigint", ValueKind::Words(check_shutdown), "default");
    /// Actions at SIGTERM: `default`, or some of `save`, `nosave`, `now` and `force`.
    shutdown_on_sigterm: Text = Directive::new("shutdown-on-sigterm", ValueKind::Words(check_shutdown), "default");
    /// File to log to, empty for standard output.
    logfile: Text = Directive::text("logfile", "").startup();
    /// The amount of logging.
    loglevel: Choice<LogLevel> = Directive::choice("loglevel", LOG_LEVELS, "notice").applied(Apply::LogLevel);
    /// The form of log lines.
    log_format: Choice<LogFormat> = Directive::choice("log-format", LOG_FORMATS, "legacy").applied(Apply::LogLevel);
    /// The form of the time in the log.
    log_timestamp_format: Choice<LogTimestamp> = Directive::choice("log-timestamp-format", LOG_TIMESTAMPS, "legacy")
        .applied(Apply::LogLevel);
    /// Sends log lines to syslog, too.
    syslog_enabled: Flag = Directive::bool("syslog-enabled", "no").startup();
    /// The server's name in syslog.
    syslog_ident: Text = Directive::text("syslog-ident", "redis").startup();
    /// The syslog facility of log lines.
    syslog_facility: Choice<SyslogFacility> = Directive::choice("syslog-facility", FACILITIES, "local0").startup();
    /// Runs the server in the background; the command that started it ends.
    daemonize: Flag = Directive::bool("daemonize", "no").startup();
    /// File with the process id while the server runs, relative to `dir`, empty for none.
    pidfile: Text = Directive::text("pidfile", "").startup();
    /// Gives the process a title for `ps` and similar tools.
    set_proc_title: Flag = Directive::bool("set-proc-title", "yes").immutable();
    /// Template of the process title: text, with variables in braces.
    proc_title_template: Text = Directive::text("proc-title-template", "{title} {listen-addr} {server-mode}")
        .checked(check_title_template).applied(Apply::Title);
    /// The supervisor to notify when the server is ready: `systemd` and `auto` write to the socket in NOTIFY_SOCKET.
    supervised: Choice<Supervised> = Directive::choice("supervised", SUPERVISED, "no").startup();
}

fn check_spill_dir(path: &str) -> Result<(), String> {
    match path.is_empty() || std::path::Path::new(path).is_dir() {
        true => Ok(()),
        false => Err("reply-spill-dir must be an existing directory".into()),
    }
}

fn check_http_files(path: &str) -> Result<(), String> {
    match path.is_empty() || std::path::Path::new(path).is_dir() {
        true => Ok(()),
        false => Err("http-files must be an existing directory".into()),
    }
}

fn check_dbfilename(name: &str) -> Result<(), String> {
    check_base_name("dbfilename", "filename", name)
}

impl Default for Settings {
    fn default() -> Self {
        Settings::new()
    }
}

impl Settings {
    /// Creates settings with their default values; `dir` is the present directory.
    pub fn new() -> Settings {
        let settings = Settings::blank();
        for (index, directive) in TABLE.directives.iter().enumerate() {
            // The table's self test parses every default, so this never skips one.
            if let Ok(value) = directive.default_value() {
                settings.cell(index).store(&value);
            }
        }
        settings
    }

    /// Returns the number of replicas that must have acknowledged recently for commands to write
    /// (`min-replicas-to-write`); 0 if their age doesn't matter (`min-replicas-max-lag`).
    #[must_use]
    pub fn good_replicas_wanted(&self) -> u64 {
        let any_will_do = self.min_replicas_max_lag_s.get() == 0;
        if any_will_do { 0 } else { self.min_replicas_to_write.get().unsigned_abs() }
    }

    /// Returns the save points; empty if snapshots are off.
    pub fn save_points(&self) -> Vec<SavePoint> {
        save_points(&self.save.get())
    }

    /// Returns `file` as an absolute path; a relative one starts at `dir`.
    pub fn in_dir(&self, file: &str) -> PathBuf {
        PathBuf::from(&*self.dir.get()).join(file)
    }

    /// Lowers `maxclients` to the machine's limit, at the start.
    pub fn limit_maxclients(&self, most: i64) {
        Cell::store(&self.maxclients, &Value::Number(i128::from(most.max(1))));
    }

    /// Sets the primary, for CONFIG GET and CONFIG REWRITE; `None` for none.
    pub fn note_replicaof(&self, primary: Option<(&str, u16)>) {
        let words = primary.map(|(host, port)| format!("{host} {port}")).unwrap_or_default();
        Cell::store(&self.replicaof, &Value::Text(words.into()));
    }

    /// Returns the pairs of `rename-command old new` in the file's order; an empty new name removes the command. Each
    /// pair is valid after the ones before it.
    pub fn renamed_commands(&self) -> Vec<(String, String)> {
        self.renames.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the `user` lines in the file's order: a name and its rules. Names are unique.
    pub fn configured_users(&self) -> Vec<Vec<String>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the names of users in included files, with the files.
    pub fn included_users(&self) -> Vec<(String, String)> {
        self.included_users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if new users may use all channels.
    pub fn new_users_have_all_channels(&self) -> bool {
        self.acl_pubsub_default.get() == NewChannels::All
    }

    /// Returns the cell of table entry `index`.
    pub(super) fn cell(&self, index: usize) -> &dyn Cell {
        match TABLE.directives[index].field {
            Some(field) => field(self),
            None => &self.stored[index],
        }
    }

    /// Locks out changes of settings by other threads until the guard is dropped.
    pub(super) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directive {
    /// Returns the value without any configuration.
    pub(super) fn default_value(&self) -> Result<Value, String> {
        if matches!(self.kind, ValueKind::Directory) {
            let here = std::env::current_dir().ok().and_then(|path| path.into_os_string().into_string().ok());
            return Ok(Value::Text(here.unwrap_or_else(|| ".".into()).into()));
        }
        self.parse(&self.kind.arguments(self.default), &Value::Number(0))
    }

    /// Parses arguments, with all checks of the entry.
    pub(super) fn parse(&self, args: &[&str], before: &Value) -> Result<Value, String> {
        let value = self.kind.parse(args, before)?;
        if let (Some(check), Value::Text(text)) = (self.check, &value) {
            check(text)?;
        }
        match self.missing_feature {
            Some(feature) if self.kind.show(&value) != self.default => Err(missing(feature)),
            _ => Ok(value),
        }
    }
}
