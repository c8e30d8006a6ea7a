"""Servers under test: what the scripts of this directory share about starting them and asking the system about them."""

import pathlib
import shlex
import socket
import subprocess
import sys
import time


def start(name, command, port, core):
    """Starts a server on a core, and returns its process once it listens."""
    argv = [word.format(port=port) for word in shlex.split(command)]
    process = subprocess.Popen(["taskset", "-c", core, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return process
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{name} does not listen on port {port}: {command}")
            time.sleep(0.05)


def cpu_ns(process):
    """CPU time of all threads so far."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
