#!/usr/bin/env python3
"""CPU time of servers for every command of the table, at many sizes, in pipelines of 50 on one connection.

    bench/sweep.py --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'redis8=redis8-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'
    bench/sweep.py --check [PORT]    no measurement: runs each case once on that server, or that of PENSTOCK_PORT, and empties it

The last server is compared with the others. An entry of its command table without a case in `sweep_cases.py` is an error. The servers share
a core and get the same commands in turn, and each round of a case begins with the same data. A case that comes out slower is measured again
at the end, with three times the rounds; it counts as slower if three quarters of these rounds agree. Prints a line for each case, slowest
first: the medians in nanoseconds of the server's CPU for a command, and the time of the fastest other server divided by the last server's
(median and quartiles of the rounds). `--case TEXT` measures the cases with TEXT in their names.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and two cores.
"""

import functools
import math
import os
import socket
import statistics
import sys
import time

import servers
from sweep_cases import PAYLOAD, cases, is_exempt, several
from words import request

DEPTH = 50
END = "end-of-the-batch"
SENTINEL = b"$16\r\n%b\r\n" % END.encode()
# CPU time of a case's round, and bounds of its commands and bytes.
ROUND_NS = 6_000_000
COMMANDS_MIN, COMMANDS_MAX, BYTES_MAX = 10, 4000, 5_000_000
# Rounds of cases that came out slower, as a multiple.
AGAIN = 3
# Servers stop polling and account for their last batch within this time.
SETTLED_SECONDS = 0.001


# Many cases begin with the same commands.
encoded = functools.lru_cache(256)(request)


class Refused(Exception):
    """An error reply."""


class Connection:
    """A connection that sends batches. An ECHO marks the end of a batch's replies."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def send(self, batch):
        """Sends a batch and drops the replies."""
        self.socket.sendall(batch + request("ECHO", END))
        tail = b""
        while not tail.endswith(SENTINEL):
            part = self.socket.recv(1 << 20)
            if not part:
                raise SystemExit("the server has closed the connection")
            tail = (tail + part)[-len(SENTINEL):]

    def ask(self, *commands):
        """Sends commands and returns the last reply. Fails if a reply contains an error."""
        self.socket.sendall(b"".join(encoded(*words) for words in commands) + request("ECHO", END))
        reply = None
        while (following := self.read()) != END.encode():
            reply = following
        return reply

    def read(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if not kind:
            raise SystemExit("the server has closed the connection")
        if kind in b"-!":
            raise Refused(rest.decode() if kind == b"-" else self.file.read(int(rest) + 2).decode())
        if kind in b"$=" and int(rest) >= 0:
            return self.file.read(int(rest) + 2)[:-2]
        if kind in b"*~>%|":
            return [self.read() for _ in range(max(int(rest), 0) * (2 if kind in b"%|" else 1))]
        return rest


def table(connection):
    """The entries of a server's command table, with the subcommands (as in "config|get") of those that have some."""
    return {entry[0].decode().lower(): [subcommand[0].decode().lower() for subcommand in entry[9]] for entry in connection.ask(("COMMAND",))}


def check_coverage(known):
    """Fails if an entry has neither a case nor an exemption, or both, and if a case is for no entry."""
    names = {*known, *(name for subcommands in known.values() for name in subcommands)}
    covered = {entry for case in cases() for entry in case.entries(names)}
    # Most entries with subcommands are nothing without one.
    needed = [name for entry, subcommands in known.items() for name in subcommands or [entry]]
    wrong = {
        "without a case": [entry for entry in needed if entry not in covered and not is_exempt(entry)],
        "with a case and an exemption": [entry for entry in needed if entry in covered and is_exempt(entry)],
        "not in the table, with a case": sorted(covered - names),
    }
    if any(wrong.values()):
        raise SystemExit("bench/sweep_cases.py: " + "; ".join(f"{problem}: {', '.join(found)}" for problem, found in wrong.items() if found))


class Running:
    """A case on one server: the connection with the case's data, and the encoded batches."""

    def __init__(self, case, port):
        """Makes the data and runs the first commands. Raises `Refused` if the server answers an error."""
        self.case, self.connection = case, Connection(port)
        self.connection.ask(("FLUSHALL",), ("FUNCTION", "FLUSH"), ("SCRIPT", "FLUSH"), ("HELLO", case.resp))
        for start in range(0, len(case.before), 500):
            self.connection.ask(*case.before[start:start + 500])
        self.payload = self.connection.ask(case.fetch) if case.fetch else None
        for made in (case.prepare, case.measured, case.tidy):
            if made:
                self.connection.ask(*self.commands(made, range(1)))

    def commands(self, made, numbers):
        return [[self.payload if word is PAYLOAD else word for word in words] for i in numbers for words in several(made(i))]

    def batches(self, made, count):
        """The encoded pipelines of the commands from 0 on."""
        parts = [range(start, min(start + DEPTH, count)) for start in range(0, count, DEPTH)] if made else []
        return [b"".join(request(*words) for words in self.commands(made, part)) for part in parts]

    def encode(self, count):
        self.prepare, self.measured, self.tidy = (self.batches(made, count) for made in (self.case.prepare, self.case.measured, self.case.tidy))

    def round(self, process):
        """Returns the server's CPU time for all measured batches."""
        for batch in self.prepare:
            self.connection.send(batch)
        time.sleep(SETTLED_SECONDS)
        before = servers.cpu_ns(process)
        for batch in self.measured:
            self.connection.send(batch)
        time.sleep(SETTLED_SECONDS)
        taken = servers.cpu_ns(process) - before
        for batch in self.tidy:
            self.connection.send(batch)
        return taken


