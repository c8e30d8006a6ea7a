#!/usr/bin/env python3
"""Faults in a cluster under load: searches for acknowledged writes that are lost, repeated or in another order.

    sudo bench/cluster_faults.py --minutes 30
    sudo bench/cluster_faults.py --peer valkey=valkey-server --minutes 30 --seed 7

Three primaries with a replica each, `cluster-node-timeout 1000`, and an append-only file. Each node has its own network namespace and its own
small file system. Every writer appends numbers to a list and counts in a key of the same slot, in pipelines. There are three kinds:

- `plain` writers take a reply as the acknowledgement,
- `wait` writers end each pipeline with `WAIT 1`, and count only confirmed pipelines as acknowledged,
- `token` writers (Penstock only) continue a broken pipeline with `PIPELINE RESUME`, also on the promoted node.

One fault is active at a time: a killed or stopped process, a cut network (both ways, one way, with or without the clients), a full disk, a disk
whose syncs hang, or CLUSTER FAILOVER. Between two faults the cluster settles. At the end each list is compared with its writer's notes:

- no number twice, ascending order, no refused number, and a counter equal to the length of the list, less the pipelines that broke off
  between a number and its count,
- `wait`: all confirmed numbers are present,
- `token`: all numbers are present, exactly once,
- `plain`: missing numbers are counted for each kind of fault, with the longest time between the fault's begin and a lost acknowledgement.

Needs root, `ip` (iproute2) and a C compiler. The exit status is 1 if a promise was broken.
"""

import argparse
import asyncio
import collections
import contextlib
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from clusters import SLOTS, crc16, named_program
from disk_servers import Program
from memory import request

ROOT = pathlib.Path(__file__).resolve().parent.parent
HANGING_DISK = ROOT / "crates/tests/src/hanging_disk.c"
NODES = 6
PRIMARIES = 3
PORT, BUS_PORT = 7000, 17000
NOWHERE = "02:00:00:00:00:77"
#: Size of each node's file system.
DISK_MB = 400
#: Longest wait for a reply, and for the cluster to settle.
REPLY_MAX_S, SETTLE_MAX_S = 3, 180
LOST = (OSError, EOFError, asyncio.TimeoutError, asyncio.IncompleteReadError)


def run(*words, check=True):
    """Runs a command of the system. The kernel may still be removing an earlier device of the same name."""
    for _ in range(50 if check else 1):
        done = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True)
        if done.returncode == 0 or not check:
            return
        time.sleep(0.1)
    sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


class Refused(str):
    """An error reply."""


async def read_reply(reader):
    """A reply of RESP2."""
    line = await reader.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError("the connection was closed")
    kind, rest = line[:1], line[1:-2].decode()
    if kind == b"-":
        return Refused(rest)
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == "-1" else (await reader.readexactly(int(rest) + 2))[:-2].decode()
    if kind == b"*":
        return None if rest == "-1" else [await read_reply(reader) for _ in range(int(rest))]
    return rest


class Connection:
    """A connection to a node."""

    def __init__(self, streams):
        self.reader, self.writer = streams

    @classmethod
    async def open(cls, host):
        """Connects within a second."""
        return cls(await asyncio.wait_for(asyncio.open_connection(host, PORT), 1))

    async def call(self, *commands):
        """Sends commands as one pipeline, and returns their replies."""
        self.writer.write(b"".join(request(*map(str, command)) for command in commands))
        async def replies():
            return [await read_reply(self.reader) for _ in commands]
        return await asyncio.wait_for(replies(), REPLY_MAX_S)

    def close(self):
        """Ends the connection."""
        self.writer.transport.abort()


async def ask(host, *command):
    """The reply of one command, or None without an answer."""
    connection = None
    try:
        connection = await Connection.open(host)
        return (await connection.call(command))[0]
    except LOST:
        return None
    finally:
        if connection:
            connection.close()


