#!/usr/bin/env bash
# Has Penstock follow each of these servers, and each follow Penstock, while links are cut, replicas are killed and primaries end:
#
#   bench/replication-matrix.sh SECONDS SERVER...        such as 150 redis-server redis8-server valkey-server
#
# Each pair works for so many seconds, and as long again where the machine is slow. Says what happened, and ends with an error if data differed
# or snapshots were sent where the stream would have done. PENSTOCK_SEED names another seed.
set -euo pipefail
cd "$(dirname "$0")/.."
export PENSTOCK_MATRIX_SECONDS=${1:?usage: bench/replication-matrix.sh SECONDS SERVER...}
shift
status=0
for server in "$@"; do
  echo "== $server"
  PENSTOCK_ORACLE=$server cargo test --quiet --package penstock-tests --test oracle matrix:: -- --nocapture --test-threads 1 --skip itself || status=1
done
exit $status
