#!/usr/bin/env python3
"""The cost of durability: Penstock beside another server, on the same disk, with the targets beside the figures.

    bench/durable.py --peer valkey=valkey-server
    bench/durable.py --peer valkey=valkey-server --only always --rounds 5 --record

Servers take turns within each round, each started anew in a directory of its own under --dir. A drift of the machine's or the
disk's speed affects all of them. A ratio is the median of the rounds' ratios. --list names the rows. --only NAME, which can be
repeated, runs that row, or the rows with this text in their names. A row reports a command that the server lacks.

`server` is the CPU time of all threads of a server for a command, and `generator` the CPU time of the load generator (`penstock
bench`). `busy` is the share of the time in which the generator had a core: near 100 %, the generator limits the rate. On a machine
that is busy with other programs, CPU times and ratios are more reliable than rates.

For the rows named slow- every sync takes 5 ms (slow_sync.c, which needs a C compiler). Needs Linux.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
import typing

import probe
from disk_servers import NotSupported, Program, Server, StartFailed, disk_sync_ms
from memory import request

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLOW_SYNC_US = 5000
#: A server that writes an append-only file, and never a new one for it.
AOF = {"appendonly": "yes", "auto-aof-rewrite-percentage": "0"}
ALWAYS, EVERYSEC = {**AOF, "appendfsync": "always"}, {**AOF, "appendfsync": "everysec"}
NO_FILE = {"appendonly": "no"}
CLIENTS = 50
SET = ["SET", "key:__rand_int__", "__data__"]
#: Keys and members of the rows about snapshots.
KEYS, MEMBERS = 5_000_000, 10_000_000
#: Commands a second beside a snapshot.
WRITES_A_SECOND = 100_000
MEMBER_WRITES_A_SECOND = 10_000
#: How long a snapshot may take.
SAVE_MAX_S = 300
#: Seconds after which a sync once a second has certainly happened.
SETTLE_S = 1.3


class Arm(typing.NamedTuple):
    """One of the servers that take turns."""

    name: str
    program: Program
    directives: dict
    sync_us: int | None = None


class Load(typing.NamedTuple):
    """The result of a run of the load generator."""

    rate: float
    p50_ms: float
    server_ns: float
    generator_ns: float
    busy: float

    def __str__(self):
        return (f"{self.rate:9,.0f}/s  median {self.p50_ms:7.3f} ms  server {self.server_ns:6.0f} ns"
                f"  generator {self.generator_ns:5.0f} ns, busy {self.busy:4.0%}")


class Save(typing.NamedTuple):
    """The effects of a snapshot. Waits are in milliseconds. Those before it show the machine's own waits."""

    extra_percent: float
    seconds: float
    others: probe.Seen
    others_before: probe.Seen
    writers: probe.Seen

    def __str__(self):
        return (f"memory +{self.extra_percent:5.1f} %  {self.seconds:6.2f} s  longest wait {self.others.longest:6.2f} ms"
                f" (median {self.others.p50:.3f}, 99.99 % {self.others.p9999:.2f}, of CPU {self.others.cpu:.2f},"
                f" noise {self.others.noise:.2f}; before {self.others_before.longest:.2f})"
                f"  of a writer {self.writers.longest:6.2f} ms")


class Start(typing.NamedTuple):
    """A start with data to load."""

    seconds: float
    cpu_s: float

    def __str__(self):
        return f"first PONG after {self.seconds:6.2f} s  CPU {self.cpu_s:6.2f} s"


class Figure(typing.NamedTuple):
    """A line of the table. `is_met` is None if there is nothing to compare."""

    what: str
    value: str
    target: str
    is_met: bool | None = None


