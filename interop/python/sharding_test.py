#!/usr/bin/env python3
"""What docs/scaling.md says of three servers behind nutcracker: pipelines, a server that is replaced by its replica, and which commands pass.

It starts servers of its own. redis-py is told not to introduce itself, as the page says.
"""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import redis

PROGRAM = os.environ["PENSTOCK_PROGRAM"]
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/scaling.md"
SHARDS = 3
# Commands in one pipeline, more than the proxy and the servers have room for in one read.
DEPTH = 5_000
CLIENTS = 4
PATIENCE_SECONDS = 60

checks = 0


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def until(what, holds):
    """Waits until `holds` answers true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.ConnectionError, OSError):
            if holds():
                return
        time.sleep(0.05)
    sys.exit(f"waited in vain until {what}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command, directory):
    """A process without input, which ends with this script."""
    log = open(os.path.join(directory, "log"), "ab")
    return subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def connect(port):
    return redis.Redis(port=port, protocol=2, driver_info=None, socket_timeout=PATIENCE_SECONDS)


class Server:
    """A Penstock of this script's own."""

    def __init__(self, directory, *arguments):
        self.port = free_port()
        here = tempfile.mkdtemp(dir=directory)
        command = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *arguments]
        self.process = start(command, here)
        self.client = connect(self.port)
        until("a server answers", self.client.ping)


class Proxy:
    """nutcracker before these servers."""

    def __init__(self, directory, servers):
        self.directory = directory
        self.port, self.figures_port = free_port(), free_port()
        self.run(servers)

    def run(self, servers):
        names = "".join(f"   - 127.0.0.1:{server.port}:1 shard{index}\n" for index, server in enumerate(servers))
        conf = os.path.join(self.directory, "nutcracker.yml")
        pathlib.Path(conf).write_text(
            f"shards:\n  listen: 127.0.0.1:{self.port}\n  redis: true\n  hash: fnv1a_64\n  hash_tag: '{{}}'\n"
            f"  distribution: ketama\n  auto_eject_hosts: false\n  timeout: 20000\n  servers:\n{names}"
        )
        self.process = start(["nutcracker", "-c", conf, "-s", str(self.figures_port)], self.directory)
        until("the proxy answers", lambda: connect(self.port).ping())

    def stop(self):
        self.process.kill()
        self.process.wait()


