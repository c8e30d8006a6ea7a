#!/usr/bin/env python3
"""Compares `penstock load` with `redis-cli --pipe`: wall time and processor time of the loader, into the same servers.

    bench/load.py [--server PROGRAM] [--commands N] [--rounds N] [--port PORT] [--peer NAME=PROGRAM]...

The input is a file of SET commands, in the Redis protocol and as lines. Loaders take turns; each load goes into an
empty server; the medians of all rounds are printed, and raw figures as JSON lines with --raw FILE.

"server" is the processor time that the server took for the load, all its threads; "busy" is how much of the wall time its
busiest thread ran. Where that is near 100 % no loader can be faster, but by making less work for the server.
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


def write_inputs(directory, commands):
    """The files: name, and what `redis-cli --pipe` and `penstock load` make of it is the same."""
    wire, lines = directory / "set.resp", directory / "set.lines"
    with open(wire, "w") as wire_file, open(lines, "w") as lines_file:
        for number in range(commands):
            key, value = f"key:{number:012d}", f"value:{number:010d}"
            wire_file.write(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n${len(value)}\r\n{value}\r\n")
            lines_file.write(f"SET {key} {value}\r\n")
    return {"RESP": wire, "lines": lines}


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

    def empty(self):
        """Empties it, and waits until it has also given back the memory, which a thread of its own may do."""
        self.ask("FLUSHALL")
        before, now = None, self.cpu_s()
        while before is None or sum(now.values()) - sum(before.values()) > 0.002:
            time.sleep(0.05)
            before, now = now, self.cpu_s()

    def cpu_s(self):
        """Processor seconds of each thread (schedstat: the time it ran, in nanoseconds)."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks}

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()


def measure(server, arguments, path_on_stdin):
    """Wall, user and system seconds, the server's seconds, and the peak of memory in KiB."""
    before = server.cpu_s()
    with open(path_on_stdin or os.devnull, "rb") as stdin:
        start = time.perf_counter()
        process = subprocess.Popen(arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = status
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
            server = Server(program, options.port + place)
            loaders = {
                "redis-cli --pipe": lambda path: (["redis-cli", "-p", str(server.port), "--pipe"], path),
                "penstock load": lambda path: ([options.server, "load", "-p", str(server.port), str(path)], None),
            }
            for number in range(options.rounds):
                for kind, path in inputs.items():
                    for loader, command in loaders.items():
                        server.empty()
                        figures = measure(server, *command(path))
                        keys = server.ask("DBSIZE")
                        assert keys == b":%d\r\n" % options.commands, keys
                        raw.append({"server": name, "input": kind, "loader": loader, "round": number, **figures})
            server.stop()
        for name in servers:
            for kind in inputs:
                print_pair(name, kind, raw, options.commands)
    if options.raw:
        options.raw.write_text("".join(json.dumps(line) + "\n" for line in raw))


def print_pair(name, kind, raw, commands):
    walls = []
    for loader in ["redis-cli --pipe", "penstock load"]:
        lines = [line for line in raw if (line["server"], line["input"], line["loader"]) == (name, kind, loader)]
        median = {key: statistics.median(line[key] for line in lines) for key in ["wall", "user", "system", "peak_kib", "server_s", "busiest_s"]}
        walls.append(median["wall"])
        cpu = (median["user"] + median["system"]) / commands * 1e9
        print(
            f"{name:10} {kind:6} {loader:17} {median['wall']:6.2f} s {commands / median['wall'] / 1e6:6.2f} M/s"
            f"  loader: {cpu:5.0f} ns a command, {median['peak_kib'] / 1024:3.0f} MiB"
            f"  server: {median['server_s'] / commands * 1e9:5.0f} ns a command, busy {median['busiest_s'] / median['wall']:4.0%}"
        )
    print(f"{name:10} {kind:6} ratio             {walls[0] / walls[1]:6.2f}")


if __name__ == "__main__":
    main()
