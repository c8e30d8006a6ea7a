"""Servers under test: shared functions of this directory's scripts that start servers and read their figures."""

import argparse
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


def options(doc, port):
    """The options of a script that compares servers on one core each: `server`, `rounds`, `port` and `server_core`. The caller adds its own."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, help="NAME=COMMAND, with {port} for the port")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=port)
    parser.add_argument("--server-core", default="0")
    return parser


def start_each(args, running):
    """Starts the servers of `options`. Appends name, process and port of each to `running`. The caller ends these processes."""
    for index, server in enumerate(args.server):
        name, command = server.split("=", 1)
        port = args.port + index
        running.append((name, start(name, command, port, args.server_core), port))


def cpu_ns(process):
    """CPU time of all threads so far."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
