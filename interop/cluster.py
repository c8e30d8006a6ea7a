"""A cluster of six nodes for the scripts of cluster clients, with the events that a client has to survive.

A script gets the nodes' ports in PENSTOCK_PORTS, and a port for requests in PENSTOCK_EVENTS. A request is a line, and so is its answer:

- `tag`: the hash tag of a slot that the next `reshard` moves first.
- `reshard`: moves slots from the primary with the most slots to the one with the fewest, key by key, and pauses in the middle of the first
  slot until a client has met ASK: the script fills that slot first, and uses its keys meanwhile. Answers `ok` at the end.
- `failover`: makes a replica the primary of its shard, by CLUSTER FAILOVER. Answers `ok` once all nodes know.
- `kill`: ends a primary by SIGKILL. Answers `ok` at once, long before its replica is the primary.
- `redirects`: the number of MOVED and of ASK that the nodes have answered to this script.

Several connections may send requests at the same time. Requests of one kind at a time wait for each other.
"""

import binascii
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time

SHARDS = 3
SLOTS = 16384
NODE_TIMEOUT_MS = 1000
# Slots of one reshard, and keys of one MIGRATE.
MOVED_SLOTS = 20
MOVED_KEYS = 5
# A failover takes two or three seconds, and longer where other processes want the cores.
WAIT_SECONDS_MAX = 60

# Ports of servers, the same as in crates/tests/src/ports.rs, which has the reasons. Both use one file.
PORTS = range(16_400, 22_400)
BUS_OFFSET = 10_000
PORTS_FILE = f"penstock-tests-ports-{os.getuid()}"