class Node:
    """A process in a network namespace."""

    def __init__(self, cluster, number):
        self.cluster, self.number, self.process = cluster, number, None
        self.host = f"10.{cluster.network}.0.{number + 1}"
        self.name = f"{cluster.bridge}n{number}"
        self.directory = cluster.directory / str(number)
        self.directory.mkdir()
        self.switch = cluster.directory / f"switch{number}"
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "penstock-faults", self.directory)
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", self.name, "master", cluster.bridge, "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.host}/24", "dev", "eth0")
        for device in "eth0", "lo":
            run("ip", "-n", self.name, "link", "set", device, "up")

    def start(self):
        """Starts the process."""
        directives = {"port": PORT, "bind": self.host, "save": "", "appendonly": "yes", "cluster-enabled": "yes", "cluster-port": BUS_PORT,
                      "cluster-node-timeout": 1000, "repl-diskless-sync-delay": 0, "protected-mode": "no", **self.cluster.directives}
        words = [word for name, value in directives.items() for word in (f"--{name}", str(value))]
        environment = {"LD_PRELOAD": str(self.cluster.disk), "HANGING_DISK_SWITCH": str(self.switch), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
        with (self.cluster.directory / f"log{self.number}").open("ab") as log:
            arguments = ["ip", "netns", "exec", self.name, *self.cluster.program.arguments(), *words]
            self.process = subprocess.Popen(arguments, cwd=self.directory, stdout=log, stderr=log, env=environment)

    def signal(self, number):
        """Sends a signal to the process."""
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def cut(self, other):
        """Drops all packets from this node to an address: its frames get a hardware address that nobody has."""
        run("ip", "-n", self.name, "neigh", "replace", other, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def mend(self, other):
        """Ends a cut."""
        run("ip", "-n", self.name, "neigh", "del", other, "dev", "eth0", check=False)

    def fill_disk(self):
        """Fills the node's file system."""
        with contextlib.suppress(OSError), (self.directory / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(1 << 20))

    def remove(self):
        """Ends the process, and removes the namespace."""
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGKILL)
        # A namespace may outlive its name, with its device.
        run("ip", "link", "del", self.name, check=False)
        run("ip", "netns", "del", self.name, check=False)
        run("umount", "-l", self.directory, check=False)


class Cluster:
    """Three primaries with a replica each."""

    def __init__(self, program, number, directory, directives):
        self.program, self.directives = program, directives
        self.network, self.bridge = 90 + number, f"pf{number}"
        self.directory = pathlib.Path(directory) / program.name
        self.directory.mkdir(parents=True)
        self.disk = self.directory / "hanging_disk.so"
        run("cc", "-shared", "-fPIC", "-O1", "-o", self.disk, HANGING_DISK)
        run("ip", "link", "add", self.bridge, "type", "bridge")
        self.client = f"10.{self.network}.0.254"
        run("ip", "addr", "add", f"{self.client}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        self.nodes = []
        #: Nodes that did not start with the files of a fault.
        self.unstartable = []

    async def create(self):
        """Starts the nodes and makes them a cluster."""
        for number in range(NODES):
            self.nodes.append(Node(self, number))
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            while await ask(node.host, "PING") != "PONG":
                await asyncio.sleep(0.1)
        for at, node in enumerate(self.nodes[:PRIMARIES]):
            bounds = at * SLOTS // PRIMARIES, (at + 1) * SLOTS // PRIMARIES - 1
            await ask(node.host, "CLUSTER", "ADDSLOTSRANGE", *bounds)
            await ask(node.host, "CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        for node in self.nodes[1:]:
            await ask(node.host, "CLUSTER", "MEET", self.nodes[0].host, PORT, BUS_PORT)
        await self.settle(False)
        for at, node in enumerate(self.nodes[PRIMARIES:]):
            await ask(node.host, "CLUSTER", "REPLICATE", await ask(self.nodes[at].host, "CLUSTER", "MYID"))
        await self.settle(True)

    async def is_settled(self, with_replicas):
        """True if all nodes see all others without a failure, and every primary has a replica with all of its data."""
        roles = []
        for node in self.nodes:
            text, info = await ask(node.host, "CLUSTER", "NODES"), await ask(node.host, "CLUSTER", "INFO")
            if not isinstance(text, str) or not isinstance(info, str) or "cluster_state:ok" not in info:
                return False
            lines = text.splitlines()
            if len(lines) != NODES or any(word in text for word in ("fail", "handshake", "disconnected")):
                return False
            replication = await ask(node.host, "INFO", "replication") or ""
            if "role:slave" in replication and "master_link_status:up" not in replication:
                return False
            roles.append((next(line for line in lines if "myself" in line).split()[3] != "-", replication))
        primaries = [info for is_replica, info in roles if not is_replica]
        return not with_replicas or len(primaries) == PRIMARIES and all("connected_slaves:1" in info for info in primaries)

    async def settle(self, with_replicas=True):
        """Waits until the cluster is whole. Returns the time in seconds."""
        began = time.monotonic()
        while not await self.is_settled(with_replicas):
            for node in self.nodes:
                if node.process.poll() is not None:
                    self.restart_without_file(node)
            if time.monotonic() - began > SETTLE_MAX_S:
                raise TimeoutError(f"the cluster of {self.program.name} does not settle")
            await asyncio.sleep(0.2)
        return time.monotonic() - began

    def restart_without_file(self, node):
        """Starts a node that has ended by itself, without its append-only file: it gets its primary's data."""
        self.unstartable.append(node.number)
        print(f"{self.program.name}: node {node.number} has ended by itself, and starts without its append-only file", flush=True)
        shutil.rmtree(node.directory / "appendonlydir", ignore_errors=True)
        node.start()

    async def shard(self, chooser):
        """A random primary and its replica."""
        roles = {node: await ask(node.host, "ROLE") for node in self.nodes}
        primary = chooser.choice([node for node, role in roles.items() if isinstance(role, list) and role[0] == "master"])
        replica = next(node for node, role in roles.items() if isinstance(role, list) and role[0] == "slave" and role[1] == primary.host)
        return primary, replica

    def remove(self):
        """Ends everything."""
        for node in self.nodes:
            node.remove()
        run("ip", "link", "del", self.bridge, check=False)


class Writer:
    """Appends numbers to a list and counts, in one slot."""

    def __init__(self, cluster, kind, number):
        self.cluster, self.kind = cluster, kind
        self.list, self.counter, self.token = (f"{{{kind}{number}}}{part}" for part in ("list", "counter", "token"))
        self.slot = crc16(f"{kind}{number}".encode()) % SLOTS
        self.next = 0
        #: The time of the acknowledgement of each number.
        self.acknowledged = {}
        self.refused = set()
        self.chooser = random.Random(f"{kind}{number}")
        self.host, self.connection, self.started = cluster.nodes[0].host, None, False
        self.longest_s, self.last = 0.0, time.monotonic()
        #: Pipelines that broke off.
        self.broken_off = 0

    async def connect(self):
        """Connects to the slot's owner."""
        self.connection = await Connection.open(self.host)
        if self.kind == "token":
            await self.resume()

    async def resume(self):
        """Takes the token up, and continues behind the last command that succeeded."""
        # A node without the slot has no token of it: only a redirection tells the owner.
        await self.expect("GET", self.counter)
        if not self.started:
            reply = (await self.connection.call(("PIPELINE", "START", self.token)))[0]
            # The token exists if an earlier reply was lost.
            if isinstance(reply, Refused) and not reply.startswith("BUSYTOKEN"):
                raise self.elsewhere(reply)
            self.started = True
            if not isinstance(reply, Refused):
                await self.expect("PIPELINE", "ABORT", "ON")
                return
        reply = await self.expect("PIPELINE", "RESUME", self.token)
        await self.expect("PIPELINE", "ABORT", "ON")
        await self.expect("PIPELINE", "SYNC")
        fields = dict(zip(reply[::2], reply[1::2], strict=True))
        self.next, counts_late = divmod(fields["executed"] - fields["failed"], 2)
        if counts_late:
            # The number is in the list, and is not counted yet.
            await self.expect("INCR", self.counter)
            self.next += 1

    async def expect(self, *command):
        """The reply of a command. An error ends the connection."""
        reply = (await self.connection.call(command))[0]
        if isinstance(reply, Refused):
            raise self.elsewhere(reply)
        return reply

    def elsewhere(self, error):
        """Notes the address in a redirection. Returns an error that ends the connection."""
        if error.startswith(("MOVED", "ASK")):
            self.host = error.split()[2].rsplit(":", 1)[0]
        else:
            self.host = self.chooser.choice(self.cluster.nodes).host
        return OSError(error)

    def batch(self):
        """The numbers of the next pipeline, and its commands."""
        numbers = range(self.next, self.next + self.chooser.choice((1, 3, 20, 60)))
        commands = [command for number in numbers for command in (("RPUSH", self.list, number), ("INCR", self.counter))]
        return numbers, commands + [("WAIT", 1, 500)] * (self.kind == "wait")

    def note(self, numbers, replies):
        """Notes the replies of a pipeline."""
        now = time.monotonic()
        confirmed = self.kind != "wait" or isinstance(replies[-1], int) and replies[-1] >= 1
        errors = [reply for reply in replies if isinstance(reply, Refused)]
        for number, reply in zip(numbers, replies[::2], strict=False):
            if isinstance(reply, Refused):
                self.refused.add(number)
            elif confirmed:
                self.acknowledged[number] = now
        if not errors:
            self.longest_s = max(self.longest_s, now - self.last)
            self.last = now
        else:
            raise self.elsewhere(errors[0])

    async def work(self, until):
        """Writes until the end."""
        while time.monotonic() < until:
            try:
                if self.connection is None:
                    await self.connect()
                numbers, commands = self.batch()
                # Without a token, a number whose fate is unknown is never sent again.
                self.next = numbers.stop
                self.note(numbers, await self.connection.call(*commands))
                await asyncio.sleep(self.chooser.uniform(0, 0.1))
            except LOST as error:
                self.broken_off += 1
                self.give_up(error)
                await asyncio.sleep(0.02)

    def give_up(self, error):
        """Closes the connection. A failed connection makes the writer ask another node."""
        if self.connection:
            self.connection.close()
        self.connection = None
        if not str(error).startswith(("MOVED", "ASK")):
            self.host = self.chooser.choice(self.cluster.nodes).host

    async def read(self):
        """The list and the counter at the end, from the owner."""
        for _ in range(200):
            try:
                connection = await Connection.open(self.host)
                values, counter = await connection.call(("LRANGE", self.list, 0, -1), ("GET", self.counter))
                connection.close()
                if isinstance(values, list):
                    return [int(value) for value in values], int(counter or 0)
                self.elsewhere(values)
            except LOST as error:
                self.give_up(error)
            await asyncio.sleep(0.05)
        raise TimeoutError(f"the owner of {self.list} does not answer")


# Faults: each takes a cluster, a primary, its replica and a duration in seconds.

async def killed(_, primary, __, seconds):
    """The primary is killed and starts again."""
    primary.signal(signal.SIGKILL)
    await asyncio.sleep(seconds)
    primary.start()


async def killed_replica(_, __, replica, seconds):
    """The replica is killed and starts again."""
    replica.signal(signal.SIGKILL)
    await asyncio.sleep(seconds)
    replica.start()


async def stopped(_, primary, __, seconds):
    """The primary stands still."""
    primary.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    primary.signal(signal.SIGCONT)


async def cut_pairs(pairs, seconds):
    """Cuts (node, address) for a while."""
    for node, address in pairs:
        node.cut(address)
    await asyncio.sleep(seconds)
    for node, address in pairs:
        node.mend(address)


def others(cluster, node):
    """The other nodes."""
    return [other for other in cluster.nodes if other is not node]


async def isolated(cluster, primary, _, seconds):
    """The primary reaches no node, but clients reach it."""
    pairs = [(primary, other.host) for other in others(cluster, primary)] + [(other, primary.host) for other in others(cluster, primary)]
    await cut_pairs(pairs, seconds)


async def isolated_from_all(cluster, primary, _, seconds):
    """The primary reaches no node and no client."""
    pairs = [(primary, other.host) for other in others(cluster, primary)] + [(other, primary.host) for other in others(cluster, primary)]
    await cut_pairs([*pairs, (primary, cluster.client)], seconds)


async def mute(cluster, primary, _, seconds):
    """Nothing from the primary reaches the other nodes."""
    await cut_pairs([(primary, other.host) for other in others(cluster, primary)], seconds)


async def deaf(cluster, primary, _, seconds):
    """Nothing from the other nodes reaches the primary."""
    await cut_pairs([(other, primary.host) for other in others(cluster, primary)], seconds)


async def pair_cut(_, primary, replica, seconds):
    """Primary and replica do not reach each other."""
    await cut_pairs([(primary, replica.host), (replica, primary.host)], seconds)


async def minority(cluster, primary, replica, seconds):
    """Primary and replica are cut off together, from the other nodes."""
    pairs = []
    for node in primary, replica:
        for other in cluster.nodes:
            if other not in (primary, replica):
                pairs += [(node, other.host), (other, node.host)]
    await cut_pairs(pairs, seconds)


async def full_disk(_, primary, __, seconds):
    """The primary's disk is full."""
    await asyncio.to_thread(primary.fill_disk)
    await asyncio.sleep(seconds)
    (primary.directory / "filler").unlink()


async def hanging_disk(_, primary, __, seconds):
    """Syncs of the primary do not return."""
    primary.switch.write_text("sync")
    await asyncio.sleep(seconds)
    primary.switch.unlink()


async def manual(_, __, replica, seconds):
    """The replica takes over by CLUSTER FAILOVER."""
    await ask(replica.host, "CLUSTER", "FAILOVER")
    await asyncio.sleep(seconds)


async def forced(_, __, replica, seconds):
    """The replica takes over without asking its primary."""
    await ask(replica.host, "CLUSTER", "FAILOVER", "FORCE")
    await asyncio.sleep(seconds)


FAULTS = [killed, killed, killed_replica, stopped, stopped, isolated, isolated_from_all, mute, deaf, pair_cut, minority, full_disk,
          hanging_disk, manual, forced]


async def inject(cluster, chooser, until, begun):
    """Injects faults until the end, and notes their begins."""
    while time.monotonic() < until:
        await asyncio.sleep(chooser.uniform(0.3, 1.5))
        primary, replica = await cluster.shard(chooser)
        fault, seconds = chooser.choice(FAULTS), chooser.uniform(0.2, 6)
        begun.append((time.monotonic(), fault.__name__))
        await fault(cluster, primary, replica, seconds)
        settled = await cluster.settle()
        print(f"{cluster.program.name}: fault {len(begun)}: {fault.__name__} of node {primary.number} for {seconds:.1f} s,"
              f" settled after {settled:.1f} s", flush=True)


def fault_at(begun, moment):
    """The fault that is responsible for a loss: its name, and the time from its begin to the lost acknowledgement."""
    for begin, name in begun:
        # The cluster is whole for at least 0.3 s before a fault.
        if begin > moment and begin - moment < 0.3:
            return name, moment - begin
    return max(((name, moment - begin) for begin, name in begun if begin <= moment), key=lambda entry: -entry[1], default=("none", 0))


def examine(writer, values, counter, begun, lost):
    """Compares a list with its writer's notes. Returns the broken promises."""
    broken = []
    present = set(values)
    if len(present) != len(values):
        broken.append(f"{len(values) - len(present)} numbers stand twice")
    if values != sorted(values):
        broken.append("the order differs from the order of sending")
    if not 0 <= len(values) - counter <= (0 if writer.kind == "token" else writer.broken_off):
        broken.append(f"the counter is {counter}, the list has {len(values)} numbers")
    if writer.kind != "token" and present & writer.refused:
        broken.append(f"{len(present & writer.refused)} refused numbers are present")
    missing = [number for number in writer.acknowledged if number not in present]
    if writer.kind == "token" and values != list(range(len(values))):
        broken.append("numbers are missing")
    if missing and writer.kind != "plain":
        broken.append(f"{len(missing)} acknowledged numbers are missing, the first is {missing[0]}")
    if writer.kind == "plain":
        for number in missing:
            name, delay = fault_at(begun, writer.acknowledged[number])
            lost[name].append(delay)
    return [f"{writer.list}: {text}" for text in broken]


async def torment(program, number, options, directory):
    """One cluster from begin to end. Returns True if all promises were kept."""
    directives = dict(directive.split("=", 1) for directive in options.directive)
    cluster, kept = Cluster(program, number, directory, directives), False
    try:
        await cluster.create()
        until = time.monotonic() + options.minutes * 60
        kinds = ["plain", "wait"] + ["token"] * (program.name == "penstock")
        writers = [Writer(cluster, kind, number) for kind in kinds for number in range(options.writers)]
        begun = []
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.work(until))
            await inject(cluster, random.Random(options.seed), until, begun)
        lost, broken, total, acknowledged = collections.defaultdict(list), [], 0, 0
        for writer in writers:
            values, counter = await writer.read()
            total, acknowledged = total + len(values), acknowledged + len(writer.acknowledged)
            broken += examine(writer, values, counter, begun, lost)
        broken += [f"node {number} did not start with its files" for number in cluster.unstartable]
        report(program.name, begun, writers, total, acknowledged, lost, broken)
        kept = not broken
    except* TimeoutError as group:
        for error in group.exceptions:
            print(f"{program.name}: {error}", flush=True)
    finally:
        cluster.remove()
    return kept


def report(name, begun, writers, total, acknowledged, lost, broken):
    """Prints the outcome."""
    print(f"{name}: {len(begun)} faults, {acknowledged:,} acknowledged numbers, {total:,} present; longest pause of a writer"
          f" {max(writer.longest_s for writer in writers):.1f} s")
    counts = collections.Counter(fault for _, fault in begun)
    for fault, count in sorted(counts.items()):
        times = lost.get(fault, [])
        window = f", up to {max(times):.2f} s after its begin" if times else ""
        print(f"  {fault:18} {count:4} times, {len(times):6} acknowledged numbers of plain writers lost{window}")
    for text in broken:
        print(f"  BROKEN: {text}")
    print(f"  {'no promise was broken' if not broken else f'{len(broken)} promises were broken'}", flush=True)


async def main():
    """Reads the options, and runs all clusters at the same time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=str(ROOT / "target/release/penstock"))
    parser.add_argument("--peer", action="append", default=[], type=named_program, help="NAME=PATH of another server")
    parser.add_argument("--without-penstock", action="store_true", help="only the peers")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--writers", type=int, default=6, help="writers of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directive", action="append", default=[], help="NAME=VALUE for all nodes")
    parser.add_argument("--keep", help="a directory for logs and files")
    options = parser.parse_args()
    programs = ([] if options.without_penstock else [Program("penstock", options.penstock)]) + options.peer
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as directory:
        outcomes = await asyncio.gather(*(torment(program, at, options, options.keep or directory) for at, program in enumerate(programs)))
    return 0 if all(outcome is True for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
