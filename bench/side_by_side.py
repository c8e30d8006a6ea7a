#!/usr/bin/env python3
"""Server CPU time per command, of several servers in turn, by pipeline depth.

    bench/side_by_side.py --benchmark valkey-benchmark \\
        --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

Every server runs on one core and the load generator on another. The script compares the CPU time of a server's threads per command,
including the kernel's. A generator on one core is slower than the servers, and throughput would measure the generator. The servers
take turns within a round: a drift of the machine's speed affects all of them. The script prints the median of the rounds. The last
column is the first server's time divided by this one's.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and redis-benchmark or valkey-benchmark.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

import servers

VALUE = "v" * 16
KEY = "key:__rand_int__"
COMMANDS = {
    "ping": ["PING"],
    "get": ["GET", KEY],
    "set": ["SET", KEY, VALUE],
    "incr": ["INCR", "counter:__rand_int__"],
    "hset": ["HSET", "hash:__rand_int__", "field", VALUE],
    "zadd": ["ZADD", "zset:__rand_int__", "1", "__rand_int__"],
    "lpush1": ["LPUSH", "list", VALUE],
    "sadd1": ["SADD", "set", "__rand_int__"],
    "hset1": ["HSET", "hash", "__rand_int__", VALUE],
    "zadd1": ["ZADD", "zset", "1", "__rand_int__"],
    "mset10": ["MSET"] + [word for i in range(10) for word in (f"m{i}:__rand_int__", VALUE)],
    "mget10": ["MGET"] + [KEY] * 10,
    "zrange100": ["ZRANGE", "zset", "0", "99"],
    "getbit": ["GETBIT", KEY, "7"],
    "setbit": ["SETBIT", "bits:__rand_int__", "77", "1"],
    "pfadd": ["PFADD", "hll:__rand_int__", "element"],
    "pfadd1": ["PFADD", "hll", "__rand_int__"],
    # After "hset": these set the expiry of its hashes.
    "hexpire": ["HEXPIRE", "hash:__rand_int__", "1000", "FIELDS", "1", "field"],
    "hgetex": ["HGETEX", "hash:__rand_int__", "EX", "1000", "FIELDS", "1", "field"],
}
# Requests per run, by depth: about a second's worth.
REQUESTS = {1: 60_000, 16: 600_000, 128: 1_500_000, 1000: 1_500_000}
HEAVY = {"mset10", "mget10", "zrange100"}


class Server:
    """A server under test, on a core and a port of its own."""

    def __init__(self, name, command, port, core):
        self.name, self.port = name, port
        self.process = servers.start(name, command, port, core)

    def cpu_ns(self):
        """CPU time of all threads so far."""
        return servers.cpu_ns(self.process)

    def fill(self, keys):
        """Gives every key that GET and MGET read a value."""
        with socket.create_connection(("127.0.0.1", self.port)) as stream:
            replies = stream.makefile("rb")
            for first in range(0, keys, 10_000):
                last = min(first + 10_000, keys)
                stream.sendall(b"".join(b"SET key:%012d %s\r\n" % (k, VALUE.encode()) for k in range(first, last)))
                for _ in range(first, last):
                    if replies.readline() != b"+OK\r\n":
                        sys.exit(f"{self.name} refuses SET")


def set_value_bytes(count):
    """Sets the size of the values of SET, HSET, LPUSH and MSET, which GET and MGET read."""
    global VALUE
    value = "v" * count
    for words in COMMANDS.values():
        words[:] = [value if word == VALUE else word for word in words]
    VALUE = value


def start_all(specs, options, first_port):
    """Starts and fills the servers of a command line's NAME=COMMANDs, all on the same core."""
    started = []
    try:
        for i, spec in enumerate(specs):
            name, command = spec.split("=", 1)
            started.append(Server(name, os.path.expanduser(command), first_port + i, options.server_core))
            started[-1].fill(options.keys)
    except BaseException:
        stop_all(started)
        raise
    return started


def stop_all(running):
    """Ends servers."""
    for server in running:
        server.process.terminate()


def medians_of(running, rounds, measure):
    """Returns the medians of `measure`'s figures over all rounds, by the server's name. The servers take turns."""
    rows = {server.name: [] for server in running}
    for _ in range(rounds):
        for server in running:
            rows[server.name].append(measure(server))
    return {name: [statistics.median(column) for column in zip(*row)] for name, row in rows.items()}


def requests_of(test, depth):
    """Returns the number of requests of a run."""
    return REQUESTS.get(depth, 500_000) // (8 if test in HEAVY else 1)


def run(server, options, test, depth):
    """One run: nanoseconds of server CPU per command, and thousands of commands a second."""
    requests = requests_of(test, depth)
    argv = ["taskset", "-c", options.client_core, options.benchmark, "-p", str(server.port), "-q", "-c",
            str(options.clients), "-n", str(requests), "-P", str(depth), "-r", str(options.keys), *COMMANDS[test]]
    cpu, began = server.cpu_ns(), time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{server.name}: {done.stderr or done.stdout}")
    return (server.cpu_ns() - cpu) / requests, requests / (time.monotonic() - began) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--benchmark", default="redis-benchmark")
    parser.add_argument("--tests", default=",".join(COMMANDS))
    parser.add_argument("--depths", default="1,16,128,1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=len(VALUE))
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--client-core", default="1")
    options = parser.parse_args()
    options.benchmark = os.path.expanduser(options.benchmark)
    set_value_bytes(options.value_bytes)

    running = start_all(options.server, options, 27600)
    try:
        print(f"{'test':10} {'depth':>5} {'server':10} {'ns/command':>10} {'thousand/s':>10} {running[0].name + '/this':>12}")
        for test in options.tests.split(","):
            for depth in map(int, options.depths.split(",")):
                medians = medians_of(running, options.rounds, lambda server: run(server, options, test, depth))
                for name, (ns, rate) in medians.items():
                    ratio = medians[running[0].name][0] / ns
                    print(f"{test:10} {depth:5} {name:10} {ns:10.0f} {rate:10.0f} {ratio:12.2f}", flush=True)
    finally:
        stop_all(running)


if __name__ == "__main__":
    main()
