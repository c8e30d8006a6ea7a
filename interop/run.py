#!/usr/bin/env python3
"""Runs the client scripts against a server, each script against a fresh one.

    interop/run.py [--server PROGRAM] [--arg ARGUMENT]... [--without SCRIPT]... [SCRIPT]...

PROGRAM is `penstock` or anything that takes redis.conf's directives as options (Debian's redis-server serves as a check
of the scripts themselves). SCRIPT is a name of `SCRIPTS` below; without one, all of them run.

A script is an ordinary program that is told the server's address in the environment, PENSTOCK_URL (redis://host:port),
PENSTOCK_PORT, and PENSTOCK_SOCKET (a Unix socket), and the server's program, PENSTOCK_PROGRAM. A script of `SEVERAL_SERVERS` is told the
ports of all its servers, too: PENSTOCK_PORTS, separated by commas. It may end all but the first. The scripts of `CLUSTER` share a cluster
(see cluster.py). A script prints what it has checked, and ends with status 0 only if every reply was right. Its last line says how many
checks that were: `N checks`.

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

import cluster

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
    "redis-py-abort": ["{venv}/bin/python", "python/redis_py_abort_test.py"],
    "redis-py-suggestions": ["{venv}/bin/python", "python/redis_py_suggestions_test.py"],
    "ruby-api": ["/usr/bin/ruby", "ruby/api_test.rb"],
    "ruby-movies": ["/usr/bin/ruby", "ruby/movies_test.rb"],
    "ruby-abort": ["/usr/bin/ruby", "ruby/abort_test.rb"],
    "ruby-pipelines": ["/usr/bin/ruby", "ruby/pipelines_test.rb"],
    "ruby-sharding": ["/usr/bin/ruby", "ruby/sharding_test.rb"],
    "ruby-sidekiq": ["/usr/bin/ruby", "ruby/sidekiq_test.rb"],
    "ioredis": ["node", "node/ioredis_test.js"],
    "ioredis-abort": ["node", "node/abort_test.js"],
    "node-caching": ["node", "node/caching_test.js"],
    "node-suggestions": ["node", "node/suggestions_test.js"],
    "node-scripts": ["node", "node/scripts_test.js"],
    "bullmq": ["node", "node/bullmq_test.js"],
    "upstash": ["node", "node/upstash_test.js"],
    "console": ["node", "node/console_test.js"],
    "console-data": ["node", "node/console_data_test.js"],
    "movies": ["node", "node/movies_test.js"],
    "http": ["node", "node/http_test.js"],
    "go-redis": ["{cache}/go-redis-test"],
    "go-redis-abort": ["{cache}/go-redis-test", "abort"],
    "go-redis-ring": ["{cache}/go-redis-test", "ring"],
    "advise-corpus": ["{venv}/bin/python", "advise/corpus_test.py"],
    "advise-snippets": ["{venv}/bin/python", "advise/snippets_test.py"],
    "redisson": ["java", "-cp", "{cache}/redisson/*", "java/RedissonTest.java"],
    "jedis-suggestions": ["java", "-cp", "{cache}/redisson/*", "java/JedisSuggestionsTest.java"],
    "jedis-abort": ["java", "-cp", "{cache}/redisson/*", "java/JedisAbortTest.java"],
    "jedis-sharding": ["java", "-cp", "{cache}/redisson/*", "java/JedisShardingTest.java"],
    # Applications notice nothing of planned failovers.
    "moving": ["{venv}/bin/python", "python/moving_test.py"],
    # Each entry of the command table has a case for measurements, and each case works.
    "sweep": ["python3", "../bench/sweep.py", "--check"],
}

# Scripts of cluster clients, each with its client's own cluster class, and of Penstock's own tools.
CLUSTER = {
    "cluster-redis-py": ["{venv}/bin/python", "python/redis_py_cluster_test.py"],
    "cluster-ioredis": ["node", "node/ioredis_cluster_test.js"],
    "cluster-node-redis": ["node", "node/node_redis_cluster_test.js"],
    "cluster-go-redis": ["{cache}/go-redis-test", "cluster"],
    "cluster-rueidis": ["{cache}/go-redis-test", "rueidis"],
    "cluster-jedis": ["java", "-cp", "{cache}/java-cluster/*", "java/ClusterTest.java", "jedis"],
    "cluster-lettuce": ["java", "-cp", "{cache}/java-cluster/*", "java/ClusterTest.java", "lettuce"],
    "cluster-redis-rb": ["/usr/bin/ruby", "ruby/cluster_test.rb"],
    "cluster-forwarding": ["/usr/bin/ruby", "ruby/forwarding_test.rb"],
    "cluster-libvalkey": ["{cache}/libvalkey-test"],
    "cluster-tools": ["{venv}/bin/python", "python/cluster_tools_test.py"],
}
SCRIPTS |= CLUSTER

# Scripts for which a machine may lack what they need: they run where it is.
OPTIONAL = {name: ROOT / ".cache/redisson" for name in ("redisson", "jedis-suggestions", "jedis-abort", "jedis-sharding")}
OPTIONAL |= {name: ROOT / ".cache/java-cluster" for name in ("cluster-jedis", "cluster-lettuce")}

# How many servers a script gets, where it is not one.
SEVERAL_SERVERS = {"ruby-sharding": 4, "go-redis-ring": 4, "jedis-sharding": 4}

# Scripts about what Penstock has and the oracle hasn't: redis-py caches from Redis 7.4 on, suggestions are a module's, and Redis has no
# HTTP port.
PENSTOCK_ONLY = {
    "redis-py-resume", "redis-py-abort", "ruby-abort", "ioredis-abort", "go-redis-abort", "jedis-abort",
    "redis-py-caching", "advise-corpus", "advise-snippets", "redis-py-suggestions", "node-suggestions",
    "jedis-suggestions", "upstash", "console", "console-data", "movies", "moving", "http", "sweep", "cluster-forwarding", "cluster-tools",
}

# The number of attempts that a cluster script has against Redis. One success shows that the script is right: Redis 7.0 answers CLUSTERDOWN for some
# milliseconds of some planned failovers, and clients pass that error on. Every other script has one attempt.
ATTEMPTS_AGAINST_REDIS = 3

# A script that is stuck waits for a reply that never comes; the slowest takes some 20 seconds on two cores, and over
# three minutes on two that dozens of processes want.
SCRIPT_SECONDS_MAX = 600
# The server answers within a tenth of a second when the machine is idle.
START_SECONDS_MAX = 20
# "SIGTERM ends it gracefully within a second", and a busy machine may take a little longer to say so.
STOP_SECONDS_MAX = 10


def answers_ping(port):
    """Whether something on `port` answers an inline PING."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16) == b"+PONG\r\n"
    return False


