#!/usr/bin/env python3
"""Completing titles: suggestions (FT.SUGADD, FT.SUGGET) beside a sorted set for each prefix.

    bench/suggestions.py --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

Each server is filled with the titles of examples/movies/titles.py, in pipelines of a thousand commands: as sorted sets (ZADD index:PREFIX
VOTES TITLE for the first letters of each title, up to --letters), and after another start as suggestions, if the server has them. The script prints
the growth of used_memory and of resident memory, and the server's CPU time a title. Then it requests the best ten titles for prefixes of one to ten
letters of evenly drawn titles, one request at a time and sixteen in flight. The servers take turns. The figures are the CPU time of the server for a
request, including the kernel's: medians of the rounds, in nanoseconds.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and two cores.
"""

import argparse
import pathlib
import random
import statistics
import sys
import time

import servers
from items import Client
from memory import request

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "examples/movies"))
from titles import titles  # noqa: E402

#: Commands of a pipeline that fills.
FILLED_AT_ONCE = 1000
#: Requests of a measurement, and in flight.
COUNT, DEPTHS = 4000, [1, 16]
BEST = "10"


def as_sets(title, votes, letters):
    folded = title.lower()
    return [request("ZADD", f"index:{folded[:end]}", str(votes), title) for end in range(1, min(len(folded), letters) + 1)]


def as_suggestion(title, votes, _letters):
    return [request("FT.SUGADD", "movies", title, str(votes))]


WAYS = {
    "sets": (as_sets, lambda prefix: request("ZREVRANGE", f"index:{prefix}", "0", str(int(BEST) - 1))),
    "suggestions": (as_suggestion, lambda prefix: request("FT.SUGGET", "movies", prefix, "MAX", BEST)),
    "fuzzy": (as_suggestion, lambda prefix: request("FT.SUGGET", "movies", prefix, "FUZZY", "MAX", BEST)),
}


class Filled:
    """A server with the titles in one way."""

    def __init__(self, name, command, port, core, way):
        self.name, self.way = f"{name} {way}", way
        self.process = servers.start(name, command, port, core)
        self.client = Client(port)

    def has_suggestions(self):
        self.client.connection.sendall(request("FT.SUGLEN", "movies"))
        return self.client.replies.readline()[:1] == b":"

    def memory(self):
        """Returns used_memory and the resident memory."""
        self.client.connection.sendall(request("INFO", "memory"))
        text = self.client.replies.read(int(self.client.replies.readline()[1:]) + 2).decode()
        used = next(int(line.split(":")[1]) for line in text.splitlines() if line.startswith("used_memory:"))
        rollup = pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return used, next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Rss:"))

    def fill(self, all_titles, letters):
        before, cpu, began = self.memory(), servers.cpu_ns(self.process), time.monotonic()
        commands = []
        for title, votes in all_titles:
            commands += WAYS[self.way][0](title, votes, letters)
            if len(commands) >= FILLED_AT_ONCE:
                self.ask(commands, len(commands))
                commands.clear()
        self.ask(commands, max(len(commands), 1))
        seconds, cpu = time.monotonic() - began, servers.cpu_ns(self.process) - cpu
        after = self.memory()
        used, resident = (part - other for part, other in zip(after, before))
        count = len(all_titles)
        print(
            f"{self.name:22} {used / 1e6:9.1f} MB used ({used / count:6.1f} bytes a title), {resident / 1e6:9.1f} MB resident;"
            f" {cpu / count:7.0f} ns of CPU a title, {seconds:6.1f} s with the client"
        )

    def ask(self, commands, depth):
        for start in range(0, len(commands), depth):
            part = commands[start : start + depth]
            self.client.connection.sendall(b"".join(part))
            for _ in part:
                self.client.read_reply()

    def measure(self, prefixes, depth, way):
        commands = [WAYS[way][1](prefix) for prefix in prefixes]
        before = servers.cpu_ns(self.process)
        self.ask(commands, depth)
        return (servers.cpu_ns(self.process) - before) / len(commands)


def prefixes(all_titles, letters, draw):
    return [draw.choice(all_titles)[0].lower()[:letters] for _ in range(COUNT)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--titles", type=int, default=10_000)
    parser.add_argument("--letters", type=int, default=10, help="letters of the longest prefix")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=23500)
    parser.add_argument("--server-core", default="0")
    options = parser.parse_args()
    all_titles, filled = list(titles(options.titles)), []
    print(f"{options.titles} titles of {statistics.mean(len(title) for title, _ in all_titles):.1f} letters")
    for number, server in enumerate(options.server):
        name, command = server.split("=", 1)
        for place, way in enumerate(["sets", "suggestions"]):
            one = Filled(name, command, options.port + 2 * number + place, options.server_core, way)
            if way == "sets" or one.has_suggestions():
                one.fill(all_titles, options.letters)
                filled.append((one, way))
            else:
                one.process.kill()
    asked = filled + [(one, "fuzzy") for one, way in filled if way == "suggestions"]
    draw = random.Random(1)
    for depth in DEPTHS:
        print(f"\nns of CPU a request, {depth} in flight; letters of the prefix:")
        figures = {}
        for number in range(options.rounds):
            for letters in range(1, options.letters + 1):
                wanted = prefixes(all_titles, letters, draw)
                turn = number % len(asked)
                for one, way in asked[turn:] + asked[:turn]:
                    figures.setdefault((one.name, way, letters), []).append(one.measure(wanted, depth, way))
        print(f"{'':30}" + "".join(f"{letters:8}" for letters in range(1, options.letters + 1)))
        for one, way in asked:
            row = [statistics.median(figures[one.name, way, letters]) for letters in range(1, options.letters + 1)]
            name = f"{one.name} fuzzy" if way == "fuzzy" else one.name
            print(f"{name:30}" + "".join(f"{figure:8.0f}" for figure in row))
    for one, _ in filled:
        one.process.kill()


if __name__ == "__main__":
    main()
