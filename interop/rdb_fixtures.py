#!/usr/bin/env python3
"""Makes the snapshots of real servers that crates/format's tests read.

    interop/rdb_fixtures.py NAME=PROGRAM...

NAME is the fixture's, such as redis-7.0, and PROGRAM a server that takes redis.conf's directives as options. Each gives two files in
crates/format/tests/fixtures: NAME.rdb, what the server saves, and NAME.txt, what it answers for each key. The text's form is
that of crates/format/tests/canonical. A NAME that ends in "-fields" gets hashes with fields that expire, and nothing else.

    interop/rdb_fixtures.py redis-7.0=redis-server valkey-9.1=.../valkey-server redis-8.6=.../redis8-server
"""

import argparse
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import time

from cluster import free_port
from run import ROOT

FOLDER = ROOT / "crates/format/tests/fixtures"

# A time in the far future, in milliseconds.
FAR = 4102444800000


class Link:
    """A connection that speaks as much of the protocol as this needs."""

    def __init__(self, port):
        import socket

        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.reply()

    def reply(self):
        kind, rest = (line := self.file.readline().rstrip(b"\r\n"))[:1], line[1:]
        if kind == b"$":
            if rest == b"-1":
                return None
            return self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(max(0, int(rest)))]
        if kind == b":":
            return int(rest)
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return rest


def fill(link):
    """Every type in every form, and what hangs on keys."""
    call = link.call
    noise = bytes((i * 7919 >> 3) & 255 for i in range(300))
    strings = [b"", b"abc", b"0", b"-1", b"127", b"128", b"-129", b"32767", b"-32769", b"2147483647", b"2147483648", b"-9223372036854775808",
               b"007", b"x" * 20, b"x" * 21, b"ab" * 300, noise, b"word and word " * 90]
    for at, text in enumerate(strings):
        call("SET", f"string:{at}", text)
    call("SET", "expiring", "soon", "PXAT", FAR)
    call("SET", b"binary\x00\xff key", "v")
    call("SET", "k" * 100, "v")
    small = [b"a", b"12", b"-4000", b"70000", b"-9000000", b"3000000000", b"x" * 60, b""]
    call("RPUSH", "list:small", *small)
    call("RPUSH", "list:blocks", *[b"%d element" % i for i in range(150)], b"y" * 5000, b"z" * 70)
    call("SADD", "set:16", 1, -2, 30000)
    call("SADD", "set:32", 1, -2, 70000)
    call("SADD", "set:64", 1, 1 << 40)
    call("SADD", "set:small", *small)
    call("SADD", "set:long", b"z" * 100, "b")
    call("SADD", "set:large", *[b"m%d" % i for i in range(200)])
    call("SADD", "set:ints:large", *range(0, 1800, 3))
    pairs = [part for at, text in enumerate(small) for part in (b"f%d" % at, text)]
    call("HSET", "hash:small", *pairs)
    call("HSET", "hash:long", "f", b"v" * 100)
    call("HSET", "hash:large", *[part for i in range(150) for part in (b"f%d" % i, b"%d" % (i * i))])
    scores = ["1", "-2", "0.5", "3.25", "1e100", "-inf", "+inf", "0.1"]
    call("ZADD", "zset:small", *[part for s, m in zip(scores, small) for part in (s, m)])
    call("ZADD", "zset:long", "1.5", b"m" * 100)
    call("ZADD", "zset:large", *[part for i in range(150) for part in (i / 8, b"m%d" % i)])
    for ms in range(1, 121):
        call("XADD", "stream", f"{1000 + ms}-{ms}", "name", f"n{ms}", "value", ms, *(["more", "x"] if ms % 10 == 0 else []))
    for ms in (1, 50, 120):
        call("XDEL", "stream", f"{1000 + ms}-{ms}")
    call("XGROUP", "CREATE", "stream", "group", "0")
    call("XGROUP", "CREATE", "stream", "idle", "$")
    call("XREADGROUP", "GROUP", "group", "alice", "COUNT", 3, "STREAMS", "stream", ">")
    call("XREADGROUP", "GROUP", "group", "bob", "COUNT", 2, "STREAMS", "stream", ">")
    call("XACK", "stream", "group", "1003-3")
    call("XGROUP", "CREATECONSUMER", "stream", "group", "carol")
    call("XADD", "stream:empty", "5-5", "a", "b")
    call("XDEL", "stream:empty", "5-5")
    call("SELECT", 3)
    call("SET", "in database 3", "v")
    call("SELECT", 0)
    call("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")


