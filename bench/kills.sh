#!/usr/bin/env bash
# Kills servers at random moments under pipelined writers, and looks that what was acknowledged is there.
#
#     bench/kills.sh [KILLS] [SEED]     default: 1,000 kills, seed 1
#
# The tests are those of crates/tests/tests/serving/durability.rs, which ./test runs with few kills: with `appendfsync always` no
# acknowledged write is lost, no transaction is there in part and no pipeline token's count differs from what was counted;
# with `everysec`, a quarter as many kills, at most the last second is lost. PENSTOCK_BIN=PROGRAM names the server.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
export PENSTOCK_KILLS=${1:-1000} PENSTOCK_SEED=${2:-1}
time cargo test --quiet --release -p penstock-tests --test serving -- --nocapture is_killed
