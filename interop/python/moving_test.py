#!/usr/bin/env python3
"""Client libraries during planned failovers: no error reaches the application, and no acknowledged write is lost.

    moving_test.py [NAME]...

Each client program connects to the primary with RESP3 and its library's default settings. Eight workers send pipelines of INCR, one pushes
into a list, and one pops from it with BLPOP. Meanwhile two servers change their roles MOVING_ROUNDS (4) times: by FAILOVER, and every other time by a restart. A program runs until
its standard input ends, and prints one line of JSON: the errors, the longest request in seconds, the last reply of each counter, and the
numbers of pushed and popped entries.

MOVING_SERVER names another server's program for comparison, which gets no restarts. go-redis runs only when it is named: about
one move in a hundred ends with an error of its own parser.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import redis

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from cluster import free_port  # noqa: E402

CACHE = HERE.parent.parent / ".cache"
CLIENTS = {
    "redis-py": [str(CACHE / "venv/bin/python"), str(HERE / "moving_client.py")],
    "node-redis": ["node", str(HERE.parent / "node/moving_client.js")],
    "go-redis": [str(CACHE / "go-redis-test"), "moving"],
    "lettuce": ["java", "-cp", f"{CACHE}/java-cluster/*", str(HERE.parent / "java/MovingClient.java")],
}
HOSTS = ["127.0.0.1", "127.0.0.2"]
ROUNDS = int(os.environ.get("MOVING_ROUNDS", "4"))
PAUSE_S = 1.0


class Node:
    """A server at an address of its own. redis-py follows a move to another host, but not to another port."""

    def __init__(self, program, host, port):
        self.host, self.port = host, port
        self.directory = tempfile.TemporaryDirectory(prefix="penstock-moving-")
        self.command = [program, "--port", str(port), "--bind", host, "--replica-announce-ip", host, "--save", ""]
        self.log = open(os.path.join(self.directory.name, "log"), "wb")
        self.start()

    def start(self, *arguments):
        command = [*self.command, *arguments]
        if moves(self.command[0]):
            command += ["--shutdown-on-sigterm", "move"]
        self.process = subprocess.Popen(command, cwd=self.directory.name, stdout=self.log, stderr=self.log)
        wait_for(self.answers)

    def answers(self):
        with contextlib.suppress(redis.ConnectionError):
            return connect(self).ping()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.directory.cleanup()


def moves(program):
    """Returns true if a signal makes the program hand over before it ends."""
    return "penstock" in os.path.basename(program)


def connect(server):
    return redis.Redis(host=server.host, port=server.port, protocol=2)


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the roles did not change in time"
        time.sleep(0.01)


def is_in_sync(replica):
    return replica.info("replication").get("master_link_status") == "up"


def fail_over(old, new):
    """Makes `new` the primary in place of `old`."""
    connect(old).execute_command("FAILOVER", "TO", new.host, new.port)
    wait_for(lambda: connect(new).info("replication")["role"] == "master")
    wait_for(lambda: connect(old).info("replication")["role"] == "slave" and is_in_sync(connect(old)))


def restart(old, new):
    """Ends the primary `old` by a signal, and starts it as a replica of `new`."""
    old.process.terminate()
    assert old.process.wait(20) == 0
    assert connect(new).info("replication")["role"] == "master"
    old.start("--replicaof", new.host, str(new.port))
    wait_for(lambda: is_in_sync(connect(old)))


def check(name, program):
    """Runs a client during the failovers; returns the number of checks and the failures."""
    with contextlib.ExitStack() as stack:
        port = free_port()
        servers = [stack.enter_context(contextlib.closing(Node(program, host, port))) for host in HOSTS]
        connect(servers[1]).replicaof(HOSTS[0], port)
        wait_for(lambda: is_in_sync(connect(servers[1])))
        environment = os.environ | {"PENSTOCK_URL": f"redis://{HOSTS[0]}:{port}"}
        client = subprocess.Popen(CLIENTS[name], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(client.kill)
        assert client.stdout.readline() == "running\n", name
        for number in range(ROUNDS):
            time.sleep(PAUSE_S)
            change = restart if number % 2 and moves(program) else fail_over
            change(servers[number % 2], servers[1 - number % 2])
        time.sleep(PAUSE_S)
        output, _ = client.communicate("", timeout=60)
        report = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
        primary = connect(servers[ROUNDS % 2])
        counts = [int(primary.get(f"count:{number}") or 0) for number in range(len(report["acknowledged"]))]
        lost = [(have, told) for have, told in zip(counts, report["acknowledged"]) if have < told]
        left = primary.llen("queue")
        checks = {
            "errors": not report["errors"],
            "lost writes": not lost,
            "lost entries": report["pushed"] == report["popped"] + left,
            "each counter grows": all(told > 0 for told in report["acknowledged"]),
        }
        longest = f"{report['longest_s']:.3f} s"
        print(f"{name}: {ROUNDS} moves, {sum(counts)} writes, {len(report['errors'])} errors, longest request {longest}", flush=True)
        for check in (check for check, holds in checks.items() if not holds):
            print(f"  {check}: {report['errors'][:5]} {lost[:5]} {report['pushed']} {report['popped']} {left}", flush=True)
        return len(checks), list(checks.values()).count(False)


def main():
    program = os.environ.get("MOVING_SERVER", os.environ["PENSTOCK_PROGRAM"])
    has_jars = (CACHE / "java-cluster").exists()
    names = sys.argv[1:] or ["redis-py", "node-redis", *(["lettuce"] if has_jars else [])]
    results = [check(name, program) for name in names]
    print(f"{sum(checks for checks, _ in results)} checks")
    sys.exit(any(failed for _, failed in results))


if __name__ == "__main__":
    main()
