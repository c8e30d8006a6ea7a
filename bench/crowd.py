#!/usr/bin/env python3
"""Server CPU time per command with many clients that don't pipeline, of several servers in turn.

    bench/crowd.py \\
        --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

In `side_by_side.py` at depth 1 a server waits for its generator after one or two requests. The generator here (crowd.c) does next to
nothing, and keeps one request of each client on its way: many have arrived at each read of the server. Every server runs on one
core and the generator on another. The figures are medians of the rounds. The last column is the first server's time divided by this
one's.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and a C compiler.
"""

import argparse
import pathlib
import subprocess
import tempfile

from side_by_side import medians_of, start_all, stop_all

SOURCE = pathlib.Path(__file__).with_name("crowd.c")


def run(server, options, program, clients, test):
    """One run: nanoseconds of the server's CPU time per command."""
    before = server.cpu_ns()
    words = [server.port, clients, options.requests, options.keys, test]
    subprocess.run(["taskset", "-c", options.client_core, program, *map(str, words)], check=True)
    return [(server.cpu_ns() - before) / options.requests]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--tests", default="ping,get,set")
    parser.add_argument("--clients", default="10,50,100,300")
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--client-core", default="1")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as directory:
        program = f"{directory}/crowd"
        subprocess.run(["cc", "-O2", "-o", program, SOURCE], check=True)
        running = start_all(options.server, options, 27800)
        try:
            print(f"{'test':6} {'clients':>7} {'server':10} {'ns/command':>10} {running[0].name + '/this':>12}")
            for test in options.tests.split(","):
                for clients in map(int, options.clients.split(",")):
                    medians = medians_of(
                        running, options.rounds, lambda server: run(server, options, program, clients, test))
                    for name, [ns] in medians.items():
                        ratio = medians[running[0].name][0] / ns
                        print(f"{test:6} {clients:7} {name:10} {ns:10.0f} {ratio:12.2f}", flush=True)
        finally:
            stop_all(running)


if __name__ == "__main__":
    main()
