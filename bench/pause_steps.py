#!/usr/bin/env python3
"""The server's own share of the waits while it grows, without the machine's.

    bench/pause_steps.py --precedence \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

`bench/pauses.py` measures the waits of another connection, but not their cause. A virtual machine stops for milliseconds at times, and
its clocks count that as the server's time. The server's work is the same in every run, and the machine's stops are not. A server is
therefore filled in steps, pipelines of 1,000 SETs that are the same in every round. Right after each step another connection sends a
GET and measures its wait. The shortest wait of all rounds counts for a step: long work of the server makes a step long in every round.
`of minima` is the longest of these waits.

The rounds take turns with `control`: the same number of SETs to the first thousand keys, without growth. Its number of long waits
(`> 2 ms`) is the machine's share.

The server has one core, the client the other. --precedence gives both precedence over everything else on the machine (chrt, as
root); the server's other threads have none.

Needs Linux (/proc/PID/task/*/schedstat, taskset).
"""

import argparse
import os
import socket
import subprocess
import time

import memory
import pauses
import probe

STEP_KEYS = 1000
REPLIES_BYTES = STEP_KEYS * len(b"+OK\r\n")
LONG_S = 2e-3
# Seconds between two steps, for the server's idle work.
BETWEEN_S = 50e-6


def set_precedence(thread, has):
    """Gives a thread precedence over everything else."""
    subprocess.run(["chrt", *(["-r", "-p", "1"] if has else ["-o", "-p", "0"]), str(thread)], check=True)


def receive(stream, count):
    """Receives and drops so many bytes."""
    while count:
        received = len(stream.recv(count))
        if not received:
            raise ConnectionError("the server has closed the connection")
        count -= received


def waits(server, steps, grows):
    """Returns the waits of the second connection in each step, in seconds."""
    prober = socket.create_connection(("127.0.0.1", server.port))
    prober.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took = []
    for step in range(steps):
        first = step * STEP_KEYS if grows else 0
        server.socket.sendall(b"".join(memory.strings(first, first + STEP_KEYS)))
        began = time.perf_counter()
        prober.sendall(probe.GET)
        prober.recv(64)
        took.append(time.perf_counter() - began)
        receive(server.socket, REPLIES_BYTES)
        time.sleep(BETWEEN_S)
    return took


def round_of(options, name, command, grows):
    """Returns the waits of a new server."""
    options.port += 1
    with pauses.Server(name, os.path.expanduser(command), options.port, options.server_core) as server:
        if options.precedence:
            set_precedence(probe.serving_thread(server.pid).parent.name, True)
            set_precedence(os.getpid(), True)
        try:
            return waits(server, options.keys // STEP_KEYS, grows)
        finally:
            # The next server must not inherit it.
            if options.precedence:
                set_precedence(os.getpid(), False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--port", type=int, default=28700, help="the first port that servers are given")
    parser.add_argument("--keys", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--client-core", default="1")
    parser.add_argument("--precedence", action="store_true", help="before everything else on the machine; needs root")
    options = parser.parse_args()
    os.sched_setaffinity(0, {int(options.client_core)})
    print(f"{'what':10} {'server':10} {'p50':>8} {'p99.99':>8} {'longest':>8} {'> 2 ms':>8} {'of minima':>10}   ms; "
          f"{options.keys // STEP_KEYS} waits a round")
    shortest = {}
    for _ in range(options.rounds):
        for spec in options.server:
            name, command = spec.split("=", 1)
            for what in "growing", "control":
                took = round_of(options, name, command, what == "growing")
                shortest[name, what] = list(map(min, shortest.get((name, what), took), took))
                long = sum(wait > LONG_S for wait in took)
                took.sort()
                print(f"{what:10} {name:10} {took[len(took) // 2] * 1e3:8.3f} {took[int(len(took) * 0.9999)] * 1e3:8.3f} "
                      f"{took[-1] * 1e3:8.3f} {long:8} {max(shortest[name, what]) * 1e3:10.3f}", flush=True)


if __name__ == "__main__":
    main()
