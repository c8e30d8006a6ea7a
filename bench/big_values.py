#!/usr/bin/env python3
"""GETs and SETs of large values: server CPU time and throughput, of several servers in turn.

    bench/big_values.py \\
        --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

One thread serves all connections. It sends as many requests to each as the depth says, and reads their replies into one buffer without
parsing them. It has a core of its own, about as busy as the server's: the kernel copies every byte twice. Values are written to eight
keys in turn. The servers take turns within a round, and the script prints the median of the rounds. The last two
columns are the first server's CPU time divided by this one's, and this one's throughput by the first's. --precedence gives
servers and client precedence over everything else on the machine (chrt, as root).

Needs Linux (/proc/PID/task/*/schedstat, taskset).
"""

import argparse
import os
import selectors
import socket
import statistics
import time

import memory
import servers

KEYS = 8
SIZES = {"100k": 100_000, "1m": 1_000_000, "10m": 10_000_000}


class Server(memory.Server):
    """A server with its CPU time."""

    def __init__(self, name, command, port, core):
        super().__init__(name, command, port, core)
        self.port = port

    def cpu_ns(self):
        """CPU time of all threads so far."""
        return servers.cpu_ns(self.process)


class Connection:
    """A connection that sends pipelines and reads their replies."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.unsent, self.unread = [], 0

    def write(self):
        """Sends as much as the socket takes."""
        while self.unsent:
            try:
                sent = self.socket.sendmsg(self.unsent[:16])
            except BlockingIOError:
                return
            while self.unsent and sent >= len(self.unsent[0]):
                sent -= len(self.unsent.pop(0))
            if sent:
                self.unsent[0] = self.unsent[0][sent:]

    def read(self, buffer):
        """Reads the received bytes."""
        while self.unread:
            try:
                got = self.socket.recv_into(buffer)
            except BlockingIOError:
                return
            if not got:
                raise SystemExit("a server has closed the connection")
            self.unread -= got


def pipelines(test, size, depth):
    """Returns the requests of one pipeline, and the size of its replies."""
    value = memoryview(b"x" * size)
    requests, replies = [], 0
    for i in range(depth):
        key = b"big:%d" % (i % KEYS)
        if test == "get":
            requests.append(memoryview(memory.request("GET", key)))
            replies += len(b"$%d\r\n" % size) + size + 2
        else:
            requests += [memoryview(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(key), key, size)), value, memoryview(b"\r\n")]
            replies += len(b"+OK\r\n")
    return requests, replies


def run(server, test, size, depth, count, total):
    """One run: nanoseconds of server CPU per command, and commands a second."""
    connections = [Connection(server.port) for _ in range(count)]
    requests, replies = pipelines(test, size, depth)
    buffer = bytearray(1 << 20)
    selector = selectors.DefaultSelector()
    rounds = max(1, total // (depth * count))
    left = {connection: rounds for connection in connections}
    cpu, began = server.cpu_ns(), time.monotonic()

    def begin(connection):
        left[connection] -= 1
        connection.unsent, connection.unread = list(requests), replies
        connection.write()

    def watch(connection, change):
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        change(connection.socket, events, connection)

    for connection in connections:
        begin(connection)
        watch(connection, selector.register)
    busy = count
    while busy:
        for key, _ in selector.select(30):
            connection = key.data
            connection.write()
            connection.read(buffer)
            if not connection.unread and not connection.unsent:
                if left[connection]:
                    begin(connection)
                else:
                    selector.unregister(connection.socket)
                    busy -= 1
                    continue
            watch(connection, selector.modify)
    done = rounds * depth * count
    result = (server.cpu_ns() - cpu) / done, done / (time.monotonic() - began)
    for connection in connections:
        connection.socket.close()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--port", type=int, default=27800, help="the first port that servers are given")
    parser.add_argument("--tests", default="get,set")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--depths", default="1,16")
    parser.add_argument("--connections", default="1,10")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1500, help="of values in a run")
    parser.add_argument("--precedence", action="store_true", help="before everything else on the machine; needs root")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--client-core", default="1")
    options = parser.parse_args()
    os.sched_setaffinity(0, {int(options.client_core)})
    numbers = lambda text: [int(word) for word in text.split(",")]

    running, precedence = [], "chrt -r 1 " if options.precedence else ""
    if options.precedence:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        for spec in options.server:
            name, command = spec.split("=", 1)
            options.port += 1
            running.append(Server(name, precedence + os.path.expanduser(command), options.port, options.server_core))
        first = running[0].name
        print(f"{'test':5} {'size':>5} {'depth':>5} {'conns':>5} {'server':10} {'us/command':>10} {'commands/s':>10} "
              f"{first + ' cpu/this':>16} {'this/' + first + ' rate':>18}")
        for size in options.sizes.split(","):
            for server in running:
                run(server, "set", SIZES[size], KEYS, 1, KEYS)
            for test in options.tests.split(","):
                for depth in numbers(options.depths):
                    for count in numbers(options.connections):
                        total = max(depth * count, options.megabytes * 1_000_000 // SIZES[size])
                        rows = {server.name: [] for server in running}
                        for _ in range(options.rounds):
                            for server in running:
                                rows[server.name].append(run(server, test, SIZES[size], depth, count, total))
                        medians = {name: [statistics.median(c) for c in zip(*row)] for name, row in rows.items()}
                        for name, (ns, rate) in medians.items():
                            print(f"{test:5} {size:>5} {depth:5} {count:5} {name:10} {ns / 1000:10.1f} {rate:10.0f} "
                                  f"{medians[first][0] / ns:16.2f} {rate / medians[first][1]:18.2f}", flush=True)
    finally:
        for server in running:
            server.process.kill()


if __name__ == "__main__":
    main()
