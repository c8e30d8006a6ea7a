#!/usr/bin/env python3
"""Memory of keys beyond their bytes, of several servers.

    bench/memory.py \\
        --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

Every row has a server of its own. It measures resident memory and used_memory before and after the server is filled through one
connection in pipelines of a thousand commands. "Beyond" is the growth less the bytes of names, fields and values, per element. The
last column is the difference between the growths of resident memory and of used_memory, in percent.

--curve prints these figures for strings at every half million keys instead: a doubling table takes least just before it doubles.
--sizes fills collections of every type with 5 to 3,000 elements instead, and strings of 10 bytes to 20 kB. It prints the bytes of
resident memory for an element, and the last server's divided by each other server's. A geometric mean of these ratios ends the output.
`--row TEXT` measures the rows with TEXT in their names. Parts of pages that are not yet in use count as well, up to a megabyte in all. With
`--scale 4` that matters less.
--churn overwrites, deletes and expires the written keys, and then prints used_memory.

Needs Linux (/proc/PID/smaps_rollup, taskset).
"""

import argparse
import concurrent.futures
import math
import os
import random
import socket
import sys
import time

import servers

DEPTH = 1000
# After so many seconds memory that isn't needed has been given back, by those servers that do that.
SETTLE_S = 6


class Server:
    """A newly started server."""

    def __init__(self, name, command, port, core):
        self.name = name
        self.process = servers.start(name, command, port, core)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(120)
        self.replies = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def call(self, line):
        """Returns an inline command's reply, of any type but an array."""
        self.socket.sendall(line.encode() + b"\r\n")
        reply = self.replies.readline()
        if reply[:1] == b"$":
            return self.replies.read(int(reply[1:]) + 2)[:-2].decode()
        if reply[:1] == b"-":
            sys.exit(f"{self.name} refuses {line}: {reply.decode().strip()}")
        return reply[1:].strip().decode()

    def send(self, commands):
        """Sends requests with one-line replies in pipelines."""
        pipeline = []
        for command in commands:
            pipeline.append(command)
            if len(pipeline) == DEPTH:
                self._send(pipeline)
                pipeline = []
        self._send(pipeline)

    def _send(self, pipeline):
        self.socket.sendall(b"".join(pipeline))
        for _ in pipeline:
            reply = self.replies.readline()
            if reply[:1] == b"$":
                self.replies.read(int(reply[1:]) + 2)
            elif reply[:1] not in (b"+", b":"):
                sys.exit(f"{self.name} answers {reply!r}")

    def used(self):
        """Returns the server's used_memory."""
        fields = dict(line.split(":", 1) for line in self.call("INFO memory").splitlines() if ":" in line)
        return int(fields["used_memory"])

    def resident(self):
        """Returns the private bytes of the process."""
        with open(f"/proc/{self.process.pid}/smaps_rollup", encoding="ascii") as rollup:
            return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith(("Private_", "Anonymous:"))
                       and not line.startswith("Anonymous:"))

    def memory(self):
        """Returns resident bytes and used_memory, once both are stable."""
        # Memory prepared for a growing heap is returned within two seconds after the growth.
        time.sleep(2)
        last = None
        for _ in range(20):
            time.sleep(0.3)
            now = (self.resident(), self.used())
            if last and abs(now[0] - last[0]) < 64 * 1024:
                return now
            last = now
        return last


def request(*words):
    """A request in the protocol's form."""
    parts = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def strings(first, last):
    """Keys of 14 bytes with values of 16."""
    for i in range(first, last):
        yield b"*3\r\n$3\r\nSET\r\n$14\r\nkey:%010d\r\n$16\r\nvalue:%010d\r\n" % (i, i)


def small_hashes(count):
    """Hashes of five fields, a key each."""
    for i in range(count):
        fields = [word for f in range(5) for word in (b"field%d" % f, b"val%07d" % (i + f))]
        yield request("HSET", b"hash:%07d" % i, *fields)


def one_key(command, element):
    """Elements of one collection."""
    return lambda count: (request(command, "one", *element(i)) for i in range(count))


# Name, requests of so many elements, bytes of an element's names, fields and values.
ROWS = [
    ("five million strings", 5_000_000, lambda count: strings(0, count), 30),
    ("a million small hashes", 1_000_000, small_hashes, 12 + 5 * (6 + 10)),
    ("one sorted set", 1_000_000, one_key("ZADD", lambda i: (b"%d" % (i * 7), b"member:%07d" % i)), 14 + 8),
    ("one set", 1_000_000, one_key("SADD", lambda i: (b"member:%07d" % i,)), 14),
    ("one hash", 1_000_000, one_key("HSET", lambda i: (b"member:%07d" % i, b"val%07d" % i)), 14 + 10),
    ("one list", 1_000_000, one_key("RPUSH", lambda i: (b"member:%07d" % i,)), 14),
]


def print_row(row, server, count, beyond, before, after):
    """One line of the table: `before` and `after` are of `memory`."""
    resident, used = after[0] - before[0], after[1] - before[1]
    print(f"{row:24} {server.name:10} {count:10} {resident / count - beyond:10.1f} {used / count - beyond:10.1f} "
          f"{100 * (resident - used) / resident:8.1f}", flush=True)


def header():
    print(f"{'what':24} {'server':10} {'elements':>10} {'resident':>10} {'used':>10} {'hidden %':>8}")


def rows(options, start):
    header()
    for name, count, fill, beyond in ROWS:
        count = max(1, int(count * options.scale))
        for spec in options.server:
            with start(spec) as server:
                before = server.memory()
                server.send(fill(count))
                print_row(name, server, count, beyond, before, server.memory())


