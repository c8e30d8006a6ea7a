#!/usr/bin/env python3
"""How the server should scale over many threads: a simulation of its locks, for machines that nobody has at hand.

    bench/scaling_model.py [--held NS] [--beside NS] [--transfer NS] [--hot SHARE]

Every thread runs single-key commands one after the other. A command takes `beside` nanoseconds without a lock (framing,
reply, the kernel's part), then waits for the lock of its key's shard, first come first served, and holds it for `held`
nanoseconds; if another thread held it last, its cache line and the entry's have to come from that core first, for
`transfer` nanoseconds, while the lock is held. There are 64 shards a thread, as in the server. `hot` is the share of
commands that go to one single key. The gate that a batch passes is a store to the thread's own cache line, and part of
`beside`. What is not modelled: memory bandwidth, the network card, a clock that slows down when all cores are busy.
"""

import argparse
import heapq
import random

SHARDS_PER_THREAD = 64
COMMANDS = 4_000


def simulate(threads, held, beside, transfer, hot):
    """Commands a second of all threads."""
    shards = 1
    while shards < threads * SHARDS_PER_THREAD:
        shards *= 2
    pick = random.Random(1)
    free_at, owner = [0.0] * shards, [-1] * shards
    # The next moment at which each thread asks for a lock.
    asks = [(pick.random() * (held + beside), thread) for thread in range(threads)]
    heapq.heapify(asks)
    left, now = threads * COMMANDS, 0.0
    for _ in range(left):
        now, thread = heapq.heappop(asks)
        shard = 0 if pick.random() < hot else pick.randrange(shards)
        begin = max(now, free_at[shard])
        hold = held + (transfer if owner[shard] not in (-1, thread) else 0.0)
        free_at[shard], owner[shard] = begin + hold, thread
        heapq.heappush(asks, (begin + hold + beside, thread))
    return left / now * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held", type=float, default=40, help="ns that a lock is held (default %(default)s)")
    parser.add_argument("--beside", type=float, default=80, help="ns that a command takes beside (default %(default)s)")
    parser.add_argument("--transfer", type=float, default=100, help="ns to fetch what another core wrote (default %(default)s)")
    parser.add_argument("--hot", type=float, action="append", help="share of commands on one key (default 0, 0.01, 0.1, 1)")
    options = parser.parse_args()
    hots = options.hot or [0.0, 0.01, 0.1, 1.0]
    print("millions of commands a second, and how many times one thread's")
    print("threads " + "".join(f"{f'{hot:.0%} on one key':>22}" for hot in hots))
    alone = 1e9 / (options.held + options.beside)
    for threads in (1, 2, 4, 8, 16, 32, 64):
        rates = [simulate(threads, options.held, options.beside, options.transfer, hot) for hot in hots]
        print(f"{threads:7} " + "".join(f"{rate / 1e6:12.1f} {rate / alone:8.1f}x" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
