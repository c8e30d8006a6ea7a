//! The sections about the server as a whole.

use std::sync::atomic::Ordering;

use replication::id::HistoryId;

use crate::clients::client::{Client, client_flag};
use crate::clients::client_memory::memory_bytes;
use crate::machine::version::{PENSTOCK_VERSION, REDIS_VERSION};
use crate::machine::{CpuTime, suggested_maxmemory};
use crate::pause::PausePurpose;
use crate::pubsub::ChannelKind;
use crate::replication::failover::Failover;
use crate::replication::replicas::ReplicaStage;
use crate::replication::{LinkFigures, LinkState, Primary};
use crate::state::Engine;
use statistics::hot_keys::ServerFigures;
use statistics::stats::{RecentMax, Totals, WorkerStats};
use statistics::ticks::to_microseconds;

use store::db::Survey;

use super::{Gathered, InfoText, percent};

/// Bits of Redis's eviction clock, in seconds.
const LRU_CLOCK_MASK: u64 = (1 << 24) - 1;
const SECONDS_PER_DAY: u64 = 86_400;

pub(super) fn server(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let engine = gathered.turn.engine();
    let (now_ms, now_us) = (gathered.turn.now_ms(), gathered.turn.worker.clock.present_us());
    let uptime_s = now_ms.saturating_sub(engine.started_ms) / 1000;
    let (machine, settings) = (&engine.machine, &engine.settings);
    text.field("redis_version", REDIS_VERSION);
    text.field("penstock_version", PENSTOCK_VERSION);
    text.constants(&[("redis_git_sha1", "00000000"), ("redis_git_dirty", "0"), ("redis_build_id", "0")]);
    let mode = if engine.slots.are_on() { "cluster" } else { "standalone" };
    text.constants(&[("redis_mode", mode), ("server_mode", mode)]);
    text.field("os", &machine.os);
    text.field("arch_bits", usize::BITS);
    text.field("monotonic_clock", "POSIX clock_gettime");
    text.field("multiplexing_api", machine.multiplexing_api);
    text.constants(&[("atomicvar_api", "rust-core"), ("gcc_version", "0.0.0")]);
    text.field("process_id", machine.process_id);
    text.field("process_supervised", engine.host.supervisor());
    text.field("run_id", &machine.run_id);
    text.field("tcp_port", if settings.port.get() != 0 { settings.port.get() } else { settings.tls_port.get() });
    text.field("server_time_usec", now_us);
    text.field("uptime_in_seconds", uptime_s);
    text.field("uptime_in_days", uptime_s / SECONDS_PER_DAY);
    if let Some(left_ms) = engine.shutdown_left_ms(now_ms) {
        text.field("shutdown_in_milliseconds", left_ms);
    }
    text.field("hz", settings.hz.get());
    text.field("configured_hz", settings.hz.get());
    text.field("clients_hz", settings.hz.get());
    text.field("lru_clock", (now_ms / 1000) & LRU_CLOCK_MASK);
    text.field("executable", &machine.executable);
    text.field("config_file", engine.config_file.as_ref().map(|p| p.to_string_lossy()).unwrap_or_default());
    text.field("io_threads_active", 0);
    text.field("worker_threads", engine.inboxes.len());
    let zone = config::get(settings, &[b"availability-zone"]).pop().map(|(_, zone)| zone);
    text.field("availability_zone", zone.unwrap_or_default());
    listeners(gathered, text);
}

fn listeners(gathered: &Gathered<'_, '_, '_>, text: &mut InfoText) {
    let settings = &gathered.turn.engine().settings;
    let mut count = 0;
    let mut add = |text: &mut InfoText, value: String| {
        text.field(&format!("listener{count}"), value);
        count += 1;
    };
    let bind: String = settings.bind.get().split_whitespace().map(|address| format!("bind={address},")).collect();
    if settings.port.get() != 0 {
        add(text, format!("name=tcp,{bind}port={}", settings.port.get()));
    }
    if !settings.unixsocket.is_empty() {
        add(text, format!("name=unix,bind={}", settings.unixsocket.get()));
    }
    if settings.tls_port.get() != 0 {
        add(text, format!("name=tls,{bind}port={}", settings.tls_port.get()));
    }
}

