#!/usr/bin/env python3
"""Does one core of a load generator keep one core of the server busy? Each is bound to a core of its own.

    bench/saturate.py [--server PROGRAM] [--requests N] [--rounds N] [--port PORT] [--raw FILE]

The server runs with one thread. "busy" is the share of the wall time in which that thread ran or waited for its core, possibly used by
other programs (schedstat). A server that is busy all the time is saturated, and the requests a second are its limit. The next
figures are the processor times of server and generator for a request. Generators take turns. Figures are medians of all rounds.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time

from load import ROOT, Server

TESTS = {"PING": "ping_mbulk", "SET": "set", "GET": "get"}
DEPTHS = [1, 16, 128]


class Pinned(Server):
    def __init__(self, program, port, core):
        super().__init__(program, port, "--threads", "1")
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})


    def times_s(self):
        """Returns the seconds in which the threads ran, and in which they waited for a core. Only one of them works."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        fields = [(task / "schedstat").read_text().split() for task in tasks]
        return [sum(int(field[index]) for field in fields) / 1e9 for index in (0, 1)]



def measure(server, arguments, core):
    before, start = server.times_s(), time.perf_counter()
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = status
    if status != 0:
        raise SystemExit(f"{arguments}: status {status}")
    ran, waited = (after - before for after, before in zip(server.times_s(), before))
    return {"wall": wall, "server_s": ran, "server_waited_s": waited, "generator_s": usage.ru_utime + usage.ru_stime}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=str(ROOT / "target/release/penstock"))
    parser.add_argument("--requests", type=int, default=4_000_000, help="at the largest depth; fewer at smaller ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=23120)
    parser.add_argument("--raw", type=pathlib.Path)
    options = parser.parse_args()
    program = os.path.abspath(options.server)
    server = Pinned(program, options.port, 0)
    generators = {"penstock bench": [program, "bench"]}
    if shutil.which("redis-benchmark"):
        generators["redis-benchmark"] = ["redis-benchmark"]
    raw = []
    for number in range(options.rounds):
        for depth in DEPTHS:
            requests = options.requests * depth // (depth + 15)
            for name, test in TESTS.items():
                for generator, command in generators.items():
                    arguments = [
                        *command, "-p", str(options.port), "-q", "-n", str(requests), "-P", str(depth), "-r", "100000", "-t", test
                    ]
                    figures = measure(server, arguments, 1)
                    raw.append({"generator": generator, "test": name, "depth": depth, "requests": requests, "round": number, **figures})
    server.stop()
    for depth in DEPTHS:
        for name in TESTS:
            for generator in generators:
                lines = [line for line in raw if (line["generator"], line["test"], line["depth"]) == (generator, name, depth)]
                show(generator, name, depth, lines)
    if options.raw:
        options.raw.write_text("".join(json.dumps(line) + "\n" for line in raw))


def show(generator, name, depth, lines):
    def median(of):
        return statistics.median(of(line) for line in lines)

    print(
        f"-P {depth:<3} {name:4} {generator:15} {median(lambda line: line['requests'] / line['wall']) / 1e6:5.2f} M/s"
        f"  server busy {median(lambda line: (line['server_s'] + line['server_waited_s']) / line['wall']):4.0%}"
        f" {median(lambda line: line['server_s'] / line['requests']) * 1e9:5.0f} ns a request"
        f"  generator {median(lambda line: line['generator_s'] / line['requests']) * 1e9:5.0f} ns"
    )


if __name__ == "__main__":
    main()
