#!/usr/bin/env python3
"""The speed of unread replies to disk and back, beside the disk's own speed.

    bench/replies.py --server 'target/release/penstock --port {port} --save "" --dir {dir}' --dir /var/tmp --gigabytes 4

A client sends GETs of a value until their replies take so many gigabytes, and reads nothing meanwhile. The script measures the time
until all GETs have run, the time to read all replies, and the time until the space is free after a connection with as much on disk
is closed. The disk's own speed is for a nameless file in the same directory, written and read in pieces of the server's size.
Neither waits for the medium.

Needs Linux (/proc) and twice as many free gigabytes.
"""

import argparse
import os
import shlex
import socket
import subprocess
import tempfile
import time

PIECE = 256 * 1024
VALUES = (100, 1000, 10_000, 100_000, 1_000_000)


class Server:
    def __init__(self, command, port, directory):
        argv = shlex.split(command.format(port=port, dir=directory))
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.port = port
        for _ in range(200):
            try:
                self.connect().close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("the server does not start")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port))

    def ask(self, *words):
        with self.connect() as conn:
            conn.sendall(request(*words) + b"QUIT\r\n")
            answer = b""
            while part := conn.recv(1 << 20):
                answer += part
        return answer

    def figures(self):
        lines = self.ask("INFO", "all").decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM"))

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as refs:
            refs.write("5")  # The peak begins anew.
        return self.peak_mb()


def request(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words))


def free_mb(directory):
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize >> 20


def disk_alone(directory, size):
    """Returns megabytes a second for writing and for reading."""
    piece = os.urandom(PIECE)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        began = time.monotonic()
        for _ in range(size // PIECE):
            file.write(piece)
        wrote = time.monotonic()
        file.seek(0)
        buffer = bytearray(PIECE)
        while file.readinto(buffer):
            pass
        read = time.monotonic()
    return size / 1e6 / (wrote - began), size / 1e6 / (read - wrote)


def gets(server):
    """Returns the number of GETs that have run."""
    return int(server.figures().get("cmdstat_get", "calls=0,").split("calls=")[1].split(",")[0])


def write_all(server, conn, value_bytes, size):
    """Sends GETs worth so many bytes and waits until they have run. Returns their number."""
    count = size // value_bytes
    ran = gets(server)
    chunk = request("GET", "k") * 1000
    for _ in range(count // 1000):
        conn.sendall(chunk)
    conn.sendall(request("GET", "k") * (count % 1000))
    while gets(server) < ran + count:
        time.sleep(0.01)
    return count


def read_all(conn, size):
    buffer = bytearray(1 << 20)
    while size > 0:
        size -= conn.recv_into(buffer)


def measure(server, value_bytes, size):
    conn = server.connect()
    conn.sendall(request("SET", "k", "v" * value_bytes))
    assert conn.recv(100) == b"+OK\r\n"
    resident, cpu = server.resident_mb(), server.cpu_seconds()
    began = time.monotonic()
    count = write_all(server, conn, value_bytes, size)
    wrote, wrote_cpu = time.monotonic(), server.cpu_seconds()
    reply = len(b"$%d\r\n\r\n" % value_bytes) + value_bytes
    spilled = int(server.figures()["reply_spill"])
    read_all(conn, count * reply)
    read, read_cpu = time.monotonic(), server.cpu_seconds()
    conn.close()
    mb = count * reply / 1e6
    print(f"{value_bytes:9} {count:9} {spilled / 1e6:10.0f} {mb / (wrote - began):10.0f} {mb / (read - wrote):9.0f}"
          f" {(wrote_cpu - cpu) / mb * 1e3:12.2f} {(read_cpu - wrote_cpu) / mb * 1e3:11.2f}"
          f" {server.peak_mb() - resident:8}", flush=True)


def measure_close(server, directory, size):
    before = free_mb(directory)
    conn = server.connect()
    write_all(server, conn, VALUES[-1], size)
    full = free_mb(directory)
    began = time.monotonic()
    conn.close()
    while int(server.figures()["reply_spill"]) > 0:
        pass
    took = time.monotonic() - began
    print(f"closed: free before {before} MB, with the file {full} MB, {took * 1e3:.0f} ms after the close"
          f" {free_mb(directory)} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="its command line, with {port} and {dir}")
    parser.add_argument("--dir", default="/var/tmp", help="where the files are put")
    parser.add_argument("--port", type=int, default=21900)
    parser.add_argument("--gigabytes", type=float, default=2)
    options = parser.parse_args()
    size = int(options.gigabytes * 1e9)
    for _ in range(2):
        wrote, read = disk_alone(options.dir, size)
        print(f"the disk alone: {wrote:.0f} MB/s written, {read:.0f} MB/s read")
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        server = Server(options.server, options.port, directory)
        try:
            server.ask("CONFIG", "SET", "reply-spill-limit", "1000gb", "reply-spill-total", "1000gb")
            print("    value  commands spilled MB write MB/s read MB/s CPU ms/MB in CPU ms/MB out  peak MB")
            for value_bytes in VALUES:
                measure(server, value_bytes, size)
            measure_close(server, options.dir, size)
        finally:
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