pub(super) fn clients(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let (engine, now_ms) = (gathered.turn.engine(), gathered.turn.now_ms());
    let (all, now_s) = (gathered.clients(), now_ms / 1000);
    let max = |recent: fn(&WorkerStats) -> &RecentMax, present: fn(&Client) -> u64| {
        let of_threads = engine.stats.iter().map(|s| recent(s).get(now_s));
        of_threads.chain(all.iter().map(|c| present(c))).max().unwrap_or(0)
    };
    let count = |flag: u32| all.iter().filter(|c| c.has(flag)).count();
    let watched = all.iter().map(|c| c.watched.load(Ordering::Relaxed));
    let input = |c: &Client| c.input_bytes.load(Ordering::Relaxed) + c.input_free_bytes.load(Ordering::Relaxed);
    let output = |c: &Client| c.output_memory.load(Ordering::Relaxed);
    text.field("connected_clients", all.len() - count(client_flag::REPLICA));
    text.field("cluster_connections", 0);
    text.field("maxclients", engine.settings.maxclients.get());
    text.field("client_recent_max_input_buffer", max(|s| &s.recent_input, input));
    text.field("client_recent_max_output_buffer", max(|s| &s.recent_output, output));
    text.field("blocked_clients", count(client_flag::BLOCKED));
    text.field("tracking_clients", engine.tracking.clients());
    text.field("pipeline_tokens", engine.pipelines.count());
    text.field("pubsub_clients", count(client_flag::PUBSUB));
    text.field("watching_clients", watched.clone().filter(|&n| n > 0).count());
    text.field("clients_in_timeout_table", with_timeouts(all));
    text.field("total_watched_keys", watched.map(u64::from).sum::<u64>());
    text.field("total_blocking_keys", engine.waiters.key_count());
    text.field("total_blocking_keys_on_nokey", engine.waiters.group_key_count());
    paused(engine, now_ms, text);
}

/// Writes the paused commands, the reason and the remaining time. A pause that ends by itself, for example for a
/// failover, has no time.
fn paused(engine: &Engine, now_ms: u64, text: &mut InfoText) {
    let holds = engine.is_paused(now_ms);
    let (reason, left_ms) = match engine.pause.purpose(now_ms) {
        None => ("none", 0),
        Some(PausePurpose::Failover | PausePurpose::ManualFailover) => ("failover_in_progress", 0),
        Some(PausePurpose::Shutdown) => ("shutdown_in_progress", 0),
        // During a reload, INFO waits as well.
        Some(PausePurpose::Client | PausePurpose::Reload) => ("client_pause", engine.pause.left_ms(now_ms)),
    };
    let actions = if engine.pause.holds_all(now_ms) { "all" } else { "write" };
    text.field("paused_reason", reason);
    text.field("paused_actions", if holds { actions } else { "none" });
    text.field("paused_timeout_milliseconds", left_ms);
}

/// Returns the number of blocked clients with a timeout.
fn with_timeouts(all: &[std::sync::Arc<Client>]) -> usize {
    let has_timeout = |c: &&std::sync::Arc<Client>| c.waiter().is_some_and(|waiter| waiter.wait.timeout_ms.is_some());
    all.iter().filter(has_timeout).count()
}

/// Returns the estimated memory of connections: their state and buffers.
pub(crate) fn clients_bytes(engine: &Engine) -> u64 {
    engine.clients.all().iter().map(|client| memory_bytes(client)).sum()
}

/// Writes the round trips, and ADVISE's figures of them.
pub(super) fn advisor(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let engine = gathered.turn.engine();
    let (settings, totals) = (&engine.settings, Totals::of(&engine.stats));
    let figures = engine.advice.figures();
    text.field("advisor_enabled", u8::from(settings.advisor.get()));
    text.field("advisor_batches", totals.round_trips);
    text.field("advisor_batches_of_one_command", totals.lone_commands);
    text.field("advisor_watched_connections", figures.watched);
    text.field("advisor_findings", figures.findings);
    text.field("advisor_findings_dropped", figures.dropped);
    text.field("advisor_round_trips_wasted", figures.wasted);
    text.field("advisor_time_lost_usec", figures.lost_ns / 1000);
    text.field("advisor_memory_bytes", figures.memory_bytes);
}

