#!/usr/bin/env python3
"""The cost of threads that share the keys: CPU time per command with two threads and with one.

    bench/threads.py --server 'target/release/penstock --port {port} --save "" --threads {threads}'

One generator and one serving thread take turns on each of two cores. The serving thread on a generator's core serves all of its
connections. `two threads` is one server with two threads, and both generators use the same keys. `two servers` are servers with one
thread each on the same two cores, and share nothing. The two arms differ only in the shared keys and their locks: the load of the
machine and the number of requests at a time are equal. `ratio` is the CPU time of the first divided by the CPU time of the second. The
arms take turns within a round, and the script prints medians of all rounds.

A generator sends each of its connections a prepared batch of commands, with keys drawn evenly from --keys for each command, and reads
all replies. With --keys 1 all connections use one key, and `rate` is the important figure. With --busy 1 only one generator sends
requests, and the other core's thread is idle.

Needs Linux (/proc/PID/task/*/schedstat, taskset), two cores, and a server whose serving threads are named worker-0 and
worker-1 and get the connections in turn.
"""

import argparse
import multiprocessing
import os
import pathlib
import random
import socket
import statistics
import subprocess
import time

import servers
from memory import request

CORES = ["0", "1"]
#: How long a measurement may take at most, in seconds: a generator that has failed doesn't answer.
PATIENCE_S = 120
#: Bytes of each reply. INCR's differ: they are counted by their ends.
COMMANDS = {"get": (("GET",), b"$3\r\nxxx\r\n"), "set": (("SET", "xxx"), b"+OK\r\n"), "incr": (("INCR",), None)}


def batch(test, depth, keys, draw):
    (name, *rest), _ = COMMANDS[test]
    prefix = "counter" if test == "incr" else "key"
    return b"".join(request(name, f"{prefix}:{draw.randrange(keys):010d}", *rest) for _ in range(depth))


def read_replies(connection, count, reply):
    left = count * (len(reply) if reply else 1)
    while left > 0:
        read = connection.recv(1 << 18)
        if not read:
            raise SystemExit("the server closed a connection")
        left -= len(read) if reply else read.count(b"\n")