def commands_of(running, process):
    """The number of a case's commands that take the time of a round, within bounds."""
    case = running.case
    if case.count:
        return case.count
    running.encode(COMMANDS_MIN)
    cost = min(running.round(process) for _ in range(2)) / COMMANDS_MIN
    largest = max(sum(map(len, batches)) for batches in (running.prepare, running.measured)) / COMMANDS_MIN
    most = min(COMMANDS_MAX, BYTES_MAX / largest)
    return int(max(COMMANDS_MIN, min(ROUND_NS / max(cost, 1), most)))


def measure(case, started, rounds):
    """Returns the nanoseconds for a command, by server and round. A server that refuses the case is left out."""
    running = {}
    for name, process, port in started:
        try:
            running[name] = Running(case, port)
        except Refused as refused:
            if name == started[-1][0]:
                raise SystemExit(f"{case.name}: {refused}") from None
    name, process, _ = started[-1]
    count = commands_of(running[name], process)
    for each in running.values():
        each.encode(count)
    taken = {name: [] for name in running}
    for number in range(rounds + 1):
        turn = number % len(started)
        for name, process, _ in started[turn:] + started[:turn]:
            if name in running:
                taken[name].append(running[name].round(process) / count)
    # The first round warms up.
    return {name: each[1:] for name, each in taken.items()}


class Row:
    """The figures of a case: medians by server, and quartiles of the fastest other server's time divided by the last server's."""

    def __init__(self, case, taken, last):
        self.case, self.medians = case, {name: statistics.median(each) for name, each in taken.items()}
        others = {name: each for name, each in taken.items() if name != last}
        self.quartiles = None
        if others:
            fastest = min(others, key=lambda name: self.medians[name])
            self.quartiles = statistics.quantiles((other / max(own, 1) for other, own in zip(others[fastest], taken[last])), n=4)

    def __str__(self):
        low, middle, high = self.quartiles or (0, 0, 0)
        return f"{middle:6.2f} {low:6.2f} to {high:5.2f}  {self.case.name}: " + ", ".join(f"{name} {ns:,.0f}" for name, ns in self.medians.items())


def sweep(args, started):
    last = started[-1][0]
    rows = []
    for case in cases():
        if not args.case or any(text in case.name for text in args.case):
            rows.append(Row(case, measure(case, started, args.rounds), last))
            print(rows[-1], file=sys.stderr, flush=True)
    for i, row in enumerate(rows):
        if row.quartiles and row.quartiles[0] < 1:
            rows[i] = Row(row.case, measure(row.case, started, AGAIN * args.rounds), last)
    compared = sorted((row for row in rows if row.quartiles), key=lambda row: row.quartiles[1])
    print(*compared, sep="\n")
    mean = math.exp(statistics.mean(math.log(row.quartiles[1]) for row in compared))
    slower = sum(row.quartiles[2] < 1 for row in compared)
    print(f"{len(compared)} cases of {len(rows)} compared, geometric mean {mean:.2f}, {slower} slower")


def check(port):
    """Runs each case once, without a measurement."""
    check_coverage(table(Connection(port)))
    refusals = []
    for case in cases():
        try:
            Running(case, port)
        except Refused as refused:
            refusals.append(f"{case.name}: {refused}")
    if refusals:
        raise SystemExit("\n".join(refusals))
    print(f"{sum(1 for _ in cases())} checks")


def main():
    if sys.argv[1:2] == ["--check"]:
        return check(int(sys.argv[2] if sys.argv[2:] else os.environ["PENSTOCK_PORT"]))
    parser = servers.options(__doc__, 27900)
    parser.add_argument("--case", action="append", default=[], help="measure only cases with this in their names")
    parser.add_argument("--client-core", type=int, default=1)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.client_core})
    started = []
    try:
        servers.start_each(args, started)
        check_coverage(table(Connection(started[-1][2])))
        sweep(args, started)
    finally:
        for _, process, _ in started:
            process.kill()


if __name__ == "__main__":
    main()
