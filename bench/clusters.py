#!/usr/bin/env python3
"""Clusters side by side: the time of a failover, and the cost of the bus.

    bench/clusters.py --peer valkey=valkey-server failover --rounds 20
    bench/clusters.py --peer valkey=valkey-server bus --nodes 3 --nodes 9

`failover`: three primaries with a replica each and `cluster-node-timeout 1000`. Each round kills a primary (SIGKILL) and measures the time
until its replica accepts a write to one of its slots. The killed node comes back as a replica before the next round. The clusters take turns,
so that a drift of the machine's speed affects all of them.

`bus`: primaries that divide the slots, without clients. CPU time, messages and bytes on the bus, for each node and second. All clusters of one
size run at the same time. Bytes come from `ss -ti`, and CPU time from the threads' schedstat. Needs Linux.
"""

import argparse
import contextlib
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time

from disk_servers import Program
from memory import request

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLOTS = 16384
#: Distance between a port and the port of its bus.
BUS = 1000
#: Longest wait for a condition.
WAIT_MAX_S = 120
#: A pause after which no node remembers an earlier failover: elections of one cluster have a least distance of twice the node timeout.
REST_S = 4


def crc16(data):
    """The checksum of slots: CRC16/XMODEM."""
    value = 0
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = (value << 1 ^ (0x1021 if value & 0x8000 else 0)) & 0xFFFF
    return value


def key_between(first, last):
    """A key in one of these slots."""
    return next(key for key in (f"key:{n}" for n in range(SLOTS * 10)) if first <= crc16(key.encode()) % SLOTS <= last)


def wait_until(holds, text):
    """Waits for a condition."""
    deadline = time.monotonic() + WAIT_MAX_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(text)
        time.sleep(0.05)


class Node:
    """A node of a cluster."""

    def __init__(self, program, port, directory, timeout_ms):
        self.program, self.port, self.process = program, port, None
        self.directory = pathlib.Path(directory) / str(port)
        self.directory.mkdir()
        self.timeout_ms = timeout_ms
        self.start()

    def start(self):
        """Starts the process, and waits until it answers."""
        directives = {"port": self.port, "bind": "127.0.0.1", "save": "", "cluster-enabled": "yes", "cluster-port": self.port + BUS,
                      "cluster-node-timeout": self.timeout_ms, "repl-diskless-sync-delay": 0}
        words = [word for name, value in directives.items() for word in (f"--{name}", str(value))]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen([*self.program.arguments(), *words], cwd=self.directory, stdout=log, stderr=log)
        wait_until(lambda: self.says("PING") == "PONG", f"{self.program.name} starts on port {self.port}")

    def says(self, *words):
        """The reply of a command as text, or None without a connection."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(request(*words))
                with connection.makefile("rb") as replies:
                    line = replies.readline().strip()
                    return (replies.read(int(line[1:])) if line[:1] == b"$" else line[1:]).decode()
        except (OSError, ValueError):
            return None

    def lines(self):
        """The lines of CLUSTER NODES."""
        return (self.says("CLUSTER", "NODES") or "").splitlines()

    def info(self, name):
        """A field of CLUSTER INFO."""
        found = re.search(rf"^{name}:(.*?)\r?$", self.says("CLUSTER", "INFO") or "", re.M)
        return found.group(1) if found else ""

    def is_settled(self, count):
        """True if it serves, and sees so many nodes without a failure."""
        lines = self.lines()
        return self.info("cluster_state") == "ok" and len(lines) == count and not any(
            "fail" in line or "handshake" in line or "disconnected" in line for line in lines)

    def cpu_ns(self):
        """CPU time of all threads so far."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def kill(self):
        """Ends the process at once."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Cluster:
    """Primaries that divide the slots, each with the same number of replicas."""

    def __init__(self, program, port, directory, primaries, replicas, timeout_ms):
        self.program, self.primaries = program, primaries
        count = primaries * (1 + replicas)
        self.nodes = [Node(program, port + at, directory, timeout_ms) for at in range(count)]
        for at, node in enumerate(self.nodes[:primaries]):
            first, last = self.slots(at)
            node.says("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
            node.says("CLUSTER", "SET-CONFIG-EPOCH", str(at + 1))
        for node in self.nodes[1:]:
            node.says("CLUSTER", "MEET", "127.0.0.1", str(self.nodes[0].port), str(self.nodes[0].port + BUS))
        self.settle()
        for at, node in enumerate(self.nodes[primaries:]):
            node.says("CLUSTER", "REPLICATE", self.nodes[at % primaries].says("CLUSTER", "MYID"))
        self.settle()

    def slots(self, at):
        """The first and the last slot of a primary."""
        return at * SLOTS // self.primaries, (at + 1) * SLOTS // self.primaries - 1

    def settle(self):
        """Waits until all nodes see all others, and replicas are connected."""
        count = len(self.nodes)
        wait_until(lambda: all(node.is_settled(count) for node in self.nodes), f"the cluster of {self.program.name} settles")
        def is_up(node):
            info = node.says("INFO", "replication") or ""
            return "role:master" in info or "master_link_status:up" in info
        wait_until(lambda: all(map(is_up, self.nodes)), f"the replicas of {self.program.name} are connected")

    def failover_ms(self, shard):
        """Kills the primary of a shard, and returns the time until the replica accepts writes."""
        members = self.nodes[shard], self.nodes[shard + self.primaries]
        primary, replica = sorted(members, key=lambda node: "role:master" not in node.says("INFO", "replication"))
        write = request("SET", key_between(*self.slots(shard)), "1")
        with socket.create_connection(("127.0.0.1", replica.port), 30) as connection, connection.makefile("rb") as replies:
            # Not waited for: on a busy machine, a process takes a while to disappear.
            begin = time.monotonic()
            primary.process.send_signal(signal.SIGKILL)
            while True:
                connection.sendall(write)
                if replies.readline().startswith(b"+OK"):
                    break
                time.sleep(0.001)
            took_ms = (time.monotonic() - begin) * 1000
        primary.process.wait()
        primary.start()
        self.settle()
        time.sleep(REST_S)
        return took_ms

    def counts(self):
        """CPU time, messages and bytes on the bus so far, of all nodes."""
        messages = sum(int(node.info("cluster_stats_messages_sent") or 0) for node in self.nodes)
        said = subprocess.run(["ss", "-tinH", "state", "established"], capture_output=True, text=True, check=True).stdout
        ports = {str(node.port + BUS) for node in self.nodes}
        sent = 0
        for ends, figures in zip(*[iter(said.splitlines())] * 2, strict=False):
            if ports & {end.rsplit(":", 1)[-1] for end in ends.split()[2:4]}:
                sent += int((re.search(r"bytes_sent:(\d+)", figures) or [0, 0])[1])
        return sum(node.cpu_ns() for node in self.nodes), messages, sent

    def stop(self):
        """Ends all processes."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill()