pub(super) fn memory(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let engine = gathered.turn.engine();
    let used = engine.host.used_memory();
    engine.memory.note(used, gathered.turn.now_ms() / 1000);
    let (peak, start, resident) = (engine.memory.peak(), engine.memory.start(), engine.host.resident_memory());
    let clients = gathered.clients().iter().map(|client| memory_bytes(client)).sum::<u64>();
    let tables: usize = gathered.surveys().iter().map(|s| s.overhead_bytes).sum();
    let stream_bytes = engine.replication.stream.memory_bytes();
    let backlog = engine.replication.backlog_memory(engine.settings.repl_backlog_size.get());
    let overhead = start + clients + tables as u64 + backlog + engine.durability.file_memory();
    let dataset = used.saturating_sub(overhead);
    text.bytes("used_memory", used);
    text.bytes("used_memory_rss", resident);
    text.bytes("used_memory_peak", peak);
    text.field("used_memory_peak_time", engine.memory.peak_s());
    text.field("used_memory_peak_perc", percent(used, peak));
    text.field("used_memory_overhead", overhead);
    text.field("used_memory_startup", start);
    text.field("used_memory_dataset", dataset);
    text.field("used_memory_dataset_perc", percent(dataset, used.saturating_sub(start)));
    text.field("allocator_allocated", used);
    text.field("allocator_active", resident);
    text.field("allocator_resident", resident);
    text.constants(&[("allocator_muzzy", "0")]);
    text.bytes("total_system_memory", engine.machine.memory_bytes);
    text.bytes("cgroup_memory_limit", engine.machine.memory_limit_bytes.unwrap_or(0));
    text.bytes("maxmemory_suggested", engine.machine.memory_limit_bytes.map_or(0, suggested_maxmemory));
    scripts(gathered, text);
    text.bytes("maxmemory", engine.settings.maxmemory.get());
    text.field("maxmemory_policy", engine.settings.maxmemory_policy.get().word());
    let ratio = if used == 0 { 0.0 } else { resident as f64 / used as f64 };
    let beyond = (resident as i64).wrapping_sub(used as i64);
    text.field("allocator_frag_ratio", format!("{ratio:.2}"));
    text.field("allocator_frag_bytes", beyond);
    text.constants(&[("allocator_rss_ratio", "1.00"), ("allocator_rss_bytes", "0")]);
    text.constants(&[("rss_overhead_ratio", "1.00"), ("rss_overhead_bytes", "0")]);
    text.field("mem_fragmentation_ratio", format!("{ratio:.2}"));
    text.field("mem_fragmentation_bytes", beyond);
    text.field("mem_not_counted_for_evict", engine.waiting_memory());
    text.field("mem_replication_backlog", backlog);
    text.field("mem_total_replication_buffers", stream_bytes);
    text.constants(&[("mem_clients_slaves", "0")]);
    text.field("mem_clients_normal", clients);
    text.field("mem_cluster_links", engine.host.cluster_memory());
    let moves = &engine.slots.jobs.bytes;
    text.field("mem_cluster_slot_import", moves.import_memory.load(Ordering::Relaxed));
    text.field("mem_cluster_slot_export", moves.export_memory.load(Ordering::Relaxed));
    text.field("mem_aof_buffer", engine.durability.file_memory());
    text.constants(&[("mem_replica_full_sync_buffer", "0"), ("mem_replicas_repl_buffer", "0")]);
    text.constants(&[("mem_overhead_db_hashtable_rehashing", "0")]);
    text.field("mem_allocator", engine.machine.allocator);
    text.field("active_defrag_running", engine.compaction.running_percent());
    text.field("lazyfree_pending_objects", engine.keyspace.reaper().pending());
    text.field("lazyfreed_objects", engine.keyspace.reaper().freed());
}

/// Writes the memory of scripts and functions. One interpreter runs both, and Redis's separate fields show the known
/// part of each.
fn scripts(gathered: &Gathered<'_, '_, '_>, text: &mut InfoText) {
    let engine = gathered.turn.engine();
    let machines = engine.stats.iter().map(|s| s.lua_bytes.load(Ordering::Relaxed)).sum::<u64>();
    let scripts = engine.scripts.figures();
    let (libraries, functions, functions_bytes) = engine.libraries.figures();
    let texts = (scripts.memory_bytes + functions_bytes) as u64;
    text.field("used_memory_vm_eval", machines);
    text.bytes("used_memory_lua", machines);
    text.field("used_memory_scripts_eval", scripts.memory_bytes);
    text.field("number_of_cached_scripts", scripts.count);
    text.field("number_of_functions", functions);
    text.field("number_of_libraries", libraries);
    text.field("used_memory_vm_functions", 0);
    text.bytes("used_memory_vm_total", machines);
    text.field("used_memory_functions", functions_bytes);
    text.bytes("used_memory_scripts", texts);
}

