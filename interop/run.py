#!/usr/bin/env python3
"""Runs the client scripts against a server, each script against a fresh one.

    interop/run.py [--server PROGRAM] [--arg ARGUMENT]... [SCRIPT]...

PROGRAM is `penstock` or anything that takes redis.conf's directives as options (Debian's redis-server serves as a check
of the scripts themselves). SCRIPT is a name of `SCRIPTS` below; without one, all of them run.

A script is an ordinary program that is told the server's address in the environment, PENSTOCK_URL (redis://host:port),
PENSTOCK_PORT, and PENSTOCK_SOCKET (a Unix socket), and the server's program, PENSTOCK_PROGRAM. A script of `SEVERAL_SERVERS` is told the
ports of all its servers, too: PENSTOCK_PORTS, separated by commas. It may end all but the first. A script prints what it has checked, and
ends with status 0 only if every reply was right. Its last line says how many checks that were: `N checks`.

Nothing here relies on port 6379: the server gets a free one, and a new directory for its files.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent

# How each script is started. `./test` prepares what they need: the virtual environment, node_modules, the Go program.
# Ruby is Debian's own, by its full path, because the gem is the one that Debian packages for it.
SCRIPTS = {
    "tools": ["python3", "tools/tools_test.py"],
    "redis-py": ["{venv}/bin/python", "python/redis_py_test.py"],
    "redis-py-asyncio": ["{venv}/bin/python", "python/redis_py_asyncio_test.py"],
    "redis-py-scripts": ["{venv}/bin/python", "python/redis_py_scripts_test.py"],
    "redis-py-caching": ["{venv}/bin/python", "python/redis_py_caching_test.py"],
    "sharding": ["{venv}/bin/python", "python/sharding_test.py"],
    "redis-py-resume": ["{venv}/bin/python", "python/redis_py_resume_test.py"],
    "redis-py-suggestions": ["{venv}/bin/python", "python/redis_py_suggestions_test.py"],
    "ruby-api": ["/usr/bin/ruby", "ruby/api_test.rb"],
    "ruby-movies": ["/usr/bin/ruby", "ruby/movies_test.rb"],
    "ruby-pipelines": ["/usr/bin/ruby", "ruby/pipelines_test.rb"],
    "ruby-sharding": ["/usr/bin/ruby", "ruby/sharding_test.rb"],
    "ruby-sidekiq": ["/usr/bin/ruby", "ruby/sidekiq_test.rb"],
    "ioredis": ["node", "node/ioredis_test.js"],
    "node-caching": ["node", "node/caching_test.js"],
    "node-suggestions": ["node", "node/suggestions_test.js"],
    "node-scripts": ["node", "node/scripts_test.js"],
    "bullmq": ["node", "node/bullmq_test.js"],
    "upstash": ["node", "node/upstash_test.js"],
    "console": ["node", "node/console_test.js"],
    "movies": ["node", "node/movies_test.js"],
    "http": ["node", "node/http_test.js"],
    "go-redis": ["{cache}/go-redis-test"],
    "go-redis-ring": ["{cache}/go-redis-test", "ring"],
    "advise-corpus": ["{venv}/bin/python", "advise/corpus_test.py"],
    "redisson": ["java", "-cp", "{cache}/redisson/*", "java/RedissonTest.java"],
    "jedis-suggestions": ["java", "-cp", "{cache}/redisson/*", "java/JedisSuggestionsTest.java"],
    "jedis-sharding": ["java", "-cp", "{cache}/redisson/*", "java/JedisShardingTest.java"],
}

# Scripts for which a machine may lack what they need: they run where it is.
OPTIONAL = {name: ROOT / ".cache/redisson" for name in ("redisson", "jedis-suggestions", "jedis-sharding")}

# How many servers a script gets, where it is not one.
SEVERAL_SERVERS = {"ruby-sharding": 4, "go-redis-ring": 4, "jedis-sharding": 4}

# Scripts about what Penstock has and the oracle hasn't: redis-py caches from Redis 7.4 on, suggestions are a module's, and Redis has no
# HTTP port.
PENSTOCK_ONLY = {
    "redis-py-resume", "redis-py-caching", "advise-corpus", "redis-py-suggestions", "node-suggestions", "jedis-suggestions", "upstash",
    "console", "movies", "http",
}

# A script that is stuck waits for a reply that never comes; the slowest takes some 20 seconds on two cores, and over
# three minutes on two that dozens of processes want.
SCRIPT_SECONDS_MAX = 600
# The server answers within a tenth of a second when the machine is idle.
START_SECONDS_MAX = 20
# "SIGTERM ends it gracefully within a second", and a busy machine may take a little longer to say so.
STOP_SECONDS_MAX = 10


def free_port():
    """A port that is free now. Another program could take it before the server does; that is a clear error."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers_ping(port):
    """Whether something on `port` answers an inline PING."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16) == b"+PONG\r\n"
    return False


class Server:
    """A server process with an address, started by `with` and stopped at its end."""

    def __init__(self, program, arguments=()):
        self.port = free_port()
        self.directory = tempfile.mkdtemp(prefix="penstock-clients-")
        self.socket = os.path.join(self.directory, "socket")
        self.command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.socket]
        if "redis-server" in os.path.basename(program):
            self.command += ["--save", "", "--appendonly", "no"]
        self.command += arguments
        self.log = os.path.join(self.directory, "log")

    def __enter__(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers_ping(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                message = f"{self.command[0]} does not answer on port {self.port}:\n{self.output()}"
                self.__exit__(None, None, None)
                raise SystemExit(message)
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def output(self):
        """What the server has printed so far, its last 50 lines."""
        text = pathlib.Path(self.log).read_text(errors="replace")
        return "\n".join(text.splitlines()[-50:])

    def defect(self):
        """Why the server's own state is a failure, whatever the script says; None if it is well."""
        status = self.process.poll()
        if status is not None:
            return f"the server ended with status {status}"
        if not answers_ping(self.port):
            return "the server no longer answers PING"
        return None

    def environment(self):
        """The environment of a program that is to use this server."""
        return os.environ | {
            "PENSTOCK_URL": f"redis://127.0.0.1:{self.port}",
            "PENSTOCK_PORT": str(self.port),
            "PENSTOCK_SOCKET": self.socket,
            "PENSTOCK_PROGRAM": self.command[0],
            # Debian keeps nutcracker where only root's PATH looks.
            "PATH": os.environ["PATH"] + ":/usr/sbin",
        }