def fill_fields(link):
    """Hashes with fields that expire, in every form."""
    call = link.call
    for at, count in enumerate((1, 2, 5, 60, 130, 200)):
        for form, value in (("small", b"%d"), ("long", b"%d" + b"v" * 80)):
            key = f"{form}:{at}"
            call("HSET", key, *[part for i in range(count) for part in (b"f%d" % i, value % i)])
            for i in range(0, count, 3):
                call("HPEXPIREAT", key, FAR + i * 77 % 13, "FIELDS", 1, f"f{i}")
    call("HSET", "forever", "a", 1, "b", 2)
    call("HPEXPIREAT", "forever", FAR, "FIELDS", 2, "a", "b")
    call("HPERSIST", "forever", "FIELDS", 2, "a", "b")
    call("HSET", "expiring", "a", 1, "b", 2)
    call("HPEXPIREAT", "expiring", FAR, "FIELDS", 1, "b")
    call("PEXPIREAT", "expiring", FAR + 1)


def answered(link):
    """What the server says that it has."""
    lines = []
    for database in (0, 3):
        link.call("SELECT", database)
        for key in link.call("KEYS", "*"):
            kind = link.call("TYPE", key).decode()
            expiry = link.call("PEXPIRETIME", key)
            parts = " ".join(PARTS[kind](link, key))
            lines.append(f"{database} {text(key)} {kind} {'-' if expiry < 0 else expiry} {parts}".rstrip())
    for library in link.call("FUNCTION", "LIST", "WITHCODE"):
        fields = dict(zip(library[::2], library[1::2]))
        lines.append(f"function {text(fields[b'library_code'])}")
    return sorted(lines)


def text(data):
    """Bytes as a word: as they are if they are lower-case letters and the like, or their hexadecimal digits after a plus sign."""
    plain = re.fullmatch(rb"[a-z0-9.:-]+", data)
    return data.decode() if plain else "+" + data.hex()


def by_twos(items):
    return list(zip(items[::2], items[1::2]))


def bits(score):
    return struct.pack(">d", float(score)).hex()


def hash_parts(link, key):
    parts = []
    for field, value in by_twos(link.call("HGETALL", key)):
        try:
            at = link.call("HPEXPIRETIME", key, "FIELDS", 1, field)[0]
        except RuntimeError:
            at = -1
        parts.append(f"{text(field)}={text(value)}" + (f"@{at}" if at >= 0 else ""))
    return sorted(parts)


def stream_parts(link, key):
    whole = link.call("XINFO", "STREAM", key, "FULL", "COUNT", 0)
    info = dict(by_twos(whole))
    parts = [info[b"last-generated-id"].decode(), info[b"max-deleted-entry-id"].decode(), str(info[b"entries-added"])]
    for entry, fields in info[b"entries"]:
        parts.append(entry.decode() + ":" + ",".join(f"{text(f)}={text(v)}" for f, v in by_twos(fields)))
    for group in sorted((dict(by_twos(group)) for group in info[b"groups"]), key=lambda group: group[b"name"]):
        read = group[b"entries-read"]
        consumers = ",".join(sorted(text(dict(by_twos(one))[b"name"]) for one in group[b"consumers"]))
        pending = ",".join(f"{i.decode()}@{ms}*{count}>{text(who)}" for i, who, ms, count in group.get(b"pel", group.get(b"pending")))
        name, last = text(group[b"name"]), group[b"last-delivered-id"].decode()
        parts.append(f"group:{name}:{last}:{'-' if read is None else read}:{consumers}:{pending}")
    return parts


PARTS = {
    "string": lambda link, key: [text(link.call("GET", key))],
    "list": lambda link, key: [text(element) for element in link.call("LRANGE", key, 0, -1)],
    "set": lambda link, key: sorted(text(member) for member in link.call("SMEMBERS", key)),
    "hash": hash_parts,
    "zset": lambda link, key: sorted(
        f"{text(m)}={bits(s)}" for m, s in by_twos(link.call("ZRANGE", key, 0, -1, "WITHSCORES"))
    ),
    "stream": stream_parts,
}


def make(name, program):
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = {"port": port, "dir": folder, "save": "", "dbfilename": "dump.rdb"}
        words = [program] + [word for key, value in options.items() for word in (f"--{key}", str(value))]
        # Sizes that keep the files small and still give every form.
        words += ["--list-max-listpack-size", "-1"]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            link = connect(port)
            if name.endswith("-fields"):
                fill_fields(link)
            else:
                fill(link)
            (FOLDER / f"{name}.txt").write_text("\n".join(answered(link)) + "\n")
            link.call("SAVE")
            shutil.copy(pathlib.Path(folder) / "dump.rdb", FOLDER / f"{name}.rdb")
        finally:
            server.terminate()
            server.wait()


def connect(port):
    for _ in range(100):
        try:
            link = Link(port)
            link.call("PING")
            return link
        except (OSError, RuntimeError):
            time.sleep(0.05)
    raise SystemExit(f"no server at port {port}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="NAME=PROGRAM")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for server in parser.parse_args().servers:
        name, _, program = server.partition("=")
        make(name, program)


main()
