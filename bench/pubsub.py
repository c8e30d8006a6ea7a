#!/usr/bin/env python3
"""Publish and subscribe, and MONITOR, under load: server beside server, on the same machine, one after the other.

First experiment: subscribers that read all the time, and publishers at full speed. Second experiment: a slow reader of MONITOR beside a
client that pipelines. The results of both: the longest wait for a PING on other connections, the most memory of the server, and
the readers that it closes.

    bench/pubsub.py penstock-2='target/release/penstock server --port {port} --threads 2' \\
                    valkey='valkey-server --port {port} --save ""'
"""

import argparse
import multiprocessing
import pathlib
import select
import shlex
import socket
import subprocess
import sys
import time

from servers import cpu_ns

CHANNEL = b"news"
PINGERS = 8
PATIENCE_S = 120


def request(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def connect(port):
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(PATIENCE_S)
    return sock


def receive(sock, count):
    """Reads so many bytes."""
    while count > 0:
        part = sock.recv(min(count, 1 << 18))
        if not part:
            raise EOFError
        count -= len(part)


def receive_lines(sock, count):
    """Reads so many one-line replies."""
    while count > 0:
        part = sock.recv(1 << 16)
        if not part:
            raise EOFError
        count -= part.count(b"\n")


def start(name, command, port):
    argv = shlex.split(command.format(port=port))
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            connect(port).close()
            return process
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{name} does not listen on port {port}: {command}")


def peak_mb(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def read_messages(port, count, expected, ready, results):
    """Subscribes on so many connections, and reads until each has received so many bytes or is closed."""
    poller, left = select.epoll(), {}
    socks = {}
    for _ in range(count):
        sock = connect(port)
        sock.sendall(request(b"SUBSCRIBE", CHANNEL))
        receive(sock, len(b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(CHANNEL), CHANNEL)))
        sock.setblocking(False)
        poller.register(sock, select.EPOLLIN)
        socks[sock.fileno()], left[sock.fileno()] = sock, expected
    ready.wait()
    closed, buffer = 0, bytearray(1 << 18)
    while left:
        for fd, _ in poller.poll(PATIENCE_S):
            try:
                got = socks[fd].recv_into(buffer)
            except BlockingIOError:
                continue
            except OSError:
                got = 0
            closed += got == 0
            left[fd] -= got
            if got == 0 or left[fd] == 0:
                poller.unregister(fd)
                del left[fd]
    results.put(("closed", closed))


def publish(port, count, depth, payload, ready):
    sock = connect(port)
    batch = request(b"PUBLISH", CHANNEL, payload) * depth
    ready.wait()
    for _ in range(count // depth):
        sock.sendall(batch)
        receive_lines(sock, depth)


def ping(port, ready, over, results):
    """Sends PINGs one at a time on several connections, with some on each thread of the server."""
    socks = [connect(port) for _ in range(PINGERS)]
    longest = 0
    ready.wait()
    while not over.is_set():
        for sock in socks:
            began = time.monotonic()
            sock.sendall(b"PING\r\n")
            receive(sock, 7)
            longest = max(longest, time.monotonic() - began)
        time.sleep(0.0005)
    results.put(("ping", longest))


def monitor(port, every_s, ready, over, results):
    """Starts MONITOR and reads 4 KB now and then."""
    sock = connect(port)
    sock.sendall(b"MONITOR\r\n")
    receive(sock, 5)
    ready.wait()
    closed = 0
    while not over.is_set() and not closed:
        closed = int(not sock.recv(4096))
        time.sleep(every_s)
    results.put(("closed", closed))


def pipeline(port, count, depth, ready):
    sock = connect(port)
    batch = request(b"SET", b"key", b"v" * 100) * depth
    ready.wait()
    for _ in range(count // depth):
        sock.sendall(batch)
        receive_lines(sock, depth)


def run(process, workers, watchers):
    """Runs workers and watchers. Returns the workers' time and the results."""
    results, over = multiprocessing.Queue(), multiprocessing.Event()
    ready = multiprocessing.Barrier(len(workers) + len(watchers) + 1)
    spawn = lambda what, *more: multiprocessing.Process(target=what[0], args=(*what[1:], ready, *more), daemon=True)
    working = [spawn(what) for what in workers if what[0] is not read_messages]
    working += [spawn(what, results) for what in workers if what[0] is read_messages]
    watching = [spawn(what, over, results) for what in watchers]
    for child in working + watching:
        child.start()
    ready.wait()
    began = time.monotonic()
    for child in working:
        child.join()
    took = time.monotonic() - began
    over.set()
    found = {}
    for _ in range(len(watchers) + sum(what[0] is read_messages for what in workers)):
        key, value = results.get(timeout=PATIENCE_S)
        found[key] = value
    return took, found, peak_mb(process)


def experiments(args):
    payload = b"m" * args.size
    message = b"*3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(CHANNEL), CHANNEL, args.size, payload)
    per_publisher = args.messages // args.publishers // args.depth * args.depth
    total = per_publisher * args.publishers

    def pubsub(port, process):
        workers = [(publish, port, per_publisher, args.depth, payload)] * args.publishers
        workers.append((read_messages, port, args.subscribers, total * len(message)))
        took, found, peak = run(process, workers, [(ping, port)])
        return total * args.subscribers, took, found, peak

    def monitored(port, process):
        workers = [(pipeline, port, args.commands, 100)]
        took, found, peak = run(process, workers, [(ping, port), (monitor, port, 0.01)])
        return args.commands, took, found, peak

    return [("pubsub", "delivered", pubsub), ("monitor", "commands", monitored)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="name=command", help="the command has {port} where its port goes")
    parser.add_argument("--subscribers", type=int, default=50)
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--messages", type=int, default=10_000, help="all together")
    parser.add_argument("--size", type=int, default=10_000, help="bytes of a message")
    parser.add_argument("--depth", type=int, default=1, help="messages that a publisher sends before it reads the replies")
    parser.add_argument("--commands", type=int, default=200_000, help="of the client beside MONITOR")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["pubsub", "monitor"])
    parser.add_argument("--port", type=int, default=17_300)
    args = parser.parse_args()
    print(
        f"{args.subscribers} subscribers, {args.publishers} publishers, {args.messages} messages of {args.size} bytes,"
        f" depth {args.depth}"
    )
    for what, unit, experiment in experiments(args):
        if args.only not in (None, what):
            continue
        for round_ in range(args.rounds):
            for index, (name, command) in enumerate(server.split("=", 1) for server in args.servers):
                port = args.port + round_ * 20 + index
                process = start(name, command, port)
                try:
                    count, took, found, peak = experiment(port, process)
                    cpu_us = cpu_ns(process) / 1000 / count
                finally:
                    process.kill()
                    process.wait()
                print(
                    f"{what:8} {name:14} {count / took:11,.0f} {unit}/s  {cpu_us:6.2f} us of CPU each"
                    f"  longest PING {found['ping'] * 1000:7.1f} ms"
                    f"  peak {peak:7.1f} MB  closed {found['closed']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
