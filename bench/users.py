#!/usr/bin/env python3
"""The cost of a user's rules: server CPU a command at depth 128, against the unrestricted user `default`.

    bench/users.py [--server target/release/penstock] [--rounds 9]

One server; connections of each user take turns within a round, and the median of the rounds' differences is printed. The target is 5 ns.
Needs Linux.
"""

import argparse
import statistics
import subprocess
import sys

from servers import cpu_ns, start

PORT, COUNT, KEYS = 17490, 2_000_000, 100_000
USERS = {
    "any-key": "~* +@all -@dangerous",
    "prefix": "~key:* +@all -@dangerous",
    "two-prefixes": "~other:* ~key:* +@all -@dangerous",
    "glob": "~key:*[0-9] +@all -@dangerous",
    "selector": "(~key:* +@all)",
}
COMMANDS = [["GET", "key:__rand_int__"], ["SET", "key:__rand_int__", "value"]]


def load(options, server, user, command):
    """Nanoseconds of the server's CPU a command."""
    before = cpu_ns(server)
    login = f"{user}:secret@" if user else ""
    argv = [options.server, "bench", "-u", f"redis://{login}127.0.0.1:{PORT}", "-n", str(COUNT), "-c", "50", "-P", "128",
            "-r", str(KEYS), "-q", *command]
    if subprocess.run(argv, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"the load generator fails as {user or 'default'}")
    return (cpu_ns(server) - before) / COUNT


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="target/release/penstock")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    server = start("penstock", options.server + " server --port {port} --save '' --threads 1", PORT, "0")
    try:
        for user, rules in USERS.items():
            words = ["ACL", "SETUSER", user, "on", ">secret", *rules.split(" ")] if user != "selector" else \
                ["ACL", "SETUSER", user, "on", ">secret", rules]
            subprocess.run([options.server, "cli", "-p", str(PORT), *words], check=True, stdout=subprocess.DEVNULL)
        for command in COMMANDS:
            load(options, server, "", command)
            rounds = [{user: load(options, server, user, command) for user in ["", *USERS]} for _ in range(options.rounds)]
            print(f"{command[0]} as default {statistics.median(one[''] for one in rounds):6.1f} ns", flush=True)
            for user, rules in USERS.items():
                more = statistics.median(one[user] - one[""] for one in rounds)
                print(f"    {more:+6.1f} ns with {rules}", flush=True)
    finally:
        server.kill()


if __name__ == "__main__":
    main()
