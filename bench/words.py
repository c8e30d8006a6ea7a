#!/usr/bin/env python3
"""CPU time of a server for commands that read many bytes: BITCOUNT, BITOP, PFCOUNT, PFMERGE.

    bench/words.py --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

Each server has one core. A round sends each of them the same commands, 128 in flight and fewer of those that take long; the servers take
turns. The script prints medians of the rounds in microseconds a command, and the first server's time divided by the other's.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and two cores.
"""

import socket
import statistics

import servers

MB = 1 << 20


def request(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def fill(connection):
    """Strings of several sizes, and five dense HyperLogLogs."""
    pattern = bytes((i * 73 + i // 251) % 256 for i in range(MB))
    for name, size in (("k", 1000), ("m", MB), ("h", 100 * MB)):
        for copy in "ab":
            value = (pattern[ord(copy):] + pattern) * (size // MB + 1)
            connection.call(request("SET", name + copy, value[:size]))
    for index in range(5):
        elements = [f"{index}:{i}" for i in range(20_000)]
        for start in range(0, len(elements), 1000):
            connection.call(request("PFADD", f"hll{index}", *elements[start:start + 1000]))
    # The comparison is for dense ones.
    connection.call(request("PFCOUNT", "hll0", "hll1"))


# Name, request, commands in flight, times.
CASES = [
    ("BITCOUNT of 1 kB", request("BITCOUNT", "ka"), 128, 2000),
    ("BITCOUNT of 1 MB", request("BITCOUNT", "ma"), 128, 8),
    ("BITCOUNT of 100 MB", request("BITCOUNT", "ha"), 4, 2),
    ("BITOP AND of two of 1 kB", request("BITOP", "AND", "kd", "ka", "kb"), 128, 2000),
    ("BITOP AND of two of 1 MB", request("BITOP", "AND", "md", "ma", "mb"), 128, 8),
    ("BITOP XOR of two of 100 MB", request("BITOP", "XOR", "hd", "ha", "hb"), 4, 4),
    ("PFCOUNT of one", request("PFCOUNT", "hll0"), 128, 2000),
    ("PFCOUNT of two", request("PFCOUNT", "hll0", "hll1"), 128, 40),
    ("PFCOUNT of five", request("PFCOUNT", *[f"hll{i}" for i in range(5)]), 128, 40),
    ("PFMERGE of two", request("PFMERGE", "merged", "hll0", "hll1"), 128, 40),
    ("PFMERGE of five", request("PFMERGE", "merged", *[f"hll{i}" for i in range(5)]), 128, 40),
]


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def call(self, sent, replies=1):
        self.socket.sendall(sent)
        for _ in range(replies):
            line = self.file.readline()
            if not line or line.startswith(b"-"):
                raise SystemExit(f"{line!r}")


def main():
    args = servers.options(__doc__, 7900).parse_args()
    started = []
    try:
        servers.start_each(args, started)
        running = [(name, process, Connection(port)) for name, process, port in started]
        for _, _, connection in running:
            fill(connection)
        print(f"{'µs a command':28}" + "".join(f"{name:>12}" for name, _, _ in running) + "   ratio")
        for case, sent, depth, times in CASES:
            taken = {name: [] for name, _, _ in running}
            for _ in range(args.rounds):
                for name, process, connection in running:
                    connection.call(sent * depth, depth)
                    before = servers.cpu_ns(process)
                    for _ in range(times):
                        connection.call(sent * depth, depth)
                    taken[name].append((servers.cpu_ns(process) - before) / (depth * times) / 1000)
            medians = [statistics.median(taken[name]) for name, _, _ in running]
            print(f"{case:28}" + "".join(f"{median:12.2f}" for median in medians) + f"{medians[0] / medians[-1]:8.2f}", flush=True)
    finally:
        for _, process, _ in started:
            process.kill()


if __name__ == "__main__":
    main()
