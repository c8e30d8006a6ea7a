#!/usr/bin/env python3
"""CPU time per command of a cluster, by the way that pipelines reach the keys' owners.

    bench/forwarding.py --program target/release/penstock [--nutcracker /usr/sbin/nutcracker]

Three nodes with a third of the slots each run on one core, with one thread each, and the load generator runs on another. The ways:

- `cluster client`: each pipeline has keys of one node, and goes to that node.
- `one node`: each pipeline has keys of all nodes, and goes to one node with `cluster-forward yes`. `strict` likewise.
- `nutcracker`: three servers without cluster mode behind one nutcracker.

The CPU time of all servers and of the proxy counts, including the kernel's. The ways take turns within a round. The script prints the medians,
and each way's commands per CPU second in percent of the cluster client's. Needs Linux, taskset and redis-cli.
"""

import argparse
import binascii
import os
import pathlib
import random
import socket
import statistics
import subprocess
import tempfile
import time

import servers

NODES = 3
SLOTS = 16384
KEYS = 30_000
VALUE = b"v" * 16


def encode(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def owner(key):
    return binascii.crc_hqx(key, 0) % SLOTS * NODES // SLOTS


def ask(port, *words):
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as replies:
        connection.sendall(encode(*(word.encode() for word in words)))
        return replies.readline()


class Load:
    """Connections that send pipelines of GET and SET in turn. A pipeline is encoded once, and its replies have known sizes."""

    def __init__(self, ports, connections, depth, keys_of):
        self.depth = depth
        self.connections = [socket.create_connection(("127.0.0.1", ports[i % len(ports)])) for i in range(connections)]
        self.pipelines = [self.pipeline(keys_of(i % len(ports))) for i in range(connections)]

    def pipeline(self, keys):
        chosen = [random.choice(keys) for _ in range(self.depth)]
        requests = [encode(b"SET", key, VALUE) if at % 2 else encode(b"GET", key) for at, key in enumerate(chosen)]
        reply = sum(5 if at % 2 else len(b"$16\r\n\r\n") + len(VALUE) for at in range(self.depth))
        return b"".join(requests), reply

    def run(self, rounds):
        """Sends each connection's pipeline so many times. Returns the number of commands."""
        for _ in range(rounds):
            for connection, (requests, _) in zip(self.connections, self.pipelines):
                connection.sendall(requests)
            for connection, (_, size) in zip(self.connections, self.pipelines):
                while size > 0:
                    part = connection.recv(min(size, 1 << 20))
                    if not part:
                        raise SystemExit("a server has closed the connection")
                    size -= len(part)
        return rounds * len(self.connections) * self.depth


class Way:
    def __init__(self, name, processes, load):
        self.name, self.processes, self.load, self.figures = name, processes, load, []

    def measure(self, rounds):
        before = sum(map(servers.cpu_ns, self.processes))
        commands = self.load.run(rounds)
        self.figures.append((sum(map(servers.cpu_ns, self.processes)) - before) / commands)


def start_servers(args, port, directory, more):
    processes = []
    for at in range(NODES):
        node = pathlib.Path(directory, str(port + at))
        node.mkdir()
        command = f"{args.program} server --port {{port}} --threads 1 --dir {node} --save '' {more}"
        processes.append(servers.start("penstock", command, port + at, args.server_core))
    return processes


def start_cluster(args, port, directory):
    processes = start_servers(args, port, directory, "--cluster-enabled yes")
    addresses = [f"127.0.0.1:{port + at}" for at in range(NODES)]
    subprocess.run(["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"], check=True, stdout=subprocess.DEVNULL)
    while any(b"CLUSTERDOWN" in ask(port + at, "GET", "x") for at in range(NODES)):
        time.sleep(0.1)
    return processes


def start_nutcracker(args, port, directory):
    processes = start_servers(args, port + 1, directory, "")
    lines = ["all:", f"  listen: 127.0.0.1:{port}", "  redis: true", "  hash: fnv1a_64", "  distribution: ketama", "  servers:"]
    lines += [f"   - 127.0.0.1:{port + 1 + at}:1" for at in range(NODES)]
    config = pathlib.Path(directory, "nutcracker.yml")
    config.write_text("\n".join(lines) + "\n")
    command = f"{args.nutcracker} -c {config} -s {port + 9} -m 16384"
    return [*processes, servers.start("nutcracker", command, port, args.server_core)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--nutcracker")
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--connections", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pipelines", type=int, default=150, help="pipelines of each connection in a round")
    parser.add_argument("--port", type=int, default=7600)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", type=int, default=1)
    args = parser.parse_args()
    args.program = os.path.abspath(args.program)
    os.sched_setaffinity(0, {args.load_core})
    keys = [b"key:%d" % number for number in range(KEYS)]
    by_owner = [[key for key in keys if owner(key) == node] for node in range(NODES)]
    processes = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            ports = [args.port + at for at in range(NODES)]
            nodes = start_cluster(args, args.port, directory)
            processes += nodes
            ask(args.port, "CONFIG", "SET", "cluster-forward", "yes")
            fill(args.port, keys)
            ways = [
                Way("cluster client", nodes, Load(ports, args.connections, args.depth, lambda node: by_owner[node])),
                Way("one node", nodes, Load(ports[:1], args.connections, args.depth, lambda _: keys)),
            ]
            if args.nutcracker:
                behind = start_nutcracker(args, args.port + 100, directory)
                processes += behind
                fill(args.port + 100, keys)
                ways.append(Way("nutcracker", behind, Load([args.port + 100], args.connections, args.depth, lambda _: keys)))
            for _ in range(args.rounds):
                for way in ways:
                    way.measure(args.pipelines)
        finally:
            for process in processes:
                process.kill()
    report(ways)


def fill(port, keys):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            connection.sendall(b"".join(encode(b"SET", key, VALUE) for key in part))
            replies = b""
            while len(replies) < 5 * len(part):
                replies += connection.recv(1 << 20)
                if b"-" in replies:
                    raise SystemExit(f"a server refuses SET: {replies[:200]!r}")


def report(ways):
    best = statistics.median(ways[0].figures)
    print(f"{'way':16}{'ns a command':>14}{'spread':>16}{'commands per CPU':>18}")
    for way in ways:
        ns = statistics.median(way.figures)
        spread = f"{min(way.figures):.0f} to {max(way.figures):.0f}"
        print(f"{way.name:16}{ns:>14.0f}{spread:>16}{best / ns:>17.0%}")


if __name__ == "__main__":
    main()
