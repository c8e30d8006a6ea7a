#!/usr/bin/env python3
"""Server CPU time per EVALSHA, of several servers in turn, by script.

    bench/scripts.py --benchmark valkey-benchmark \\
        --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

The method is described in bench/side_by_side.py. The scripts: one that does nothing, one GET, a GET with a sum
and a SET of the same key, and a thousand INCRs in a loop.
"""

import socket
import sys

import side_by_side

KEY = "key:__rand_int__"
SCRIPTS = {
    "nothing": ("return 1", ["0"], 1_000_000),
    "get": ("return redis.call('GET', KEYS[1])", ["1", KEY], 1_000_000),
    "rmw": ("local n = tonumber(redis.call('GET', KEYS[1]) or 0) + ARGV[1] redis.call('SET', KEYS[1], n) return n",
            ["1", "counter:__rand_int__", "5"], 600_000),
    "incr1000": ("for i = 1, 1000 do redis.call('INCR', KEYS[1]) end return 1", ["1", "counter:__rand_int__"], 4_000),
}


def load(port, script):
    """Loads a script and returns its digest."""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        text = script.encode()
        stream.sendall(b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%d\r\n%s\r\n" % (len(text), text))
        replies = stream.makefile("rb")
        if replies.readline() != b"$40\r\n":
            sys.exit(f"SCRIPT LOAD is refused on port {port}")
        return replies.readline().strip().decode()


class Scripted(side_by_side.Server):
    """A server that has loaded the scripts."""

    def fill(self, keys):
        super().fill(keys)
        for script, _, _ in SCRIPTS.values():
            load(self.port, script)


if __name__ == "__main__":
    import hashlib

    side_by_side.Server = Scripted
    side_by_side.REQUESTS = {}
    side_by_side.HEAVY = set()
    side_by_side.COMMANDS = {
        name: ["EVALSHA", hashlib.sha1(script.encode()).hexdigest(), *args] for name, (script, args, _) in SCRIPTS.items()}
    side_by_side.requests_of = lambda test, depth: SCRIPTS[test][2]
    if not any(arg.startswith("--depths") for arg in sys.argv):
        sys.argv += ["--depths", "128"]
    if not any(arg.startswith("--keys") for arg in sys.argv):
        sys.argv += ["--keys", "100000"]
    side_by_side.main()