def curve(options, start):
    header()
    for spec in options.server:
        with start(spec) as server:
            before, step = server.memory(), int(500_000 * options.scale)
            for last in range(step, int(10_000_000 * options.scale) + 1, step):
                server.send(strings(last - step, last))
                print_row("strings", server, last, 30, before, server.memory())


def of_size(command, element, size):
    """Makes requests that each fill a new key with `size` elements."""
    words = [word for i in range(size) for word in element(i)]
    return lambda count: (request(command, b"key:%08d" % i, *words) for i in range(count))


def stream_of(size):
    """Makes requests that fill streams with `size` entries, one at a time."""
    return lambda count: (request("XADD", b"key:%08d" % (i // size), "*", "field", "value:%07d" % i) for i in range(count * size))


# Elements of collections on both sides of the conversions of their forms, and the least number of elements of a row.
SIZES, ELEMENTS = (5, 100, 600, 3000), 300_000
# Name and element of each type of collection.
TYPES = {
    "hash": ("HSET", lambda i: (b"field:%06d" % i, b"value:%06d" % i)),
    "list": ("RPUSH", lambda i: (b"element:%06d" % i,)),
    "set": ("SADD", lambda i: (b"member:%06d" % i,)),
    "set of integers": ("SADD", lambda i: (b"%d" % (i * 7),)),
    "sorted set": ("ZADD", lambda i: (b"%d" % (i * 3), b"member:%06d" % i)),
    "sorted set of fractions": ("ZADD", lambda i: (b"%.4f" % (i * 7919 % 10_007 / 17), b"member:%06d" % i)),
    "HyperLogLog": ("PFADD", lambda i: (b"member:%06d" % i,)),
}


def size_rows():
    """Name, function that makes requests, number of keys and elements of a key, for each row of --sizes."""
    for length in (10, 60, 1000, 20_000):
        yield f"string of {length:,} bytes", of_size("SET", lambda i, length=length: (b"v" * length,), 1), max(100_000_000 // (length + 50), 1) // 4, 1
    for name, (command, element) in TYPES.items():
        for size in SIZES:
            yield f"{name} of {size:,}", of_size(command, element, size), ELEMENTS // size, size
    for size in SIZES:
        yield f"stream of {size:,}", stream_of(size), ELEMENTS // size, size


def sizes(options, start):
    ratios = {}
    for name, fill, keys, size in size_rows():
        if options.row and not any(text in name for text in options.row):
            continue
        keys = max(1, int(keys * options.scale))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            # The servers of a row wait side by side until their memory is stable.
            running = list(pool.map(start, options.server))
            before = list(pool.map(Server.memory, running))
            for server in running:
                server.send(fill(keys))
            after = list(pool.map(Server.memory, running))
        taken = [(now[0] - then[0]) / keys / size for then, now in zip(before, after)]
        for server, bytes_taken in zip(running[:-1], taken):
            ratios.setdefault(server.name, []).append(taken[-1] / bytes_taken)
        for server in running:
            server.__exit__()
        figures = ", ".join(f"{server.name} {bytes_taken:,.1f}" for server, bytes_taken in zip(running, taken))
        print(f"{name:32} {figures}; " + ", ".join(f"{each[-1]:.2f} of {other}" for other, each in ratios.items()), flush=True)
    for other, each in ratios.items():
        print(f"geometric mean {math.exp(sum(map(math.log, each)) / len(each)):.2f} of {other}, at most {max(each):.2f}")


def churn(options, start):
    count = int(3_000_000 * options.scale)
    print(f"{'what':34} {'server':10} {'resident MB':>11} {'used MB':>9} {'hidden %':>8}")

    def look(what, server, before):
        now = server.memory()
        resident, used = now[0] - before[0], now[1] - before[1]
        print(f"{what:34} {server.name:10} {resident / 1e6:11.1f} {used / 1e6:9.1f} "
              f"{100 * (resident - used) / max(resident, 1):8.1f}", flush=True)

    def look_twice(what, server, before):
        look(what, server, before)
        time.sleep(SETTLE_S)
        look(f"  {SETTLE_S} s later", server, before)

    for spec in options.server:
        with start(spec) as server:
            before, choice = server.memory(), random.Random(1)
            server.send(strings(0, count))
            look("filled", server, before)
            server.send(request("SET", b"key:%010d" % choice.randrange(count), b"x" * choice.randrange(8, 200))
                        for _ in range(count))
            look_twice("overwritten with other lengths", server, before)
            server.send(request("DEL", b"key:%010d" % i) for i in range(count) if i % 2)
            look_twice("every other key deleted", server, before)
            server.send(request("SET", b"new:%010d" % i, b"y" * 60) for i in range(count // 2))
            look("others written in their place", server, before)
            server.send(request("DEL", b"key:%010d" % i) for i in range(count))
            server.send(request("DEL", b"new:%010d" % i) for i in range(count // 2))
            look("all deleted", server, before)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--port", type=int, default=27650, help="the first port that servers are given")
    parser.add_argument("--core", default="0", help="the servers' core")
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers of elements")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--churn", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--row", action="append", help="with --sizes: only rows with this in their names")
    options = parser.parse_args()

    def start(spec):
        name, command = spec.split("=", 1)
        # A port each: that of a server that has just been killed may still be in use.
        options.port += 1
        server = Server(name, os.path.expanduser(command), options.port, options.core)
        # Memory prepared at the start and not needed is returned first.
        time.sleep(SETTLE_S)
        return server

    (curve if options.curve else churn if options.churn else sizes if options.sizes else rows)(options, start)


if __name__ == "__main__":
    main()
