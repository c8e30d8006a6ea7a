"""Servers that keep their data on a disk: starts them in a directory, with slow syncs on request, and reads their use of CPU and memory."""

import contextlib
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

from memory import request

HERE = pathlib.Path(__file__).resolve().parent
#: How long a server may take to answer its first PING: it may have much to load.
START_MAX_S = 300


class NotSupported(Exception):
    """The server doesn't know a command."""


class StartFailed(Exception):
    """A server doesn't start. The text is the end of its output."""


class Program:
    """A server's program. Penstock is recognised by its file's name, and has a number of serving threads."""

    def __init__(self, name, path, threads=None):
        self.name, self.threads = name, threads
        self.path = os.path.abspath(shutil.which(os.path.expanduser(path)) or os.path.expanduser(path))
        self.is_penstock = os.path.basename(self.path).startswith("penstock")

    def version(self):
        """Returns the first line of its version."""
        said = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=True).stdout
        return said.splitlines()[0]

    def arguments(self):
        """The command line before all directives."""
        if not self.is_penstock:
            return [self.path]
        return [self.path, "server", *(["--threads", str(self.threads)] if self.threads else [])]


class Server:
    """A running server in a directory of its own. `directives` are of redis.conf; `sync_us` is the least time of a sync."""

    def __init__(self, program, port, directory, directives, sync_us=None):
        self.program, self.port, self.directory = program, port, pathlib.Path(directory)
        words = [word for name, value in directives.items() for word in (f"--{name}", value)]
        argv = [*program.arguments(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", "", *words]
        environment = dict(os.environ)
        if sync_us:
            environment.update(LD_PRELOAD=slow_sync_library(), SLOW_SYNC_US=str(sync_us))
        self.began = time.monotonic()
        with open(self.directory / "log", "wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.pid = self.process.pid
        self.start_s = self._wait_until_ready()

    def _wait_until_ready(self):
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), START_MAX_S) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(100).startswith(b"+PONG"):
                    return time.monotonic() - self.began
            if self.process.poll() is not None or time.monotonic() - self.began > START_MAX_S:
                self.stop()
                raise StartFailed((self.directory / "log").read_text().strip()[-1000:])
            time.sleep(0.002)

    def ask(self, *words):
        """Returns a reply that is one line or one bulk string."""
        with socket.create_connection(("127.0.0.1", self.port), START_MAX_S) as connection:
            connection.sendall(request(*words))
            replies = connection.makefile("rb")
            line = replies.readline().rstrip()
            if line.startswith(b"-"):
                if b"unknown command" in line:
                    raise NotSupported(words[0])
                raise SystemExit(f"{self.program.name} refuses {words[0]}: {line.decode()}")
            return replies.read(int(line[1:])).decode() if line.startswith(b"$") else line[1:].decode()

    def info(self, section):
        """The fields of a section of INFO."""
        return dict(line.split(":", 1) for line in self.ask("INFO", section).splitlines() if ":" in line)

    def fill(self, requests, at_once=2000):
        """Sends requests with one-line replies."""
        with socket.create_connection(("127.0.0.1", self.port), START_MAX_S) as connection:
            replies, pending = connection.makefile("rb"), []
            for one in requests:
                pending.append(one)
                if len(pending) == at_once:
                    self._send(connection, replies, pending)
                    pending = []
            self._send(connection, replies, pending)

    def _send(self, connection, replies, pending):
        connection.sendall(b"".join(pending))
        for _ in pending:
            line = replies.readline()
            if line[:1] not in (b"+", b":"):
                raise SystemExit(f"{self.program.name} answers {line!r}")

    def cpu_s(self):
        """CPU seconds of all threads so far, including those that have ended."""
        # CPUCLOCK_SCHED of a process: clock_getcpuclockid(3), as the C libraries for Linux make it.
        return time.clock_gettime((~self.pid << 3) | 2)

    def resident_bytes(self):
        """Memory of the process, and what its children have for themselves: a child's pages are shared until one side
        writes to them."""
        own = status_bytes(self.pid, "VmRSS:")
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return own + sum(private_bytes(child) for child in children)

    def forget_peak(self):
        """Resets `peak_bytes` (proc(5), clear_refs)."""
        pathlib.Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_bytes(self):
        """The most memory of the process itself since then."""
        return status_bytes(self.pid, "VmHWM:")

    def stop(self):
        """Kills the server."""
        self.process.kill()
        self.process.wait()


def status_bytes(pid, field):
    """Returns a figure of /proc/PID/status."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def private_bytes(pid):
    """Returns the size of the process's unshared pages, or 0 if it has just ended."""
    with contextlib.suppress(OSError):
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:")))
    return 0


def slow_sync_library():
    """Returns the library of slow_sync.c, built if it is missing."""
    source = HERE / "slow_sync.c"
    library = pathlib.Path(tempfile.gettempdir()) / f"penstock-slow-sync-{os.getuid()}-{source.stat().st_mtime_ns}.so"
    if not library.exists():
        building = library.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", building, source], check=True)
        building.rename(library)
    return str(library)


def disk_sync_ms(directory, times=200):
    """Returns the disk's median time for a sync of 4 KB at a file's end, in milliseconds."""
    took = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(times):
            file.write(b"x" * 4096)
            began = time.monotonic()
            os.fdatasync(file.fileno())
            took.append((time.monotonic() - began) * 1e3)
    return statistics.median(took)
