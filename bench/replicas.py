#!/usr/bin/env python3
"""The cost of a replica for its primary, and the time of a full synchronisation: Penstock beside another server.

    bench/replicas.py --penstock target/release/penstock --peer valkey=valkey-server --benchmark valkey-benchmark

Each server is the primary of a replica of its own kind, with one thread and the same settings. They take turns within each round. `cpu` is the
CPU time of all of the primary's threads for a SET of 16 bytes at depth 128, without a replica and with one. `replica` is the replica's CPU time.
`sync` is the time from REPLICAOF until the link is up, with --keys keys of 16 bytes. `memory` is the primary's peak of resident memory above
its memory before. Needs Linux.
"""

import argparse
import contextlib
import pathlib
import statistics
import subprocess
import tempfile
import time

import servers
from disk_servers import Program, Server

REQUESTS = 1_500_000


def wait_until(holds, limit_s=300):
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise SystemExit("it took too long")
        time.sleep(0.002)


def is_up(replica):
    return replica.info("replication").get("master_link_status") == "up"


def load(benchmark, port, keys):
    """Runs SETs at depth 128 by 50 clients."""
    argv = [benchmark, "-p", str(port), "-n", str(REQUESTS), "-P", "128", "-c", "50", "-r", str(keys), "-d", "16", "-t", "set", "-q"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def resident(pid, name):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def server(program, port):
    directives = {"repl-backlog-size": "64mb", "repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0"}
    directives["enable-debug-command"] = "yes"
    with tempfile.TemporaryDirectory() as directory:
        running = Server(program, port, directory, directives)
        try:
            yield running
        finally:
            running.process.kill()
            running.process.wait()


def cost(program, benchmark, keys):
    """Nanoseconds a SET: the primary's without a replica, with one, and the replica's."""
    with server(program, 7801) as primary, server(program, 7802) as replica:
        def measured():
            before = [servers.cpu_ns(s.process) for s in (primary, replica)]
            load(benchmark, 7801, keys)
            if is_up(replica):
                end = primary.info("replication")["master_repl_offset"]
                wait_until(lambda: int(replica.info("replication")["slave_repl_offset"]) >= int(end))
            return [(servers.cpu_ns(s.process) - b) / REQUESTS for s, b in zip((primary, replica), before)]

        load(benchmark, 7801, keys)
        alone = measured()[0]
        replica.ask("REPLICAOF", "127.0.0.1", "7801")
        wait_until(lambda: is_up(replica))
        load(benchmark, 7801, keys)
        with_one, of_replica = measured()
        return alone, with_one, of_replica


def sync(program, keys):
    """Returns the seconds, and the growth of the primary's memory as a fraction."""
    with server(program, 7801) as primary, server(program, 7802) as replica:
        primary.ask("DEBUG", "POPULATE", str(keys), "key", "16")
        time.sleep(1)
        before = resident(primary.pid, "VmRSS")
        pathlib.Path(f"/proc/{primary.pid}/clear_refs").write_text("5")
        began = time.monotonic()
        replica.ask("REPLICAOF", "127.0.0.1", "7801")
        wait_until(lambda: is_up(replica))
        took = time.monotonic() - began
        return took, resident(primary.pid, "VmHWM") / before - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default="target/release/penstock")
    parser.add_argument("--peer", default="valkey=valkey-server")
    parser.add_argument("--benchmark", default="valkey-benchmark")
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    name, path = options.peer.split("=", 1)
    programs = [Program("penstock", options.penstock, threads=1), Program(name, path)]
    costs, syncs = {p.name: [] for p in programs}, {p.name: [] for p in programs}
    for _ in range(options.rounds):
        for program in programs:
            costs[program.name].append(cost(program, options.benchmark, 1_000_000))
            syncs[program.name].append(sync(program, options.keys))
    for program in programs:
        alone, with_one, of_replica = (statistics.median(column) for column in zip(*costs[program.name]))
        took, memory = (statistics.median(column) for column in zip(*syncs[program.name]))
        print(f"{program.name:10} cpu {alone:5.0f} ns, with a replica {with_one:5.0f} ns, replica {of_replica:5.0f} ns;"
              f"  sync {took:6.2f} s, memory {memory:+.1%}")
    less = statistics.median(theirs[1] / ours[1] for ours, theirs in zip(costs["penstock"], costs[name]))
    part = statistics.median(ours[0] / theirs[0] for ours, theirs in zip(syncs["penstock"], syncs[name]))
    print(f"with a replica, {less:.2f} times less CPU a SET; a full sync in {part:.2f} of the time")


if __name__ == "__main__":
    main()
