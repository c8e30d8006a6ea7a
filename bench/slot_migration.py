#!/usr/bin/env python3
"""A move of whole slots under load: its time, memory, hold of writes, and the latency of the other slots.

    bench/slot_migration.py --server penstock='target/release/penstock server' --server valkey=valkey-server
    bench/slot_migration.py --server ... --slots 1000 --keys 5000000 --rate 200000 --rounds 3

Each `--server` is one program for all nodes; the servers take turns within a round. A round starts two nodes, of which the first has all slots,
and fills the moving slots with keys. Writers send pipelines of SET to the moving slots at a fixed rate and follow MOVED. A probe sends single
commands to slots that stay. The round then makes

1. a full synchronization of a replica, which is removed afterwards,
2. the move, with CLUSTER MIGRATESLOTS at the source,

both under the same load, with some seconds of the load alone before each (`--before`). It prints a line:

- `sync`, `move`: seconds until the replica is linked, and until the source says `success`,
- `hold`: milliseconds for which the servers' logs or GETSLOTMIGRATIONS say that writes were held (Penstock only),
- `stall`: the longest pipeline of a writer during the move, in milliseconds: the hold as clients see it, with the redirection,
- `p99`: the probe's 99th percentile before the move, during the synchronization and during the move, and its longest command in the move, in
  milliseconds; `rt_p99` is that of a second probe with real-time priority, which never waits for a core itself, as if it had its own machine
  (as root; otherwise like the first),
- `memory`: the source's greatest resident memory during the move, forked children's own pages included, in percent of that before and in MB
  more, and the percentage for the load alone before the move and for the synchronization,
- `writes`: thousands of writes a second before the move, during the synchronization and during the move,
- `lost`: acknowledged writes that are missing. The exit status is 1 if there is one.

Needs Linux. The load runs in this process's children, on the same cores as the servers: compare servers, not machines.
"""

import argparse
import binascii
import contextlib
import itertools
import multiprocessing
import os
import pathlib
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SLOTS = 16384
DEPTH = 200
HOT_KEYS = 20
FILLED_AT_ONCE = 1000
PROBE_EVERY_S = 0.002
# The place of the value's number in a pipeline.
NUMBER = b"########"
# The numbers of the probes. Writers have numbers from 0 on.
PROBE, RT_PROBE = -1, -2