def pipelines(port, round_number):
    """Several clients with deep pipelines: every reply is right, and in its place."""

    def work(client):
        connection = connect(port)
        with connection.pipeline(transaction=False) as pipe:
            for number in range(DEPTH):
                key = f"{client}:{number}"
                pipe.set(key, f"{round_number}:{number}") if number % 2 else pipe.get(key)
                pipe.incr(f"count:{client}:{number % 7}")
            replies = pipe.execute()
        for number in range(DEPTH):
            if number % 2:
                assert replies[2 * number] is True
            count = round_number * len(range(number % 7, DEPTH, 7)) + number // 7 + 1
            assert replies[2 * number + 1] == count, (client, number, replies[2 * number + 1], count)
        done.append(client)

    done = []
    threads = [threading.Thread(target=work, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("pipelines of all clients", sorted(done), list(range(CLIENTS)))


def failover(proxy, servers, directory):
    """A server dies, and its replica takes its place: what was there is there."""
    replica = Server(directory, "--replicaof", "127.0.0.1", str(servers[0].port))
    until("the link is up", lambda: replica.client.info("replication")["master_link_status"] == "up")
    through = connect(proxy.port)
    keys = [f"{client}:{number}" for client in range(CLIENTS) for number in range(1, DEPTH, 2)]
    before = [through.mget(keys[at : at + 500]) for at in range(0, len(keys), 500)]
    check("nothing is missing", sum(part.count(None) for part in before), 0)
    # On a connection of its own, so that it says what the proxy's connections have written.
    offset = servers[0].client.info("replication")["master_repl_offset"]
    until("the replica has all", lambda: replica.client.info("replication")["slave_repl_offset"] >= offset)
    servers[0].process.kill()
    servers[0].process.wait()
    replica.client.replicaof("no", "one")
    proxy.stop()
    proxy.run([replica, *servers[1:]])
    after = [through.mget(keys[at : at + 500]) for at in range(0, len(keys), 500)]
    check("all is there after the failover", after == before, True)
    return replica


# A command of each kind that the page's table names, by its column.
WORKS = """
GET k|SET k v EX 100|APPEND k v|INCR n|GETDEL k2|GETEX k|SETRANGE k 0 x|BITCOUNT k|BITPOS k 1|BITFIELD k GET u8 0|TYPE k|TTL k|PERSIST k
EXPIRE k 100|DUMP k|HSET h f v|HGETALL h|HINCRBY h n 1|HSCAN h 0|HRANDFIELD h|RPUSH l a b|LPOS l a|LRANGE l 0 -1|LPOP l|LMOVE l l LEFT RIGHT
SADD s a b|SMISMEMBER s a c|SSCAN s 0|SPOP s|ZADD z 1 a|ZRANGE z 0 -1|ZPOPMIN z|ZSCAN z 0|ZRANGESTORE z2 z 0 -1|GEOADD g 1 1 a
GEOSEARCH g FROMMEMBER a BYRADIUS 1 m|PFADD p a|PFCOUNT p|SORT l ALPHA|MGET a b c|MSET a 1 b 2|DEL a b|UNLINK a b|EXISTS a b|TOUCH a b
EVAL return{KEYS[1]} 1 k|PING|SUNIONSTORE {1}a {1}b {1}c|SINTER {1}a {1}b|ZUNIONSTORE {1}z 2 {1}x {1}y|SMOVE {1}a {1}b m
RPOPLPUSH {1}l {1}m|COPY {1}a {1}b|PFMERGE {1}p {1}q
""".replace("\n", "|").strip("|").split("|")
CLOSES = """
MULTI|WATCH k|BLPOP l 1|SUBSCRIBE c|PUBLISH c m|XADD x * f v|XRANGE x - +|SELECT 1|SCAN 0|KEYS *|INFO|WAIT 0 0|CONFIG GET port|CLIENT ID
HELLO 2|HEXPIRE h 1 FIELDS 1 f|LMPOP 1 l LEFT
""".replace("\n", "|").strip("|").split("|")


def passes(port, command):
    """Whether the proxy passes a command on."""
    words = [word.encode() for word in command.split(" ")]
    request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        reply = connection.recv(4096)
    if reply.startswith(b"-"):
        sys.exit(f"{command}: {reply!r}")
    return reply != b""


def table(port):
    connect(port).delete("k", "n")
    for command in WORKS:
        check(f"{command} passes", passes(port, command), True)
    for command in CLOSES:
        check(f"{command} passes", passes(port, command), False)
    text = PAGE.read_text()
    row = re.search(r"^\| closes the connection \|(.*)\|$", text, re.MULTILINE)[1]
    named = set(re.findall(r"\b[A-Z]{4,}\b", row)) - {"CLIENT"}
    tried = {command.split(" ")[0] for command in CLOSES}
    check("what the page says is tried", named - tried, set())


def main():
    with tempfile.TemporaryDirectory() as directory:
        servers = [Server(directory) for _ in range(SHARDS)]
        proxy = Proxy(directory, servers)
        processes = [server.process for server in servers]
        try:
            pipelines(proxy.port, 0)
            check("all servers have keys", [server.client.dbsize() > 1000 for server in servers], [True] * SHARDS)
            replica = failover(proxy, servers, directory)
            processes.append(replica.process)
            pipelines(proxy.port, 1)
            table(proxy.port)
        finally:
            proxy.stop()
            for process in processes:
                process.kill()
                process.wait()
    print(f"{checks} checks")


main()
