//! The directives that have an effect, each with its typed field; and [`Settings`], which is made of these fields.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cell::{Bytes, BytesOrPercent, Cell, Choice, Choices, Flag, Int, OutputLimits, Shelf, Text, Value};
use super::directive::{Apply, Directive};
use super::kind::ValueKind;
use super::special::{
    SavePoint, check_append_dir_name, check_append_file_name, check_base_name, check_bind, check_percentiles,
    check_replicaof, check_shutdown, check_title_template, missing, save_points,
};
use super::table::TABLE;

/// The most bytes that requests which wait to be complete may be allowed to have, so that they are always framed or
/// refused: the server checks at compile time that there is room for what else is in their buffer.
pub const QUERY_BYTES_MAX: u64 = 3 << 30;
/// Redis's least, and Penstock's most.
const QUERY_BYTES: ValueKind = ValueKind::Bytes { min: 1 << 20, max: QUERY_BYTES_MAX };

/// Declares an enum with a directive's words for variants, in the order of Redis's error text.
macro_rules! choices {
    ($(#[$docs:meta])* $name:ident, $words:ident { $($(#[$variant_docs:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_docs])* $variant,)+ }

        const $words: &[&str] = &[$($word),+];

        impl $name {
            /// The word in the configuration.
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
    /// What to evict once `maxmemory` is reached.
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
        /// Nothing: commands that need memory fail.
        Noeviction = "noeviction",
    }
}

choices! {
    /// How much is logged.
    LogLevel, LOG_LEVELS {
        /// Everything, for debugging.
        Debug = "debug",
        /// More than an operator needs.
        Verbose = "verbose",
        /// What an operator wants to know.
        Notice = "notice",
        /// Only what needs attention.
        Warning = "warning",
        /// Nothing at all.
        Nothing = "nothing",
    }
}

choices! {
    /// The form of a line of the log.
    LogFormat, LOG_FORMATS {
        /// Redis's: process, role, time, a mark for the level, text.
        Legacy = "legacy",
        /// Keys and values, as Valkey writes them.
        Logfmt = "logfmt",
    }
}

choices! {
    /// How the log shows the time.
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
    /// The part of syslog that lines are filed under.
    SyslogFacility, FACILITIES {
        /// Messages of programs in general.
        User = "user",
        /// For local use, as the following.
        Local0 = "local0",
        /// See `Local0`.
        Local1 = "local1",
        /// See `Local0`.
        Local2 = "local2",
        /// See `Local0`.
        Local3 = "local3",
        /// See `Local0`.
        Local4 = "local4",
        /// See `Local0`.
        Local5 = "local5",
        /// See `Local0`.
        Local6 = "local6",
        /// See `Local0`.
        Local7 = "local7",
    }
}

choices! {
    /// What becomes of a replica's data while it loads its primary's.
    DisklessLoad, DISKLESS_LOADS {
        /// They are gone when loading begins.
        Disabled = "disabled",
        /// As `Disabled`. In Redis, a snapshot goes to a file first unless there are no data.
        OnEmptyDb = "on-empty-db",
        /// Clients are served them until all of the primary's are there.
        Swapdb = "swapdb",
    }
}

choices! {
    /// When the append-only file is synced.
    AppendFsync, APPEND_FSYNC {
        /// Once a second.
        EverySecond = "everysec",
        /// Before any client is told of what was written.
        Always = "always",
        /// When the system does so.
        No = "no",
    }
}

choices! {
    /// Whether clients of the TLS port must show a certificate.
    AuthClients, AUTH_CLIENTS {
        /// They are not asked for one.
        No = "no",
        /// They must.
        Yes = "yes",
        /// They may; one that is shown must be good.
        Optional = "optional",
    }
}

choices! {
    /// Which field of a client's certificate names its user.
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
    /// What supervises the server and is told when it is ready.
    Supervised, SUPERVISED {
        /// Upstart, which is told nothing.
        Upstart = "upstart",
        /// systemd.
        Systemd = "systemd",
        /// systemd, if it is there.
        Auto = "auto",
        /// None.
        No = "no",
    }
}

choices! {
    /// Which clients may use what is off by default.
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
    /// What the HTTP port's console may do.
    HttpConsole, HTTP_CONSOLE {
        /// There is none.
        No = "no",
        /// What its user may.
        Yes = "yes",
        /// Nothing that changes data or the server.
        ReadOnly = "read-only",
    }
}

choices! {
    /// Which channels a new user may use.
    NewChannels, NEW_CHANNELS {
        /// All.
        All = "allchannels",
        /// None.
        None = "resetchannels",
    }
}

/// The greatest number of worker threads; beyond any machine this is meant for, and far below what exhausts one.
const THREADS_MAX: i64 = 1024;

/// As long as PIPELINE START takes.
pub const PIPELINE_TOKEN_TTL_S_MAX: i64 = u32::MAX as i64;

macro_rules! settings {
    ($($(#[doc = $docs:literal])+ $field:ident: $cell:ty = $directive:expr;)+) => {
        /// All settings. Shared by every thread; read through the fields, changed by [`super::set`] only.
        #[derive(Debug)]
        pub struct Settings {
            $($(#[doc = $docs])+ pub $field: $cell,)+
            /// The values of the directives without a field, by their index in the table.
            pub(super) shelf: Box<[Shelf]>,
            /// `rename-command`: pairs of old and new name, in the file's order.
            pub(super) renames: Mutex<Vec<(String, String)>>,
            /// `user`: names with their rules, in the file's order.
            pub(super) users: Mutex<Vec<Vec<String>>>,
            /// Held by the thread that changes or rewrites settings, so that two changes can't mix.
            change: Mutex<()>,
        }

        /// The entries of the table that have a field.
        pub(super) const FIELDS: &[Directive] = &[
            $($directive.at(concat!($($docs),+), |settings| &settings.$field),)+
        ];

        impl Settings {
            /// Every cell at zero, which may be no legal value.
            fn blank() -> Settings {
                Settings {
                    $($field: Default::default(),)+
                    shelf: TABLE.directives.iter().map(|_| Shelf::default()).collect(),
                    renames: Mutex::default(),
                    users: Mutex::default(),
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
    /// File of the server's certificate and the chain behind it, in PEM.
    tls_cert_file: Text = Directive::text("tls-cert-file", "").applied(Apply::Tls).refers();
    /// File of the certificate's private key, in PEM.
    tls_key_file: Text = Directive::text("tls-key-file", "").applied(Apply::Tls).refers();
    /// Password of that file, empty for none.
    tls_key_file_pass: Text = Directive::text("tls-key-file-pass", "").sensitive().applied(Apply::Tls);
    /// File of the authorities that clients' certificates must come from, in PEM.
    tls_ca_cert_file: Text = Directive::text("tls-ca-cert-file", "").applied(Apply::Tls).refers();
    /// Directory of such files.
    tls_ca_cert_dir: Text = Directive::text("tls-ca-cert-dir", "").applied(Apply::Tls).refers();
    /// Whether clients of the TLS port must show a certificate.
    tls_auth_clients: Choice<AuthClients> = Directive::choice("tls-auth-clients", AUTH_CLIENTS, "yes")
        .applied(Apply::Tls);
    /// Which field of a client's certificate names the user that it is authenticated as.
    tls_auth_clients_user: Choice<CertificateUser> = Directive::choice("tls-auth-clients-user", CERTIFICATE_USER, "off")
        .applied(Apply::Tls);
    /// Versions of TLS, blank between them; empty for 1.2 and 1.3.
    tls_protocols: Text = Directive::text("tls-protocols", "").applied(Apply::Tls);
    /// Ciphers of TLS 1.2, by OpenSSL's names with colons between them; empty for all.
    tls_ciphers: Text = Directive::text("tls-ciphers", "").applied(Apply::Tls);
    /// Ciphers of TLS 1.3, likewise.
    tls_ciphersuites: Text = Directive::text("tls-ciphersuites", "").applied(Apply::Tls);
    /// Whether the server's order of ciphers counts, and not the client's.
    tls_prefer_server_ciphers: Flag = Directive::bool("tls-prefer-server-ciphers", "no").applied(Apply::Tls);
    /// Whether clients that come again may do without half of the handshake.
    tls_session_caching: Flag = Directive::bool("tls-session-caching", "yes").applied(Apply::Tls);
    /// Sessions kept for that, 0 for the default.
    tls_session_cache_size: Int = Directive::natural("tls-session-cache-size", "20480").applied(Apply::Tls);
    /// Seconds for which they are kept.
    tls_session_cache_timeout_s: Int = Directive::natural("tls-session-cache-timeout", "300").applied(Apply::Tls);
    /// Seconds after which the files are looked at for changes, 0 for never.
    tls_auto_reload_interval_s: Int = Directive::natural("tls-auto-reload-interval", "0");
    /// Addresses to listen on, blank between them; `*` and `::*` are all. One with a leading `-` may be unavailable.
    bind: Text = Directive::new("bind", ValueKind::Words(check_bind), "* -::*").applied(Apply::Bind);
    /// Path of the Unix socket to listen on, empty for none.
    unixsocket: Text = Directive::text("unixsocket", "").startup();
    /// Mode of the Unix socket's file, 0 for what the umask gives.
    unixsocketperm: Int = Directive::new("unixsocketperm", ValueKind::Octal { max: 0o777 }, "0").startup();
    /// Group of the Unix socket's file, by name; empty for the process's own.
    unixsocketgroup: Text = Directive::text("unixsocketgroup", "").startup();
    /// TCP port for HTTP (metrics, REST, the console), 0 for none.
    http_port: Int = Directive::port("http-port", "0").startup();
    /// Whether the HTTP port is encrypted, by the certificate of `tls-cert-file`: HTTPS.
    http_tls: Flag = Directive::bool("http-tls", "no").applied(Apply::Tls);
    /// Addresses to listen on for HTTP, as `bind` has them: this machine's own by default, since HTTP carries passwords.
    http_bind: Text = Directive::new("http-bind", ValueKind::Words(check_bind), "127.0.0.1 -::1").startup();
    /// Whether the HTTP port has the console, and whether that may change anything.
    http_console: Choice<HttpConsole> = Directive::choice("http-console", HTTP_CONSOLE, "yes");
    /// Whether the HTTP port takes commands (REST).
    http_rest: Flag = Directive::bool("http-rest", "yes");
    /// Directory whose files the HTTP port gives to everybody, under `/files/`; empty for none.
    http_files: Text = Directive::text("http-files", "").protected().checked(check_http_files);
    /// Connections of HTTP clients at a time.
    http_max_connections: Int = Directive::int("http-max-connections", 1, 100_000, "256");
    /// HTTP requests that are run at a time, each by a connection of its own to the server; others wait.
    http_max_running: Int = Directive::int("http-max-running", 1, 10_000, "32").startup();
    /// Bytes of a HTTP request's body.
    http_max_body: Bytes = Directive::bytes("http-max-body", 1 << 10, "16mb");
    /// Bytes of the replies to a HTTP request.
    http_max_reply: Bytes = Directive::bytes("http-max-reply", 1 << 10, "64mb");
    /// Seconds for a HTTP request to arrive, to run, and for a silent HTTP connection.
    http_timeout_s: Int = Directive::int("http-timeout", 1, 86_400, "60");
    /// HTTP requests a second of one address that may come without a password that is known to be right; others are refused.
    http_unauthenticated_rate: Int = Directive::int("http-unauthenticated-rate", 1, 1_000_000, "20");
    /// Connections that may wait to be accepted, as listen(2) takes it.
    tcp_backlog: Int = Directive::natural("tcp-backlog", "511").startup();
    /// Whether connections from other machines are refused while the default user has no password.
    protected_mode: Flag = Directive::bool("protected-mode", "yes");
    /// Connections at a time.
    maxclients: Int = Directive::int("maxclients", 1, u32::MAX as i64, "10000").applied(Apply::MaxClients);
    /// Connections beyond `maxclients` that are accepted for commands of administration alone.
    operator_connections: Int = Directive::int("operator-connections", 0, 1000, "3");
    /// Seconds without a request after which a connection is closed, 0 for never.
    timeout_s: Int = Directive::natural("timeout", "0");
    /// Seconds without traffic after which TCP probes whether the client is still there, 0 for never.
    tcp_keepalive_s: Int = Directive::natural("tcp-keepalive", "300");
    /// Worker threads, 0 for as many as there are cores.
    threads: Int = Directive::int("threads", 0, THREADS_MAX, "0").alias(&["io-threads"]).startup();
    /// Number of databases.
    databases: Int = Directive::int("databases", 1, i32::MAX as i64, "16").startup();
    /// Password of the default user, empty for none.
    requirepass: Text = Directive::text("requirepass", "").sensitive();
    /// File of users, relative to `dir`, empty for none. With one, the configuration has no `user` lines.
    aclfile: Text = Directive::text("aclfile", "").startup();
    /// Entries of ACL LOG, 0 for none.
    acllog_max_len: Int = Directive::count("acllog-max-len", "128");
    /// Which channels a new user may use: all, or none.
    acl_pubsub_default: Choice<NewChannels> = Directive::choice("acl-pubsub-default", NEW_CHANNELS, "resetchannels");
    /// Which clients may change protected settings, such as `dir`, with CONFIG SET.
    enable_protected_configs: Choice<Access> = Directive::choice("enable-protected-configs", ACCESS, "no").startup();
    /// Which clients may use DEBUG.
    enable_debug_command: Choice<Access> = Directive::choice("enable-debug-command", ACCESS, "no").startup();

    /// Bytes of one argument.
    proto_max_bulk_len: Bytes = Directive::new("proto-max-bulk-len", QUERY_BYTES, "512mb");
    /// Bytes of requests not executed yet, per connection.
    client_query_buffer_limit: Bytes = Directive::new("client-query-buffer-limit", QUERY_BYTES, "1gb");
    /// The same of all connections together that have yet to authenticate.
    unauthenticated_input_total: Bytes = Directive::bytes("unauthenticated-input-total", 1 << 20, "16mb");
    /// Bytes of replies not sent yet, per connection and class, on disk as well as in memory.
    client_output_buffer_limit: OutputLimits = Directive::new("client-output-buffer-limit", ValueKind::OutputLimits,
        "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60");
    /// Microseconds for which a thread polls before it sleeps, where a client is about to send its next request; 0 for
    /// never.
    busy_poll_us: Int = Directive::int("busy-poll-us", 0, 1000, "100");
    /// Bytes of memory that one connection's replies may take while they wait to be read.
    reply_memory_limit: Bytes = Directive::bytes("reply-memory-limit", 64 << 10, "1mb");
    /// The same of all connections together; each that has replies waiting gets an equal part.
    reply_memory_total: Bytes = Directive::bytes("reply-memory-total", 1 << 20, "256mb");
    /// Directory of the files for replies that don't fit into memory, empty for `dir`.
    reply_spill_dir: Text = Directive::text("reply-spill-dir", "").checked(check_spill_dir);
    /// Bytes of disk that one connection's replies may take, 0 for none.
    reply_spill_limit: Bytes = Directive::bytes("reply-spill-limit", 0, "4gb");
    /// The same of all connections together.
    reply_spill_total: Bytes = Directive::bytes("reply-spill-total", 0, "16gb");
    /// Bytes of the disk that are left free.
    reply_spill_keep_free: Bytes = Directive::bytes("reply-spill-keep-free", 0, "1gb");
    /// Seconds after which a connection is closed that has no room for its replies and reads none, 0 for never.
    reply_stall_timeout_s: Int = Directive::natural("reply-stall-timeout", "60");
    /// Bytes that all connections' buffers may take together, 0 for no limit.
    maxmemory_clients: BytesOrPercent = Directive::new("maxmemory-clients", ValueKind::BytesOrPercent, "0");

    /// Tokens that PIPELINE START may make before it refuses.
    pipeline_tokens_max: Int = Directive::natural("pipeline-tokens-max", "10000");
    /// Seconds for which a token of PIPELINE is kept once no connection has it, unless START says otherwise.
    pipeline_token_ttl_s: Int = Directive::int("pipeline-token-ttl", 1, PIPELINE_TOKEN_TTL_S_MAX, "3600");

    /// Bytes that the data may take, 0 for no limit.
    maxmemory: Bytes = Directive::new("maxmemory", ValueKind::Bytes { min: 0, max: u64::MAX }, "0").applied(Apply::MemoryLimit);
    /// What happens once `maxmemory` is reached.
    maxmemory_policy: Choice<MaxmemoryPolicy> = Directive::choice("maxmemory-policy", POLICIES, "noeviction");
    /// Keys to look at for each one that is evicted.
    maxmemory_samples: Int = Directive::int("maxmemory-samples", 1, i32::MAX as i64, "5");
    /// How much delay eviction may cause, 0 to 100.
    maxmemory_eviction_tenacity: Int = Directive::int("maxmemory-eviction-tenacity", 0, 100, "10");
    /// How many hits saturate a key's usage counter: the higher, the more.
    lfu_log_factor: Int = Directive::natural("lfu-log-factor", "10");
    /// Minutes after which a key's usage counter is decremented.
    lfu_decay_time_min: Int = Directive::natural("lfu-decay-time", "1");
    /// Whether the process does without transparent huge pages: the kernel clears 2 MB at a time where it would give
    /// one.
    disable_thp: Flag = Directive::bool("disable-thp", "yes").immutable();
    /// Whether memory that half-empty pages hold is given back: see [`crate::memory::compaction`]. Redis's default is
    /// no.
    activedefrag: Flag = Directive::bool("activedefrag", "yes");
    /// Bytes that the process may hold beyond what is in use before that begins. Redis's default is 100mb.
    active_defrag_ignore_bytes: Bytes = Directive::bytes("active-defrag-ignore-bytes", 1, "16mb");
    /// The same in percent of what is in use. Redis's default is 10.
    active_defrag_threshold_lower: Int = Directive::int("active-defrag-threshold-lower", 0, 1000, "5");
    /// The percentage from which it takes as much time as it may.
    active_defrag_threshold_upper: Int = Directive::int("active-defrag-threshold-upper", 0, 1000, "100");
    /// The share of a thread's time that it takes at least while it is at work, in percent; beyond that, only of time
    /// that nothing else needs.
    active_defrag_cycle_min: Int = Directive::int("active-defrag-cycle-min", 1, 99, "1");
    /// The same at most.
    active_defrag_cycle_max: Int = Directive::int("active-defrag-cycle-max", 1, 99, "25");
    /// Elements that a value may have that is looked through at one go.
    active_defrag_max_scan_fields: Int = Directive::int("active-defrag-max-scan-fields", 1, i64::MAX, "1000");
    /// Whether expired values are freed in the background.
    lazyfree_lazy_expire: Flag = Directive::bool("lazyfree-lazy-expire", "yes");
    /// Whether values that RENAME and its kin replace are freed in the background.
    lazyfree_lazy_server_del: Flag = Directive::bool("lazyfree-lazy-server-del", "yes");
    /// Whether DEL frees in the background, as UNLINK does.
    lazyfree_lazy_user_del: Flag = Directive::bool("lazyfree-lazy-user-del", "yes");
    /// Whether FLUSHALL and FLUSHDB are ASYNC when they don't say.
    lazyfree_lazy_user_flush: Flag = Directive::bool("lazyfree-lazy-user-flush", "yes");
    /// Redis's background runs a second, 1 to 500. INFO shows it, and that is all: what runs in the background here
    /// comes at its own times.
    hz: Int = Directive::new("hz", ValueKind::Int { min: 0, max: i32::MAX as i64, keep: (1, 500) }, "10");
    /// How eagerly expired keys are looked for, 1 to 10: while there are any, that may take 25 percent of a thread's
    /// time, and 2 more with each step.
    active_expire_effort: Int = Directive::int("active-expire-effort", 1, 10, "1");

    /// Bytes of memory that scripts may use on each thread, their own code included.
    lua_memory_limit: Bytes = Directive::bytes("lua-memory-limit", 1 << 20, "256mb");
    /// Elements (positive) or kilobytes class (-1 is 4 KB up to -5, 64 KB) of one packed block of a list.
    list_max_listpack_size: Int = Directive::int("list-max-listpack-size", i32::MIN as i64, i32::MAX as i64, "-2")
        .alias(&["list-max-ziplist-size"]);
    /// Fields of a packed hash.
    hash_max_listpack_entries: Int = Directive::count("hash-max-listpack-entries", "512")
        .alias(&["hash-max-ziplist-entries"]);
    /// Bytes of a field or value of a packed hash.
    hash_max_listpack_value: Bytes = Directive::bytes("hash-max-listpack-value", 0, "64")
        .alias(&["hash-max-ziplist-value"]);
    /// Members of a set of integers in its compact form.
    set_max_intset_entries: Int = Directive::count("set-max-intset-entries", "512");
    /// Members of a packed set.
    set_max_listpack_entries: Int = Directive::count("set-max-listpack-entries", "128");
    /// Bytes of a member of a packed set.
    set_max_listpack_value: Int = Directive::count("set-max-listpack-value", "64");
    /// Members of a packed sorted set.
    zset_max_listpack_entries: Int = Directive::count("zset-max-listpack-entries", "128")
        .alias(&["zset-max-ziplist-entries"]);
    /// Bytes of a member of a packed sorted set.
    zset_max_listpack_value: Bytes = Directive::bytes("zset-max-listpack-value", 0, "64")
        .alias(&["zset-max-ziplist-value"]);
    /// Bytes of a HyperLogLog in its sparse form, header included; a longer one becomes dense.
    hll_sparse_max_bytes: Bytes = Directive::bytes("hll-sparse-max-bytes", 0, "3000");
    /// Bytes of one packed block of a stream, 0 for no limit.
    stream_node_max_bytes: Bytes = Directive::bytes("stream-node-max-bytes", 0, "4096");
    /// Entries of one packed block of a stream, 0 for no limit.
    stream_node_max_entries: Int = Directive::count("stream-node-max-entries", "100");
    /// Seconds for which a new stream knows messages that producers name (XADD IDMP).
    stream_idmp_duration: Int = Directive::int("stream-idmp-duration", 1, 86400, "100");
    /// Messages of each producer that a new stream knows.
    stream_idmp_maxsize: Int = Directive::int("stream-idmp-maxsize", 1, 10_000, "100");

    /// Microseconds from which a command goes into the slow log; 0 logs all, -1 none.
    slowlog_log_slower_than_us: Int = Directive::int("slowlog-log-slower-than", -1, i64::MAX, "10000")
        .alias(&["commandlog-execution-slower-than"]);
    /// Entries of the slow log.
    slowlog_max_len: Int = Directive::count("slowlog-max-len", "128").alias(&["commandlog-slow-execution-max-len"]);
    /// Bytes from which COMMANDLOG has a request; 0 logs all, -1 none.
    commandlog_request_larger_than: Int = Directive::int("commandlog-request-larger-than", -1, i64::MAX, "1048576");
    /// Entries of the log of large requests.
    commandlog_large_request_max_len: Int = Directive::count("commandlog-large-request-max-len", "128");
    /// Bytes from which COMMANDLOG has a reply; 0 logs all, -1 none.
    commandlog_reply_larger_than: Int = Directive::int("commandlog-reply-larger-than", -1, i64::MAX, "1048576");
    /// Entries of the log of large replies.
    commandlog_large_reply_max_len: Int = Directive::count("commandlog-large-reply-max-len", "128");
    /// Keys that are remembered for clients that cache what they read (CLIENT TRACKING), 0 for no limit. Clients are told to
    /// forget any beyond them.
    tracking_table_max_keys: Int = Directive::count("tracking-table-max-keys", "1000000");

    /// Milliseconds from which LATENCY records an event, 0 for none.
    latency_monitor_threshold_ms: Int = Directive::count("latency-monitor-threshold", "0");
    /// Whether a histogram of durations is kept for each command.
    latency_tracking: Flag = Directive::bool("latency-tracking", "yes");
    /// Percentiles that INFO latencystats shows, blank between them.
    latency_tracking_info_percentiles: Text = Directive::new("latency-tracking-info-percentiles",
        ValueKind::Words(check_percentiles), "50 99 99.9");
    /// Which keyspace events are published: bits of [`super::keyspace_events`].
    notify_keyspace_events: Int = Directive::new("notify-keyspace-events", ValueKind::KeyspaceEvents, "");
    /// Milliseconds after which other clients are told that a script is busy, 0 for never.
    busy_reply_threshold_ms: Int = Directive::count("busy-reply-threshold", "5000").alias(&["lua-time-limit"]);

    /// Whether the advisor looks at clients' round trips: see [`crate::advice`].
    advisor: Flag = Directive::bool("advisor", "yes");
    /// Bytes of memory that it may take.
    advisor_memory: Bytes = Directive::bytes("advisor-memory", 1 << 20, "16mb");
    /// Whether it keeps a few keys of each finding, beside their patterns.
    advisor_samples: Flag = Directive::bool("advisor-samples", "yes");

    /// Password and user by which this server logs in to the primary that it follows; without a user, only the password.
    masterauth: Text = Directive::text("masterauth", "").alias(&["primaryauth"]).sensitive();
    /// See `masterauth`.
    masteruser: Text = Directive::text("masteruser", "").alias(&["primaryuser"]).sensitive();
    /// Whether clients are served what there is while the link to the primary is down.
    replica_serve_stale_data: Flag = Directive::bool("replica-serve-stale-data", "yes")
        .alias(&["slave-serve-stale-data"]);
    /// Whether another server's data are imported: nothing expires, and nothing is evicted.
    import_mode: Flag = Directive::bool("import-mode", "no");
    /// Whether clients of a server that follows a primary may only read.
    replica_read_only: Flag = Directive::bool("replica-read-only", "yes").alias(&["slave-read-only"]);
    /// Whether Sentinel counts this server among the replicas.
    replica_announced: Flag = Directive::bool("replica-announced", "yes");
    /// The address and the port at which a primary is told that clients find this server; empty and 0 for its own.
    replica_announce_ip: Text = Directive::text("replica-announce-ip", "").alias(&["slave-announce-ip"]);
    /// See `replica_announce_ip`.
    replica_announce_port: Int = Directive::port("replica-announce-port", "0").alias(&["slave-announce-port"]);
    /// Which replica Sentinel promotes: the one with the least; 0 for never.
    replica_priority: Int = Directive::natural("replica-priority", "100").alias(&["slave-priority"]);
    /// Seconds without a sign of life after which a link between primary and replica is given up.
    repl_timeout_s: Int = Directive::int("repl-timeout", 1, i32::MAX as i64, "60");
    /// Seconds between two signs of life that replicas are sent.
    repl_ping_replica_period_s: Int = Directive::int("repl-ping-replica-period", 1, i32::MAX as i64, "10")
        .alias(&["repl-ping-slave-period"]);
    /// Bytes of the stream that are kept for replicas whose link breaks.
    repl_backlog_size: Bytes = Directive::bytes("repl-backlog-size", 1, "10mb");
    /// Seconds after the last replica has left for which the stream goes on, 0 for ever.
    repl_backlog_ttl_s: Int = Directive::count("repl-backlog-ttl", "3600");
    /// Seconds that a server which ends waits for its replicas to have everything.
    shutdown_timeout_s: Int = Directive::natural("shutdown-timeout", "10");
    /// Whether replicas are sent a snapshot while it is made, and not only when it is whole.
    repl_diskless_sync: Flag = Directive::bool("repl-diskless-sync", "yes");
    /// What becomes of the data that there are while the primary's are loaded.
    repl_diskless_load: Choice<DisklessLoad> = Directive::choice("repl-diskless-load", DISKLESS_LOADS, "disabled");
    /// Replicas that have to keep up; with fewer, commands that write are refused.
    min_replicas_to_write: Int = Directive::natural("min-replicas-to-write", "0").alias(&["min-slaves-to-write"]);
    /// Seconds within which a replica has to have said how far it is.
    min_replicas_max_lag_s: Int = Directive::natural("min-replicas-max-lag", "10").alias(&["min-slaves-max-lag"]);
    /// Replicas that have what a reply tells of before it is sent; 0 for none.
    durability_replicas: Int = Directive::natural("durability-replicas", "0");
    /// Milliseconds that a reply waits for them, after which an error is answered instead; 0 for ever.
    durability_timeout_ms: Int = Directive::count("durability-timeout", "5000");
    /// Whether the link to a primary is encrypted.
    tls_replication: Flag = Directive::bool("tls-replication", "no");
    /// Whether connections to other servers than a primary are encrypted: those of MIGRATE.
    tls_cluster: Flag = Directive::bool("tls-cluster", "no");
    /// The certificate that is shown to a primary, with its key and the key's password; empty for the server's own.
    tls_client_cert_file: Text = Directive::text("tls-client-cert-file", "").refers();
    /// See `tls_client_cert_file`.
    tls_client_key_file: Text = Directive::text("tls-client-key-file", "").refers();
    /// See `tls_client_cert_file`.
    tls_client_key_file_pass: Text = Directive::text("tls-client-key-file-pass", "").sensitive();
    /// The primary that is followed, as host and port; empty for none.
    replicaof: Text = Directive::new("replicaof", ValueKind::Words(check_replicaof), "").alias(&["slaveof"]).immutable();

    /// Whether changes are written to the append-only file, and read from there at the start.
    appendonly: Flag = Directive::bool("appendonly", "no").applied(Apply::AppendOnly);
    /// When the append-only file is synced.
    appendfsync: Choice<AppendFsync> = Directive::choice("appendfsync", APPEND_FSYNC, "everysec");
    /// Whether the append-only file is not synced every second while a snapshot is written that it is to begin with.
    no_appendfsync_on_rewrite: Flag = Directive::bool("no-appendfsync-on-rewrite", "no");
    /// Whether the append-only file tells the time, once a second.
    aof_timestamp_enabled: Flag = Directive::bool("aof-timestamp-enabled", "no");
    /// Whether the server starts though the append-only file ends in the midst of what was written last.
    aof_load_truncated: Flag = Directive::bool("aof-load-truncated", "yes");
    /// Directory of the files that the server writes, absolute.
    dir: Text = Directive::new("dir", ValueKind::Directory, "").protected().applied(Apply::Directory);
    /// Name of the snapshot's file, in `dir`.
    dbfilename: Text = Directive::text("dbfilename", "dump.rdb").protected().checked(check_dbfilename);
    /// Name of the append-only file, or of the beginning of its parts' names.
    appendfilename: Text = Directive::text("appendfilename", "appendonly.aof").checked(check_append_file_name).startup();
    /// Name of the directory of its parts, in `dir`.
    appenddirname: Text = Directive::text("appenddirname", "appendonlydir").checked(check_append_dir_name).startup();
    /// When a snapshot is due; see [`Settings::save_points`].
    save: Text = Directive::new("save", ValueKind::Save, "3600 1 300 100 60 10000");
    /// Whether commands that write are refused while snapshots are due and can't be written.
    stop_writes_on_bgsave_error: Flag = Directive::bool("stop-writes-on-bgsave-error", "yes");
    /// Whether strings of snapshots are compressed.
    rdbcompression: Flag = Directive::bool("rdbcompression", "yes");
    /// Whether snapshots end with a checksum.
    rdbchecksum: Flag = Directive::bool("rdbchecksum", "yes").immutable();
    /// Whether a snapshot is synced while it is written, and not only at its end.
    rdb_save_incremental_fsync: Flag = Directive::bool("rdb-save-incremental-fsync", "yes");
    /// Whether a new base of the append-only file is in the form of a snapshot. Else it is commands.
    aof_use_rdb_preamble: Flag = Directive::bool("aof-use-rdb-preamble", "yes");
    /// The same for the base of the append-only file.
    aof_rewrite_incremental_fsync: Flag = Directive::bool("aof-rewrite-incremental-fsync", "yes");
    /// By how many percent the append-only file grows beyond its base before it is rewritten; 0: it is not.
    auto_aof_rewrite_percentage: Int = Directive::natural("auto-aof-rewrite-percentage", "100");
    /// Bytes of the append-only file from which on it is rewritten by itself.
    auto_aof_rewrite_min_size: Bytes = Directive::bytes("auto-aof-rewrite-min-size", 0, "64mb");
    /// What becomes of the data when SIGINT ends the server: `default`, or some of `save`, `nosave`, `now` and `force`.
    shutdown_on_sigint: Text = Directive::new("shutdown-on-sigint", ValueKind::Words(check_shutdown), "default");
    /// The same for SIGTERM.
    shutdown_on_sigterm: Text = Directive::new("shutdown-on-sigterm", ValueKind::Words(check_shutdown), "default");
    /// File to log to, empty for standard output.
    logfile: Text = Directive::text("logfile", "").startup();
    /// How much is logged.
    loglevel: Choice<LogLevel> = Directive::choice("loglevel", LOG_LEVELS, "notice").applied(Apply::LogLevel);
    /// The form of the log's lines.
    log_format: Choice<LogFormat> = Directive::choice("log-format", LOG_FORMATS, "legacy").applied(Apply::LogLevel);
    /// How the log shows the time.
    log_timestamp_format: Choice<LogTimestamp> = Directive::choice("log-timestamp-format", LOG_TIMESTAMPS, "legacy")
        .applied(Apply::LogLevel);
    /// Whether lines of the log go to syslog, too.
    syslog_enabled: Flag = Directive::bool("syslog-enabled", "no").startup();
    /// What syslog knows the server by.
    syslog_ident: Text = Directive::text("syslog-ident", "redis").startup();
    /// The part of syslog that lines are filed under.
    syslog_facility: Choice<SyslogFacility> = Directive::choice("syslog-facility", FACILITIES, "local0").startup();
    /// Whether the server goes on in the background while the command that started it ends.
    daemonize: Flag = Directive::bool("daemonize", "no").startup();
    /// File that holds the process id while the server runs, relative to `dir`, empty for none.
    pidfile: Text = Directive::text("pidfile", "").startup();
    /// Whether the process is given a title for `ps` and the like.
    set_proc_title: Flag = Directive::bool("set-proc-title", "yes").immutable();
    /// What the title is made of: text, with variables in braces.
    proc_title_template: Text = Directive::text("proc-title-template", "{title} {listen-addr} {server-mode}")
        .checked(check_title_template).applied(Apply::Title);
    /// What is told that the server is ready: `systemd` or `auto` write to the socket that NOTIFY_SOCKET names.
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
    /// Everything at its default; `dir` is the present directory.
    pub fn new() -> Settings {
        let settings = Settings::blank();
        for (index, directive) in TABLE.directives.iter().enumerate() {
            // The table's self test parses every default, so none is left out here.
            if let Ok(value) = directive.default_value() {
                settings.cell(index).store(&value);
            }
        }
        settings
    }

    /// How many replicas must have said of late how far they are for commands to write (`min-replicas-to-write`); none, if it doesn't
    /// matter when they have (`min-replicas-max-lag`).
    #[must_use]
    pub fn good_replicas_wanted(&self) -> u64 {
        let any_will_do = self.min_replicas_max_lag_s.get() == 0;
        if any_will_do { 0 } else { self.min_replicas_to_write.get().unsigned_abs() }
    }

    /// The present save points; none if snapshots are off.
    pub fn save_points(&self) -> Vec<SavePoint> {
        save_points(&self.save.get())
    }

    /// `file` as an absolute path: a relative one is in `dir`.
    pub fn in_dir(&self, file: &str) -> PathBuf {
        PathBuf::from(&*self.dir.get()).join(file)
    }

    /// Lowers the number of connections to what the machine allows, at the start.
    pub fn limit_maxclients(&self, most: i64) {
        Cell::store(&self.maxclients, &Value::Number(i128::from(most.max(1))));
    }

    /// Notes which primary is followed from now on, a host and a port, or none: CONFIG GET tells it, and CONFIG REWRITE writes it.
    pub(crate) fn note_replicaof(&self, primary: Option<(&str, u16)>) {
        let words = primary.map(|(host, port)| format!("{host} {port}")).unwrap_or_default();
        Cell::store(&self.replicaof, &Value::Text(words.into()));
    }

    /// The pairs of `rename-command old new` in the file's order; an empty new name removes the command. Each
    /// can be done after those before it.
    pub fn renamed_commands(&self) -> Vec<(String, String)> {
        self.renames.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The `user` lines in the file's order: a name with its rules each, no name twice.
    pub fn configured_users(&self) -> Vec<Vec<String>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether new users may use all channels.
    pub fn new_users_have_all_channels(&self) -> bool {
        self.acl_pubsub_default.get() == NewChannels::All
    }

    /// The cell of the table's entry `index`.
    pub(super) fn cell(&self, index: usize) -> &dyn Cell {
        match TABLE.directives[index].field {
            Some(field) => field(self),
            None => &self.shelf[index],
        }
    }

    /// Until the guard is dropped, no other thread changes settings.
    pub(super) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directive {
    /// The value that a server without configuration has.
    pub(super) fn default_value(&self) -> Result<Value, String> {
        if matches!(self.kind, ValueKind::Directory) {
            let here = std::env::current_dir().ok().and_then(|path| path.into_os_string().into_string().ok());
            return Ok(Value::Text(here.unwrap_or_else(|| ".".into()).into()));
        }
        self.parse(&self.kind.arguments(self.default), &Value::Number(0))
    }

    /// Reads arguments, with all checks that the entry asks for.
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