def generate(core, port, turns, orders, done):
    """Opens a connection at each turn, then runs its orders."""
    os.sched_setaffinity(0, {int(core)})
    connections, draw = [], random.Random(core)
    while True:
        order = orders.get()
        if order is None:
            return
        if order == "connect":
            connections.append(socket.create_connection(("127.0.0.1", port)))
            connections[-1].sendall(b"PING\r\n")
            connections[-1].recv(100)
            done.put(None)
            continue
        test, depth, commands, keys = order
        count = commands // depth // len(connections) * len(connections)
        batches = iter([batch(test, depth, keys, draw) for _ in range(count)])
        reply = COMMANDS[test][1]
        turns.wait()
        began = time.perf_counter()
        for _ in range(count // len(connections)):
            for connection in connections:
                connection.sendall(next(batches))
            for connection in connections:
                read_replies(connection, depth, reply)
        done.put(time.perf_counter() - began)


def workers(process):
    """The threads that serve, by name."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
    named = {(task / "comm").read_text().strip(): task.name for task in tasks}
    return {name: task for name, task in named.items() if name.startswith("worker-")}


def cpu_of(process, task):
    return int(pathlib.Path(f"/proc/{process.pid}/task/{task}/schedstat").read_text().split()[0])


class Arm:
    """Servers and their generators, each with its connections."""

    def __init__(self, command, port, threads, options):
        ports = [port] if threads == 2 else [port, port + 1]
        cores = [",".join(CORES)] if threads == 2 else CORES
        self.servers = [servers.start("server", command.replace("{threads}", str(threads)), port, core)
                        for port, core in zip(ports, cores)]
        turns, self.done = multiprocessing.Barrier(options.busy), multiprocessing.Queue()
        self.orders = [multiprocessing.Queue() for _ in CORES]
        for core, orders, port in zip(CORES, self.orders, ports * 2):
            arguments = (core, port, turns, orders, self.done)
            multiprocessing.Process(target=generate, args=arguments, daemon=True).start()
        for port in ports:
            fill(port, options.keys)
        # In turn, so that each generator has its connections with one thread.
        for _ in range(options.connections):
            for orders in self.orders:
                orders.put("connect")
                self.done.get(timeout=PATIENCE_S)
        self.busy = self.orders[:options.busy]
        if threads == 2:
            self.pin(options)

    def pin(self, options):
        """Finds the thread that serves the first generator, and binds every thread to its core."""
        server = self.servers[0]
        threads = list(workers(server).values())
        before = [cpu_of(server, task) for task in threads]
        for orders, turns in zip(self.busy, [100, 0]):
            orders.put(("get", 16, 16 * options.connections * turns, options.keys))
        for _ in self.busy:
            self.done.get(timeout=PATIENCE_S)
        grown = [cpu_of(server, task) - then for task, then in zip(threads, before)]
        first = max(range(2), key=grown.__getitem__)
        for core, task in zip(CORES, [threads[first], threads[1 - first]]):
            subprocess.run(["taskset", "-cp", core, task], check=True, stdout=subprocess.DEVNULL)

    def run(self, test, depth, options):
        """Nanoseconds of CPU a command, and thousands of commands a second."""
        cpu = sum(map(servers.cpu_ns, self.servers))
        for orders in self.busy:
            orders.put((test, depth, options.commands, options.keys))
        took = [self.done.get(timeout=PATIENCE_S) for _ in self.busy]
        per_turn = depth * options.connections
        commands = len(self.busy) * (options.commands // per_turn * per_turn)
        return (sum(map(servers.cpu_ns, self.servers)) - cpu) / commands, commands / max(took) / 1e3

    def stop(self):
        for orders in self.orders:
            orders.put(None)
        for server in self.servers:
            server.kill()


def fill(port, keys):
    """Writes all keys of the commands. No table grows during the measurement then."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for prefix, value in ("key", "xxx"), ("counter", "0"):
            for first in range(0, keys, 1000):
                several = range(first, min(first + 1000, keys))
                connection.sendall(b"".join(request("SET", f"{prefix}:{number:010d}", value) for number in several))
                read_replies(connection, len(several), COMMANDS["set"][1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, metavar="COMMAND")
    parser.add_argument("--tests", default="get,set,incr")
    parser.add_argument("--depths", default="16,128")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=25, help="of each generator")
    parser.add_argument("--commands", type=int, default=400_000, help="of each generator and measurement")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--busy", type=int, choices=(1, 2), default=2, help="generators that have something to send")
    parser.add_argument("--port", type=int, default=23300)
    options = parser.parse_args()
    arms = {
        "servers": Arm(options.server, options.port, 1, options),
        "threads": Arm(options.server, options.port + 2, 2, options),
    }
    figures = {}
    for _ in range(options.rounds):
        for test in options.tests.split(","):
            for depth in map(int, options.depths.split(",")):
                for name, arm in arms.items():
                    figures.setdefault((test, depth), {}).setdefault(name, []).append(arm.run(test, depth, options))
    print("test    depth   two servers           two threads           ratio   rate")
    for (test, depth), of in figures.items():
        cpu, rate = ({name: statistics.median(run[at] for run in runs) for name, runs in of.items()} for at in (0, 1))
        print(
            f"{test:6}{depth:6}   {cpu['servers']:5.0f} ns {rate['servers']:6.0f} k/s"
            f"   {cpu['threads']:5.0f} ns {rate['threads']:6.0f} k/s"
            f"   {cpu['threads'] / cpu['servers']:.2f}    {rate['threads'] / rate['servers']:.2f}"
        )
    for arm in arms.values():
        arm.stop()


if __name__ == "__main__":
    main()
