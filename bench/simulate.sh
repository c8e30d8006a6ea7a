#!/usr/bin/env bash
# Runs many simulated histories on all cores, and names the seeds that fail: bench/simulate.sh <count> [<first seed>] [<kind>]. The kinds:
#   replication   a primary and its replicas (the default)
#   clusters      clusters of nine whole nodes
#   machines      the state machines of the bus alone, in clusters of 3 to 12 nodes
# A process runs some of them: the engines of a process stay in memory until it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:?usage: bench/simulate.sh <count> [<first seed>] [replication|clusters|machines]}
first=${2:-0}
kind=${3:-replication}
target=${CARGO_TARGET_DIR:-target}
case $kind in
replication) each=100 words= ;;
clusters) each=10 words=cluster ;;
machines) each=60 ;;
*) echo "no such kind: $kind" >&2 && exit 2 ;;
esac
if [ "$kind" = machines ]; then
  build() { cargo test -q -p penstock-cluster --lib --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'; }
  command="WORLD_SEED={} WORLD_SEEDS=$each $(build) --ignored --exact tests::elections::many_worlds_are_sound 2>&1 | grep '^seed'"
else
  cargo build --quiet --release -p penstock-simulator
  command="$target/release/penstock-simulator $words {} $each 2>&1 | grep -v ' 0 failed:'"
fi
seq "$first" "$each" $((first + count - 1)) | xargs -P "$(nproc)" -I{} sh -c "$command || true"
echo "$count histories ($kind) from seed $first on: the ones that fail are above"
