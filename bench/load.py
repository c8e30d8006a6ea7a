#!/usr/bin/env python3
"""Compares `penstock load` with `redis-cli --pipe`: wall time and processor time of the loader, into the same servers.

    bench/load.py [--server PROGRAM] [--commands N] [--rounds N] [--port PORT] [--peer NAME=PROGRAM]...

The inputs are a file of SET commands of as many keys, in the Redis protocol and as lines, and a CSV file of a quarter as many
records, each for a ZADD to one key. redis-cli gets the latter as commands in the protocol, once ready-made and once from an awk
that converts the file during the load. `penstock load` runs with its defaults, and with --no-merge, which sends every command
unchanged. Loaders take turns, and each load goes into a new server. The script prints the medians of all rounds, and raw figures
as JSON lines with --raw FILE.

"server" is the processor time of all the server's threads for the load. "busy" is the share of the wall time in which its busiest
thread ran. Near 100 %, a loader can only be faster with less work for the server.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


# Makes ZADDs of records without quoted fields, in bytes.
AWK = (
    r"""NR > 1 { printf "*4\r\n$4\r\nZADD\r\n$6\r\nmovies\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n","""
    r""" length($2), $2, length($1), $1 }"""
)


class Input:
    """An input: a file for redis-cli, the arguments for `penstock load`, a check for a complete load, and the converter
    from the latter's file to the former."""

    def __init__(self, commands, piped, arguments, count, converter=None):
        self.commands, self.piped, self.arguments, self.count = commands, piped, arguments, count
        self.converter = converter


def request(*words):
    return f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)


def write_inputs(directory, commands):
    """Writes the files. `redis-cli --pipe` and `penstock load` have the same effect with each."""
    wire, lines = directory / "set.resp", directory / "set.lines"
    with open(wire, "w") as wire_file, open(lines, "w") as lines_file:
        for number in range(commands):
            key, value = f"key:{number:012d}", f"value:{number:010d}"
            wire_file.write(request("SET", key, value))
            lines_file.write(f"SET {key} {value}\r\n")
    records, zadds, movies = commands // 4, directory / "zadd.resp", directory / "movies.csv"
    with open(zadds, "w") as zadd_file, open(movies, "w") as movie_file:
        movie_file.write("title,year\n")
        for number in range(records):
            # In no order of time, as titles are.
            title, year = f"The film number {number * 7919 % records}", str(1900 + number * 31 % 127)
            zadd_file.write(request("ZADD", "movies", year, title))
            movie_file.write(f"{title},{year}\n")
    csv = ["--csv", str(movies), "ZADD movies {year} {title}"]
    return {
        "RESP": Input(commands, wire, [str(wire)], "DBSIZE"),
        "lines": Input(commands, lines, [str(lines)], "DBSIZE"),
        "CSV": Input(records, zadds, csv, "ZCARD movies", ["awk", "-F,", AWK, str(movies)]),
    }


class Server:
    def __init__(self, program, port, *directives):
        self.port = port
        self.directory = tempfile.TemporaryDirectory()
        arguments = ["server"] if os.path.basename(program).startswith("penstock") else []
        self.process = subprocess.Popen(
            [program, *arguments, "--port", str(port), "--save", "", "--bind", "127.0.0.1", *directives],
            cwd=self.directory.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )
        for _ in range(500):
            try:
                self.ask("PING")
                return
            except OSError:
                time.sleep(0.01)
        raise SystemExit(f"{program} doesn't start")

    def ask(self, line):
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(line.encode() + b"\r\n")
            return connection.recv(1000)

    def cpu_s(self):
        """Processor seconds of each thread (schedstat: the time it ran, in nanoseconds)."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks}

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()


def measure(server, arguments, path_on_stdin, converter=None):
    """Returns wall, user and system seconds, the server's seconds, and the peak of memory in KiB. A converter counts only
    towards the wall time."""
    before = server.cpu_s()
    with open(path_on_stdin or os.devnull, "rb") as stdin:
        start = time.perf_counter()
        source = subprocess.Popen(converter, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}) if converter else None
        process = subprocess.Popen(
            arguments, stdin=source.stdout if source else stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = status
    if source:
        source.stdout.close()
        status = status or source.wait()
    if status != 0:
        raise SystemExit(f"{arguments}: status {status}\n{output}")
    threads = [after - before.get(thread, 0) for thread, after in server.cpu_s().items()]
    return {
        "wall": wall, "user": usage.ru_utime, "system": usage.ru_stime, "peak_kib": usage.ru_maxrss,
        "server_s": sum(threads), "busiest_s": max(threads),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=str(ROOT / "target/release/penstock"))
    parser.add_argument("--commands", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=23100)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM")
    parser.add_argument("--raw", type=pathlib.Path)
    options = parser.parse_args()
    options.server = os.path.abspath(options.server)
    servers = {"penstock": options.server, **dict(peer.split("=", 1) for peer in options.peer)}
    servers = {name: os.path.abspath(shutil.which(program)) for name, program in servers.items()}
    raw = []
    with tempfile.TemporaryDirectory() as directory:
        inputs = write_inputs(pathlib.Path(directory), options.commands)
        for place, (name, program) in enumerate(servers.items()):
            port = str(options.port + place)
            load = [options.server, "load", "-p", port]
            for number in range(options.rounds):
                for kind, input in inputs.items():
                    loaders = {
                        "redis-cli --pipe": (["redis-cli", "-p", port, "--pipe"], input.piped),
                        "penstock load": ([*load, *input.arguments], None),
                        "load --no-merge": ([*load, "--no-merge", *input.arguments], None),
                    }
                    if input.converter:
                        loaders["awk | redis-cli"] = (["redis-cli", "-p", port, "--pipe"], None, input.converter)
                    for loader, command in loaders.items():
                        # A new server each time: the memory kept by an emptied one depends on the load before.
                        server = Server(program, int(port))
                        figures = measure(server, *command)
                        count = server.ask(input.count)
                        server.stop()
                        assert count == b":%d\r\n" % input.commands, count
                        raw.append({"server": name, "input": kind, "loader": loader, "round": number, **figures})
        for name in servers:
            for kind in inputs:
                print_loaders(name, kind, raw, inputs[kind].commands)
    if options.raw:
        options.raw.write_text("".join(json.dumps(line) + "\n" for line in raw))


def print_loaders(name, kind, raw, commands):
    walls = []
    for loader in ["redis-cli --pipe", "penstock load", "load --no-merge", "awk | redis-cli"]:
        lines = [line for line in raw if (line["server"], line["input"], line["loader"]) == (name, kind, loader)]
        if not lines:
            continue
        median = {key: statistics.median(line[key] for line in lines) for key in ["wall", "user", "system", "peak_kib", "server_s", "busiest_s"]}
        walls.append(median["wall"])
        cpu = (median["user"] + median["system"]) / commands * 1e9
        print(
            f"{name:10} {kind:6} {loader:17} {median['wall']:6.2f} s {commands / median['wall'] / 1e6:6.2f} M/s"
            f"  loader: {cpu:5.0f} ns a command, {median['peak_kib'] / 1024:3.0f} MiB"
            f"  server: {median['server_s'] / commands * 1e9:5.0f} ns a command, busy {median['busiest_s'] / median['wall']:4.0%}"
        )
    with_awk = f", {walls[3] / walls[1]:.2f} (merged, beside awk and redis-cli)" if len(walls) > 3 else ""
    print(f"{name:10} {kind:6} ratio             {walls[0] / walls[1]:6.2f} (merged), {walls[0] / walls[2]:.2f} (not){with_awk}")


if __name__ == "__main__":
    main()
