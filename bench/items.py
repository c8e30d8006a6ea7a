#!/usr/bin/env python3
"""CPU time of a server per member or field, for commands with many of them, on collections of a million.

    bench/items.py --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

Each server has one core. A round sends each of them the same commands, ten in flight, with members drawn evenly; the servers
take turns, and begin in turn, because the first may affect the second. Figures are medians of the rounds, in nanoseconds.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and two cores.
"""

import argparse
import random
import socket
import statistics

import servers
from memory import request

MEMBERS = 1_000_000
#: Members of the commands that fill the collections.
FILLED_AT_ONCE = 1000
WIDTHS = [4, 20, 100]
#: Members of a measurement, and commands in flight.
COUNT, IN_FLIGHT = 40_000, 10
SCORES, VALUE = 1000, "value:0123456789"
COMMANDS = ["HMGET", "SMISMEMBER", "ZMSCORE", "SADD", "HSET", "ZADD"]


def command(name, members, draw):
    """Returns the words of one command, which adds no new members."""
    if name == "HSET":
        return request(name, "hash", *(word for member in members for word in (member, VALUE)))
    if name == "ZADD":
        return request(name, "zset", *(word for member in members for word in (str(draw.randrange(SCORES)), member)))
    return request(name, {"H": "hash", "S": "set", "Z": "zset"}[name[0]], *members)


def named(number):
    return f"member:{number:09d}"


class Client:
    """A connection that returns replies, and fails on errors."""

    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.replies = self.connection.makefile("rb")

    def ask(self, commands):
        for start in range(0, len(commands), IN_FLIGHT):
            part = commands[start : start + IN_FLIGHT]
            self.connection.sendall(b"".join(part))
            for _ in part:
                self.read_reply()

    def read_reply(self):
        line = self.replies.readline()
        if not line or line[:1] == b"-":
            raise SystemExit(f"unexpected reply: {line}")
        if line[:1] == b"*":
            for _ in range(int(line[1:])):
                self.read_reply()
        elif line[:1] == b"$" and int(line[1:]) >= 0:
            self.replies.read(int(line[1:]) + 2)


def arguments(description):
    """The command line of a comparison of servers on one core each."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--port", type=int, default=23400)
    parser.add_argument("--server-core", default="0")
    return parser.parse_args()


def start_all(options, fill):
    """Starts the servers and fills each through a client of its own. Returns name, process and client of each."""
    under_test = []
    for place, server in enumerate(options.server):
        name, start = server.split("=", 1)
        process = servers.start(name, start, options.port + place, options.server_core)
        client = Client(options.port + place)
        fill(client)
        under_test.append((name, process, client))
    return under_test


def fill(client):
    draw = random.Random(1)
    for start in range(0, MEMBERS, FILLED_AT_ONCE):
        members = [named(number) for number in range(start, start + FILLED_AT_ONCE)]
        client.ask([command(name, members, draw) for name in ("HSET", "SADD", "ZADD")])


def main():
    options = arguments(__doc__)
    under_test = start_all(options, fill)
    figures = {}
    draw = random.Random(2)
    for number in range(options.rounds):
        for kind in COMMANDS:
            for width in WIDTHS:
                commands = [
                    command(kind, [named(draw.randrange(MEMBERS)) for _ in range(width)], draw) for _ in range(COUNT // width)
                ]
                turn = number % len(under_test)
                for name, process, client in under_test[turn:] + under_test[:turn]:
                    before = servers.cpu_ns(process)
                    client.ask(commands)
                    figures.setdefault((kind, width, name), []).append((servers.cpu_ns(process) - before) / COUNT)
    for kind in COMMANDS:
        for width in WIDTHS:
            medians = {name: statistics.median(figures[kind, width, name]) for name, _, _ in under_test}
            first = medians[under_test[0][0]]
            shown = "  ".join(f"{name} {median:5.0f} ({first / median:.2f})" for name, median in medians.items())
            print(f"{kind:10} of {width:3}: {shown}")
    for _, process, _ in under_test:
        process.kill()


if __name__ == "__main__":
    main()