def encode(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def slot(key):
    return binascii.crc_hqx(key, 0) % SLOTS


def tags(first, count):
    """A tag for each slot from `first` on."""
    found = {}
    for number in itertools.count():
        tag = b"%d" % number
        if first <= slot(tag) < first + count:
            found.setdefault(slot(tag), tag)
            if len(found) == count:
                return [found[slot] for slot in sorted(found)]


class Conn:
    """A connection that reads whole replies."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.replies = self.socket.makefile("rb")

    def read(self):
        line = self.replies.readline()
        if not line:
            raise ConnectionError("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return self.replies.read(int(rest) + 2)[:-2] if rest != b"-1" else None
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        return int(rest) if kind == b":" else line[:-2]

    def find_bad(self, count):
        """Reads so many replies to SET. Returns the first that is an error."""
        good = b"+OK\r\n" * count
        text = self.replies.read(len(b"+OK\r\n"))
        if text == b"+OK\r\n":
            # A pipeline is redirected as a whole.
            text += self.replies.read(len(good) - len(text))
        if text == good:
            return None
        lines = (text + b"".join(self.replies.readline() for _ in range(count - text.count(b"\n")))).split(b"\r\n")
        return next(line for line in lines if line != b"+OK")

    def ask(self, *words):
        self.socket.sendall(encode(*(word if isinstance(word, bytes) else str(word).encode() for word in words)))
        return self.read()


class Node:
    """A running node of a cluster."""

    def __init__(self, command, port, directory):
        directory.mkdir()
        argv = [*shlex.split(command), "--port", str(port), "--cluster-enabled", "yes", "--save", "", "--dir", str(directory)]
        self.port = port
        self.process = subprocess.Popen(argv, stdout=(directory / "log").open("w"), stderr=subprocess.STDOUT)
        self.wait(lambda: self.ask("PING") == b"+PONG")
        self.id = self.ask("CLUSTER", "MYID").decode()

    def ask(self, *words):
        try:
            return Conn(self.port).ask(*words)
        except OSError as error:
            return str(error).encode()

    def info(self, name):
        lines = self.ask("INFO", "everything").decode().split("\r\n")
        return next((line.split(":", 1)[1] for line in lines if line.startswith(name + ":")), "")

    def wait(self, condition, limit_s=600):
        deadline = time.monotonic() + limit_s
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the node on port {self.port} does not get ready")
            time.sleep(0.02)

    def is_ok(self, nodes):
        return b"cluster_state:ok" in self.ask("CLUSTER", "INFO") and self.ask("CLUSTER", "NODES").count(b" connected") == nodes

    def end(self):
        self.process.kill()
        self.process.wait()


def status_kb(path, name):
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def memory_kb(pid):
    """The resident memory of a process, and the pages that its children alone have."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    own = sum(status_kb(f"/proc/{child}/smaps_rollup", "Private_Dirty") for child in children)
    return status_kb(f"/proc/{pid}/status", "VmRSS") + own


class Peak:
    """The greatest memory of a process since the object was made, in percent of the memory at that moment."""

    def __init__(self, pid):
        self.pid, self.before = pid, memory_kb(pid)
        self.greatest = self.before

    def look(self):
        self.greatest = max(self.greatest, memory_kb(self.pid))
        return True

    def percent(self):
        return 100 * self.greatest / self.before


class Span:
    """A part of the round: its times and the memory of the source."""

    def __init__(self, node):
        self.peak, self.begin = Peak(node.process.pid), time.monotonic()

    def end_at(self, condition):
        """Waits for a condition."""
        while self.peak.look() and not condition():
            time.sleep(0.05)
        self.end = time.monotonic()
        return self

    def took(self):
        return self.end - self.begin


def write(port, keys, rate, number, times, stop):
    """Writes pipelines at a rate, each to one slot. Notes the begin and the time of each, and the last acknowledged value of each key."""
    conns, owners, at, began = {}, {}, 0, time.monotonic()
    values = [0] * len(keys)
    # Made once: the load must leave the cores to the servers.
    templates = [b"".join(encode(b"SET", key, b"%b-%d" % (NUMBER, number)) for key in some) for some in keys]
    noted = []
    while not stop.is_set():
        here = at % len(keys)
        value = values[here] + 1
        blob = templates[here].replace(NUMBER, b"%08d" % value)
        before = time.monotonic()
        while True:
            to = owners.get(here, port)
            conn = conns.get(to) or conns.setdefault(to, Conn(to))
            conn.socket.sendall(blob)
            bad = conn.find_bad(len(keys[here]))
            if bad is None:
                break
            if not bad.startswith(b"-MOVED"):
                sys.exit(f"a writer got {bad}")
            owners[here] = int(bad.rsplit(b":", 1)[1])
        values[here] = value
        noted.append((before, time.monotonic() - before))
        at += 1
        pause = began + at * DEPTH / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
    times.put((number, noted, values))


def probe(port, key, number, times, stop):
    """Sends single commands at a slow pace, and notes the begin and the time of each."""
    if number == RT_PROBE:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    conn, noted = Conn(port), []
    while not stop.is_set():
        before = time.monotonic()
        for words in (("SET", key, "x"), ("GET", key)):
            begun = time.monotonic()
            conn.ask(*words)
            noted.append((begun, time.monotonic() - begun))
        time.sleep(max(0, before + PROBE_EVERY_S - time.monotonic()))
    times.put((number, noted, []))


class Load:
    """The writers and the probe."""

    def __init__(self, port, keys, args):
        self.keys = keys
        self.times, self.stop = multiprocessing.Queue(), multiprocessing.Event()
        share = args.rate / args.writers
        self.children = [
            multiprocessing.Process(target=write, args=(port, keys[n], share, n, self.times, self.stop)) for n in range(args.writers)
        ]
        for number in (PROBE, RT_PROBE):
            key = "{%s}probe%d" % (args.probe.decode(), number)
            self.children.append(multiprocessing.Process(target=probe, args=(port, key, number, self.times, self.stop)))
        for child in self.children:
            child.start()

    def end(self):
        self.stop.set()
        self.results = {number: (noted, values) for number, noted, values in (self.times.get() for _ in self.children)}
        for child in self.children:
            child.join()

    def took_ms(self, span, probe=None):
        """The sorted times of a probe's commands, or of the writers' pipelines, in a part of the round."""
        noted = (pair for number, (pairs, _) in self.results.items() if (number >= 0 if probe is None else number == probe) for pair in pairs)
        return sorted(took * 1000 for begun, took in noted if begun < span.end and begun + took > span.begin) or [0]

    def p99_ms(self, span, probe=PROBE):
        times = self.took_ms(span, probe)
        return times[int(len(times) * 0.99)]

    def writes_k(self, span):
        return len(self.took_ms(span)) * DEPTH / 1000 / span.took()

    def lost(self, port):
        """Acknowledged values that the new owner lacks."""
        conn, lost = Conn(port), 0
        for number, (_, values) in self.results.items():
            for keys, value in zip(self.keys.get(number, []), values):
                conn.socket.sendall(b"".join(encode(b"GET", key) for key in keys))
                found = [conn.read() for _ in keys]
                lost += sum(value > 0 and (text is None or int(text[:8]) < value) for text in found)
        return lost


def fill(port, moving, count, value):
    """Fills slots with keys, with one connection."""
    conn = Conn(port)
    for first in range(0, count, FILLED_AT_ONCE):
        numbers = range(first, min(count, first + FILLED_AT_ONCE))
        conn.socket.sendall(b"".join(encode(b"SET", b"{%b}%d" % (moving[n % len(moving)], n), value) for n in numbers))
        for _ in numbers:
            conn.read()


def job(node, name):
    jobs = node.ask("CLUSTER", "GETSLOTMIGRATIONS")
    if not isinstance(jobs, list) or not jobs:
        return b""
    fields = dict(zip(jobs[0][::2], jobs[0][1::2]))
    return fields.get(name, b"")


def run(name, command, args, directory):
    nodes = [Node(command, args.port + at, directory / f"{name}-{at}") for at in range(2)]
    try:
        return measure(name, nodes, command, args, directory)
    finally:
        for node in nodes:
            node.end()


def full_sync(source, command, args, directory):
    """A full synchronization."""
    replica = Node(command, args.port + 2, directory / "replica")
    try:
        replica.ask("CLUSTER", "MEET", "127.0.0.1", source.port)
        replica.wait(lambda: replica.is_ok(3))
        span = Span(source)
        replica.wait(lambda: replica.ask("CLUSTER", "REPLICATE", source.id) == b"+OK")
        return span.end_at(lambda: replica.info("master_link_status") == "up")
    finally:
        replica.end()
        shutil.rmtree(directory / "replica")


def calm(source, args):
    """The load alone."""
    span = Span(source)
    return span.end_at(lambda: time.monotonic() >= span.begin + args.before)


def move(source, target, args):
    """The move. None if it fails."""
    span = Span(source)
    answer = source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", args.first, args.first + args.slots - 1, "NODE", target.id)
    if answer != b"+OK":
        sys.exit(f"{source.port}: {answer}")
    states = [b"success", b"failed"]
    span.end_at(lambda: job(source, b"state") in states or time.monotonic() > span.begin + args.limit)
    return span if job(source, b"state") == b"success" else None


def measure(name, nodes, command, args, directory):
    source, target = nodes
    source.ask("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
    target.ask("CLUSTER", "MEET", "127.0.0.1", source.port)
    for node in nodes:
        node.wait(lambda node=node: node.is_ok(2))
    moving = tags(args.first, args.slots)
    fill(source.port, moving, args.keys, b"v" * args.value)
    # A pipeline has keys of one slot, so that a redirection concerns all of it.
    hot = {n: [[b"{%b}hot:%d" % (tag, i % HOT_KEYS) for i in range(DEPTH)] for tag in moving[n :: args.writers]] for n in range(args.writers)}
    load = Load(source.port, hot, args)
    time.sleep(args.before)
    sync = full_sync(source, command, args, directory) if args.full_sync else None
    alone, moved = calm(source, args), move(source, target, args)
    time.sleep(1)
    load.end()
    if moved is None:
        print(f"{name}: the move failed: {job(source, b'message')} {job(target, b'message')}", flush=True)
        return None
    nan = float("nan")
    return {
        "sync_s": sync.took() if sync else nan,
        "move_s": moved.took(),
        "hold_ms": float(job(source, b"hold_ms") or "nan"),
        "target_ms": float(job(target, b"hold_ms") or "nan"),
        "stall_ms": load.took_ms(moved)[-1],
        "p99_before_ms": load.p99_ms(alone),
        "p99_sync_ms": load.p99_ms(sync) if sync else nan,
        "p99_ms": load.p99_ms(moved),
        "rt_p99_before_ms": load.p99_ms(alone, RT_PROBE),
        "rt_p99_sync_ms": load.p99_ms(sync, RT_PROBE) if sync else nan,
        "rt_p99_ms": load.p99_ms(moved, RT_PROBE),
        "longest_ms": load.took_ms(moved, PROBE)[-1],
        "memory_before_%": alone.peak.percent(),
        "memory_sync_%": sync.peak.percent() if sync else nan,
        "memory_%": moved.peak.percent(),
        "memory_mb": (moved.peak.greatest - moved.peak.before) / 1024,
        "writes_before_k": load.writes_k(alone),
        "writes_sync_k": load.writes_k(sync) if sync else nan,
        "writes_k": load.writes_k(moved),
        "lost": load.lost(target.port),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND of a node, without port")
    parser.add_argument("--slots", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=32, help="bytes of a value")
    parser.add_argument("--rate", type=int, default=200_000, help="writes a second")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", type=float, default=3, help="seconds of load before the synchronization and the move")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a move has failed")
    parser.add_argument("--full-sync", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--first", type=int, default=4000, help="the first of the moving slots")
    parser.add_argument("--port", type=int, default=7940)
    args = parser.parse_args()
    args.probe = tags(args.first + args.slots, 1)[0]
    servers = [server.split("=", 1) for server in args.server]
    figures = {name: [] for name, _ in servers}
    for round_number in range(args.rounds):
        for name, command in servers:
            with tempfile.TemporaryDirectory() as directory:
                found = run(name, command, args, pathlib.Path(directory))
            if found:
                figures[name].append(found)
                print(f"round {round_number + 1}, {name}: " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()), flush=True)
    for name, rounds in figures.items():
        if rounds:
            medians = {key: statistics.median(found[key] for found in rounds) for key in rounds[0]}
            print(f"median, {name}: " + ", ".join(f"{key} {value:.4g}" for key, value in medians.items()))
    sys.exit(any(found["lost"] for rounds in figures.values() for found in rounds))


if __name__ == "__main__":
    main()