class Server:
    """A server process with an address, started by `with` and stopped at its end."""

    def __init__(self, program, arguments=()):
        self.port = cluster.free_port()
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


def run_attempts(name, program, arguments, shared, attempts):
    """Runs one script until it passes, at most `attempts` times; returns the number of checks, or None."""
    counts = (run_script(name, program, arguments, shared) for _ in range(attempts))
    return next((count for count in counts if count is not None), None)


def run_script(name, program, arguments, shared):
    """Runs one script; returns how many checks passed, or None after printing what failed."""
    paths = {"venv": ROOT / ".cache/venv", "cache": ROOT / ".cache"}
    command = [part.format(**paths) for part in SCRIPTS[name]]
    started = time.monotonic()
    if name in CLUSTER:
        count, failure = run_with_cluster(command, shared)
    else:
        count, failure = run_with_servers(command, program, arguments, SEVERAL_SERVERS.get(name, 1))
    if failure is None:
        print(f"{name}: {count} checks, {time.monotonic() - started:.1f} s", flush=True)
        return count
    print(f"{name}: FAILED, {failure}\n---", flush=True)
    return None


def run_with_servers(command, program, arguments, number):
    """Runs a script against fresh servers; returns how many checks passed, and what failed."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(program, arguments)) for _ in range(number)]
        server = servers[0]
        environment = server.environment() | {"PENSTOCK_PORTS": ",".join(str(each.port) for each in servers)}
        status, output = run_bounded(command, environment, HERE, SCRIPT_SECONDS_MAX)
        ended = [each.process.poll() for each in servers[1:]]
        defect = server.defect() or next((f"another server ended with status {end}" for end in ended if end), None)
        return judge(status, output, defect, server)


def run_with_cluster(command, shared):
    """Runs a script against the shared cluster; returns how many checks passed, and what failed."""
    nodes = shared.get()
    environment = nodes.environment() | {"PENSTOCK_PROGRAM": nodes.program}
    status, output = run_bounded(command, environment, HERE, SCRIPT_SECONDS_MAX)
    count, failure = judge(status, output, nodes.defect(), nodes)
    if failure:
        shared.close()
    return count, failure


def judge(status, output, defect, server):
    """Returns how many checks passed, and what failed; one of them is None."""
    if status is None:
        defect = defect or f"no end after {SCRIPT_SECONDS_MAX} seconds"
    elif status != 0:
        defect = defect or f"status {status}"
    count = re.search(r"^(\d+) checks$", output, re.MULTILINE)
    if defect is None and count is None:
        defect = "the script did not say how many checks it made"
    if defect is None:
        return int(count[1]), None
    return None, f"{defect}\n{output}\n--- the server's output:\n{server.output()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=str(ROOT / "target/release/penstock"), metavar="PROGRAM")
    parser.add_argument("--arg", action="append", default=[], metavar="ARGUMENT", help="one more for the server")
    parser.add_argument("--without", action="append", default=[], metavar="SCRIPT", help="leave a script out")
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
    scripts = [name for name in scripts if name not in options.without]
    shared = cluster.Shared(os.path.abspath(program), options.arg)
    with contextlib.closing(shared):
        attempts = {name: ATTEMPTS_AGAINST_REDIS for name in CLUSTER if is_redis}
        results = [run_attempts(name, os.path.abspath(program), options.arg, shared, attempts.get(name, 1)) for name in scripts]
    failed = results.count(None)
    print(f"clients: {len(results) - failed} passed; {failed} failed ({sum(filter(None, results))} checks)")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
