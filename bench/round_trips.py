#!/usr/bin/env python3
"""The round trip of one client's requests, one at a time, and the cost of idle connections, of several servers in turn.

    bench/round_trips.py \\
        --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

The server's threads run on one core and the client on another. They are bound after the server's start: a server bound before it knows only
one core, and Penstock polls only if there is another one. The script prints microseconds for a PING, with the median, the least and the
greatest of the rounds. It also prints the percentage of a core that a server takes with a hundred silent connections, which have sent
requests before.

Needs Linux (/proc/PID/task/*/schedstat, taskset).
"""

import argparse
import os
import socket
import statistics
import subprocess
import time

import servers

# After this many seconds of silence a server has stopped polling.
SETTLING = 2
# For so many seconds an idle server is watched.
WATCHED = 4
IDLE_CONNECTIONS = 100
PORT = 27900


def bind(process, core):
    """Binds all threads of a server to one core."""
    subprocess.run(["taskset", "-apc", core, str(process.pid)], check=True, stdout=subprocess.DEVNULL)


def ping(stream):
    """One round trip."""
    stream.sendall(b"*1\r\n$4\r\nPING\r\n")
    if stream.recv(64) != b"+PONG\r\n":
        raise SystemExit("PING got another reply")


def connect(port):
    """A connection that sends at once."""
    stream = socket.create_connection(("127.0.0.1", port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def trips(port, count):
    """Microseconds for a PING, one by one."""
    with connect(port) as stream:
        began = time.monotonic()
        for _ in range(count):
            ping(stream)
        return (time.monotonic() - began) / count * 1e6


def idle(process, port):
    """Returns the percentage of a core that silent connections cost."""
    streams = [connect(port) for _ in range(IDLE_CONNECTIONS)]
    for stream in streams:
        ping(stream)
    time.sleep(SETTLING)
    before = servers.cpu_ns(process)
    time.sleep(WATCHED)
    percentage = (servers.cpu_ns(process) - before) / WATCHED / 1e9 * 100
    for stream in streams:
        stream.close()
    return percentage


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--trips", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--client-core", type=int, default=1)
    options = parser.parse_args()

    os.sched_setaffinity(0, {options.client_core})
    specs = [spec.split("=", 1) for spec in options.server]
    every_core = f"0-{os.cpu_count() - 1}"
    running = {}
    try:
        for i, (name, command) in enumerate(specs):
            running[name] = servers.start(name, os.path.expanduser(command), PORT + i, every_core), PORT + i
            bind(running[name][0], options.server_core)
        took = {name: [] for name in running}
        for _ in range(options.rounds):
            for name, (_, port) in running.items():
                took[name].append(trips(port, options.trips))
        print(f"{'server':10} {'us/PING':>8} {'least':>7} {'most':>7} {'idle %':>7}")
        for name, (process, port) in running.items():
            times = took[name]
            print(f"{name:10} {statistics.median(times):8.1f} {min(times):7.1f} {max(times):7.1f} {idle(process, port):7.2f}", flush=True)
    finally:
        for process, _ in running.values():
            process.terminate()


if __name__ == "__main__":
    main()
