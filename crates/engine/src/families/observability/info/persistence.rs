//! INFO persistence.

use super::InfoText;
use crate::snapshots::{Purpose, SnapshotFigures};
use crate::state::Engine;
use statistics::stats::Totals;

pub(super) fn write(engine: &Engine, now_s: u64, text: &mut InfoText) {
    let figures = engine.snapshots.figures();
    text.field("loading", u8::from(engine.is_loading()));
    let is_beside = engine.snapshots.loading.is_beside();
    text.field("async_loading", u8::from(is_beside));
    text.constants(&[("current_cow_peak", "0"), ("current_cow_size", "0")]);
    text.constants(&[("current_cow_size_age", "0"), ("current_fork_perc", "0.00")]);
    snapshots(engine, &figures, text);
    text.constants(&[("rdb_last_cow_size", "0")]);
    text.field("rdb_last_load_keys_expired", figures.loaded_expired);
    text.field("rdb_last_load_keys_loaded", figures.loaded_keys);
    append_only_file(engine, &figures, text);
    text.constants(&[("module_fork_in_progress", "0"), ("module_fork_last_cow_size", "0")]);
    if engine.is_loading() || is_beside {
        loading(engine, now_s, text);
    }
}

/// Writes the progress of loading. The estimate assumes the same speed as so far.
fn loading(engine: &Engine, now_s: u64, text: &mut InfoText) {
    let progress = &engine.snapshots.loading;
    let ((loaded, all), began_s) = (progress.bytes(), progress.began_s());
    let seconds = now_s.saturating_sub(began_s).max(1);
    let eta_s = all.saturating_sub(loaded) as f64 * seconds as f64 / loaded.max(1) as f64;
    text.field("loading_start_time", began_s);
    text.field("loading_total_bytes", all);
    text.constants(&[("loading_rdb_used_mem", "0")]);
    text.field("loading_loaded_bytes", loaded);
    text.field("loading_loaded_perc", format!("{:.2}", 100.0 * loaded as f64 / all.max(1) as f64));
    text.field("loading_eta_seconds", eta_s as u64);
}

fn status(has_failed: bool) -> &'static str {
    if has_failed { "err" } else { "ok" }
}

fn seconds(taken: Option<u64>) -> String {
    taken.map_or("-1".into(), |seconds| seconds.to_string())
}

fn snapshots(engine: &Engine, figures: &SnapshotFigures, text: &mut InfoText) {
    let running = engine.snapshots.with_running(|running| {
        (running.purpose, running.snapshot.keys_saved(), running.keys, running.began.elapsed().as_secs())
    });
    let is_file = running.is_some_and(|(purpose, ..)| purpose == Purpose::File);
    text.field("current_save_keys_processed", running.map_or(0, |(_, saved, ..)| saved));
    text.field("current_save_keys_total", running.map_or(0, |(_, _, keys, _)| keys));
    text.field("rdb_changes_since_last_save", Totals::of(&engine.stats).dirty.saturating_sub(figures.saved_dirty));
    text.field("rdb_bgsave_in_progress", u8::from(is_file));
    text.field("rdb_last_save_time", figures.saved_s);
    text.field("rdb_last_bgsave_status", status(figures.has_failed));
    text.field("rdb_last_bgsave_time_sec", seconds(figures.file_s));
    text.field("rdb_current_bgsave_time_sec", seconds(running.filter(|_| is_file).map(|(.., seconds)| seconds)));
    text.field("rdb_saves", figures.saves);
    text.field("rdb_saves_consecutive_failures", figures.failures);
}

fn append_only_file(engine: &Engine, figures: &SnapshotFigures, text: &mut InfoText) {
    let (is_on, durability) = (engine.settings.appendonly.get(), &engine.durability);
    let rewrite = engine.snapshots.with_running(|running| (running.purpose, running.began.elapsed().as_secs()));
    let rewrite = rewrite.filter(|(purpose, _)| *purpose == Purpose::Base).map(|(_, seconds)| seconds);
    text.field("aof_enabled", u8::from(is_on));
    // A file that was turned on is incomplete until its first base is there, also while an earlier one is still being closed.
    let is_incomplete = is_on && !durability.is_whole();
    text.field("aof_rewrite_in_progress", u8::from(rewrite.is_some() || is_incomplete));
    text.field("aof_rewrite_scheduled", u8::from(engine.snapshots.is_wanted_for(Purpose::Base)));
    text.field("aof_last_rewrite_time_sec", seconds(figures.base_s));
    text.field("aof_current_rewrite_time_sec", seconds(rewrite));
    text.field("aof_last_bgrewrite_status", status(figures.base_has_failed));
    text.field("aof_rewrites", figures.rewrites);
    text.field("aof_rewrites_consecutive_failures", figures.base_failures);
    text.field("aof_last_write_status", status(durability.disk_error().is_some()));
    text.constants(&[("aof_last_cow_size", "0")]);
    if is_on {
        let (bytes, unsynced) = durability.file_bytes();
        text.field("aof_current_size", bytes);
        text.field("aof_base_size", figures.base_bytes);
        text.field("aof_unsynced_bytes", unsynced);
        text.constants(&[("aof_pending_rewrite", "0"), ("aof_buffer_length", "0")]);
        let (is_syncing, delays) = durability.syncs();
        text.field("aof_pending_bio_fsync", u8::from(is_syncing));
        text.field("aof_delayed_fsync", delays);
    }
}
