#!/usr/bin/env python3
"""A process that sends requests one at a time and measures each: the waits of a connection while a server is busy.

The scripts of this directory start it through `Prober`. It probes until its standard input is closed, and then prints its results as
numbers: see `Seen`.

Needs Linux (/proc/PID/task/*/schedstat).
"""

import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import typing

GET = b"*2\r\n$3\r\nGET\r\n$5\r\nprobe\r\n"


class Seen(typing.NamedTuple):
    """Waits in milliseconds. `noise` is the longest time that the prober itself did not run, by a clock read in a loop.
    `cpu` is the most CPU time of the server's serving thread during one probe."""

    p50: float
    p9999: float
    longest: float
    noise: float
    cpu: float
    count: float


class Prober:
    """A prober of a server that runs until `seen` is called. `prefix` is a command line that starts it, for example of taskset."""

    def __init__(self, port, pid, request=GET, prefix=()):
        argv = [*prefix, sys.executable, os.path.abspath(__file__), str(port), str(pid)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdin.write(b"%d\n%s" % (len(request), request))
        self.process.stdin.flush()

    def seen(self):
        """Ends the prober and returns its results."""
        return Seen(*map(float, self.process.communicate(b"")[0].split()))


def serving_threads(pid):
    """Returns the files with the CPU time of the serving threads: the workers, or the first thread."""
    tasks = pathlib.Path(f"/proc/{pid}/task")
    workers = [task for task in tasks.iterdir() if (task / "comm").read_text().startswith("worker-")]
    return [task / "schedstat" for task in workers or [tasks / str(pid)]]


def serving_thread(pid):
    """Returns the first of these files."""
    return serving_threads(pid)[0]


def cpu_ns(schedstat):
    """CPU time of a thread."""
    return int(schedstat.read_text().split()[0])


def probe_until_closed(port, pid, request):
    """Probes until standard input is closed. The reply must be short."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), stop.set()), daemon=True).start()
    stream = socket.create_connection(("127.0.0.1", port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took, noise, longest_turn = [], 0, 0
    schedstat = serving_thread(pid)
    while not stop.is_set():
        cpu, began = cpu_ns(schedstat), time.perf_counter()
        stream.sendall(request)
        stream.recv(64)
        took.append(time.perf_counter() - began)
        longest_turn = max(longest_turn, cpu_ns(schedstat) - cpu)
        # A moment without a system call: the time it takes longer than usual is the machine's, not the server's.
        watched, last = 0, time.perf_counter()
        while watched < 50e-6:
            now = time.perf_counter()
            noise = max(noise, now - last)
            watched, last = watched + now - last, now
        # Lets other programs on this core run.
        time.sleep(300e-6)
    took.sort()
    return Seen(took[len(took) // 2] * 1e3, took[int(len(took) * 0.9999)] * 1e3, took[-1] * 1e3, noise * 1e3,
                longest_turn / 1e6, len(took))


if __name__ == "__main__":
    length = int(sys.stdin.buffer.readline())
    print(*probe_until_closed(int(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer.read(length)))