pub(super) fn persistence(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    super::persistence::write(gathered.turn.engine(), gathered.turn.now_ms() / 1000, text);
}

pub(super) fn stats(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let engine = gathered.turn.engine();
    gathered.turn.worker.note_observed();
    let (totals, rates) = (Totals::of(&engine.stats), engine.rates.now());
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    text.field("total_connections_received", totals.connections);
    text.field("total_commands_processed", totals.executed);
    text.field("total_batches_processed", totals.batches);
    text.field("instantaneous_ops_per_sec", rates.commands);
    text.field("total_net_input_bytes", totals.net_in);
    text.field("total_net_output_bytes", totals.net_out);
    text.constants(&[("total_net_repl_input_bytes", "0"), ("total_net_repl_output_bytes", "0")]);
    let moves = &engine.slots.jobs.bytes;
    text.field("total_net_cluster_slot_import_bytes", moves.imported.load(Ordering::Relaxed));
    text.field("total_net_cluster_slot_export_bytes", moves.exported.load(Ordering::Relaxed));
    text.field("instantaneous_input_kbps", kilobytes(rates.net_in));
    text.field("instantaneous_output_kbps", kilobytes(rates.net_out));
    text.constants(&[("instantaneous_input_repl_kbps", "0.00"), ("instantaneous_output_repl_kbps", "0.00")]);
    text.field("rejected_connections", totals.rejected_connections);
    text.field("cluster_forwarded_commands", totals.forwarded_commands);
    text.field("cluster_forwarding_failures", totals.forwarding_failures);
    let syncs = gathered.turn.engine().replication.replicas.figures();
    text.field("sync_full", syncs.full);
    text.field("sync_partial_ok", syncs.partial);
    text.field("sync_partial_err", syncs.refused);
    text.field("expired_subkeys", totals.expired_fields);
    text.field("expired_subkeys_active", totals.expired_fields_by_search);
    text.field("expired_fields", totals.expired_fields);
    text.field("expired_keys", totals.expired);
    text.field("expired_keys_active", totals.expired_by_search);
    text.constants(&[("expired_stale_perc", "0.00"), ("expired_keys_with_volatile_items_stale_perc", "0.00")]);
    text.constants(&[("expired_time_cap_reached_count", "0")]);
    text.field("expire_cycle_cpu_milliseconds", to_microseconds(totals.reclaim_ticks) as u64 / 1000);
    text.field("evicted_keys", totals.evicted);
    text.field("evicted_clients", totals.evicted_clients);
    text.field("evicted_scripts", engine.scripts.figures().evicted);
    text.constants(&[("total_eviction_exceeded_time", "0"), ("current_eviction_exceeded_time", "0")]);
    text.field("keyspace_hits", totals.hits);
    text.field("keyspace_misses", totals.misses);
    text.field("pubsub_channels", engine.pubsub.channel_count(ChannelKind::Channel));
    text.field("pubsub_patterns", engine.pubsub.pattern_count());
    text.field("pubsubshard_channels", engine.pubsub.channel_count(ChannelKind::Shard));
    text.constants(&[("latest_fork_usec", "0"), ("total_forks", "0"), ("migrate_cached_sockets", "0")]);
    text.constants(&[("slave_expires_tracked_keys", "0")]);
    text.field("active_defrag_hits", engine.compaction.moved.load(Ordering::Relaxed));
    text.field("active_defrag_misses", engine.compaction.stayed.load(Ordering::Relaxed));
    text.constants(&[("active_defrag_key_hits", "0"), ("active_defrag_key_misses", "0")]);
    text.field("total_active_defrag_time", engine.compaction.spent_us.load(Ordering::Relaxed) / 1000);
    text.constants(&[("current_active_defrag_time", "0")]);
    text.field("tracking_total_keys", engine.tracking.keys.len());
    text.field("tracking_total_items", engine.tracking.keys.items());
    text.field("tracking_total_prefixes", engine.tracking.prefix_count());
    text.field("unexpected_error_replies", engine.replication.link().failed + engine.snapshots.loading.failed());
    let (lanes, shared) = engine.replication.rounds.figures();
    text.field("replication_lanes", lanes);
    text.field("replication_lanes_shared", shared);
    text.field("total_error_replies", totals.errors);
    text.field("dump_payload_sanitizations", 0);
    text.field("total_reads_processed", totals.reads);
    text.field("total_writes_processed", totals.writes);
    text.constants(&[("io_threaded_reads_processed", "0"), ("io_threaded_writes_processed", "0")]);
    text.constants(&[("io_threaded_freed_objects", "0"), ("io_threaded_accept_processed", "0")]);
    text.constants(&[("io_threaded_poll_processed", "0"), ("io_threaded_total_prefetch_batches", "0")]);
    text.constants(&[("io_threaded_total_prefetch_entries", "0")]);
    text.field("client_query_buffer_limit_disconnections", totals.input_limit_closes);
    text.field("client_output_buffer_limit_disconnections", totals.output_limit_closes);
    text.constants(&[("reply_buffer_shrinks", "0"), ("reply_buffer_expands", "0")]);
    for (kind, count) in ["auth", "cmd", "key", "channel", "db", "tls_cert"].iter().zip(engine.users.denials.counts()) {
        text.parts(&["acl_access_denied_", kind, ":"]);
        text.last(count);
    }
    text.field("eventloop_cycles", totals.turns);
    text.field("eventloop_duration_sum", to_microseconds(totals.turn_ticks) as u64);
    text.field("eventloop_duration_cmd_sum", to_microseconds(totals.command_ticks) as u64);
    text.field("instantaneous_eventloop_cycles_per_sec", rates.turns);
    text.field("instantaneous_eventloop_duration_usec", rates.turn_us);
}

