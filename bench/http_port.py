#!/usr/bin/env python3
"""The cost of the HTTP port: the server's CPU time for a request, its memory, and the waits of another client beside a busy port.

    bench/http_port.py --server 'target/release/penstock --save "" --threads 1'

CPU time is the time of all threads (/proc/PID/task/*/schedstat), for requests one at a time on one connection. The table also has the time of the
port's own thread. Figures are medians of the rounds. The other client sends PINGs one at a time on a plain connection. The server is idle
otherwise, or serves connections that request figures and pipelines as fast as possible. The table has the median and the 99th percentile of its
waits.

Needs Linux (/proc/PID/task/*/schedstat, taskset).
"""

import argparse
import http.client
import json
import pathlib
import socket
import statistics
import threading
import time

import servers

#: Requests of a measurement, and connections that keep the port busy.
COUNT, BUSY = 300, 4
#: PINGs of a measurement of waits.
PINGS = 3000
GETS = json.dumps([["GET", f"key:{number}"] for number in range(100)])
REQUESTS = {
    "GET /metrics": ("GET", "/metrics", None, 1),
    "GET /get/key:1": ("GET", "/get/key:1", None, 1),
    'POST / ["GET", "key:1"]': ("POST", "/", '["GET", "key:1"]', 1),
    "POST /pipeline of 100 GET": ("POST", "/pipeline", GETS, 100),
    "GET / (the console)": ("GET", "/", None, 1),
}


class Plain:
    """A connection that speaks the Redis protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, line):
        self.socket.sendall(line)
        return self.socket.recv(1 << 16)


def of_the_port(process):
    """CPU time of the port's thread."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks if (task / "comm").read_text() == "http\n")


def memory(process):
    rollup = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith("Rss:"))


def ask(connection, name):
    method, path, body, _ = REQUESTS[name]
    connection.request(method, path, body)
    response = connection.getresponse()
    assert response.status == 200, (name, response.read())
    return response.read()


def measure(process, run):
    before, port = servers.cpu_ns(process), of_the_port(process)
    for _ in range(COUNT):
        run()
    return (servers.cpu_ns(process) - before) / COUNT, (of_the_port(process) - port) / COUNT


def waits(plain):
    """Microseconds at the median and the 99th percentile."""
    all_waits = []
    for _ in range(PINGS):
        began = time.perf_counter_ns()
        plain.ask(b"PING\r\n")
        all_waits.append((time.perf_counter_ns() - began) / 1e3)
    all_waits.sort()
    return all_waits[PINGS // 2], all_waits[PINGS * 99 // 100]


class Busy:
    """Connections that keep the port busy on request."""

    def __init__(self, port):
        self.wanted, self.asked = threading.Event(), 0
        for number in range(BUSY):
            name = "GET /metrics" if number % 2 else "POST /pipeline of 100 GET"
            threading.Thread(target=self.run, args=(http.client.HTTPConnection("127.0.0.1", port), name), daemon=True).start()

    def run(self, connection, name):
        while True:
            self.wanted.wait()
            ask(connection, name)
            self.asked += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the command, without its ports")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=23700)
    parser.add_argument("--server-core", default="0")
    options = parser.parse_args()
    without = servers.start("without", f"{options.server} --port {options.port + 2}", options.port + 2, options.server_core)
    command = f"{options.server} --port {options.port} --http-port {options.port + 1}"
    process = servers.start("with", command, options.port, options.server_core)
    time.sleep(1)
    print(f"resident at the start: {memory(without)} KB without the port, {memory(process)} KB with it")
    plain, connection = Plain(options.port), http.client.HTTPConnection("127.0.0.1", options.port + 1)
    for number in range(100):
        plain.ask(f"SET key:{number} value:{number}\r\n".encode())
    runs = {name: lambda name=name: ask(connection, name) for name in REQUESTS}
    runs["GET by the Redis protocol"] = lambda: plain.ask(b"GET key:1\r\n")
    figures = {}
    for _ in range(options.rounds):
        for name, run in runs.items():
            figures.setdefault(name, []).append(measure(process, run))
    print(f"\n{'microseconds of CPU a request':32} {'all':>8} {'of the port':>12} {'a command':>10}")
    for name, found in figures.items():
        whole, port = (statistics.median(part) / 1e3 for part in zip(*found))
        print(f"{name:32} {whole:8.1f} {port:12.1f} {whole / REQUESTS.get(name, (1, 1, 1, 1))[3]:10.2f}")
    print(f"resident then: {memory(process)} KB")
    busy, found = Busy(options.port + 1), {"idle": [], "busy": []}
    for _ in range(options.rounds):
        for name, part in found.items():
            (busy.wanted.set if name == "busy" else busy.wanted.clear)()
            time.sleep(0.5)
            before = busy.asked
            began = time.monotonic()
            part.append((*waits(plain), (busy.asked - before) / (time.monotonic() - began)))
    print(f"\n{'another client, microseconds':32} {'median':>8} {'99 %':>8} {'HTTP requests a second':>24}")
    for name, part in found.items():
        middle, late, rate = (statistics.median(one) for one in zip(*part))
        print(f"{'the port is ' + name:32} {middle:8.0f} {late:8.0f} {rate:24.0f}")
    for one in (process, without):
        one.kill()


if __name__ == "__main__":
    main()
