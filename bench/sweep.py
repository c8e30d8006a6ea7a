#!/usr/bin/env python3
"""CPU time of servers for every command of the table, at many sizes.

    bench/sweep.py --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'redis8=redis8-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'
    bench/sweep.py --check [PORT]    no measurement: runs each case once on that server, or that of PENSTOCK_PORT, and empties it

The last server is compared with the others. An entry of its command table without a case in `sweep_cases.py` is an error. The servers share
a core and get the same commands in turn, and each round of a case begins with the same data. A case that comes out slower is measured again
at the end, with three times the rounds; it counts as slower if three quarters of these rounds agree. Prints a line for each case, slowest
first: the medians in nanoseconds of the server's CPU for a command, and the time of the fastest other server divided by the last server's
(median and quartiles of the rounds). `--case TEXT` measures the cases with TEXT in their names.

The commands come in pipelines of 50 on one connection. `--depth` and `--connections` change both, and `--every 10` measures a tenth of the
cases. The servers are stopped while many connections send, so that they find all requests at once, as busy servers do. `--longest` measures
the client's longest wait for a single command instead of CPU time: the time of each command of a case is the least of all rounds, and the
longest one of a case counts. `--with-client` adds the client's CPU time. `sweep_chart.py` makes a chart of the output.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and two cores.
"""

import functools
import math
import os
import signal
import socket
import statistics
import sys
import time

import servers
from sweep_cases import PAYLOAD, cases, is_exempt, several
from words import request

# Depth of the pipelines of all commands that are not measured.
DEPTH = 50
END = "end-of-the-batch"
SENTINEL = b"$16\r\n%b\r\n" % END.encode()
# CPU time of a case's round, and bounds of its commands and bytes.
ROUND_NS = 6_000_000
COMMANDS_MIN, COMMANDS_MAX, BYTES_MAX = 10, 4000, 5_000_000
# Rounds of cases that came out slower, as a multiple.
AGAIN = 3
# Families whose commands concern the connection, or whose replies are more than one.
OF_A_CONNECTION = ("connection", "messages", "transactions")
# Largest batch, in bytes, that a stopped server's socket takes.
HELD_BYTES_MAX = 60_000
# Commands of a case whose single times are measured.
SINGLE_COMMANDS = 40
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
        """Sends a batch and drops the replies. Polls for them: a client that slept would have the server pay for waking it, which a client on
        another machine never does, and which takes 5 to 25 microseconds on a virtual machine."""
        self.socket.sendall(batch + request("ECHO", END))
        tail = b""
        while not tail.endswith(SENTINEL):
            try:
                part = self.socket.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            if not part:
                raise SystemExit("the server has closed the connection")
            tail = (tail + part)[-len(SENTINEL):]

    def skip(self, replies):
        """Drops this number of replies."""
        while replies:
            line = self.file.readline()
            kind, rest = line[:1], line[1:]
            if not kind:
                raise SystemExit("the server has closed the connection")
            replies -= 1
            if kind in b"$=!" and int(rest) >= 0:
                self.file.read(int(rest) + 2)
            elif kind in b"*~>%":
                replies += max(int(rest), 0) * (2 if kind == b"%" else 1)

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
    """A case on one server: the connections with the case's data, and the encoded batches."""

    def __init__(self, case, process, port, load):
        """Makes the data and runs the first commands. Raises `Refused` if the server answers an error."""
        self.case, self.process, self.load = case, process, load
        self.connections = [Connection(port) for _ in range(load.connections)]
        self.connection = self.connections[0]
        self.connection.ask(("FLUSHALL",), ("FUNCTION", "FLUSH"), ("SCRIPT", "FLUSH"))
        for connection in self.connections:
            connection.ask(("HELLO", case.resp))
        for start in range(0, len(case.before), 500):
            self.connection.ask(*case.before[start:start + 500])
        self.payload = self.connection.ask(case.fetch) if case.fetch else None
        for made in (case.prepare, case.measured, case.tidy):
            if made:
                self.connection.ask(*self.commands(made, range(1)))

    def commands(self, made, numbers):
        return [[self.payload if word is PAYLOAD else word for word in words] for i in numbers for words in several(made(i))]

    def batches(self, made, count, depth):
        """The encoded pipelines of the commands from 0 on, each with the number of its replies."""
        parts = [range(start, min(start + depth, count)) for start in range(0, count, depth)] if made else []
        batches = [self.commands(made, part) for part in parts]
        return [(b"".join(request(*words) for words in batch), len(batch)) for batch in batches]

    def encode(self, count):
        self.prepare, self.tidy = (self.batches(made, count, DEPTH) for made in (self.case.prepare, self.case.tidy))
        self.measured = self.batches(self.case.measured, count, self.load.depth)

    def send(self, batches):
        for batch, _ in batches:
            self.connection.send(batch)

    def send_by_all(self, batches):
        """Sends a batch on each connection, until all batches are sent."""
        for start in range(0, len(batches), len(self.connections)):
            pairs = list(zip(self.connections, batches[start:start + len(self.connections)]))
            held = max(len(batch) for _, (batch, _) in pairs) <= HELD_BYTES_MAX
            if held:
                self.process.send_signal(signal.SIGSTOP)
            for connection, (batch, _) in pairs:
                connection.socket.sendall(batch)
            if held:
                self.process.send_signal(signal.SIGCONT)
            for connection, (_, replies) in pairs:
                connection.skip(replies)

    def cpu_ns(self):
        """CPU time so far: the server's, and the client's if the load asks for it."""
        return servers.cpu_ns(self.process) + (time.process_time_ns() if self.load.with_client else 0)

    def round(self):
        """Returns the CPU time for all measured batches."""
        self.send(self.prepare)
        time.sleep(SETTLED_SECONDS)
        before = self.cpu_ns()
        if len(self.connections) > 1:
            self.send_by_all(self.measured)
        else:
            self.send(self.measured)
        time.sleep(SETTLED_SECONDS)
        taken = self.cpu_ns() - before
        self.send(self.tidy)
        return taken

    def single_times(self, singles):
        """Returns the nanoseconds of each request until its reply."""
        self.send(self.prepare)
        times = []
        for single in singles:
            before = time.perf_counter_ns()
            self.connection.socket.sendall(single)
            self.connection.skip(1)
            times.append(time.perf_counter_ns() - before)
        self.send(self.tidy)
        return times


