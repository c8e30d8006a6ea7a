#!/usr/bin/env python3
"""CPU time of servers for commands of every family, in a pipeline. `side_by_side.py` can't send all of them: its generator repeats a single
command.

    bench/families.py --server 'valkey=valkey-server --port {port} --save ""' \\
        --server 'redis8=redis8-server --port {port} --save ""' \\
        --server 'penstock=target/release/penstock --port {port} --save "" --threads 1'

Each server has one core, and every case a connection and keys of its own. A round sends each server the same batches of 128 commands, with keys
and members drawn evenly. The servers take turns, and begin in turn. The script prints medians of the rounds, in nanoseconds of the server's CPU a
command, and medians of each other server's ratio to the last one in a round. A server without the command has a dash. `--case TEXT` measures the
cases with TEXT in their names, or of the family TEXT.

Needs Linux (/proc/PID/task/*/schedstat, taskset) and two cores.
"""

import random
import socket
import statistics

import servers
from words import request

DEPTH = 128
KEYS = 20_000
SENTINEL = b"$16\r\nend-of-the-batch\r\n"


class Unknown(Exception):
    """The server lacks the command of a case."""


class Connection:
    """Sends batches. An ECHO after each batch marks the end of its replies. Only the first batch's replies are parsed."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))

    def send(self, batch):
        self.socket.sendall(batch + request("ECHO", "end-of-the-batch"))
        tail = b""
        while not tail.endswith(SENTINEL):
            part = self.socket.recv(1 << 20)
            if not part:
                raise SystemExit("the server has closed the connection")
            tail = (tail + part)[-len(SENTINEL):]

    def check(self, batch):
        """Sends a batch. Fails if a reply is an error."""
        self.socket.sendall(batch + request("ECHO", "end-of-the-batch"))
        replies = b""
        while not replies.endswith(SENTINEL):
            replies += self.socket.recv(1 << 20)
        for line in replies.split(b"\r\n"):
            if line.startswith(b"-") and line[1:2].isalpha():
                raise Unknown(line.decode())


class Case:
    """A family's command: the data before it, and a function from a source of numbers to the commands of a batch."""

    def __init__(self, family, name, commands, before=(), batches=200, depth=DEPTH, others=None):
        self.family, self.name, self.commands, self.before, self.batches, self.depth = family, name, commands, list(before), batches, depth
        # An equivalent for servers that lack the command.
        self.others = others

    def batches_of(self, draw, commands):
        made = []
        for _ in range(self.batches):
            words = [commands(draw, i) for i in range(self.depth)]
            made.append(b"".join(each if isinstance(each, bytes) else request(*each) for each in words))
        return made


def key(name, draw, keys=KEYS):
    return f"{name}:{draw.randrange(keys)}"


def each(*words, keys=KEYS):
    """Returns one command for each key. `#` is its number."""
    return [tuple(str(word).replace("#", str(i)) for word in words) for i in range(keys)]


def by_turns(first, second):
    """Two commands on each of a batch's keys, one after the other, made from the key's number."""
    return lambda draw, i: first(i) if i % 2 == 0 else second(i - 1)