def next_port():
    """The port after the last one that any test took."""
    descriptor = os.open(pathlib.Path(tempfile.gettempdir(), PORTS_FILE), os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read().strip()
        last = int(text) if text.isdigit() else 0
        port = last + 1 if last + 1 in PORTS else PORTS.start + os.getpid() % 5000 * (not last)
        file.seek(0)
        file.truncate()
        file.write(f"{port}\n")
        return port


def is_free(port):
    """Whether a server can listen on this port of the loopback interface."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


def free_port():
    """A port that no other test uses, and with a free bus port."""
    for _ in PORTS:
        port = next_port()
        if is_free(port) and is_free(port + BUS_OFFSET):
            return port
    raise SystemExit("all ports of the tests are in use")


def wait_until(what, holds):
    """Waits until `holds` answers true. A node that can't answer now may be able to later."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, NodeError):
            if holds():
                return
        time.sleep(0.02)
    raise NodeError(f"waited in vain until {what}")


def tag_of(slot):
    """A hash tag of this slot."""
    numbers = (str(number) for number in range(100 * SLOTS))
    return next(tag for tag in numbers if binascii.crc_hqx(tag.encode(), 0) % SLOTS == slot)


@contextlib.contextmanager
def stopped(process):
    """Holds up a process that may have ended."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class NodeError(Exception):
    """A node's error reply, a reply that never came, or a command-line tool that failed."""


class Node:
    """A server process with a directory that outlives it."""

    def __init__(self, program, arguments, directory):
        self.port = free_port()
        self.directory = pathlib.Path(directory, str(self.port))
        self.directory.mkdir()
        self.log = self.directory / "log"
        self.command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
        self.command += ["--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--repl-diskless-sync-delay", "0"]
        self.command += ["--save", "", "--appendonly", "no", *arguments]
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(f"a node answers on port {self.port}", lambda: self.ask("PING") == "PONG")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def is_running(self):
        return self.process.poll() is None

    def ask(self, *words):
        """The reply of a command, as text. Only replies of a single value are needed here."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            parts = (f"${len(word.encode())}\r\n{word}\r\n" for word in words)
            connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            with connection.makefile("rb") as replies:
                line = replies.readline().decode().rstrip("\r\n")
                if line.startswith("$"):
                    return replies.read(int(line[1:])).decode()
                if not line or line.startswith("-"):
                    raise NodeError(f"{' '.join(words)}: {line or 'no reply'}")
                return line[1:]

    def info(self, section, name):
        """A field of INFO, or of CLUSTER INFO; empty if it isn't there."""
        text = self.ask("CLUSTER", "INFO") if section == "cluster" else self.ask("INFO", section)
        return next((line.partition(":")[2] for line in text.splitlines() if line.startswith(f"{name}:")), "")


class Line:
    """A line of CLUSTER NODES."""

    def __init__(self, text):
        self.id, address, flags, self.primary, _, _, _, _, *slots = text.split(" ")
        self.port = int(address.partition("@")[0].rpartition(":")[2])
        self.flags = flags.split(",")
        ranges = [part.split("-") for part in slots if not part.startswith("[")]
        self.slots = [slot for part in ranges for slot in range(int(part[0]), int(part[-1]) + 1)]


class Cluster:
    """Three primaries with a replica each, started by `with`."""

    def __init__(self, program, arguments=()):
        self.program = program
        self.directory = tempfile.mkdtemp(prefix="penstock-cluster-")
        self.nodes = [Node(program, arguments, self.directory) for _ in range(2 * SHARDS)]
        self.events = None
        self.lock = threading.Lock()
        self.redirected_by_killed = [0, 0]

    def __enter__(self):
        try:
            for node in self.nodes:
                node.start()
            addresses = [f"127.0.0.1:{node.port}" for node in self.nodes]
            self.manage("create", *addresses, "--cluster-replicas", "1", "--cluster-yes")
            self.wait_until_ready()
            self.events = Events(self)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        if self.events:
            self.events.close()
        for node in self.nodes:
            if node.process and node.is_running():
                node.process.kill()
        for node in self.nodes:
            if node.process:
                node.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def manage(self, *words, meanwhile=lambda manager: None):
        """Runs the cluster manager of the nodes' make."""
        is_redis = "redis-server" in os.path.basename(self.program)
        tool = ["redis-cli"] if is_redis else [self.program, "cli"]
        command = [*tool, "--cluster", *words]
        manager = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            meanwhile(manager)
            output, _ = manager.communicate(timeout=WAIT_SECONDS_MAX)
        finally:
            manager.kill()
        if manager.returncode != 0:
            raise NodeError(f"{' '.join(command)}: status {manager.returncode}\n{output}")

    # --- the state ---

    def running(self):
        return [node for node in self.nodes if node.is_running()]

    def at(self, port):
        return next(node for node in self.nodes if node.port == port)

    def lines(self, node=None):
        """CLUSTER NODES of one node, without the nodes that it takes for failed."""
        text = (node or self.running()[0]).ask("CLUSTER", "NODES")
        return [line for line in map(Line, text.splitlines()) if not {"fail", "fail?"} & set(line.flags)]

    def primaries(self):
        """The lines of the primaries with slots, the one with the most slots first."""
        return sorted((line for line in self.lines() if line.slots), key=lambda line: -len(line.slots))

    def replica_of(self, primary):
        return next(self.at(line.port) for line in self.lines() if line.primary == primary.id)

    def map_of(self, node):
        return sorted((line.port, line.primary, tuple(line.slots)) for line in self.lines(node))

    def is_ready(self):
        """Whether all nodes serve and agree, and each replica has its primary's data."""
        maps = [self.map_of(node) for node in self.nodes]
        if any(each != maps[0] for each in maps) or [bool(primary.slots) for primary in self.primaries()] != [True] * SHARDS:
            return False
        replicas = [self.at(line.port) for line in self.lines() if line.primary != "-"]
        states = {node.info("cluster", "cluster_state") for node in self.nodes}
        links = [node.info("replication", "master_link_status") for node in replicas]
        return states == {"ok"} and links == ["up"] * SHARDS

    def wait_until_ready(self):
        wait_until("the cluster is whole", self.is_ready)

    def wait_for_replica(self, primary):
        """Waits until the replica has all of its primary's data. Returns the replica."""
        replica, offset = self.replica_of(primary), self.at(primary.port).info("replication", "master_repl_offset")
        wait_until("the replica has all", lambda: int(replica.info("replication", "slave_repl_offset")) >= int(offset))
        return replica

    def heal(self):
        """Starts the nodes that were killed, and empties the cluster for the next script."""
        for node in self.nodes:
            if not node.is_running():
                node.start()
        # A node that has just started takes itself for a primary, and would be emptied in its successor's place.
        self.wait_until_ready()
        for primary in self.primaries():
            self.at(primary.port).ask("FLUSHALL")
        for node in self.nodes:
            node.ask("CONFIG", "RESETSTAT")
        self.redirected_by_killed = [0, 0]

    def defect(self):
        """Why the nodes' own state is a failure, whatever the script says; None if they are well."""
        for node in self.nodes:
            status = node.process.poll()
            if status not in (None, -signal.SIGKILL):
                return f"the node on port {node.port} ended with status {status}"
            with contextlib.suppress(OSError, NodeError):
                if status == -signal.SIGKILL or node.ask("PING") == "PONG":
                    continue
            return f"the node on port {node.port} no longer answers PING"
        return None

    def output(self):
        """The last lines that the nodes have printed."""
        logs = ((node.port, node.log.read_text(errors="replace").splitlines()[-20:]) for node in self.nodes)
        return "\n".join(f"{port}: {line}" for port, lines in logs for line in lines)

    def environment(self):
        return os.environ | {
            "PENSTOCK_PORTS": ",".join(str(node.port) for node in self.nodes),
            "PENSTOCK_EVENTS": str(self.events.port),
        }

    # --- the requests ---

    def tag(self):
        self.wait_until_ready()
        return tag_of(self.primaries()[0].slots[0])

    def reshard(self):
        # The manager refuses to work on a cluster whose nodes do not agree.
        self.wait_until_ready()
        first, *_, last = self.primaries()
        slot = str(first.slots[0])

        def has_begun():
            return self.at(last.port).ask("CLUSTER", "COUNTKEYSINSLOT", slot) != "0"

        def stop_until_asked(manager):
            wait_until("keys move", lambda: manager.poll() is not None or has_begun())
            with stopped(manager):
                if self.at(first.port).ask("CLUSTER", "COUNTKEYSINSLOT", slot) != "0":
                    wait_until("a client meets ASK", lambda: redirects_of(self.at(first.port))[1] > 0)

        self.manage(
            "reshard", f"127.0.0.1:{first.port}", "--cluster-from", first.id, "--cluster-to", last.id, "--cluster-slots",
            str(MOVED_SLOTS), "--cluster-pipeline", str(MOVED_KEYS), "--cluster-yes", meanwhile=stop_until_asked,
        )  # fmt: skip
        return "ok"

    def failover(self):
        self.wait_until_ready()
        primary = self.primaries()[0]
        replica = self.replica_of(primary)
        replica.ask("CLUSTER", "FAILOVER")
        wait_until("the replica is the primary", lambda: replica.info("replication", "role") == "master")
        self.wait_until_ready()
        return "ok"

    def kill(self):
        self.wait_until_ready()
        primary = self.primaries()[-1]
        self.wait_for_replica(primary)
        node = self.at(primary.port)
        self.redirected_by_killed = redirects_of(node)
        node.kill()
        return "ok"

    def redirects(self):
        sums = [sum(counts) for counts in zip(self.redirected_by_killed, *map(redirects_of, self.running()))]
        return " ".join(map(str, sums))


def redirects_of(node):
    """How many MOVED and ASK the node has answered since its start, or since CONFIG RESETSTAT."""
    counts = (node.info("errorstats", f"errorstat_{kind}").removeprefix("count=") for kind in ("MOVED", "ASK"))
    return [int(count or 0) for count in counts]


class Events:
    """The port for the scripts' requests."""

    REQUESTS = ("tag", "reshard", "failover", "kill", "redirects")

    def __init__(self, cluster):
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                for line in self.rfile:
                    self.wfile.write(f"{answer(cluster, line.decode().strip())}\n".encode())

        socketserver.ThreadingTCPServer.daemon_threads = True
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def answer(cluster, request):
    """Carries out one request. A failure is an answer, too, in one line."""
    if request not in Events.REQUESTS:
        return f"no such request: {request}"
    try:
        with cluster.lock:
            return getattr(cluster, request)()
    except (OSError, NodeError, StopIteration, ValueError, subprocess.SubprocessError) as error:
        return f"{request} failed: {error!r}"


class Shared:
    """One cluster for all scripts that want one. After a script that failed, the next one gets a new cluster."""

    def __init__(self, program, arguments):
        self.program = program
        self.arguments = arguments
        self.cluster = None

    def get(self):
        if self.cluster is None:
            self.cluster = Cluster(self.program, self.arguments).__enter__()
        self.cluster.heal()
        return self.cluster

    def close(self):
        if self.cluster:
            self.cluster.__exit__(None, None, None)
            self.cluster = None
