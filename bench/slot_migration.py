#!/usr/bin/env python3
"""A move of whole slots under load: its time, memory, hold of writes, and the latency of the other slots.

    bench/slot_migration.py --server penstock='target/release/penstock server' --server valkey=valkey-server
    bench/slot_migration.py --server ... --slots 1000 --keys 5000000 --rate 200000 --rounds 3

Each `--server` is one program for all nodes; the servers take turns within a round. A round starts two nodes, of which the first has all slots,
and fills the moving slots with keys. Writers send pipelines of SET to the moving slots at a fixed rate and follow MOVED. A probe sends single
commands to slots that stay. The round then makes

1. a full synchronization of a replica, which is removed afterwards,
2. the move, with CLUSTER MIGRATESLOTS at the source,

both under the same load. It prints a line:

- `sync`, `move`: seconds until the replica is linked, and until the source says `success`,
- `hold`: milliseconds for which the servers' logs or GETSLOTMIGRATIONS say that writes were held (Penstock only),
- `stall`: the longest pipeline of a writer during the move, in milliseconds: the hold as clients see it, with the redirection,
- `p99`: the probe's 99th percentile before and during the move, and its longest command, in milliseconds,
- `memory`: the source's greatest resident memory during the move, forked children's own pages included, in percent of that before,
- `writes`: thousands of writes a second before and during the move,
- `lost`: acknowledged writes that are missing. The exit status is 1 if there is one.

Needs Linux. The load runs in this process's children, on the same cores as the servers: compare servers, not machines.
"""

import argparse
import binascii
import itertools
import multiprocessing
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


def write(port, keys, rate, number, times, stop):
    """Writes pipelines at a rate, each to one slot. Notes the begin and the time of each, and the last acknowledged value of each key."""
    conns, owners, at, began = {}, {}, 0, time.monotonic()
    values = [0] * len(keys)
    noted = []
    while not stop.is_set():
        here = at % len(keys)
        value = values[here] + 1
        blob = b"".join(encode(b"SET", key, b"%08d-%d" % (value, number)) for key in keys[here])
        before = time.monotonic()
        while True:
            to = owners.get(here, port)
            conn = conns.get(to) or conns.setdefault(to, Conn(to))
            conn.socket.sendall(blob)
            replies = [conn.read() for _ in keys[here]]
            bad = next((reply for reply in replies if reply != b"+OK"), None)
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


def probe(port, key, times, stop):
    """Sends single commands at a slow pace, and notes the begin and the time of each."""
    conn, noted = Conn(port), []
    while not stop.is_set():
        before = time.monotonic()
        for words in (("SET", key, "x"), ("GET", key)):
            begun = time.monotonic()
            conn.ask(*words)
            noted.append((begun, time.monotonic() - begun))
        time.sleep(max(0, before + PROBE_EVERY_S - time.monotonic()))
    times.put((-1, noted, []))


class Load:
    """The writers and the probe."""

    def __init__(self, port, keys, args):
        self.keys = keys
        self.times, self.stop = multiprocessing.Queue(), multiprocessing.Event()
        share = args.rate / args.writers
        self.children = [
            multiprocessing.Process(target=write, args=(port, keys[n], share, n, self.times, self.stop)) for n in range(args.writers)
        ]
        self.children.append(multiprocessing.Process(target=probe, args=(port, "{%s}probe" % args.probe.decode(), self.times, self.stop)))
        for child in self.children:
            child.start()

    def end(self):
        self.stop.set()
        self.results = {number: (noted, values) for number, noted, values in (self.times.get() for _ in self.children)}
        for child in self.children:
            child.join()

    def took_ms(self, is_probe, begin, end):
        noted = (pair for number, (pairs, _) in self.results.items() if (number < 0) == is_probe for pair in pairs)
        return sorted(took * 1000 for begun, took in noted if begun < end and begun + took > begin) or [0]

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
    """The seconds of a full synchronization."""
    replica = Node(command, args.port + 2, directory / "replica")
    try:
        replica.ask("CLUSTER", "MEET", "127.0.0.1", source.port)
        replica.wait(lambda: replica.is_ok(3))
        begin = time.monotonic()
        replica.wait(lambda: replica.ask("CLUSTER", "REPLICATE", source.id) == b"+OK")
        replica.wait(lambda: replica.info("master_link_status") == "up")
        return time.monotonic() - begin
    finally:
        replica.end()
        shutil.rmtree(directory / "replica")


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
    sync = full_sync(source, command, args, directory) if args.full_sync else float("nan")
    time.sleep(args.before)
    before, begin = memory_kb(source.process.pid), time.monotonic()
    answer = source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", args.first, args.first + args.slots - 1, "NODE", target.id)
    if answer != b"+OK":
        sys.exit(f"{name}: {answer}")
    peak, state = before, b""
    while state not in (b"success", b"failed"):
        peak = max(peak, memory_kb(source.process.pid))
        time.sleep(0.05)
        state = job(source, b"state")
        if time.monotonic() > begin + args.limit:
            state = b"failed"
    end = time.monotonic()
    time.sleep(1)
    load.end()
    if state != b"success":
        print(f"{name}: the move failed: {job(source, b'message')} {job(target, b'message')}", flush=True)
        return None
    probes, calm = load.took_ms(True, begin, end), load.took_ms(True, begin - args.before, begin)
    p99 = [times[int(len(times) * 0.99)] for times in (calm, probes)]
    writes = [len(load.took_ms(False, a, b)) * DEPTH / 1000 / (b - a) for a, b in ((begin - args.before, begin), (begin, end))]
    return {
        "sync_s": sync,
        "move_s": end - begin,
        "hold_ms": float(job(source, b"hold_ms") or "nan"),
        "target_ms": float(job(target, b"hold_ms") or "nan"),
        "stall_ms": load.took_ms(False, begin, end)[-1],
        "p99_before_ms": p99[0],
        "p99_ms": p99[1],
        "longest_ms": probes[-1],
        "memory_%": 100 * peak / before,
        "writes_before_k": writes[0],
        "writes_k": writes[1],
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