pub(super) fn replication(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let engine = gathered.turn.engine();
    let (link, history) = (engine.replication.link(), engine.replication.history());
    match engine.replication.primary().0 {
        None => text.constants(&[("role", "master")]),
        Some(primary) => replica(gathered, text, &primary, &link),
    }
    let replicas = engine.replication.replicas.all();
    text.field("connected_slaves", replicas.len());
    text.constants(&[("replicas_waiting_psync", "0")]);
    if engine.settings.good_replicas_wanted() > 0 {
        text.field("min_slaves_good_slaves", engine.replication.replicas.good());
    }
    let now_ms = gathered.turn.now_ms();
    for (index, replica) in replicas.iter().enumerate() {
        let (address, port, state, offset) = (&replica.address, replica.port, replica.stage.name(), replica.offset);
        let lag_s =
            if replica.stage == ReplicaStage::Online { now_ms.saturating_sub(replica.heard_ms) / 1000 } else { 0 };
        text.field(
            &format!("slave{index}"),
            format_args!("ip={address},port={port},state={state},offset={offset},lag={lag_s}"),
        );
    }
    let failover = engine.replication.failover();
    text.field("master_failover_state", Failover::state_name(failover.as_ref()));
    text.field("master_replid", format_args!("{}", history.id));
    text.field("master_replid2", format_args!("{}", history.before.map_or(HistoryId::NONE, |(id, _)| id)));
    text.field("master_repl_offset", engine.replicated_offset());
    text.field("second_repl_offset", history.before.map_or(-1, |(_, offset)| offset as i64));
    let backlog = engine.replication.stream.figures();
    text.field("repl_backlog_active", u8::from(backlog.is_active));
    text.field("repl_backlog_size", engine.settings.repl_backlog_size.get());
    text.field("repl_backlog_first_byte_offset", if backlog.is_active { backlog.start + 1 } else { 0 });
    text.field("repl_backlog_histlen", backlog.bytes);
}