class Load:
    """Depth of the pipelines and number of connections, and if the client's CPU time counts."""

    def __init__(self, depth, connections, with_client=False):
        self.depth, self.connections, self.with_client = depth, connections, with_client


def commands_of(running):
    """The number of a case's commands that take the time of a round, within bounds."""
    case = running.case
    if case.count:
        return case.count
    running.encode(COMMANDS_MIN)
    cost = min(running.round() for _ in range(2)) / COMMANDS_MIN
    largest = max(sum(len(batch) for batch, _ in batches) for batches in (running.prepare, running.measured)) / COMMANDS_MIN
    most = min(COMMANDS_MAX, BYTES_MAX / largest)
    return int(max(COMMANDS_MIN, min(ROUND_NS / max(cost, 1), most)))


def running_on_each(case, started, load):
    """The case on each server by name. A server that refuses the case is left out."""
    running = {}
    for name, process, port in started:
        try:
            running[name] = Running(case, process, port, load)
        except Refused as refused:
            if name == started[-1][0]:
                raise SystemExit(f"{case.name}: {refused}") from None
    return running


def in_turn(running, rounds):
    """Yields name and case of each server, `rounds` times and once before to warm up. The servers take turns in being first."""
    names = list(running)
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            yield name, running[name]


def measure(case, started, rounds, load):
    """Returns the nanoseconds for a command, by server and round."""
    running = running_on_each(case, started, load)
    count = commands_of(running[started[-1][0]])
    for each in running.values():
        each.encode(count)
    taken = {name: [] for name in running}
    for name, each in in_turn(running, rounds):
        taken[name].append(each.round() / count)
    return {name: each[1:] for name, each in taken.items()}


def measure_singles(case, started, rounds, load):
    """Returns the longest time of a single command by server, as a list of one: of each command the least of all rounds counts."""
    running = running_on_each(case, started, load)
    count = case.count or SINGLE_COMMANDS
    singles = {}
    for name, each in running.items():
        each.encode(count)
        singles[name] = [request(*words) for words in each.commands(case.measured, range(count))]
    least = {name: [math.inf] * len(each) for name, each in singles.items()}
    for name, each in in_turn(running, rounds):
        least[name] = [min(pair) for pair in zip(least[name], each.single_times(singles[name]))]
    return {name: [max(each)] for name, each in least.items()}


class Row:
    """The figures of a case: medians by server, and quartiles of the fastest other server's time divided by the last server's."""

    def __init__(self, case, taken, last):
        self.case, self.medians = case, {name: statistics.median(each) for name, each in taken.items()}
        others = {name: each for name, each in taken.items() if name != last}
        self.quartiles = None
        if others:
            fastest = min(others, key=lambda name: self.medians[name])
            ratios = [other / max(own, 1) for other, own in zip(others[fastest], taken[last])]
            self.quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3

    def __str__(self):
        low, middle, high = self.quartiles or (0, 0, 0)
        return f"{middle:6.2f} {low:6.2f} to {high:5.2f}  {self.case.family}: {self.case.name}: " + ", ".join(f"{name} {ns:,.0f}" for name, ns in self.medians.items())


def chosen(args):
    """The cases that the options choose."""
    for number, case in enumerate(cases()):
        is_left_out = (args.connections > 1 or args.longest) and case.family in OF_A_CONNECTION
        is_named = not args.case or any(text in case.name for text in args.case)
        if number % args.every == 0 and is_named and not is_left_out:
            yield case


def sweep(args, started):
    last, load = started[-1][0], Load(args.depth, args.connections, args.with_client)
    measured = measure_singles if args.longest else measure
    figure = "the longest single command" if args.longest else "CPU time" + " with the client" * args.with_client
    print(f"# depth {args.depth}, {args.connections} connections, {figure}", flush=True)
    rows = []
    for case in chosen(args):
        rows.append(Row(case, measured(case, started, args.rounds, load), last))
        print(rows[-1], file=sys.stderr, flush=True)
    for i, row in enumerate(rows):
        if row.quartiles and row.quartiles[0] < 1:
            rows[i] = Row(row.case, measured(row.case, started, AGAIN * args.rounds, load), last)
    compared = sorted((row for row in rows if row.quartiles), key=lambda row: row.quartiles[1])
    print(*compared, sep="\n")
    mean = math.exp(statistics.mean(math.log(row.quartiles[1]) for row in compared))
    slower = sum(row.quartiles[2] < 1 for row in compared)
    print(f"# {len(compared)} cases of {len(rows)} compared, geometric mean {mean:.2f}, {slower} slower")


def check(port):
    """Runs each case once, without a measurement."""
    check_coverage(table(Connection(port)))
    refusals = []
    for case in cases():
        try:
            Running(case, None, port, Load(DEPTH, 1))
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
    parser.add_argument("--depth", type=int, default=DEPTH, help="commands of a pipeline")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="measure each Nth case only")
    parser.add_argument("--longest", action="store_true", help="measure the longest wait for a single command")
    parser.add_argument("--with-client", action="store_true", help="add the client's CPU time")
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
