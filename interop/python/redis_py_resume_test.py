#!/usr/bin/env python3
"""The Python example of docs/pipeline-control.md for tokens, as it stands there, through a connection that breaks again and again.

Between the example and the server is a proxy of our own, which cuts every connection after a while, in either direction
and in the midst of a request or a reply.
"""

import os
import pathlib
import random
import re
import socket
import sys
import threading

import redis

PORT = int(os.environ["PENSTOCK_PORT"])
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/pipeline-control.md"
PATIENCE_SECONDS = 20
# Connections that break before the proxy lets one live, so that the test ends.
BREAKS = 60

checks = 0
chance = random.Random(7)


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


class Proxy:
    """A listener whose connections reach the server and break after a number of bytes."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.broken = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", PORT))
            # Enough for START to be answered.
            left = [chance.randrange(1_000, 12_000), chance.randrange(2_000, 8_000)]
            for source, target, which in [(near, far, 0), (far, near, 1)]:
                threading.Thread(target=self.pass_on, args=(source, target, left, which), daemon=True).start()

    def pass_on(self, source, target, left, which):
        try:
            while received := source.recv(4096):
                if self.broken < BREAKS and len(received) >= left[which]:
                    target.sendall(received[: left[which]])
                    self.broken += 1
                    break
                left[which] -= len(received)
                target.sendall(received)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def example(port):
    """The functions of the page's Python block about tokens, for a server at `port`."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    code = next(block for block in blocks if "RESUME" in block)
    functions = {}
    exec(compile(code.replace("6379", str(port)), str(PAGE), "exec"), functions)
    return functions


def main():
    proxy = Proxy()
    functions = example(proxy.port)
    commands = []
    for number in range(20_000):
        if number % 50 == 0:
            commands += [("MULTI",), ("INCR", "counter"), ("RPUSH", "log", number), ("EXEC",)]
        elif number % 1000 == 7:
            commands.append(("LPUSH", "counter", "x"))
        else:
            commands.append(("INCR", "counter"))
    failing = [position for position, command in enumerate(commands, 1) if command[0] == "LPUSH"]
    counted = functions["run_once"](commands, "example")
    check("enough connections broke", proxy.broken >= BREAKS, True)
    check("executed", counted[b"executed"], len(commands))
    check("failed", counted[b"failed"], len(failing))
    check("failures", [position for position, _ in counted[b"failures"]], failing)
    server = redis.Redis(port=PORT, socket_timeout=PATIENCE_SECONDS)
    check("INCRs", int(server.get("counter")), sum(command[0] == "INCR" for command in commands))
    check("RPUSHes", server.lrange("log", 0, -1), [b"%d" % number for number in range(0, 20_000, 50)])
    check("END", server.execute_command("PIPELINE", "END", "example"), b"OK")
    check("LIST", server.execute_command("PIPELINE", "LIST"), [])
    print(f"{checks} checks")


main()