class Bench:
    """The rows and their shared state."""

    def __init__(self, options):
        self.options, self.said, self.port = options, [], options.port
        self.two, self.one = (Program(f"penstock-{n}", options.server, n) for n in (2, 1))
        self.subject = Program("penstock", options.server, options.threads)
        self.generator = options.generator or self.subject.path
        self.peer = Program(*options.peer.split("=", 1)) if options.peer else None

    def say(self, text):
        """Prints and records a line."""
        print(text, flush=True)
        self.said.append(text)

    # --- running ---

    @contextlib.contextmanager
    def server(self, arm, files=None):
        """Starts a server in a directory with a copy of `files`, and stops it in the end."""
        with tempfile.TemporaryDirectory(prefix="penstock-durable-", dir=self.options.dir) as directory:
            if files:
                shutil.copytree(files, directory, dirs_exist_ok=True)
            # A port each: that of a server that has just been killed may still be in use.
            self.port += 1
            server = Server(arm.program, self.port, directory, arm.directives, arm.sync_us)
            try:
                yield server
            finally:
                server.stop()

    def take_turns(self, row, arms, measure, files=None):
        """Returns the results of `measure` by the arm's name: a list with an item a round, None if the server
        lacks the measured feature."""
        results = {arm.name: [] for arm in arms}
        for turn in range(self.options.rounds):
            first = turn % len(arms)
            for arm in arms[first:] + arms[:first]:
                try:
                    with self.server(arm, files) as server:
                        result = measure(server)
                    self.say(f"  {row:14} {arm.name:14} {result}")
                except NotSupported as missing:
                    result = None
                    self.say(f"  {row:14} {arm.name:14} not supported by this server: {missing}")
                except StartFailed as said:
                    # A server that can't read the files it was given says so; without files it must start.
                    if not files:
                        raise SystemExit(f"{arm.name} doesn't start: {said}") from said
                    result = None
                    self.say(f"  {row:14} {arm.name:14} not supported by this server: it doesn't start: {said}")
                results[arm.name].append(result)
        return results

    def start_load(self, server, count, depth, command, clients=CLIENTS, rate=None, keys=None):
        """Starts the load generator. `keys` is the number of keys or members of the commands."""
        argv = [self.generator, "bench", "-p", str(server.port), "-n", str(count), "-c", str(clients), "-P", str(depth),
                "-r", str(keys or self.options.keys), "--json", *(["--rate", str(rate)] if rate else []), *command]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def load(self, server, count, depth, command, settle_s=0, **how):
        """Runs the load generator to its end."""
        cpu, began = server.cpu_s(), time.monotonic()
        generator = self.start_load(server, count, depth, command, **how)
        output = generator.stdout.read()
        _, status, usage = os.wait4(generator.pid, 0)
        generator.returncode = os.waitstatus_to_exitcode(status)
        if generator.returncode:
            raise SystemExit(f"the load generator fails at {server.program.name}: {generator.stderr.read().decode()}")
        took = time.monotonic() - began
        time.sleep(settle_s)
        test = json.loads(output)["tests"][0]
        spent = usage.ru_utime + usage.ru_stime
        return Load(test["requests_per_second"], test["latency_ms"]["p50"], (server.cpu_s() - cpu) / count * 1e9,
                    spent / count * 1e9, spent / took)

    def load_for_a_while(self, server, depth, command, settle_s=0):
        """Runs the load generator for about --seconds. A short run before gives the number of requests."""
        few = max(2000, CLIENTS * depth * 10)
        rate = self.load(server, few, depth, command).rate
        return self.load(server, max(few, int(rate * self.options.seconds)), depth, command, settle_s)

    def sets(self, server, depth, settle_s=0):
        """SETs of existing keys."""
        server.fill(strings(self.options.keys))
        return self.load_for_a_while(server, depth, SET, settle_s)

    # --- rows ---

    def set_rates(self, row, depth, target, directives, sync_us=None):
        """SETs a second against the peer."""
        arms = self.arms(directives, sync_us)
        results = self.take_turns(row, arms, lambda server: self.sets(server, depth))
        what = f"SET, appendfsync always{', syncs of 5 ms' if sync_us else ''}, depth {depth}: rate against the peer"
        return [ratio_figure(what, results, "penstock", self.peer_name(), lambda load: load.rate, target)]

    def against_no_file(self, row):
        """SETs a second with and without a file."""
        arms = [Arm("penstock", self.subject, ALWAYS), Arm("no file", self.subject, NO_FILE)]
        results = self.take_turns(row, arms, lambda server: self.sets(server, 128))
        what = "SET, appendfsync always, depth 128: rate against no file"
        return [ratio_figure(what, results, "penstock", "no file", lambda load: load.rate, 0.7)]

    def reads_beside_writers(self, row, depth):
        """The median wait for a GET beside eight writers."""
        def measure(server):
            server.fill(request("SET", f"settled:{number:012d}", "v") for number in range(self.options.keys))
            time.sleep(0.1)
            writers = self.start_load(server, 10**9, depth, SET, clients=8)
            try:
                time.sleep(0.5)
                count = int(100 * self.options.seconds)
                return self.load(server, count, 1, ["GET", "settled:__rand_int__"], clients=1, rate=100)
            finally:
                writers.kill()
                writers.communicate()

        results = self.take_turns(row, self.arms(ALWAYS, SLOW_SYNC_US), measure)
        what = f"GET of settled keys beside 8 writers at depth {depth}, syncs of 5 ms: median wait against the peer's"
        return [ratio_figure(what, results, "penstock", self.peer_name(), lambda load: load.p50_ms, 0.1, at_most=True)]

    def cpu_of_everysec(self, row):
        """CPU time of a SET, including later work of its threads."""
        arms = [*self.arms(EVERYSEC), Arm("no file", self.subject, NO_FILE)]
        results = self.take_turns(row, arms, lambda server: self.sets(server, 128, SETTLE_S))
        what = "SET, appendfsync everysec, depth 128: server CPU"
        cpu = lambda load: load.server_ns
        return [ratio_figure(f"{what} against no file", results, "penstock", "no file", cpu, 1.6, at_most=True),
                ratio_figure(f"{what} of the peer against this", results, self.peer_name(), "penstock", cpu, 3)]

    def save_keys(self, row):
        """BGSAVE of small keys beside writes."""
        count = self.scaled(KEYS)

        def measure(server):
            server.fill(strings(count))
            return self.save(server, SET, WRITES_A_SECOND, 16, probe.GET, count)

        results = self.take_turns(row, self.snapshot_arms(), measure)
        return self.save_figures(f"BGSAVE of {count:,} keys", results, [("others", 2)])

    def save_member(self, row):
        """BGSAVE of one sorted set beside writes to it."""
        count = self.scaled(MEMBERS)
        writes = ["ZADD", "big", "__rand_int__", "member:__rand_int__"]

        def measure(server):
            server.fill(members(count), 20)
            write = request("ZADD", "big", "1", "member:000000000000")
            return self.save(server, writes, MEMBER_WRITES_A_SECOND, 1, write, count)

        results = self.take_turns(row, self.snapshot_arms(), measure)
        return self.save_figures(f"BGSAVE of a sorted set of {count:,}", results, [("others", 2), ("writers", 20)])

    def save(self, server, writes, rate, depth, write, keys):
        """One BGSAVE beside writes to all keys. `write` is the prober's request, which represents the writers."""
        time.sleep(2)
        with contextlib.ExitStack() as stack:
            load = self.start_load(server, 10**9, depth, writes, clients=8, rate=rate, keys=keys)
            stack.callback(load.communicate)
            stack.callback(load.kill)
            time.sleep(1)
            prefix = self.give_precedence(server)
            before_prober = probe.Prober(server.port, server.pid, prefix=prefix)
            time.sleep(3)
            seen_before = before_prober.seen()
            others, writers = (probe.Prober(server.port, server.pid, words, prefix) for words in (probe.GET, write))
            stack.callback(others.process.kill)
            stack.callback(writers.process.kill)
            time.sleep(0.5)
            before = server.resident_bytes()
            server.forget_peak()
            peak, seconds = self.watch_save(server)
            time.sleep(0.3)
            return Save((peak - before) / before * 100, seconds, others.seen(), seen_before, writers.seen())

    def give_precedence(self, server):
        """Gives the serving threads precedence if requested. Returns the command line prefix for a prober with precedence."""
        if not self.options.precedence:
            return []
        for thread in probe.serving_threads(server.pid):
            subprocess.run(["chrt", "-r", "-p", "1", thread.parent.name], check=True)
        return ["chrt", "-r", "1"]

    def watch_save(self, server):
        """Starts a save and waits for its end. Returns the most memory meanwhile, and the seconds. The server isn't polled: the file
        gets its name when it is whole."""
        file, began = server.directory / "dump.rdb", time.monotonic()
        server.ask("BGSAVE")
        peak, looked = 0, 0
        while not file.exists():
            now = time.monotonic()
            if now - looked >= 0.05:
                peak, looked = max(peak, server.resident_bytes()), now
            if now - began > SAVE_MAX_S:
                raise SystemExit(f"{server.program.name} has not saved after {SAVE_MAX_S} s")
            time.sleep(0.002)
        seconds = time.monotonic() - began
        return max(peak, server.peak_bytes()), seconds

    def save_figures(self, what, results, waits):
        """Extra memory, longest waits, and the time beside the peer's."""
        figures = []
        for name in ("penstock-2", "penstock-1"):
            saves = [save for save in results[name] if save]
            if not saves:
                return [Figure(what, "not supported by this server", "")]
            if waits[0] == waits[-1]:
                extra = statistics.median(save.extra_percent for save in saves)
                figures.append(Figure(f"{what}, {name}: extra memory", f"{extra:.1f} %", "at most 10 %", extra <= 10))
            for whose, target in waits:
                wait = statistics.median(getattr(save, whose).longest for save in saves)
                figures.append(Figure(f"{what}, {name}: longest wait of {whose}", f"{wait:.2f} ms", f"at most {target} ms",
                                      wait <= target))
            if waits[0] == waits[-1]:
                target = 1 if name == "penstock-2" else 2
                figures.append(ratio_figure(f"{what}, {name}: time against the peer's", results, name, self.peer_name(),
                                            lambda save: save.seconds, target, at_most=True))
        return figures

    def load_snapshot(self, row, what, fill):
        """Starts with a snapshot, written by the peer if there is one."""
        maker = Arm("maker", self.peer or self.subject, NO_FILE)
        with self.server(maker) as server:
            fill(server)
            try:
                server.ask("SAVE")
            except NotSupported:
                return [Figure(f"loading {what}", "not supported by this server, and there is no peer", "")]
            return self.starts(row, f"loading {what} from RDB", server, ["dump.rdb"], self.snapshot_arms(), (3, 2))

    def replay(self, row):
        """Starts with an append-only file of commands, written by the peer if there is one."""
        count = self.scaled(KEYS)
        directives = {**AOF, "appendfsync": "no", "aof-use-rdb-preamble": "no"}
        with self.server(Arm("maker", self.peer or self.subject, directives)) as server:
            server.fill(strings(count))
            time.sleep(SETTLE_S)
            arms = [arm._replace(directives={**EVERYSEC}) for arm in self.snapshot_arms()]
            return self.starts(row, f"replaying {count:,} SETs", server, ["appendonlydir"], arms, (3, 3))

    def starts(self, row, what, maker, files, arms, targets):
        """Starts servers with the files of another one, and compares their data with its data."""
        expected = [maker.ask("DBSIZE"), maker.ask("ZCARD", "big")]
        with tempfile.TemporaryDirectory(prefix="penstock-durable-", dir=self.options.dir) as directory:
            for name in files:
                source, kept = maker.directory / name, pathlib.Path(directory) / name
                (shutil.copytree if source.is_dir() else shutil.copy)(source, kept)
            maker.stop()

            def measure(server):
                if [server.ask("DBSIZE"), server.ask("ZCARD", "big")] != expected:
                    raise NotSupported(f"{', '.join(files)} of {maker.program.name}")
                return Start(server.start_s, server.cpu_s())

            results = self.take_turns(row, arms, measure, directory)
        return [ratio_figure(f"{what}, {name}: the peer's time against this", results, self.peer_name(), name,
                             lambda start: start.seconds, target)
                for name, target in zip(("penstock-2", "penstock-1"), targets)]

    # --- parts of rows ---

    def arms(self, directives, sync_us=None):
        """Penstock and the peer."""
        return [Arm(program.name, program, directives, sync_us) for program in (self.subject, self.peer) if program]

    def snapshot_arms(self):
        """Penstock with two threads and with one, and the peer."""
        return [Arm(program.name, program, NO_FILE) for program in (self.two, self.one, self.peer) if program]

    def peer_name(self):
        """The peer's name."""
        return self.peer.name if self.peer else ""

    def scaled(self, count):
        """A number of elements."""
        return max(1000, int(count * self.options.scale))

    def rows(self):
        """All rows: the name and the function."""
        rows = [(f"always-{depth}", lambda row, d=depth, t=target: self.set_rates(row, d, t, ALWAYS))
                for depth, target in ((1, 1.5), (16, 2.5), (128, 4))]
        rows += [(f"slow-{depth}", lambda row, d=depth, t=target: self.set_rates(row, d, t, ALWAYS, SLOW_SYNC_US))
                 for depth, target in ((1, 2), (16, 5), (128, 8))]
        rows.append(("no-file", self.against_no_file))
        rows += [(f"reads-{depth}", lambda row, d=depth: self.reads_beside_writers(row, d)) for depth in (1, 16, 128)]
        keys, count = self.scaled(KEYS), self.scaled(MEMBERS)
        return [
            *rows,
            ("everysec-cpu", self.cpu_of_everysec),
            ("bgsave-keys", self.save_keys),
            ("bgsave-zset", self.save_member),
            ("load-keys", lambda row: self.load_snapshot(row, f"{keys:,} keys", lambda server: server.fill(strings(keys)))),
            ("load-zset", lambda row: self.load_snapshot(row, f"a sorted set of {count:,}",
                                                         lambda server: server.fill(members(count), 20))),
            ("replay", self.replay),
        ]


