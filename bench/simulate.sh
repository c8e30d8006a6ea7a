#!/usr/bin/env bash
# Runs many simulated histories of replication on all cores: bench/simulate.sh <count> [<first seed>]. A process runs some hundred of them, since
# the engines of a process stay in memory until it ends. What fails is told with its seed.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:?usage: bench/simulate.sh <count> [<first seed>]}
first=${2:-0}
each=100
cargo build --quiet --release -p penstock-simulator
program=${CARGO_TARGET_DIR:-target}/release/penstock-simulator
seq "$first" "$each" $((first + count - 1)) | xargs -P "$(nproc)" -I{} sh -c "$program {} $each 2>&1 | grep -v ' 0 failed:' || true"
echo "$count histories from seed $first on: what failed is above"