def run_bounded(command, environment, directory, seconds):
    """Runs `command` in a process group of its own, so that a stuck one can be ended with its children.

    Returns its status and output; the status is None where it took longer than `seconds`.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def run_script(name, program, arguments):
    """Runs one script against a fresh server; returns how many checks passed, or None after printing what failed."""
    paths = {"venv": ROOT / ".cache/venv", "cache": ROOT / ".cache"}
    command = [part.format(**paths) for part in SCRIPTS[name]]
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(program, arguments)) for _ in range(SEVERAL_SERVERS.get(name, 1))]
        server = servers[0]
        environment = server.environment() | {"PENSTOCK_PORTS": ",".join(str(each.port) for each in servers)}
        status, output = run_bounded(command, environment, HERE, SCRIPT_SECONDS_MAX)
        ended = [each.process.poll() for each in servers[1:]]
        defect = server.defect() or next((f"another server ended with status {end}" for end in ended if end), None)
        if status is None:
            defect = defect or f"no end after {SCRIPT_SECONDS_MAX} seconds"
        elif status != 0:
            defect = defect or f"status {status}"
        count = re.search(r"^(\d+) checks$", output, re.MULTILINE)
        if defect is None and count is None:
            defect = "the script did not say how many checks it made"
        if defect is None:
            print(f"{name}: {count[1]} checks, {time.monotonic() - started:.1f} s", flush=True)
            return int(count[1])
        print(f"{name}: FAILED, {defect}\n{output}\n--- the server's output:\n{server.output()}\n---", flush=True)
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=str(ROOT / "target/release/penstock"), metavar="PROGRAM")
    parser.add_argument("--arg", action="append", default=[], metavar="ARGUMENT", help="one more for the server")
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=", ".join(SCRIPTS))
    options = parser.parse_args()
    unknown = [name for name in options.scripts if name not in SCRIPTS]
    if unknown:
        parser.error(f"no such script: {', '.join(unknown)}")
    program = shutil.which(options.server)
    if program is None:
        parser.error(f"no such program: {options.server}")
    is_redis = "redis-server" in os.path.basename(program)
    missing = [name for name, needs in OPTIONAL.items() if not needs.exists()]
    left_out = [*missing, *(PENSTOCK_ONLY if is_redis else ())]
    if missing and not options.scripts:
        print(f"left out, since what they need is not here: {', '.join(missing)}", flush=True)
    scripts = options.scripts or [name for name in SCRIPTS if name not in left_out]
    results = [run_script(name, os.path.abspath(program), options.arg) for name in scripts]
    failed = results.count(None)
    print(f"clients: {len(results) - failed} passed; {failed} failed ({sum(filter(None, results))} checks)")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
