#!/usr/bin/env python3
"""The time that the advisor says would be saved, against what rewritten applications save.

    savings_test.py [--rtt TIME]... [NAME]...

Applications of corpus.tsv that have a rewritten form run through `penstock advise --proxy --rtt`, and so does that form, in turn. The
difference of the times that they take is what was saved; what the report says must be within a fifth of it. The medians of several
runs are compared, since a busy machine's times vary.
"""

import argparse
import os
import statistics
import subprocess
import sys

import corpus_test as corpus
from run import Server

ROUND_TRIPS = ["100us", "1ms", "5ms"]
NAMES = [
    "py-get-loop", "py-set-loop", "py-set-with-expiry-loop", "py-sadd-loop", "py-incr-loop", "py-n-plus-one", "py-interleaved",
    "py-flag-for-each-item", "rails-fragment-cache", "go-hget-loop", "go-zadd-loop", "ioredis-get-loop", "node-redis-hset-loop",
]  # fmt: skip
TOLERANCE = 0.2
RUNS = 5
ROUNDS = "200"


def measured(program, name, url, round_trip):
    """Runs an application behind a proxy: how long it took, and what the advisor says was lost, in seconds."""
    proxy = corpus.Proxy(url, round_trip)
    environment = os.environ | {"PENSTOCK_URL": proxy.url, "DIRECT_URL": url, "ROUNDS": ROUNDS}
    command = [*corpus.PROGRAMS[program], name]
    ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=True, capture_output=True, text=True)
    took = float(ran.stdout.split()[-2])
    return took, sum(finding["lost_ns"] for finding in proxy.end()) / 1e9


def compare(program, name, round_trip):
    """The medians of what was saved and of what was said to be lost."""
    saved, said = [], []
    for _ in range(RUNS):
        with Server(os.environ["PENSTOCK_PROGRAM"]) as server:
            url = f"redis://127.0.0.1:{server.port}"
            wasteful, lost = measured(program, name, url, round_trip)
            rewritten, left = measured(program, f"{name}-rewritten", url, round_trip)
        saved.append(wasteful - rewritten)
        said.append(lost - left)
    return statistics.median(saved), statistics.median(said)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rtt", action="append", metavar="TIME", help="100us, 1ms and 5ms unless told otherwise")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    applications, wrong = corpus.table(), 0
    names, round_trips = options.names or NAMES, options.rtt or ROUND_TRIPS
    for round_trip in round_trips:
        for name in names:
            saved, said = compare(applications[name][0], name, round_trip)
            off = said / saved - 1
            print(f"{round_trip} {name}: saved {saved * 1000:.1f} ms, said {said * 1000:.1f} ms, {off:+.0%}", flush=True)
            wrong += abs(off) > TOLERANCE
    if wrong:
        sys.exit(f"{wrong} are more than a fifth off")
    print(f"{len(names) * len(round_trips)} checks")


if __name__ == "__main__":
    main()
