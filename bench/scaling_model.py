#!/usr/bin/env python3
"""The expected scaling over many threads: a simulation of the server's locks, in place of large machines.

    bench/scaling_model.py [--held NS] [--beside NS] [--asking NS] [--transfer NS] [--hot SHARE] [--shards N]

Every thread runs single-key commands in windows of 64. First it prefetches their data and their locks, `asking` nanoseconds a key. The
cache lines arrive during the following prefetches. Then it runs the commands one after the other. A command takes `beside`
nanoseconds without a lock (framing, reply, the kernel's part). It then waits for the lock of its key's shard, first come first
served, and holds it for `held` nanoseconds. If another thread has prefetched or held the lock since this thread's prefetch, its cache
line comes from that core again, which takes `transfer` nanoseconds while the lock is held. There are 512 shards a thread, like in the
server. `hot` is the share of commands for one single key. A batch's gate is a store to the thread's own cache line, and part of
`beside`. The model leaves out memory bandwidth, the network card, and a clock that slows down when all cores are busy.
"""

import argparse
import heapq
import random

#: As in the server.
SHARDS_PER_THREAD = 512
SHARDS_MAX = 1 << 14
#: Commands prefetched together.
WINDOW = 64
#: How many of them each thread runs.
WINDOWS = 60


def simulate(threads, hot, options):
    """Commands a second of all threads."""
    shards = 1
    while shards < min(threads * options.shards, SHARDS_MAX):
        shards *= 2
    pick = random.Random(1)
    free_at, owner = [0.0] * shards, [-1] * shards

    # The shards of each thread's window that are still to be taken.
    windows = [[] for _ in range(threads)]
    # When each thread does something next: asks for a window, or takes the lock of its next command.
    next_at = [(pick.random() * (options.held + options.beside), thread) for thread in range(threads)]
    heapq.heapify(next_at)
    left, now = threads * WINDOW * WINDOWS, 0.0
    while left:
        now, thread = heapq.heappop(next_at)
        window = windows[thread]
        if not window:
            window += [0 if pick.random() < hot else pick.randrange(shards) for _ in range(WINDOW)]
            for shard in window:
                owner[shard] = thread
            heapq.heappush(next_at, (now + WINDOW * options.asking + options.beside, thread))
            continue
        shard = window.pop()
        begin = max(now, free_at[shard])
        hold = options.held + (options.transfer if owner[shard] != thread else 0.0)
        free_at[shard], owner[shard] = begin + hold, thread
        # After its window's last command a thread asks at once; what is beside the next comes after that.
        heapq.heappush(next_at, (begin + hold + (options.beside if window else 0.0), thread))
        left -= 1
    return threads * WINDOW * WINDOWS / now * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held", type=float, default=40, help="ns that a lock is held (default %(default)s)")
    parser.add_argument("--beside", type=float, default=70, help="ns that a command takes beside (default %(default)s)")
    parser.add_argument("--asking", type=float, default=25, help="ns to ask for what a command reads (default %(default)s)")
    parser.add_argument("--transfer", type=float, default=100, help="ns to fetch what another core wrote (default %(default)s)")
    parser.add_argument("--shards", type=int, default=SHARDS_PER_THREAD, help="of each thread (default %(default)s)")
    parser.add_argument("--hot", type=float, action="append", help="share of commands on one key (default 0, 0.01, 0.1, 1)")
    options = parser.parse_args()
    hots = options.hot or [0.0, 0.01, 0.1, 1.0]
    print("millions of commands a second, and how many times one thread's")
    print("threads " + "".join(f"{f'{hot:.0%} on one key':>22}" for hot in hots))
    alone = 1e9 / (options.held + options.beside + options.asking)
    for threads in (1, 2, 4, 8, 16, 32, 64):
        rates = [simulate(threads, hot, options) for hot in hots]
        print(f"{threads:7} " + "".join(f"{rate / 1e6:12.1f} {rate / alone:8.1f}x" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
