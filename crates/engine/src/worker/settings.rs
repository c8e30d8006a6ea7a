//! The parts of the configuration that a thread copies.

use std::sync::atomic::Ordering;

use commands::call::{LazyFree, Rules};
use store::types::hash::HashLimits;
use store::types::list::ListLimits;
use store::types::set::SetLimits;
use store::types::stream::{IdentityLimits, StreamLimits};
use store::types::zset::ZSetLimits;

use super::Worker;
use crate::memory::eviction;
use crate::replies::Share;

impl Worker {
    /// Applies the configured limits to the arguments of clients.
    pub(crate) fn follow_limits(&mut self) {
        self.limits.bulk_bytes_max = i64::try_from(self.engine.settings.proto_max_bulk_len.get()).unwrap_or(i64::MAX);
    }

    /// Updates the copies if the configuration has changed. Returns whether it has.
    pub(super) fn follow_settings(&mut self) -> bool {
        let version = self.engine.settings_version();
        if version == self.settings_version {
            return false;
        }
        self.settings_version = version;
        let settings = &self.engine.settings;
        self.advice.follow(settings, self.engine.advice.threads(), self.random.next());
        self.meter.tracks_latency = settings.latency_tracking.get();
        let alone = Share::new(settings.reply_memory_limit.get(), settings.reply_memory_total.get(), 1);
        self.pace.reply_bytes_max = alone.turn() as usize;
        self.clock.frequency = eviction::frequency(settings);
        self.follow_limits();
        self.rules = Rules {
            string_bytes_max: self.string_bytes_max(),
            list: ListLimits::new(settings.list_max_listpack_size.get()),
            set: SetLimits {
                intset_entries: settings.set_max_intset_entries.get_usize(),
                listpack_entries: settings.set_max_listpack_entries.get_usize(),
                listpack_value: settings.set_max_listpack_value.get_usize(),
            },
            hash: HashLimits {
                listpack_entries: settings.hash_max_listpack_entries.get_usize(),
                listpack_value: settings.hash_max_listpack_value.get_usize(),
            },
            zset: ZSetLimits {
                entries_max: settings.zset_max_listpack_entries.get_usize(),
                member_bytes_max: settings.zset_max_listpack_value.get_usize(),
            },
            stream: StreamLimits::new(
                settings.stream_node_max_bytes.get_usize(),
                settings.stream_node_max_entries.get_usize(),
            ),
            stream_block_entries: settings.stream_node_max_entries.get_usize(),
            identities: IdentityLimits {
                seconds: settings.stream_idmp_duration.get() as u32,
                count: settings.stream_idmp_maxsize.get() as u32,
            },
            hll_sparse_bytes_max: settings.hll_sparse_max_bytes.get_usize(),
            lazy_free: LazyFree {
                user_del: settings.lazyfree_lazy_user_del.get(),
                user_flush: settings.lazyfree_lazy_user_flush.get(),
                server_del: settings.lazyfree_lazy_server_del.get(),
            },
            shares_integers: !eviction::goes_by_use(settings),
            skips_checksums: self.engine.skips_checksums.load(Ordering::Relaxed),
            denies_lookups: false,
        };
        true
    }
}
