#!/usr/bin/env bash
# Runs many simulated histories in several processes, and names the seeds that fail.
#
#     bench/simulate.sh [options] <count> [<first seed>] [<kind>]
#
# The kinds:
#   replication   a primary and its replicas (the default)
#   clusters      clusters of nine whole nodes; slots move key by key
#   moves         such clusters; slots move by MIGRATESLOTS
#   pairs         clusters of five shards; both parties of a move fail at its end
#   machines      the state machines of the bus alone, in clusters of 3 to 12 nodes
# The options:
#   --processes N     processes at the same time; as many as cores without it
#   --seconds N       begin no further histories after this time
#   --progress FILE   note the histories that have run and the failures in this file. A repeated call goes on behind them: a million histories
#                     may take several calls.
# A process runs some histories one after another: its engines stay in memory until it ends.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

# Runs the histories from a seed on, and notes them: "failed <seed> <reason>" for each failure, "done <first seed> <count>" at the end.
run_some() {
  local kind=$1 first=$2 each=$3 program=$4 progress=$5 deadline=$6 output failed
  # The status 255 ends xargs.
  [ "$deadline" = 0 ] || [ "$(date +%s)" -lt "$deadline" ] || exit 255
  case $kind in
  replication) output=$("$program" "$first" "$each" 2>&1 || true) ;;
  clusters) output=$("$program" cluster "$first" "$each" 2>&1 || true) ;;
  moves | pairs) output=$("$program" "$kind" "$first" "$each" 2>&1 || true) ;;
  machines)
    output=$(WORLD_SEED=$first WORLD_SEEDS=$each "$program" --ignored --exact tests::elections::many_worlds_are_sound 2>&1 || true)
    ;;
  esac
  failed=$(grep -E '^seed [0-9]+' <<<"$output" | cut -c1-400 | sed -E 's/^seed ([0-9]+)[,:]?/failed \1/' || true)
  # A process that crashes names no seed.
  grep -qE '^[0-9]+ histories|^test result' <<<"$output" || failed=${failed:+$failed$'\n'}"failed $first the process ended: $(tail -n 1 <<<"$output")"
  { [ -z "$failed" ] || echo "$failed"; echo "done $first $each"; } >>"$progress"
  [ -z "$failed" ] || echo "$failed"
}

if [ "${1:-}" = --some ]; then
  shift
  run_some "$@"
  exit 0
fi

processes=$(nproc) seconds=0 progress=
while [[ ${1:-} == --* ]]; do
  [ $# -ge 2 ] || usage
  case $1 in
  --processes) processes=$2 ;;
  --seconds) seconds=$2 ;;
  --progress) progress=$(realpath -m -- "$2") ;;
  *) usage ;;
  esac
  shift 2
done
[ $# -ge 1 ] || usage
count=$1 first=${2:-0} kind=${3:-replication}
target=${CARGO_TARGET_DIR:-target}
case $kind in
replication) each=100 ;;
clusters | moves | pairs) each=10 ;;
machines) each=60 ;;
*) usage ;;
esac
if [ "$kind" = machines ]; then
  program=$(cargo test -q -p penstock-cluster --lib --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
else
  cargo build --quiet --profile simulation -p penstock-simulator
  program=$target/simulation/penstock-simulator
fi
if [ -z "$progress" ]; then
  progress=$(mktemp)
  trap 'rm -f "$progress"' EXIT
fi
touch "$progress"
deadline=0
[ "$seconds" = 0 ] || deadline=$(($(date +%s) + seconds))
# A line for each process, without those that have run.
seq "$first" "$each" $((first + count - 1)) |
  awk 'FILENAME != "-" { if ($1 == "done") ran[$2] = 1; next } !($1 in ran)' "$progress" - |
  xargs -P "$processes" -I{} "$0" --some "$kind" {} "$each" "$program" "$progress" "$deadline" 2> >(grep -v 'status 255' >&2) || true
awk -v first="$first" -v end=$((first + count)) -v kind="$kind" '
  $2 < first || $2 >= end { next }
  $1 == "done" { ran += $3 }
  $1 == "failed" && !($2 in seen) { seen[$2] = 1; failed++; seeds = seeds " " $2 }
  END { printf "%d histories (%s) from seed %d on, %d failed%s%s\n", ran, kind, first, failed, failed ? ":" : "", seeds; exit failed > 0 }
' "$progress" || replays=1
[ -n "${replays:-}" ] || exit 0
# The command that replays each failure.
awk -v first="$first" -v end=$((first + count)) -v kind="$kind" '
  $1 != "failed" || $2 < first || $2 >= end || $2 in seen { next }
  { seen[$2] = 1 }
  kind == "machines" { printf "WORLD_SEED=%s WORLD_SEEDS=1 cargo test -p penstock-cluster --lib -- --ignored many_worlds_are_sound\n", $2; next }
  { printf "cargo run --profile simulation -p penstock-simulator --%s %s\n", kind == "clusters" ? " cluster" : kind == "replication" ? "" : " " kind, $2 }
' "$progress"
exit 1