VALUE = "v" * 16
BIG = bytes((i * 73 + i // 251) % 256 for i in range(1 << 20))
TEXT_A, TEXT_B = "ohmytextofwordsandmore" * 4, "mynewtextandwordsofless" * 4


def digest(draw, i):
    return ("DIGEST", key("s", draw))


def cases():
    strings = each("SET", "s:#", VALUE)
    yield Case("bits", "SETBIT", lambda d, i: ("SETBIT", key("b", d), 77, 1), each("SETBIT", "b:#", 7, 1))
    yield Case("bits", "GETBIT", lambda d, i: ("GETBIT", key("s", d), 7), strings)
    yield Case("bits", "BITCOUNT of 16 bytes", lambda d, i: ("BITCOUNT", key("s", d)), strings)
    yield Case("bits", "BITCOUNT of 1 kB", lambda d, i: ("BITCOUNT", "k"), [("SET", "k", BIG[:1000])])
    yield Case("bits", "BITCOUNT of 1 MB", lambda d, i: ("BITCOUNT", "m"), [("SET", "m", BIG)], batches=8)
    yield Case("bits", "SETBIT and BITCOUNT of 1 MB", by_turns(
        lambda i: ("SETBIT", "m", (i * 7919 + 13) * 61 % (8 << 20), i // 2 % 2), lambda i: ("BITCOUNT", "m")), [("SET", "m", BIG)], batches=8)
    yield Case("bits", "BITPOS in 1 kB", lambda d, i: ("BITPOS", "z", 1), [("SETBIT", "z", 7999, 1)])
    yield Case("bits", "BITFIELD INCRBY", lambda d, i: ("BITFIELD", key("b", d), "INCRBY", "u8", 64, 1), each("SETBIT", "b:#", 7, 1))
    yield Case("bits", "BITFIELD_RO GET", lambda d, i: ("BITFIELD_RO", key("s", d), "GET", "u8", 64), strings)
    of_1_kb = [("SET", "k", BIG[:1000]), ("SET", "l", BIG[9:1009])]
    yield Case("bits", "BITOP AND of two of 1 kB", lambda d, i: ("BITOP", "AND", "kd", "k", "l"), of_1_kb)
    of_1_mb = [("SET", "m", BIG), ("SET", "n", BIG[9:] + BIG[:9])]
    yield Case("bits", "BITOP AND of two of 1 MB", lambda d, i: ("BITOP", "AND", "md", "m", "n"), of_1_mb, batches=4)
    yield Case("bits", "BITOP NOT of 1 MB", lambda d, i: ("BITOP", "NOT", "md", "m"), of_1_mb, batches=4)

    hlls = [("PFADD", f"h:{i}", *(f"{i}:{e}" for e in range(10))) for i in range(5000)]
    dense = [("PFADD", f"dense:{n}", *(f"{n}:{i}:{e}" for e in range(1000))) for n in range(2) for i in range(20)]
    yield Case("HyperLogLog", "PFADD, a key each", lambda d, i: ("PFADD", key("h", d, 5000), "element"), hlls)
    yield Case("HyperLogLog", "PFADD, one dense key", lambda d, i: ("PFADD", "dense:0", d.randrange(1 << 40)), dense)
    yield Case("HyperLogLog", "PFADD of ten, one dense key", lambda d, i: ("PFADD", "dense:0", *(d.randrange(1 << 40) for _ in range(10))), dense)
    yield Case("HyperLogLog", "PFCOUNT, a sparse key each", lambda d, i: ("PFCOUNT", key("h", d, 5000)), hlls)
    yield Case("HyperLogLog", "PFCOUNT of two dense", lambda d, i: ("PFCOUNT", "dense:0", "dense:1"), dense, batches=20)
    yield Case("HyperLogLog", "PFMERGE of two dense", lambda d, i: ("PFMERGE", "merged", "dense:0", "dense:1"), dense, batches=20)
    yield Case("HyperLogLog", "PFMERGE of two sparse", lambda d, i: ("PFMERGE", "merged2", key("h", d, 5000), key("h", d, 5000)), hlls, batches=20)

    place = random.Random(3)
    points = [("GEOADD", "geo", place.uniform(5, 15), place.uniform(47, 55), f"place:{i}") for i in range(10_000)]
    geo_each = each("GEOADD", "g:#", "13.4", "52.5", "a", "13.5", "52.6", "b", keys=5000)
    yield Case("geo", "GEOADD, a key each", lambda d, i: ("GEOADD", key("g", d, 5000), f"{d.uniform(5, 15):.6f}", "52.5", "a"), geo_each)
    yield Case("geo", "GEOADD, one of 10,000", lambda d, i: (
        "GEOADD", "geo2", f"{d.uniform(5, 15):.6f}", f"{d.uniform(47, 55):.6f}", key("place", d, 10_000)),
               [(word, "geo2", *rest) for word, _, *rest in points])
    yield Case("geo", "GEODIST", lambda d, i: ("GEODIST", key("g", d, 5000), "a", "b"), geo_each)
    yield Case("geo", "GEOPOS of two", lambda d, i: ("GEOPOS", key("g", d, 5000), "a", "b"), geo_each)
    yield Case("geo", "GEOHASH of two", lambda d, i: ("GEOHASH", key("g", d, 5000), "a", "b"), geo_each)
    for radius in (1, 10, 50):
        yield Case("geo", f"GEOSEARCH of {radius} km in 10,000", lambda d, i, radius=radius: (
            "GEOSEARCH", "geo", "FROMLONLAT", f"{d.uniform(6, 14):.5f}", f"{d.uniform(48, 54):.5f}", "BYRADIUS", radius, "km"), points, batches=10)
    yield Case("geo", "GEOSEARCH COUNT 10 ASC WITHDIST", lambda d, i: (
        "GEOSEARCH", "geo", "FROMMEMBER", key("place", d, 10_000), "BYRADIUS", 50, "km", "ASC", "COUNT", 10, "WITHDIST"), points, batches=10)
    yield Case("geo", "GEOSEARCH BYBOX of 50 km", lambda d, i: (
        "GEOSEARCH", "geo", "FROMLONLAT", f"{d.uniform(6, 14):.5f}", f"{d.uniform(48, 54):.5f}", "BYBOX", 100, 100, "km"), points, batches=10)

    hashes = each("HSET", "hash:#", "field", VALUE, "other", VALUE)
    fields = ("FIELDS", 1, "field")
    timed = hashes + each("HEXPIRE", "hash:#", 10_000, *fields)
    large = [("HSET", "large", *(w for f in range(i, i + 1000) for w in (f"f:{f}", VALUE))) for i in range(0, 20_000, 1000)]
    large_timed = large + [("HEXPIRE", "large", 10_000, "FIELDS", 1000, *(f"f:{f}" for f in range(i, i + 1000))) for i in range(0, 20_000, 1000)]
    yield Case("hash fields", "HEXPIRE, a key each", lambda d, i: ("HEXPIRE", key("hash", d), 1000 + i, *fields), hashes)
    yield Case("hash fields", "HEXPIRE, one of 20,000 fields", lambda d, i: ("HEXPIRE", "large", 1000 + i, "FIELDS", 1, key("f", d)), large_timed)
    yield Case("hash fields", "HPERSIST and HEXPIRE", by_turns(
        lambda i: ("HPERSIST", f"hash:{i}", *fields), lambda i: ("HEXPIRE", f"hash:{i}", 1000, *fields)), timed)
    yield Case("hash fields", "HTTL", lambda d, i: ("HTTL", key("hash", d), *fields), timed)
    yield Case("hash fields", "HGETEX EX", lambda d, i: ("HGETEX", key("hash", d), "EX", 1000 + i, *fields), timed)
    yield Case("hash fields", "HGETEX without", lambda d, i: ("HGETEX", key("hash", d), *fields), timed)
    yield Case("hash fields", "HSETEX EX", lambda d, i: ("HSETEX", key("hash", d), "EX", 1000 + i, *fields, VALUE), timed)
    yield Case("hash fields", "HSETEX, one of 20,000 fields", lambda d, i: (
        "HSETEX", "large", "EX", 1000 + i, "FIELDS", 1, key("f", d), VALUE), large_timed)
    yield Case("hash fields", "HGETDEL and HSET", by_turns(
        lambda i: ("HGETDEL", f"hash:{i}", *fields), lambda i: ("HSET", f"hash:{i}", "field", VALUE)), hashes)

    yield Case("strings", "MSETEX of one", lambda d, i: ("MSETEX", 1, key("s", d), VALUE, "EX", 1000), strings)
    yield Case("strings", "MSETEX of ten", lambda d, i: ("MSETEX", 10, *(w for _ in range(10) for w in (key("s", d), VALUE)), "EX", 1000), strings)
    yield Case("strings", "SET IFEQ", lambda d, i: ("SET", key("s", d), VALUE, "IFEQ", VALUE), strings)
    yield Case("strings", "SET IFNE", lambda d, i: ("SET", key("s", d), VALUE, "IFNE", VALUE), strings)
    yield Case("strings", "DELEX IFEQ, another value", lambda d, i: ("DELEX", key("s", d), "IFEQ", "other"), strings)
    yield Case("strings", "DELEX and SET", by_turns(
        lambda i: ("DELEX", f"s:{i}", "IFEQ", VALUE), lambda i: ("SET", f"s:{i}", VALUE)), strings)
    yield Case("strings", "DELIFEQ, another value", lambda d, i: ("DELIFEQ", key("s", d), "other"), strings)
    yield Case("strings", "DIGEST of 16 bytes", digest, strings)
    yield Case("strings", "DIGEST of 1 kB", lambda d, i: ("DIGEST", "k"), [("SET", "k", BIG[:1000])])
    yield Case("strings", "GETEX EX", lambda d, i: ("GETEX", key("s", d), "EX", 1000), strings)
    yield Case("strings", "GETRANGE", lambda d, i: ("GETRANGE", key("s", d), 3, 9), strings)
    yield Case("strings", "APPEND to 1 kB", lambda d, i: ("APPEND", f"ap:{i}", "x"), each("SET", "ap:#", "v" * 1000, keys=128))
    yield Case("strings", "LCS of 90 bytes", lambda d, i: ("LCS", "ta", "tb"), [("SET", "ta", TEXT_A), ("SET", "tb", TEXT_B)], batches=4)
    yield Case("strings", "LCS LEN of 90 bytes", lambda d, i: ("LCS", "ta", "tb", "LEN"), [("SET", "ta", TEXT_A), ("SET", "tb", TEXT_B)], batches=4)

    streams = [(("XADD", f"x:{i}", f"{e}-1", "field", VALUE)) for i in range(2000) for e in range(1, 5)]
    entry = ("field", VALUE)
    yield Case("streams", "XADD, one stream", lambda d, i: ("XADD", "x1", "*", *entry))
    yield Case("streams", "XADD MAXLEN ~ 1000", lambda d, i: ("XADD", "x2", "MAXLEN", "~", 1000, "*", *entry))
    yield Case("streams", "XADD MAXLEN 10, a stream each", lambda d, i: ("XADD", key("x", d, 2000), "MAXLEN", 10, "*", *entry), streams)
    yield Case("streams", "XADD IDMP, new", lambda d, i: ("XADD", "x3", "IDMP", "p", d.randrange(1 << 60), "MAXLEN", "~", 1000, "*", *entry))
    yield Case("streams", "XADD IDMP, known", lambda d, i: ("XADD", "x4", "IDMP", "p", i % 90, "MAXLEN", "~", 1000, "*", *entry))
    yield Case("streams", "XADD IDMPAUTO", lambda d, i: ("XADD", "x5", "IDMPAUTO", "p", "MAXLEN", "~", 1000, "*", "field", d.randrange(1 << 60)))
    thousand = [("XADD", "xr", f"{e}-1", *entry) for e in range(1, 1001)]
    yield Case("streams", "XRANGE of 10", lambda d, i: ("XRANGE", "xr", d.randrange(1, 990), "+", "COUNT", 10), thousand)
    yield Case("streams", "XREAD of 10", lambda d, i: ("XREAD", "COUNT", 10, "STREAMS", "xr", d.randrange(1, 990)), thousand)
    yield Case("streams", "XADD and XDELEX", lambda d, i: request("XADD", "xd", f"{1}-{d.counted()}", *entry) if i % 2 == 0 else request(
        "XDELEX", "xd", "IDS", 1, f"1-{d.count}"))
    group = [("XGROUP", "CREATE", "xg", "g", "0", "MKSTREAM")]
    yield Case("streams", "XADD, XREADGROUP, XACK", lambda d, i: (
        request("XADD", "xg", f"1-{d.counted()}", *entry), request("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "xg", ">"),
        request("XACK", "xg", "g", f"1-{d.count}"))[i % 3], group, depth=126)
    group2 = [("XGROUP", "CREATE", "xh", "g", "0", "MKSTREAM")]
    yield Case("streams", "XADD, XREADGROUP, XACKDEL", lambda d, i: (
        request("XADD", "xh", f"1-{d.counted()}", *entry), request("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "xh", ">"),
        request("XACKDEL", "xh", "g", "IDS", 1, f"1-{d.count}"))[i % 3], group2, depth=126)
    group3 = [("XGROUP", "CREATE", "xi", "g", "0", "MKSTREAM")]
    yield Case("streams", "ten XADD, XREADGROUP of 10", lambda d, i: (
        "XADD", "xi", "MAXLEN", "~", 1000, "*", *entry) if i % 11 < 10 else (
        "XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "NOACK", "STREAMS", "xi", ">"), group3, depth=121)

    zsets = [("ZADD", f"z:{i}", *(w for m in range(10) for w in (m, f"m:{m + i % 5}"))) for i in range(5000)]
    middle = [("ZADD", f"zm:{n}", *(w for m in range(1000) for w in (m, f"m:{m + n * 500}"))) for n in range(3)]
    for kind, note in (("SUM", ""), ("COUNT", " (others: SUM)")):
        def add(name, batches, commands, kind=kind, note=note):
            summed = lambda d, i: tuple("SUM" if word == "COUNT" else word for word in commands(d, i))
            return Case("sorted sets", f"{name}, {kind}{note}", commands, zsets if batches > 2 else middle, batches=batches, others=summed)
        yield add("ZUNION of two of 10", 20, lambda d, i, kind=kind: (
            "ZUNION", 2, key("z", d, 5000), key("z", d, 5000), "AGGREGATE", kind, "WITHSCORES"))
        yield add("ZINTER of two of 1,000", 2, lambda d, i, kind=kind: ("ZINTER", 2, "zm:0", "zm:1", "AGGREGATE", kind))
        yield add("ZUNIONSTORE of three of 1,000", 2, lambda d, i, kind=kind: ("ZUNIONSTORE", "zd", 3, "zm:0", "zm:1", "zm:2", "AGGREGATE", kind))
    yield Case("sorted sets", "ZRANGESTORE of 100", lambda d, i: ("ZRANGESTORE", "zs", "zm:0", 100, 199), middle, batches=4)
    yield Case("sorted sets", "ZMPOP and ZADD", by_turns(
        lambda i: ("ZMPOP", 1, f"z:{i}", "MIN"), lambda i: ("ZADD", f"z:{i}", i, f"new:{i}")), zsets)

    lists = [("RPUSH", f"l:{i}", *(f"e:{e}" for e in range(20))) for i in range(2000)]
    moved = lambda d, i, c: ("LMOVEM", f"l:{i}", f"l:{i + 1}", "LEFT", "RIGHT", "COUNT", c, "BULK") if i % 2 == 0 else (
        "LMOVEM", f"l:{i}", f"l:{i - 1}", "RIGHT", "LEFT", "COUNT", c, "BULK")
    one_by_one = lambda d, i, c: request("LMOVE", f"l:{i}", f"l:{i + 1}", "LEFT", "RIGHT") * c if i % 2 == 0 else request(
        "LMOVE", f"l:{i}", f"l:{i - 1}", "RIGHT", "LEFT") * c
    yield Case("lists", "LMOVE", lambda d, i: one_by_one(d, i, 1), lists)
    yield Case("lists", "LMOVEM of 10 (others: ten LMOVE)", lambda d, i: moved(d, i, 10), lists, others=lambda d, i: one_by_one(d, i, 10), batches=20)
    yield Case("lists", "LMPOP and RPUSH", by_turns(
        lambda i: ("LMPOP", 1, f"l:{i}", "LEFT"), lambda i: ("RPUSH", f"l:{i}", "e:0")), lists)
    yield Case("lists", "LPOS in 20", lambda d, i: ("LPOS", key("l", d, 2000), "e:15"), lists)

    sets = [("SADD", f"set:{i}", *(f"m:{m + i % 7}" for m in range(10))) for i in range(5000)]
    sets += [("SADD", f"big:{n}", *(f"m:{m + n * 500}" for m in range(1000))) for n in range(3)]
    sets += [("SADD", f"ints:{n}", *(m + n * 100 for m in range(200))) for n in range(3)]
    two = lambda d: (key("set", d, 5000), key("set", d, 5000))
    yield Case("sets", "SINTERCARD of two of 10", lambda d, i: ("SINTERCARD", 2, *two(d)), sets)
    yield Case("sets", "SUNIONCARD of two of 10 (others: SUNION)", lambda d, i: ("SUNIONCARD", 2, *two(d)), sets, batches=20,
               others=lambda d, i: ("SUNION", *two(d)))
    yield Case("sets", "SUNIONCARD of two of 1,000 (others: SUNION)", lambda d, i: ("SUNIONCARD", 2, "big:0", "big:1"), sets, batches=2,
               others=lambda d, i: ("SUNION", "big:0", "big:1"))
    yield Case("sets", "SDIFFCARD of two of 10 (others: SDIFF)", lambda d, i: ("SDIFFCARD", 2, *two(d)), sets, batches=20,
               others=lambda d, i: ("SDIFF", *two(d)))
    yield Case("sets", "SDIFFCARD of two of 1,000 (others: SDIFF)", lambda d, i: ("SDIFFCARD", 2, "big:0", "big:1"), sets, batches=2,
               others=lambda d, i: ("SDIFF", "big:0", "big:1"))
    yield Case("sets", "SINTER of two of 1,000", lambda d, i: ("SINTER", "big:0", "big:1"), sets, batches=2)
    yield Case("sets", "SUNION of two of 200 integers", lambda d, i: ("SUNION", "ints:0", "ints:1"), sets, batches=4)
    yield Case("sets", "SUNIONSTORE of two of 1,000", lambda d, i: ("SUNIONSTORE", "sd", "big:0", "big:1"), sets, batches=2)

    numbers = [("RPUSH", "numbers", *(place.randrange(10_000) for _ in range(100)))]
    numbers += [("SET", f"weight:{i}", place.randrange(10_000)) for i in range(10_000)]
    yield Case("SORT", "SORT of 100 numbers", lambda d, i: ("SORT", "numbers"), numbers, batches=4)
    yield Case("SORT", "SORT of 100, LIMIT 0 10", lambda d, i: ("SORT", "numbers", "LIMIT", 0, 10), numbers, batches=4)
    yield Case("SORT", "SORT of 100, ALPHA", lambda d, i: ("SORT", "numbers", "ALPHA"), numbers, batches=4)
    yield Case("SORT", "SORT of 100, BY, GET", lambda d, i: ("SORT", "numbers", "BY", "weight:*", "GET", "weight:*"), numbers, batches=4)

    tracking = strings + [("HELLO", 3), ("CLIENT", "TRACKING", "ON")]
    yield Case("tracking", "GET, tracked", lambda d, i: ("GET", key("s", d)), tracking)
    yield Case("tracking", "GET, tracked, and SET by itself", by_turns(lambda i: ("GET", f"s:{i}"), lambda i: ("SET", f"s:{i}", VALUE)), tracking)
    broadcast = strings + [("HELLO", 3), ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "other:")]
    yield Case("tracking", "SET, BCAST", lambda d, i: ("SET", key("s", d), VALUE), broadcast)


class Draw(random.Random):
    """Numbers, and a counter for IDs that go up."""

    count = 0

    def counted(self):
        self.count += 1
        return self.count


def measure(case, running, rounds):
    """Returns nanoseconds a command, by server and round. A server without the command is left out."""
    sent, connections = {}, {}
    for name, _, port in running:
        connection = Connection(port)
        commands = case.commands
        connection.send(request("FLUSHALL"))
        before = [request(*words) for words in case.before]
        for start in range(0, len(before), 500):
            connection.check(b"".join(before[start:start + 500]))
        try:
            connection.check(b"".join(case_batch(case, commands, 0)))
        except Unknown:
            commands = case.others
            if commands is None:
                continue
            connection.check(b"".join(case_batch(case, commands, 0)))
        connections[name], sent[name] = connection, commands
    taken = {name: [] for name in connections}
    # IDs go on from round to round.
    draw = Draw(1)
    draw.count = 1000
    for number in range(rounds):
        made, state = {}, (draw.getstate(), draw.count)
        for name, commands in sent.items():
            draw.setstate(state[0])
            draw.count = state[1]
            made[name] = case.batches_of(draw, commands)
        turn = number % len(running)
        for name, process, _ in running[turn:] + running[:turn]:
            if name not in sent:
                continue
            before = servers.cpu_ns(process)
            for batch in made[name]:
                connections[name].send(batch)
            taken[name].append((servers.cpu_ns(process) - before) / (case.depth * case.batches))
    return taken


def case_batch(case, commands, seed):
    draw = Draw(seed)
    for i in range(case.depth):
        words = commands(draw, i)
        yield words if isinstance(words, bytes) else request(*words)


def main():
    parser = servers.options(__doc__, 27800)
    parser.add_argument("--case", action="append", default=[], help="measure only cases with this in their names")
    args = parser.parse_args()
    running = []
    try:
        servers.start_each(args, running)
        last = running[-1][0]
        others = [name for name, _, _ in running[:-1]]
        print(f"| ns a command | {' | '.join(others)} | {last} | {' | '.join(name + '/' + last for name in others)} |")
        print("| --- |" + " --- |" * (2 * len(others) + 1))
        family = None
        for case in cases():
            if args.case and not any(text in case.name or text == case.family for text in args.case):
                continue
            if case.family != family:
                family = case.family
                print(f"| **{family}** |" + " |" * (2 * len(others) + 1))
            taken = measure(case, running, args.rounds)
            cells = [f"{statistics.median(taken[n]):.0f}" if n in taken else "-" for n in (*others, last)]
            pairs = [list(zip(taken[n], taken[last])) if n in taken and last in taken else [] for n in others]
            ratios = [f"{statistics.median(one / own for one, own in pair):.2f}" if pair else "-" for pair in pairs]
            print(f"| {case.name} | {' | '.join(cells)} | {' | '.join(ratios)} |", flush=True)
    finally:
        for _, process, _ in running:
            process.kill()


if __name__ == "__main__":
    main()
