#!/usr/bin/env python3
"""The longest waits of one connection while another causes long work, of several servers.

    bench/pauses.py \\
        --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

One process sends GETs one at a time and measures each: `p50`, `p99.99` and the longest wait, in milliseconds. Meanwhile another process
fills the server with keys, or makes it free or expire large data. `idle` is without the other process, and `overwriting` sends the
commands of `growing` to existing keys. `noise` is the longest time that the prober itself did not run, by a clock read in a loop.
Waits that don't exceed these say nothing about the server. `cpu` is the most CPU time of the server's serving thread during one
probe: its own share of a wait, on a machine with any load. --precedence gives the server and the prober precedence over everything
else on the machine (chrt, as root), including the threads that free memory in the background.

The server has one core, prober and filler share the other.

Needs Linux (/proc/PID/task/*/schedstat, taskset).
"""

import argparse
import os
import subprocess
import time

import memory
import probe


def probed(server, options, work):
    """Returns a prober's results while `work` ran."""
    precedence = ["chrt", "-r", "1"] if options.precedence else []
    prober = probe.Prober(server.port, server.pid, prefix=[*precedence, "taskset", "-c", options.client_core])
    time.sleep(0.5)
    work()
    time.sleep(0.3)
    return prober.seen()


class Server(memory.Server):
    """A server and the facts that probes need."""

    def __init__(self, name, command, port, core):
        super().__init__(name, command, port, core)
        self.port, self.pid = port, self.process.pid
        self.socket.settimeout(300)
        self.call("SET probe x")


def grow(server, keys):
    """From nothing to `keys` keys."""
    server.send(memory.strings(0, keys))


def fill_set(server, members):
    """Fills a set of so many members."""
    step = 500
    for first in range(0, members, step * 20):
        last = min(first + step * 20, members)
        server.send(memory.request("SADD", "big", *(b"member:%09d" % i for i in range(at, min(at + step, last))))
                    for at in range(first, last, step))


def volatile(server, keys):
    """Adds keys that all expire within the next second."""
    at = int(time.time()) + 2 + keys // 150_000
    deadline = b"%d" % (at * 1000)
    server.send(memory.request("SET", b"volatile:%08d" % i, b"v" * 16, "PXAT", deadline) for i in range(keys))
    return at


def wait_until_empty(server, keys):
    """Waits until the keys are gone, up to a limit."""
    deadline = time.monotonic() + 30
    while int(server.call("DBSIZE")) > keys and time.monotonic() < deadline:
        time.sleep(0.05)


def experiments(options):
    """Lists experiments: the name, the preparation, and the probed work, which gets the preparation's result."""
    keys, members, expiring = (int(n * options.scale) for n in (20_000_000, 10_000_000, 1_000_000))

    def fill(server):
        fill_set(server, members)

    def expire(server, at):
        time.sleep(max(0, at + 0.1 - time.time()))
        wait_until_empty(server, 1)

    def freed(command):
        def run(server, _):
            server.call(command)
            time.sleep(3 * options.scale)
        return run

    return [
        ("idle", lambda server: None, lambda server, _: time.sleep(3)),
        (f"growing to {keys} keys", lambda server: None, lambda server, _: grow(server, keys)),
        (f"overwriting {keys} keys", lambda server: grow(server, keys), lambda server, _: grow(server, keys)),
        (f"UNLINK of {members} members", fill, freed("UNLINK big")),
        (f"DEL of {members} members", fill, freed("DEL big")),
        (f"FLUSHALL ASYNC of {members} members", fill, freed("FLUSHALL ASYNC")),
        (f"expiry of {expiring} keys", lambda server: volatile(server, expiring), expire),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--port", type=int, default=27700, help="the first port that servers are given")
    parser.add_argument("--only", default="", help="experiments whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers of elements")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--client-core", default="1")
    parser.add_argument("--precedence", action="store_true", help="before everything else on the machine; needs root")
    options = parser.parse_args()
    os.sched_setaffinity(0, {int(options.client_core)})
    print(f"{'what':40} {'server':10} {'p50':>8} {'p99.99':>8} {'longest':>8} {'noise':>8} {'cpu':>8} {'probes':>8}")
    for name, prepare, work in experiments(options):
        if options.only not in name:
            continue
        for _ in range(options.rounds):
            for spec in options.server:
                server_name, command = spec.split("=", 1)
                options.port += 1
                with Server(server_name, os.path.expanduser(command), options.port, options.server_core) as server:
                    prepared = prepare(server)
                    if options.precedence:
                        # For the thread only, not for its children.
                        thread = probe.serving_thread(server.pid).parent.name
                        subprocess.run(["chrt", "-R", "-r", "-p", "1", thread], check=True)
                    seen = probed(server, options, lambda: work(server, prepared))
                    print(f"{name:40} {server_name:10} {seen.p50:8.3f} {seen.p9999:8.3f} {seen.longest:8.3f} "
                          f"{seen.noise:8.3f} {seen.cpu:8.3f} {int(seen.count):8}", flush=True)


if __name__ == "__main__":
    main()