def strings(count):
    """Requests for the keys of `SET`, each with a value of the same length."""
    return (b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$3\r\nxxx\r\n" % number for number in range(count))


def members(count):
    """A sorted set, in commands of five hundred members."""
    for first in range(0, count, 500):
        numbers = range(first, min(first + 500, count))
        yield request("ZADD", "big", *(word for n in numbers for word in (b"%d" % n, b"member:%012d" % n)))


def ratio_figure(what, results, one, other, of, target, at_most=False):
    """The median of the rounds' ratios of one arm to another, and the medians of both."""
    wanted = f"{'at most' if at_most else 'at least'} {target:g} times"
    pairs = [(of(a), of(b)) for a, b in zip(results.get(one, []), results.get(other, [])) if a and b]
    if not pairs:
        is_missing = one in results and other in results
        return Figure(what, "not supported by this server" if is_missing else "no peer", wanted)
    ratio = statistics.median(a / b for a, b in pairs)
    first, second = (statistics.median(column) for column in zip(*pairs))
    is_met = ratio <= target if at_most else ratio >= target
    return Figure(what, f"{ratio:.2f} times ({one} {first:,.4g}, {other} {second:,.4g})", wanted, is_met)


def table(figures):
    """The figures in Markdown."""
    yield "| | measured | target | |"
    yield "| --- | --- | --- | --- |"
    for figure in figures:
        verdict = {None: "", True: "reached", False: "**missed**"}[figure.is_met]
        yield f"| {figure.what} | {figure.value} | {figure.target} | {verdict} |"


def is_chosen(name, only, rows):
    """Returns true if a row is selected: by an empty list, by its name, or by a part of it that is no other row's name."""
    return not only or any(part == name or part not in rows and part in name for part in only)


def processor():
    """Returns the name of the processor."""
    fields = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return f"{fields.get('model name', 'unknown')}, family {fields.get('cpu family')} model {fields.get('model')}"


def describe(bench):
    """Describes the machine and the servers."""
    options, load = bench.options, os.getloadavg()[0]
    bench.say(f"{datetime.date.today()}, {processor()}, {os.cpu_count()} cores, Linux {platform.release()}")
    for program in filter(None, (bench.subject, bench.peer)):
        bench.say(f"{program.name}: {program.version()}{f', {program.threads} threads' if program.threads else ''}")
    bench.say(f"{options.rounds} rounds of {options.seconds:g} s, {options.keys} keys, scale {options.scale:g}; the disk "
              f"syncs 4 KB in {disk_sync_ms(options.dir):.2f} ms; load average {load:.1f} before")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=str(ROOT / "target/release/penstock"), help="Penstock")
    parser.add_argument("--peer", metavar="NAME=PROGRAM", help="the server to compare with: Valkey or Redis")
    parser.add_argument("--generator", metavar="PROGRAM", help="whose `bench` makes the load (default: --server)")
    parser.add_argument("--threads", type=int, default=2, help="Penstock's, where a row has no number of its own")
    parser.add_argument("--dir", default="/var/tmp", help="where the servers' directories are put: on a disk, with 10 GB free")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="names the rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of a measurement of rates")
    parser.add_argument("--keys", type=int, default=100_000, help="that SETs name")
    parser.add_argument("--precedence", action="store_true", help="gives serving threads and probers precedence over "
                        "everything else in the rows about BGSAVE (chrt, as root): what is left of the waits is the server's own")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of elements in snapshots and files")
    parser.add_argument("--port", type=int, default=24000, help="the first port that servers are given")
    parser.add_argument("--record", nargs="?", const="", metavar="FILE",
                        help="writes all that is printed to bench/results/DATE-durable.txt, or to FILE")
    options = parser.parse_args()
    bench = Bench(options)
    rows = dict(bench.rows())
    if options.list:
        return print("\n".join(rows))
    chosen = [name for name in rows if is_chosen(name, options.only, rows)]
    if not chosen:
        parser.error(f"no row is named so; there are {', '.join(rows)}")
    describe(bench)
    figures = []
    for name in chosen:
        for figure in rows[name](name):
            figures.append(figure)
            bench.say(f"{name}: {figure.what}: {figure.value}; {figure.target}")
    bench.say("")
    for line in table(figures):
        bench.say(line)
    if options.record is not None:
        path = options.record or ROOT / f"bench/results/{datetime.date.today()}-durable.txt"
        pathlib.Path(path).write_text("\n".join(bench.said) + "\n")


if __name__ == "__main__":
    main()