/// Writes the fields of a replica.
fn replica(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText, primary: &Primary, link: &LinkFigures) {
    let engine = gathered.turn.engine();
    let now_s = gathered.turn.now_ms() / 1000;
    let (is_up, is_receiving) = (link.state == LinkState::Up, link.state == LinkState::Receiving);
    text.constants(&[("role", "slave")]);
    text.field("master_host", &primary.host);
    text.field("master_port", primary.port);
    text.field("master_link_status", if is_up { "up" } else { "down" });
    let heard = if is_up { now_s.saturating_sub(link.heard_s) as i64 } else { -1 };
    text.field("master_last_io_seconds_ago", heard);
    text.field("master_sync_in_progress", u8::from(is_receiving));
    text.field("slave_read_repl_offset", link.read);
    text.field("slave_repl_offset", link.applied);
    if is_receiving {
        let (total, read) = (link.snapshot_bytes, link.snapshot_read);
        let percent = total.map_or(-1.0, |total| read as f64 / total.max(1) as f64 * 100.0);
        text.field("master_sync_total_bytes", total.map_or(-1, |total| total as i64));
        text.field("master_sync_read_bytes", read);
        text.field("master_sync_left_bytes", total.map_or(-1, |total| total.saturating_sub(read) as i64));
        text.field("master_sync_perc", format_args!("{percent:.2}"));
        text.field("master_sync_last_io_seconds_ago", now_s.saturating_sub(link.heard_s));
    }
    if !is_up {
        let since = if link.down_since_s == 0 { -1 } else { now_s.saturating_sub(link.down_since_s) as i64 };
        text.field("master_link_down_since_seconds", since);
        if let Some(error) = engine.replication.link_error() {
            text.field("master_link_error", error.replace(['\r', '\n'], " "));
        }
    }
    text.field("slave_priority", engine.settings.replica_priority.get());
    text.field("slave_read_only", u8::from(engine.settings.replica_read_only.get()));
    text.field("replica_announced", u8::from(engine.settings.replica_announced.get()));
}

pub(super) fn cpu(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let usage = gathered.turn.engine().host.usage();
    let mut both = |suffix: &str, time: CpuTime| {
        for (kind, us) in [("sys", time.system_us), ("user", time.user_us)] {
            text.parts(&["used_cpu_", kind, suffix, ":"]);
            text.last(format_args!("{}.{:06}", us / 1_000_000, us % 1_000_000));
        }
    };
    both("", usage.cpu);
    both("_children", usage.cpu_children);
    both("_main_thread", usage.cpu_first_worker);
}

pub(super) fn cluster(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    text.field("cluster_enabled", u8::from(gathered.turn.engine().slots.are_on()));
}

/// Writes the state of HOTKEYS, and the milliseconds of the counted commands.
pub(super) fn hot_keys(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let report = gathered.turn.engine().hot_keys.report(ServerFigures::default());
    text.field("hotkeys-tracking-active", u8::from(report.as_ref().is_some_and(|report| report.is_active)));
    text.field("hotkeys-cmd-cpu-time", report.map_or(0, |report| report.us / 1000));
}

/// Writes the script engines, in Valkey's form.
pub(super) fn script_engines(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let machines = gathered.turn.engine().stats.iter().map(|s| s.lua_bytes.load(Ordering::Relaxed)).sum::<u64>();
    text.field("engines_count", 1);
    text.field("engines_total_used_memory", machines);
    text.field("engines_total_memory_overhead", 0);
    text.field(
        "engine_0",
        format_args!("name=LUA,module=built-in,abi_version=4,used_memory={machines},memory_overhead=0"),
    );
}

/// Writes the certificates of the TLS port, of this server as a client, and of the first authority.
pub(super) fn tls(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let now_s = gathered.turn.now_ms() / 1000;
    let certificates = gathered.turn.engine().host.certificates();
    for (name, certificate) in ["server", "client", "ca"].iter().zip(certificates) {
        let (serial, ends_s) = certificate.map_or(("none".into(), 0), |known| (known.serial, known.ends_s));
        text.parts(&["tls_", name, "_cert_serial:"]);
        text.last(&serial);
        text.parts(&["tls_", name, "_cert_expires_in_seconds:"]);
        text.last(ends_s.saturating_sub(now_s));
    }
}

/// Writes Redis's figures of its event loop beyond the statistics. The append-only file is not written in the loop, and
/// the maxima aren't kept.
pub(super) fn debug(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let totals = Totals::of(&gathered.turn.engine().stats);
    text.constants(&[("eventloop_duration_aof_sum", "0")]);
    text.field("eventloop_duration_cron_sum", to_microseconds(totals.reclaim_ticks) as u64);
    text.constants(&[("eventloop_duration_max", "0"), ("eventloop_cmd_per_cycle_max", "0")]);
}

pub(super) fn keyspace(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    for (database, survey) in gathered.surveys().iter().enumerate().filter(|(_, s)| s.keys > 0) {
        let Survey { keys, volatile, ttl_ms_mean, timed_hashes, .. } = survey;
        text.field(
            &format!("db{database}"),
            format_args!("keys={keys},expires={volatile},avg_ttl={ttl_ms_mean},subexpiry={timed_hashes}"),
        );
    }
}
