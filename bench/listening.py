#!/usr/bin/env python3
"""The cost of connections that wait for keys, watch or cache them, for commands on other keys: server CPU a command, with and without
these connections.

    bench/listening.py [--server target/release/penstock] [--benchmark valkey-benchmark] [--listeners 1000] [--rounds 7]

Two servers of the same build take turns. One has no other connections. The other has --listeners connections in BLPOP, as many that WATCH
a key, and as many that have read one with CLIENT TRACKING, all on keys that are never changed. The script prints the median of the
rounds' quotients for each command. The target is at most 1.03. The command line's other options are those of bench/side_by_side.py.
"""

import argparse
import os
import socket
import statistics
import sys

import side_by_side

TESTS = ["set", "incr", "lpush1", "hset"]


def listen(port, count):
    """Connections that wait, watch or cache: `count` of each."""
    connections = []
    for i in range(count):
        for words, reply in (
            (b"BLPOP waited:%d 0\r\nPING\r\n" % i, None),
            (b"WATCH watched:%d\r\n" % i, b"+OK\r\n"),
            (b"CLIENT TRACKING ON\r\nGET cached:%d\r\n" % i, b"+OK\r\n$-1\r\n"),
        ):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(words)
            if reply is not None and connection.recv(len(reply), socket.MSG_WAITALL) != reply:
                sys.exit(f"{words} is refused")
            connections.append(connection)
    return connections


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="target/release/penstock")
    parser.add_argument("--benchmark", default="valkey-benchmark")
    parser.add_argument("--listeners", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--client-core", default="1")
    options = parser.parse_args()
    options.benchmark = os.path.expanduser(options.benchmark)
    command = options.server + " server --port {port} --save '' --threads 1"
    running = side_by_side.start_all([f"alone={command}", f"listened={command}"], options, 17400)
    try:
        listening = listen(running[1].port, options.listeners)
        for test in TESTS:
            quotients, times = [], []
            for _ in range(options.rounds):
                alone, listened = (side_by_side.run(server, options, test, options.depth)[0] for server in running)
                quotients.append(listened / alone)
                times.append(alone)
            print(f"{test:8} alone {statistics.median(times):7.1f} ns, beside {len(listening)} listeners "
                  f"{statistics.median(quotients):.3f} times that", flush=True)
    finally:
        side_by_side.stop_all(running)


if __name__ == "__main__":
    main()
