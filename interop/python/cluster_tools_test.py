#!/usr/bin/env python3
"""`penstock load --cluster`, `penstock bench --cluster` and `penstock cli -c` against six nodes. See interop/cluster.py."""

import os
import socket
import subprocess
import sys
import threading

from redis.cluster import ClusterNode, RedisCluster

PROGRAM = os.environ["PENSTOCK_PROGRAM"]
PORT = os.environ["PENSTOCK_PORTS"].split(",")[0]
COUNTERS = 777
COMMANDS = 20_000
# Keys of the slot that moves.
MOVING = 1_000
PATIENCE_SECONDS = 120

checks = 0


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def event(request):
    """Sends a request to the cluster's harness, and returns the answer."""
    with socket.create_connection(("127.0.0.1", int(os.environ["PENSTOCK_EVENTS"])), PATIENCE_SECONDS) as connection:
        connection.sendall(f"{request}\n".encode())
        return connection.makefile().readline().strip()


def tool(*words, text=""):
    """Runs one of Penstock's tools with this input, and returns its output."""
    done = subprocess.run([PROGRAM, *words], input=text, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    check(f"{words}: status, errors", (done.returncode, done.stderr), (0, done.stderr))
    return done.stdout


def values(client, keys):
    pipe = client.pipeline()
    for key in keys:
        pipe.get(key)
    return [int(value or 0) for value in pipe.execute()]


def loads(client):
    """Counters would show a command that was executed twice or not at all."""
    keys = [f"counter:{number}" for number in range(COUNTERS)]
    lines = "".join(f"INCR {keys[number % COUNTERS]}\n" for number in range(COMMANDS))
    printed = tool("load", "--cluster", "-p", PORT, "--chunk", "500", text=lines)
    check("the report", f"{COMMANDS:,} commands executed, 0 failed, 0 lines rejected" in printed, True)
    check("the sum of the counters", sum(values(client, keys)), COMMANDS)


def loads_during_a_reshard(client):
    tag = event("tag")
    keys = [f"{{{tag}}}load:{number}" for number in range(MOVING)]
    lines = "".join(f"INCR {key}\n" for key in keys)
    rounds, answers = 1, []
    tool("load", "--cluster", "-p", PORT, text=lines)
    thread = threading.Thread(target=lambda: answers.append(event("reshard")))
    thread.start()
    while thread.is_alive():
        tool("load", "--cluster", "-p", PORT, "--chunk", "50", text=lines)
        rounds += 1
    check("reshard", answers, ["ok"])
    check("counters of the slot that moved", values(client, keys), [rounds] * MOVING)
    moved, asked = map(int, event("redirects").split())
    check(f"{moved} MOVED and {asked} ASK were followed", moved > 0 and asked > 0, True)


def cli_in_a_pipe():
    """The replies are in the order of the commands, whichever nodes send them."""
    lines = "".join(f"SET cli:{number} {number}\nGET cli:{number}\n" for number in range(100))
    printed = tool("cli", "-c", "-p", PORT, text=lines).splitlines()
    replies = [line for line in printed if not line.startswith("-> Redirected to slot")]
    check("cli -c in a pipe", replies, [reply for number in range(100) for reply in ("OK", str(number))])


def bench():
    printed = tool("bench", "--cluster", "-p", PORT, "-n", "3000", "-c", "3", "-P", "16", "-t", "set,get", "-q")
    check("bench --cluster", [name for name in ("SET", "GET") if name not in printed], [])


def main():
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", int(PORT))], decode_responses=True)
    loads(client)
    loads_during_a_reshard(client)
    cli_in_a_pipe()
    bench()
    print(f"{checks} checks")


main()