@contextlib.contextmanager
def clusters(options, primaries, replicas, timeout_ms):
    """Clusters of all programs."""
    running = []
    with tempfile.TemporaryDirectory(prefix="penstock-clusters-") as directory:
        try:
            for at, program in enumerate(options.programs):
                running.append(Cluster(program, options.port + 100 * at, directory, primaries, replicas, timeout_ms))
            yield running
        finally:
            for cluster in running:
                cluster.stop()


def failover(options):
    """Prints the times of failovers."""
    with clusters(options, 3, 1, 1000) as running:
        taken = {cluster.program.name: [] for cluster in running}
        for number in range(options.rounds):
            for cluster in running:
                taken[cluster.program.name].append(cluster.failover_ms(number % 3))
            print(f"round {number + 1}:", "  ".join(f"{name} {times[-1]:.0f} ms" for name, times in taken.items()), flush=True)
    for name, times in taken.items():
        print(f"{name:10} {len(times)} failovers: median {statistics.median(times):.0f} ms, least {min(times):.0f} ms, most {max(times):.0f} ms")


def bus(options):
    """Prints the cost of the bus."""
    for count in options.nodes or [3, 9]:
        with clusters(options, count, 0, options.timeout) as running:
            time.sleep(5)
            before = [(time.monotonic(), *cluster.counts()) for cluster in running]
            time.sleep(options.seconds)
            for cluster, earlier in zip(running, before, strict=True):
                later = time.monotonic(), *cluster.counts()
                seconds, cpu_ns, messages, sent = (late - early for early, late in zip(earlier, later, strict=True))
                each = count * seconds
                print(f"{cluster.program.name:10} {count:3} nodes: {messages / each:6.1f} messages, {sent / each / 1000:7.1f} kB,"
                      f" {cpu_ns / each / 1e6:6.2f} ms of CPU for each node and second", flush=True)


def named_program(text):
    """NAME=PATH as a program."""
    name, path = text.split("=", 1)
    return Program(name, path)


def main():
    """Runs a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=str(ROOT / "target/release/penstock"))
    parser.add_argument("--threads", type=int, help="serving threads of Penstock")
    parser.add_argument("--peer", action="append", default=[], type=named_program, help="NAME=PATH of another server")
    parser.add_argument("--port", type=int, default=28000, help="the first of 1200 ports")
    measurements = parser.add_subparsers(required=True)
    times = measurements.add_parser("failover")
    times.add_argument("--rounds", type=int, default=20)
    times.set_defaults(run=failover)
    cost = measurements.add_parser("bus")
    cost.add_argument("--nodes", action="append", type=int)
    cost.add_argument("--seconds", type=float, default=20)
    cost.add_argument("--timeout", type=int, default=15000, help="cluster-node-timeout")
    cost.set_defaults(run=bus)
    options = parser.parse_args()
    options.programs = [Program("penstock", options.penstock, options.threads), *options.peer]
    options.run(options)


if __name__ == "__main__":
    main()
