#!/usr/bin/env python3
"""CPU time of a server for each member, field, element or key that a command visits, in collections of a hundred thousand.

    bench/walks.py --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

Each server has one core; they take turns within a round, and begin in turn. Medians of the rounds, in nanoseconds, and the
first server's divided by each.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and two cores.
"""

import random
import statistics

import servers
from items import arguments, named, start_all
from memory import request

MEMBERS, FILLED_AT_ONCE = 100_000, 1000
#: A command's arguments, and the number of members that it visits.
COMMANDS = [
    (["HGETALL", "hash"], MEMBERS),
    (["HKEYS", "hash"], MEMBERS),
    (["HSCAN", "hash", "0", "COUNT", "10000"], 10_000),
    (["SMEMBERS", "set"], MEMBERS),
    (["SINTER", "set", "other"], MEMBERS),
    (["SINTERSTORE", "result", "set", "other"], MEMBERS),
    (["SDIFF", "set", "other"], MEMBERS),
    (["SUNION", "set", "other"], 2 * MEMBERS),
    (["SUNIONSTORE", "result", "set", "other"], 2 * MEMBERS),
    (["COPY", "set", "result", "REPLACE"], MEMBERS),
    (["ZRANGE", "zset", "0", "-1", "WITHSCORES"], MEMBERS),
    (["ZUNIONSTORE", "result", "2", "zset", "zother"], 2 * MEMBERS),
    (["ZINTERCARD", "2", "zset", "zother"], MEMBERS),
    (["LRANGE", "list", "0", "-1"], MEMBERS),
    (["SORT", "list", "ALPHA"], MEMBERS),
    (["KEYS", "*"], MEMBERS),
    (["SCAN", "0", "COUNT", "10000"], 10_000),
]


def fill(client):
    """Members and keys in no order; each second collection has half of the first's members."""
    draw = random.Random(1)
    numbers = draw.sample(range(MEMBERS), MEMBERS)
    for start in range(0, MEMBERS, FILLED_AT_ONCE):
        part = numbers[start : start + FILLED_AT_ONCE]
        members, others = [named(number) for number in part], [named(number + MEMBERS // 2) for number in part]
        scored = [[word for member in all for word in (str(draw.randrange(1000)), member)] for all in (members, others)]
        client.ask([
            request("HSET", "hash", *(word for member in members for word in (member, "value:0123456789"))),
            request("SADD", "set", *members), request("SADD", "other", *others),
            request("ZADD", "zset", *scored[0]), request("ZADD", "zother", *scored[1]),
            request("RPUSH", "list", *members), request("MSET", *(word for member in members for word in (member, "value"))),
        ])


def main():
    options = arguments(__doc__)
    under_test = start_all(options, fill)
    figures = {}
    for number in range(options.rounds):
        turn = number % len(under_test)
        for words, visited in COMMANDS:
            for name, process, client in under_test[turn:] + under_test[:turn]:
                before = servers.cpu_ns(process)
                client.ask([request(*words)])
                figures.setdefault((words[0], name), []).append((servers.cpu_ns(process) - before) / visited)
    for (kind, *_), _ in COMMANDS:
        medians = {name: statistics.median(figures[kind, name]) for name, _, _ in under_test}
        first = medians[under_test[0][0]]
        print(f"{kind:12}" + "".join(f"  {name} {median:6.1f} ({first / median:.2f})" for name, median in medians.items()))
    for _, process, _ in under_test:
        process.kill()


if __name__ == "__main__":
    main()
