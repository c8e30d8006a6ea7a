"""Cases of `sweep.py`: at least one for every entry of the command table, with sizes on both sides of each conversion of form."""

import fnmatch

VALUE = "v" * 16
# Elements of collections. Redis and Valkey change the form beyond 128 members, 512 fields or integers, and 8 kB of list. 5 and 100 are
# compact everywhere, and 3,000 are nowhere.
SIZES = (5, 100, 600, 3000)
# Bytes of strings: embedded (up to 44 in Redis), separate, one cache of replies (16 kB) and beyond, and an argument of its own (32 kB).
LENGTHS = (10, 60, 1000, 20_000, 100_000)
# Elements on both sides of the first conversion of sets and sorted sets (128) and of hashes and sets of integers (512).
EDGES = (127, 129, 511, 513)
# A word of a command that stands for the reply to the case's `fetch`.
PAYLOAD = object()

# Entries without a case, and the reason. A star stands for any text.
EXEMPT = {
    "cluster": "only answers an error outside a cluster", "cluster|*": "only answers errors outside a cluster",
    "asking": "only answers an error outside a cluster", "clusterscan": "only answers an error outside a cluster",
    "readonly": "only answers an error outside a cluster", "readwrite": "only answers an error outside a cluster",
    "failover": "needs a replica", "replicaof": "changes the role",
    "slaveof": "changes the role", "psync": "turns the connection into a replica's", "sync": "turns the connection into a replica's",
    "replconf": "is for replicas", "waitaof": "waits for the disk", "bgrewriteaof": "writes files", "bgsave": "writes files",
    "save": "writes files", "config|rewrite": "writes a file", "acl|load": "reads a file", "acl|save": "writes a file",
    "shutdown": "ends the server", "quit": "ends the connection", "monitor": "shows every command", "migrate": "needs another server",
    "debug": "is for tests", "script|debug": "is for debuggers", "script|kill": "needs a busy script", "function|kill": "needs a busy function",
    "module*": "needs a module", "pfselftest": "takes seconds", "memory|purge": "is about the allocator", "memory|malloc-stats": "is about the allocator",
    "client|reply": "leaves out replies", "client|pause": "stops the clients", "client|kill": "ends connections", "latency|graph": "needs recorded events",
    "client|import-source": "is for imports", "client|capa": "is for redirects", "hotkeys|*": "starts and stops a measurement", "hotkeys": "starts and stops a measurement",
    "advise|get": "needs a finding", "pipeline": "only answers an error", "pipeline|end": "needs a token of the connection",
    "pipeline|resume": "needs a token of the connection", "pipeline|start": "needs a token of the connection",
    "pipeline|status": "needs a token of the connection", "pipeline|list": "needs a token of the connection", "pipeline|help": "is for people",
    "pipeline|attach": "is for nodes of a cluster", "pipeline|at": "is for nodes of a cluster", "xidmprecord": "is for files", "restore-asking": "is RESTORE in a cluster",
}


class Case:
    """Measured commands, and the data that they need.

    `one` makes the commands number i of a round: one tuple of words or several. `before` makes the data of the case, `prepare` the data of
    the commands number i, and `tidy` removes their effects. These three are not measured. The reply to `fetch` replaces `PAYLOAD`. `count`
    fixes the number of commands of a round."""

    def __init__(self, name, one, before=(), prepare=None, tidy=None, resp=2, fetch=None, count=None):
        self.name, self.before, self.resp, self.fetch, self.count = name, list(before), resp, fetch, count
        self.one = one if callable(one) else lambda i: one
        self.prepare, self.tidy = prepare, tidy
        # Name of the function that makes the case, set by `cases`.
        self.family = ""

    def measured(self, i):
        """The commands number i."""
        return several(self.one(i))

    def entries(self, known):
        """The entries of the table `known` that the case measures."""
        for words in self.measured(0):
            name, second = str(words[0]).lower(), str(words[1]).lower() if len(words) > 1 else ""
            yield f"{name}|{second}" if f"{name}|{second}" in known else name


def several(commands):
    return [commands] if isinstance(commands[0], str) else list(commands)


def is_exempt(entry):
    return any(fnmatch.fnmatch(entry, pattern) for pattern in EXEMPT)


def members(count, start=0):
    return [f"member:{i:06d}" for i in range(start, start + count)]


def numbers(count, start=0):
    return [i * 7 for i in range(start, start + count)]


def fields(count, value=VALUE):
    return [word for field in members(count) for word in (field, value)]


def scored(count, start=0):
    return [word for i, member in enumerate(members(count, start)) for word in (i * 3, member)]


def text(length):
    """Text that LZF compresses somewhat: words with numbers."""
    return "".join(f"{i * 7919 % 10_007}word" for i in range(length // 6 + 1))[:length]


def both(name, *args, **kwargs):
    """The case in both versions of the protocol."""
    yield Case(name, *args, **kwargs)
    yield Case(f"{name}, RESP3", *args, resp=3, **kwargs)


def on_new_key(name, make, before=()):
    """A case of commands that each make a key. `make` gets the key's name."""
    return Case(name, lambda i: make(f"new:{i}"), before, tidy=lambda i: ("UNLINK", f"new:{i}"))


def on_copies(name, make, fill, before=()):
    """A case of commands that each change or remove a key of its own. `fill` and `make` get the key's name."""
    return Case(name, lambda i: make(f"copy:{i}"), before, prepare=lambda i: fill(f"copy:{i}"), tidy=lambda i: ("UNLINK", f"copy:{i}"))


def cases():
    """All cases, by family."""
    for family in (strings, bits, generic, hashes, field_times, lists, sets, set_algebra, sorted_sets, sorted_ranges, sorted_algebra, geo, hyperloglogs,
                   streams, groups, suggestions, scripts, transactions, messages, connection, administration):
        for case in family():
            case.family = family.__name__.replace("_", " ")
            yield case


def strings():
    for length in LENGTHS:
        value, filled = text(length), [("SET", "k", text(length))]
        for word in ("GET", "STRLEN", "DUMP", "DIGEST"):
            yield Case(f"{word} of {length} bytes", (word, "k"), filled)
        yield Case(f"SET of {length} bytes", ("SET", "k", value))
        yield on_new_key(f"SET of {length} bytes, a new key", lambda key, value=value: ("SET", key, value))
        yield Case(f"GETSET of {length} bytes", ("GETSET", "k", value), filled)
        yield Case(f"SET GET of {length} bytes", ("SET", "k", value, "GET"), filled)
        yield Case(f"GETRANGE of half of {length} bytes", ("GETRANGE", "k", length // 4, length // 4 * 3), filled)
        yield Case(f"SETRANGE in {length} bytes", ("SETRANGE", "k", length // 2, "abc"), filled)
        yield on_copies(f"APPEND to {length} bytes", lambda key: ("APPEND", key, "abc"), lambda key, value=value: ("SET", key, value))
        yield on_copies(f"GETDEL of {length} bytes", lambda key: ("GETDEL", key), lambda key, value=value: ("SET", key, value))
        yield on_new_key(f"COPY of {length} bytes", lambda key: ("COPY", "k", key), filled)
        yield Case(f"RESTORE of {length} bytes", ("RESTORE", "r", 0, PAYLOAD, "REPLACE"), filled, fetch=("DUMP", "k"))
        yield Case(f"MGET of five of {length} bytes", ("MGET", *["k"] * 5), filled)
    for missing in ("GET", "STRLEN", "GETDEL", "GETEX", "DUMP", "TTL", "TYPE", "DIGEST"):
        yield Case(f"{missing} of nothing", (missing, "missing"))
    yield Case("SUBSTR", ("SUBSTR", "k", 2, 5), [("SET", "k", VALUE)])
    yield Case("SET EX", ("SET", "k", VALUE, "EX", 1000))
    yield Case("SET KEEPTTL", ("SET", "k", VALUE, "KEEPTTL"), [("SET", "k", VALUE, "EX", 1000)])
    yield Case("SET NX, refused", ("SET", "k", VALUE, "NX"), [("SET", "k", VALUE)])
    yield Case("SET XX", ("SET", "k", VALUE, "XX"), [("SET", "k", VALUE)])
    yield Case("SET IFEQ", ("SET", "k", VALUE, "IFEQ", VALUE), [("SET", "k", VALUE)])
    yield Case("SETEX", ("SETEX", "k", 1000, VALUE))
    yield Case("PSETEX", ("PSETEX", "k", 1_000_000, VALUE))
    yield Case("SETNX, refused", ("SETNX", "k", VALUE), [("SET", "k", VALUE)])
    yield on_new_key("SETNX", lambda key: ("SETNX", key, VALUE))
    yield Case("GETEX", ("GETEX", "k"), [("SET", "k", VALUE)])
    yield Case("GETEX EX", ("GETEX", "k", "EX", 1000), [("SET", "k", VALUE)])
    for word, *more in (("INCR",), ("DECR",), ("INCRBY", 7), ("DECRBY", 7), ("INCRBYFLOAT", "1.5")):
        yield Case(word, (word, "k", *more), [("SET", "k", 1_000_000)])
        yield on_new_key(f"{word}, a new key", lambda key, word=word, more=more: (word, key, *more))
    for count in (1, 10, 100):
        keys = [f"key:{i}" for i in range(count)]
        values = [word for key in keys for word in (key, VALUE)]
        yield Case(f"MGET of {count}", ("MGET", *keys), [("MSET", *values)])
        yield Case(f"MGET of {count}, missing", ("MGET", *keys))
        yield Case(f"MSET of {count}", ("MSET", *values))
        yield Case(f"MSETNX of {count}, refused", ("MSETNX", *values), [("MSET", *values)])
        yield Case(f"MSETEX of {count}", ("MSETEX", count, *values, "EX", 100))
    yield Case("DELEX IFEQ, another value", ("DELEX", "k", "IFEQ", "x"), [("SET", "k", VALUE)])
    yield on_copies("DELEX IFEQ", lambda key: ("DELEX", key, "IFEQ", VALUE), lambda key: ("SET", key, VALUE))
    yield on_copies("DELIFEQ", lambda key: ("DELIFEQ", key, VALUE), lambda key: ("SET", key, VALUE))
    lcs = [("MSET", "a", "ohmytextofwordsandmore" * 4, "b", "mynewtextandwordsofless" * 4)]
    yield Case("LCS of 90 bytes", ("LCS", "a", "b"), lcs)
    yield Case("LCS LEN of 90 bytes", ("LCS", "a", "b", "LEN"), lcs)
    yield Case("LCS IDX of 90 bytes", ("LCS", "a", "b", "IDX", "WITHMATCHLEN"), lcs)


def bits():
    for length in (10, 1000, 20_000):
        filled = [("SET", "k", text(length)), ("SET", "l", text(length)[::-1])]
        yield Case(f"GETBIT in {length} bytes", ("GETBIT", "k", length * 4), filled)
        yield Case(f"SETBIT in {length} bytes", lambda i, length=length: ("SETBIT", "k", length * 4, i % 2), filled)
        yield Case(f"BITCOUNT of {length} bytes", ("BITCOUNT", "k"), filled)
        yield Case(f"BITCOUNT of a part of {length} bytes", ("BITCOUNT", "k", 1, -2), filled)
        yield Case(f"BITPOS in {length} bytes", ("BITPOS", "k", 1), [("SETBIT", "k", length * 8 - 1, 1)])
        for operation in ("AND", "OR", "XOR", "NOT"):
            yield Case(f"BITOP {operation} of {length} bytes", ("BITOP", operation, "d", "k", *(["l"] if operation != "NOT" else [])), filled)
        yield Case(f"BITFIELD INCRBY in {length} bytes", ("BITFIELD", "k", "INCRBY", "u8", 16, 1), filled)
        yield Case(f"BITFIELD of three in {length} bytes", ("BITFIELD", "k", "GET", "u8", 8, "SET", "i16", 16, 9, "INCRBY", "u8", 0, 1), filled)
        yield Case(f"BITFIELD_RO in {length} bytes", ("BITFIELD_RO", "k", "GET", "u8", 16), filled)
    yield on_new_key("SETBIT, a new key", lambda key: ("SETBIT", key, 77, 1))


def generic():
    one = [("SET", "k", VALUE)]
    timed = [("SET", "k", VALUE, "EX", 10_000)]
    for word in ("EXISTS", "TYPE", "TOUCH", "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"):
        yield Case(word, (word, "k"), timed)
    for word in ("ENCODING", "FREQ", "IDLETIME", "REFCOUNT"):
        policy = "allkeys-lfu" if word == "FREQ" else "noeviction"
        yield Case(f"OBJECT {word}", ("OBJECT", word, "k"), [("CONFIG", "SET", "maxmemory-policy", policy)] + one)
    yield Case("EXISTS of ten", ("EXISTS", *["k"] * 10), [("CONFIG", "SET", "maxmemory-policy", "noeviction")] + one)
    for word, amount in (("EXPIRE", 10_000), ("PEXPIRE", 10_000_000), ("EXPIREAT", 4_000_000_000), ("PEXPIREAT", 4_000_000_000_000)):
        yield Case(f"{word} again", lambda i, word=word, amount=amount: (word, "k", amount + i % 50), one)
        yield on_copies(f"{word} of a key without", lambda key, word=word, amount=amount: (word, key, amount), lambda key: ("SET", key, VALUE))
    yield Case("EXPIRE XX GT, refused", ("EXPIRE", "k", 10, "GT"), timed)
    yield on_copies("PERSIST", lambda key: ("PERSIST", key), lambda key: ("SET", key, VALUE, "EX", 1000))
    yield Case("PERSIST, no time", ("PERSIST", "k"), one)
    for word in ("DEL", "UNLINK"):
        yield Case(f"{word} of nothing", (word, "missing"))
        yield on_copies(f"{word} of a string", lambda key, word=word: (word, key), lambda key: ("SET", key, VALUE))
        for count in (5, 100, 3000):
            yield on_copies(f"{word} of a set of {count}", lambda key, word=word: (word, key), lambda key, count=count: ("SADD", key, *members(count)))
    yield Case("RENAME there and back", lambda i: ("RENAME", *(("k", "l") if i % 2 == 0 else ("l", "k"))), one)
    yield Case("RENAMENX there and back", lambda i: ("RENAMENX", *(("k", "l") if i % 2 == 0 else ("l", "k"))), one)
    yield Case("MOVE to another database", lambda i: (("MOVE", "k", 1), ("SELECT", 1), ("MOVE", "k", 0), ("SELECT", 0)), one)
    yield Case("RANDOMKEY of 1,000", ("RANDOMKEY",), [("MSET", *(w for i in range(1000) for w in (f"key:{i}", VALUE)))])
    for count in (5, 100, 3000):
        filled = [("MSET", *(w for i in range(count) for w in (f"key:{i}", VALUE)))]
        yield Case(f"KEYS of {count}", ("KEYS", "*"), filled)
        yield Case(f"KEYS of {count}, a pattern without a match", ("KEYS", "x*y"), filled)
        yield Case(f"SCAN of {count}", ("SCAN", 0), filled)
        yield Case(f"SCAN of {count}, COUNT 100", ("SCAN", 0, "COUNT", 100), filled)
        yield Case(f"SCAN of {count}, MATCH and TYPE", ("SCAN", 0, "MATCH", "*1*", "TYPE", "string"), filled)
    yield Case("DBSIZE", ("DBSIZE",), one)
    yield Case("FLUSHDB of nothing", ("FLUSHDB",))
    yield Case("FLUSHALL of nothing", ("FLUSHALL",))
    yield Case("SWAPDB", ("SWAPDB", 0, 1), one)


def hashes():
    for count in SIZES:
        filled = [("HSET", "k", *fields(count))]
        turn = members(count)
        for word in ("HGETALL", "HKEYS", "HVALS"):
            yield from both(f"{word} of {count}", (word, "k"), filled)
        yield Case(f"HLEN of {count}", ("HLEN", "k"), filled)
        for word in ("HGET", "HEXISTS", "HSTRLEN"):
            yield Case(f"{word} in {count}", lambda i, word=word, turn=turn: (word, "k", turn[i * 7 % len(turn)]), filled)
        yield Case(f"HGET in {count}, missing", ("HGET", "k", "missing"), filled)
        yield Case(f"HMGET of five in {count}", ("HMGET", "k", *turn[:5]), filled)
        yield Case(f"HSET in {count}, known", lambda i, turn=turn: ("HSET", "k", turn[i * 7 % len(turn)], VALUE), filled)
        yield Case(f"HMSET of five in {count}, known", ("HMSET", "k", *fields(5)), filled)
        yield Case(f"HSETNX in {count}, refused", lambda i, turn=turn: ("HSETNX", "k", turn[i * 7 % len(turn)], VALUE), filled)
        yield Case(f"HSET and HDEL in {count}", (("HSET", "k", "another", VALUE), ("HDEL", "k", "another")), filled)
        yield Case(f"HINCRBY in {count}", ("HINCRBY", "k", "n", 3), filled + [("HSET", "k", "n", 5)])
        yield Case(f"HINCRBYFLOAT in {count}", ("HINCRBYFLOAT", "k", "n", "1.5"), filled + [("HSET", "k", "n", 5)])
        yield Case(f"HSCAN of {count}", ("HSCAN", "k", 0), filled)
        yield Case(f"HSCAN of {count}, COUNT 100", ("HSCAN", "k", 0, "COUNT", 100), filled)
        yield Case(f"HRANDFIELD of {count}", ("HRANDFIELD", "k"), filled)
        yield Case(f"HRANDFIELD of {count}, ten", ("HRANDFIELD", "k", 10, "WITHVALUES"), filled)
        yield Case(f"HRANDFIELD of {count}, ten with repetitions", ("HRANDFIELD", "k", -10), filled)
        yield from of_a_key("hash", count, filled)
        yield on_new_key(f"HSET of {count}, a new key", lambda key, count=count: ("HSET", key, *fields(count)))
    for count in EDGES[2:]:
        yield on_new_key(f"HSET of {count}, a new key", lambda key, count=count: ("HSET", key, *fields(count)))
    for length in (64, 65, 1000):
        filled = [("HSET", "k", *fields(5, "v" * length))]
        yield Case(f"HGET of {length} bytes", ("HGET", "k", "member:000003"), filled)
        yield Case(f"HSET of {length} bytes", ("HSET", "k", "member:000003", "w" * length), filled)
        yield Case(f"HGETALL of five of {length} bytes", ("HGETALL", "k"), filled)
    yield Case("HGET of nothing", ("HGET", "missing", "f"))
    yield Case("HGETALL of nothing", ("HGETALL", "missing"))
    yield growing("HSET of one field", lambda key, i: ("HSET", key, f"member:{i:06d}", VALUE), 50)
    yield growing("HSET of one field", lambda key, i: ("HSET", key, f"member:{i:06d}", VALUE), 1000)


def growing(name, make, until):
    """A case of commands that fill keys one element at a time, up to a number of elements."""
    return Case(f"{name} into a key that grows to {until}", lambda i: make(f"new:{i // until}", i % until),
                tidy=lambda i: ("UNLINK", f"new:{i // until}"), count=max(until, 1000))


def of_a_key(kind, count, filled):
    """DUMP, RESTORE, COPY, OBJECT and MEMORY USAGE of a collection."""
    of = f"of a {kind} of {count}"
    yield Case(f"DUMP {of}", ("DUMP", "k"), filled)
    yield Case(f"RESTORE {of}", ("RESTORE", "r", 0, PAYLOAD, "REPLACE"), filled, fetch=("DUMP", "k"))
    yield on_new_key(f"COPY {of}", lambda key: ("COPY", "k", key), filled)
    yield Case(f"MEMORY USAGE {of}", ("MEMORY", "USAGE", "k"), filled)
    yield Case(f"OBJECT ENCODING {of}", ("OBJECT", "ENCODING", "k"), filled)


def field_times():
    for count in SIZES:
        filled = [("HSET", "k", *fields(count))]
        turn = members(count)
        timed = filled + [("HEXPIRE", "k", 10_000, "FIELDS", count, *turn)]
        one = lambda i, turn=turn: ("FIELDS", 1, turn[i * 7 % len(turn)])
        for word, amount in (("HEXPIRE", 1000), ("HPEXPIRE", 1_000_000), ("HEXPIREAT", 4_000_000_000), ("HPEXPIREAT", 4_000_000_000_000)):
            yield Case(f"{word} in {count}, in turn", lambda i, word=word, amount=amount, one=one: (word, "k", amount + i % 50, *one(i)), filled)
        yield Case(f"HEXPIRE of five in {count}", lambda i, turn=turn: ("HEXPIRE", "k", 1000 + i % 50, "FIELDS", 5, *turn[:5]), filled)
        yield Case(f"HEXPIRE and HPERSIST in {count}", lambda i, one=one: (("HEXPIRE", "k", 1000, *one(i)), ("HPERSIST", "k", *one(i))), filled)
        for word in ("HTTL", "HPTTL", "HEXPIRETIME", "HPEXPIRETIME"):
            yield Case(f"{word} in {count}", lambda i, word=word, one=one: (word, "k", *one(i)), timed)
            yield Case(f"{word} in {count}, no times", lambda i, word=word, one=one: (word, "k", *one(i)), filled)
        yield Case(f"HGETEX in {count}", lambda i, one=one: ("HGETEX", "k", *one(i)), filled)
        yield Case(f"HGETEX EX in {count}", lambda i, one=one: ("HGETEX", "k", "EX", 1000 + i % 50, *one(i)), filled)
        yield Case(f"HSETEX EX in {count}", lambda i, one=one: ("HSETEX", "k", "EX", 1000 + i % 50, *one(i), VALUE), filled)
        yield Case(f"HGETDEL in {count}, and HSET", lambda i, one=one: (("HGETDEL", "k", *one(i)), ("HSET", "k", one(i)[2], VALUE)), filled)
        yield Case(f"HGETALL of {count} with times", ("HGETALL", "k"), timed)
        yield Case(f"HGET in {count} with times", lambda i, turn=turn: ("HGET", "k", turn[i * 7 % len(turn)]), timed)
        yield Case(f"HSET in {count} with times", lambda i, turn=turn: ("HSET", "k", turn[i * 7 % len(turn)], VALUE), timed)


def lists():
    # Up to 8 kB in one block, and beyond.
    for count in SIZES:
        values = members(count)
        filled = [("RPUSH", "k", *values)]
        yield from both(f"LRANGE of {count}", ("LRANGE", "k", 0, -1), filled)
        yield Case(f"LRANGE of five in {count}", ("LRANGE", "k", count // 2, count // 2 + 4), filled)
        yield Case(f"LLEN of {count}", ("LLEN", "k"), filled)
        for place, at in (("first", 0), ("middle", count // 2), ("last", -1)):
            yield Case(f"LINDEX of {count}, {place}", ("LINDEX", "k", at), filled)
            yield Case(f"LSET of {count}, {place}", ("LSET", "k", at, "member:999999"), filled)
        yield Case(f"LPOS in {count}", ("LPOS", "k", values[count // 2]), filled)
        yield Case(f"LPOS in {count}, missing", ("LPOS", "k", "missing"), filled)
        yield Case(f"LPUSH and LPOP in {count}", (("LPUSH", "k", "a"), ("LPOP", "k")), filled)
        yield Case(f"RPUSH and RPOP in {count}", (("RPUSH", "k", "a"), ("RPOP", "k")), filled)
        yield Case(f"LPUSHX and RPUSHX in {count}, LTRIM", (("LPUSHX", "k", "a"), ("RPUSHX", "k", "a"), ("LTRIM", "k", 1, -2)), filled)
        yield Case(f"LINSERT in {count} and LREM", (("LINSERT", "k", "BEFORE", values[count // 2], "a"), ("LREM", "k", 1, "a")), filled)
        yield Case(f"LREM in {count}, missing", ("LREM", "k", 0, "missing"), filled)
        yield Case(f"RPUSH of ten and LPOP of ten in {count}", (("RPUSH", "k", *values[:5] * 2), ("LPOP", "k", 10)), filled)
        yield Case(f"LMOVE in {count}", ("LMOVE", "k", "k", "LEFT", "RIGHT"), filled)
        yield Case(f"RPOPLPUSH in {count}", ("RPOPLPUSH", "k", "k"), filled)
        yield Case(f"BLMOVE in {count}", ("BLMOVE", "k", "k", "LEFT", "RIGHT", 0), filled)
        yield Case(f"BRPOPLPUSH in {count}", ("BRPOPLPUSH", "k", "k", 0), filled)
        yield Case(f"LMPOP in {count}, and RPUSH", (("LMPOP", 1, "k", "LEFT"), ("RPUSH", "k", "a")), filled)
        yield Case(f"BLMPOP in {count}, and RPUSH", (("BLMPOP", 0, 1, "k", "LEFT"), ("RPUSH", "k", "a")), filled)
        yield Case(f"BLPOP in {count}, and RPUSH", (("BLPOP", "k", 0), ("RPUSH", "k", "a")), filled)
        yield Case(f"BRPOP in {count}, and RPUSH", (("BRPOP", "k", 0), ("RPUSH", "k", "a")), filled)
        yield Case(f"LMOVEM in {count}", ("LMOVEM", "k", "k", "LEFT", "RIGHT", "EXACTLY", 5, "BULK"), filled)
        yield Case(f"BLMOVEM in {count}", ("BLMOVEM", "k", "k", "LEFT", "RIGHT", 0, "EXACTLY", 5, "BULK"), filled)
        yield from of_a_key("list", count, filled)
        yield on_new_key(f"RPUSH of {count}, a new key", lambda key, values=values: ("RPUSH", key, *values))
        yield Case(f"SORT of {count} ALPHA", ("SORT", "k", "ALPHA"), filled)
        numeric = [("RPUSH", "k", *(i * 7919 % 10_007 for i in range(count)))]
        yield Case(f"SORT of {count}", ("SORT", "k"), numeric)
        yield Case(f"SORT_RO of {count}", ("SORT_RO", "k", "LIMIT", 0, 10), numeric)
        yield Case(f"SORT STORE of {count}", ("SORT", "k", "STORE", "d"), numeric)
    for length in (1000, 20_000):
        filled = [("RPUSH", "k", *[text(length)] * 20)]
        yield Case(f"LRANGE of 20 of {length} bytes", ("LRANGE", "k", 0, -1), filled)
        yield Case(f"LINDEX of {length} bytes", ("LINDEX", "k", 10), filled)
        yield Case(f"RPUSH and LPOP of {length} bytes", (("RPUSH", "k", text(length)), ("LPOP", "k")), filled)
    yield Case("LPOP of nothing", ("LPOP", "missing"))
    yield Case("LPUSHX to nothing", ("LPUSHX", "missing", "a"))
    yield Case("RPUSHX to nothing", ("RPUSHX", "missing", "a"))
    for until in (50, 1000):
        yield growing("RPUSH", lambda key, i: ("RPUSH", key, f"member:{i:06d}"), until)
        yield growing("LPUSH", lambda key, i: ("LPUSH", key, f"member:{i:06d}"), until)


def sets():
    for kind, make in (("members", members), ("integers", numbers)):
        for count in SIZES:
            values = make(count)
            filled = [("SADD", "k", *values)]
            of = f"{count} {kind}"
            yield from both(f"SMEMBERS of {of}", ("SMEMBERS", "k"), filled)
            yield Case(f"SCARD of {of}", ("SCARD", "k"), filled)
            yield Case(f"SISMEMBER in {of}", lambda i, values=values: ("SISMEMBER", "k", values[i * 7 % len(values)]), filled)
            yield Case(f"SISMEMBER in {of}, missing", ("SISMEMBER", "k", 99_999_999), filled)
            yield Case(f"SMISMEMBER of five in {of}", ("SMISMEMBER", "k", *values[:5]), filled)
            yield Case(f"SADD in {of}, known", lambda i, values=values: ("SADD", "k", values[i * 7 % len(values)]), filled)
            yield Case(f"SADD and SREM in {of}", (("SADD", "k", 99_999_999), ("SREM", "k", 99_999_999)), filled)
            yield Case(f"SREM in {of}, missing", ("SREM", "k", 99_999_999), filled)
            yield Case(f"SPOP in {of}, and SADD", lambda i, values=values: (("SADD", "k", values[i * 7 % len(values)]), ("SPOP", "k")), filled)
            yield on_copies(f"SPOP of half of {of}", lambda key, count=count: ("SPOP", key, count // 2), lambda key, values=values: ("SADD", key, *values))
            yield Case(f"SRANDMEMBER of {of}", ("SRANDMEMBER", "k"), filled)
            yield Case(f"SRANDMEMBER of {of}, ten", ("SRANDMEMBER", "k", 10), filled)
            yield Case(f"SRANDMEMBER of {of}, ten with repetitions", ("SRANDMEMBER", "k", -10), filled)
            yield Case(f"SMOVE in {of}", lambda i, values=values: ("SMOVE", *(("k", "l") if i % 2 == 0 else ("l", "k")), values[0]), filled)
            yield Case(f"SSCAN of {of}", ("SSCAN", "k", 0), filled)
            yield Case(f"SSCAN of {of}, COUNT 100", ("SSCAN", "k", 0, "COUNT", 100), filled)
            yield from of_a_key(f"set ({kind})", count, filled)
            yield on_new_key(f"SADD of {of}, a new key", lambda key, values=values: ("SADD", key, *values))
            yield Case(f"SORT of a set of {of}", ("SORT", "k", *(["ALPHA"] if make is members else [])), filled)
        for count in EDGES:
            yield on_new_key(f"SADD of {count} {kind}, a new key", lambda key, values=make(count): ("SADD", key, *values))
        for until in (50, 1000):
            yield growing(f"SADD of one of the {kind}", lambda key, i, make=make: ("SADD", key, *make(1, i)), until)
    yield on_new_key("SADD of integers, then text", lambda key: ("SADD", key, *numbers(50), "text"))
    yield Case("SISMEMBER of nothing", ("SISMEMBER", "missing", "a"))


def set_algebra():
    for kind, make in (("members", members), ("integers", numbers)):
        for count in SIZES:
            # Half of each set is in the other one.
            filled = [("SADD", "a", *make(count)), ("SADD", "b", *make(count, count // 2))]
            of = f"of two of {count} {kind}"
            for word in ("SINTER", "SUNION", "SDIFF"):
                yield from both(f"{word} {of}", (word, "a", "b"), filled)
                yield Case(f"{word}STORE {of}", (f"{word}STORE", "d", "a", "b"), filled)
            for word in ("SINTERCARD", "SUNIONCARD", "SDIFFCARD"):
                yield Case(f"{word} {of}", (word, 2, "a", "b"), filled)
            yield Case(f"SUNION of one of {count} {kind}", ("SUNION", "a"), filled)
            yield Case(f"SINTER of {count} {kind} and a missing key", ("SINTER", "a", "missing"), filled)
    small_and_large = [("SADD", "a", *members(5)), ("SADD", "b", *members(3000))]
    for word in ("SINTER", "SUNION", "SDIFF"):
        yield Case(f"{word} of 5 and 3000", (word, "a", "b"), small_and_large)
        five = [("SADD", f"s:{i}", *members(100, i * 10)) for i in range(5)]
        yield Case(f"{word} of five of 100", (word, *(f"s:{i}" for i in range(5))), five)


def sorted_sets():
    for count in SIZES:
        filled = [("ZADD", "k", *scored(count))]
        turn = members(count)
        for word in ("ZSCORE", "ZRANK", "ZREVRANK"):
            yield Case(f"{word} in {count}", lambda i, word=word, turn=turn: (word, "k", turn[i * 7 % len(turn)]), filled)
            yield Case(f"{word} in {count}, missing", (word, "k", "missing"), filled)
        yield from both(f"ZRANK WITHSCORE in {count}", lambda i, turn=turn: ("ZRANK", "k", turn[i * 7 % len(turn)], "WITHSCORE"), filled)
        yield Case(f"ZMSCORE of five in {count}", ("ZMSCORE", "k", *turn[:5]), filled)
        yield Case(f"ZCARD of {count}", ("ZCARD", "k"), filled)
        yield Case(f"ZADD in {count}, known", lambda i, turn=turn: ("ZADD", "k", i * 7 % len(turn) * 3, turn[i * 7 % len(turn)]), filled)
        yield Case(f"ZADD in {count}, moved", lambda i, turn=turn, count=count: ("ZADD", "k", i * 31 % (3 * count), turn[i * 7 % len(turn)]), filled)
        yield Case(f"ZADD GT CH in {count}, refused", ("ZADD", "k", "GT", "CH", -1, turn[2]), filled)
        yield Case(f"ZINCRBY in {count}", lambda i, turn=turn: ("ZINCRBY", "k", 1 if i % 2 else -1, turn[i // 2 * 7 % len(turn)]), filled)
        yield Case(f"ZADD and ZREM in {count}", (("ZADD", "k", count, "another"), ("ZREM", "k", "another")), filled)
        yield Case(f"ZPOPMIN in {count}, and ZADD", (("ZADD", "k", -1, "another"), ("ZPOPMIN", "k")), filled)
        yield Case(f"ZPOPMAX in {count}, and ZADD", (("ZADD", "k", 99_999, "another"), ("ZPOPMAX", "k")), filled)
        yield Case(f"BZPOPMIN in {count}, and ZADD", (("ZADD", "k", -1, "another"), ("BZPOPMIN", "k", 0)), filled)
        yield Case(f"BZPOPMAX in {count}, and ZADD", (("ZADD", "k", 99_999, "another"), ("BZPOPMAX", "k", 0)), filled)
        yield Case(f"ZMPOP in {count}, and ZADD", (("ZADD", "k", -1, "another"), ("ZMPOP", 1, "k", "MIN")), filled)
        yield Case(f"BZMPOP in {count}, and ZADD", (("ZADD", "k", -1, "another"), ("BZMPOP", 0, 1, "k", "MIN")), filled)
        yield Case(f"ZSCAN of {count}", ("ZSCAN", "k", 0), filled)
        yield Case(f"ZSCAN of {count}, COUNT 100", ("ZSCAN", "k", 0, "COUNT", 100), filled)
        yield Case(f"ZRANDMEMBER of {count}", ("ZRANDMEMBER", "k"), filled)
        yield Case(f"ZRANDMEMBER of {count}, ten", ("ZRANDMEMBER", "k", 10, "WITHSCORES"), filled)
        yield from of_a_key("sorted set", count, filled)
        yield on_new_key(f"ZADD of {count}, a new key", lambda key, count=count: ("ZADD", key, *scored(count)))
        fractions = [word for i, member in enumerate(turn) for word in (i * 7919 % 10_007 / 17, member)]
        yield on_new_key(f"ZADD of {count} fractions in disorder, a new key", lambda key, fractions=fractions: ("ZADD", key, *fractions))
        yield Case(f"DUMP of a sorted set of {count} fractions", ("DUMP", "k"), [("ZADD", "k", *fractions)])
        yield from both(f"ZRANGE of {count} fractions WITHSCORES", ("ZRANGE", "k", 0, -1, "WITHSCORES"), [("ZADD", "k", *fractions)])
    for count in EDGES[:2]:
        yield on_new_key(f"ZADD of {count}, a new key", lambda key, count=count: ("ZADD", key, *scored(count)))
    for until in (50, 1000):
        yield growing("ZADD of one", lambda key, i: ("ZADD", key, i * 31 % 1000, f"member:{i:06d}"), until)
    yield Case("ZSCORE of nothing", ("ZSCORE", "missing", "a"))


def sorted_ranges():
    for count in SIZES:
        filled, last = [("ZADD", "k", *scored(count))], 3 * count
        even = [("ZADD", "k", *(word for member in members(count) for word in (0, member)))]
        low, high = last // 3, last // 3 * 2
        at = members(count)
        for word in ("ZRANGE", "ZREVRANGE"):
            yield Case(f"{word} of {count}", (word, "k", 0, -1), filled)
            yield from both(f"{word} of {count} WITHSCORES", (word, "k", 0, -1, "WITHSCORES"), filled)
            yield Case(f"{word} of five in {count}", (word, "k", count // 2, count // 2 + 4), filled)
        yield Case(f"ZRANGEBYSCORE of a third of {count}", ("ZRANGEBYSCORE", "k", low, high), filled)
        yield Case(f"ZRANGEBYSCORE LIMIT in {count}", ("ZRANGEBYSCORE", "k", low, "+inf", "LIMIT", 1, 5), filled)
        yield Case(f"ZREVRANGEBYSCORE of a third of {count}", ("ZREVRANGEBYSCORE", "k", high, low), filled)
        yield Case(f"ZRANGE BYSCORE REV of {count}", ("ZRANGE", "k", high, low, "BYSCORE", "REV", "WITHSCORES"), filled)
        yield Case(f"ZRANGEBYLEX of a third of {count}", ("ZRANGEBYLEX", "k", f"[{at[count // 3]}", f"({at[count // 3 * 2]}"), even)
        yield Case(f"ZREVRANGEBYLEX of a third of {count}", ("ZREVRANGEBYLEX", "k", f"[{at[count // 3 * 2]}", f"({at[count // 3]}"), even)
        yield Case(f"ZLEXCOUNT in {count}", ("ZLEXCOUNT", "k", f"[{at[count // 3]}", "+"), even)
        yield Case(f"ZCOUNT in {count}", ("ZCOUNT", "k", low, high), filled)
        yield Case(f"ZRANGESTORE of {count}", ("ZRANGESTORE", "d", "k", 0, -1), filled)
        two = ("ZADD", "k", -2, "a", -1, "b")
        yield Case(f"ZREMRANGEBYRANK of two in {count}, and ZADD", (two, ("ZREMRANGEBYRANK", "k", 0, 1)), filled)
        yield Case(f"ZREMRANGEBYSCORE of two in {count}, and ZADD", (two, ("ZREMRANGEBYSCORE", "k", "-inf", -1)), filled)
        two = ("ZADD", "k", 0, "a", 0, "b")
        yield Case(f"ZREMRANGEBYLEX of two in {count}, and ZADD", (two, ("ZREMRANGEBYLEX", "k", "[a", "[b")), even)


def sorted_algebra():
    for count in SIZES:
        filled = [("ZADD", "a", *scored(count)), ("ZADD", "b", *scored(count, count // 2))]
        of = f"of two of {count}"
        for word in ("ZINTER", "ZUNION", "ZDIFF"):
            yield Case(f"{word} {of}", (word, 2, "a", "b"), filled)
            yield from both(f"{word} {of} WITHSCORES", (word, 2, "a", "b", "WITHSCORES"), filled)
            yield Case(f"{word}STORE {of}", (f"{word}STORE", "d", 2, "a", "b"), filled)
        yield Case(f"ZUNION WEIGHTS, MAX {of}", ("ZUNION", 2, "a", "b", "WEIGHTS", 2, 3, "AGGREGATE", "MAX"), filled)
        yield Case(f"ZINTERCARD {of}", ("ZINTERCARD", 2, "a", "b"), filled)
        yield Case(f"ZUNION of a set and a sorted set of {count}", ("ZUNION", 2, "a", "s"), filled + [("SADD", "s", *members(count))])


def geo():
    for count in (5, 100, 3000):
        filled = [("GEOADD", "k", *(w for i in range(count) for w in (5 + i * 7 % 100 / 10, 47 + i * 13 % 97 / 12, f"place:{i}")))]
        yield Case(f"GEODIST in {count}", ("GEODIST", "k", "place:1", "place:3"), filled)
        yield from both(f"GEOPOS of two in {count}", ("GEOPOS", "k", "place:1", "place:3"), filled)
        yield Case(f"GEOHASH of two in {count}", ("GEOHASH", "k", "place:1", "place:3"), filled)
        yield Case(f"GEOADD in {count}, known", ("GEOADD", "k", 13.4, 52.5, "place:1"), filled)
        near = ("FROMLONLAT", 10, 51)
        yield Case(f"GEOSEARCH BYRADIUS in {count}", ("GEOSEARCH", "k", *near, "BYRADIUS", 60, "km"), filled)
        yield Case(f"GEOSEARCH BYBOX in {count}, with all", ("GEOSEARCH", "k", *near, "BYBOX", 200, 200, "km", "ASC", "WITHDIST", "WITHCOORD"), filled)
        yield Case(f"GEOSEARCHSTORE in {count}", ("GEOSEARCHSTORE", "d", "k", *near, "BYRADIUS", 100, "km"), filled)
        for word in ("GEORADIUS", "GEORADIUS_RO"):
            yield Case(f"{word} in {count}", (word, "k", 10, 51, 60, "km"), filled)
        for word in ("GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO"):
            yield Case(f"{word} in {count}", (word, "k", "place:1", 60, "km"), filled)


def hyperloglogs():
    # Sparse, on both sides of 3,000 bytes, and dense.
    for count in (5, 100, 1000, 3000):
        elements = members(count)
        filled = [("PFADD", "k", *elements), ("PFADD", "l", *members(count, count // 2))]
        yield on_new_key(f"PFADD of {count}, a new key", lambda key, elements=elements: ("PFADD", key, *elements))
        yield Case(f"PFADD in {count}, known", lambda i, elements=elements: ("PFADD", "k", elements[i * 7 % len(elements)]), filled)
        yield Case(f"PFADD of five in {count}, known", ("PFADD", "k", *elements[:5]), filled)
        yield Case(f"PFCOUNT of {count}", ("PFCOUNT", "k"), filled)
        yield Case(f"PFADD in {count}, and PFCOUNT", lambda i: (("PFADD", "k", f"x:{i}"), ("PFCOUNT", "k")), filled)
        yield Case(f"PFCOUNT of two of {count}", ("PFCOUNT", "k", "l"), filled)
        yield Case(f"PFMERGE of two of {count}", ("PFMERGE", "d", "k", "l"), filled)
        yield Case(f"DUMP of a HyperLogLog of {count}", ("DUMP", "k"), filled)
        yield Case(f"PFDEBUG ENCODING of {count}", ("PFDEBUG", "ENCODING", "k"), filled)
    for until in (50, 600, 3000):
        yield growing("PFADD of one", lambda key, i: ("PFADD", key, f"member:{i:06d}"), until)
    yield growing("PFADD of ten", lambda key, i: ("PFADD", key, *members(10, 10 * i)), 60)


def entry(i, count=2):
    return [word for n in range(count) for word in (f"field{n}", f"{VALUE}{i % 10}")]


def stream(key, count):
    return [("XADD", key, f"1000-{i + 1}", *entry(i)) for i in range(count)]


def streams():
    for count in (5, 100, 3000):
        filled = stream("k", count)
        for word, first, last in (("XRANGE", "-", "+"), ("XREVRANGE", "+", "-")):
            yield from both(f"{word} of {count}", (word, "k", first, last), filled)
            yield Case(f"{word} of five in {count}", (word, "k", f"1000-{count // 2}", last, "COUNT", 5), filled)
        yield from both(f"XREAD of {count}", ("XREAD", "STREAMS", "k", 0), filled)
        yield Case(f"XREAD of nothing new in {count}", ("XREAD", "STREAMS", "k", "$"), filled)
        yield Case(f"XLEN of {count}", ("XLEN", "k"), filled)
        yield from both(f"XINFO STREAM of {count}", ("XINFO", "STREAM", "k"), filled)
        yield Case(f"XADD in {count}, XDEL", lambda i: (("XADD", "k", f"2000-{i + 1}", *entry(i)), ("XDEL", "k", f"2000-{i + 1}")), filled,
                   prepare=lambda i: ("XSETID", "k", "1000-9999999"))
        yield Case(f"XADD MAXLEN {count}", ("XADD", "k", "MAXLEN", count, "*", *entry(1)), filled)
        yield Case(f"XADD MAXLEN ~ {count}", ("XADD", "k", "MAXLEN", "~", count, "*", *entry(1)), filled)
        yield Case(f"XTRIM of {count}, nothing to do", ("XTRIM", "k", "MAXLEN", count), filled)
        yield Case(f"XDEL in {count}, missing", ("XDEL", "k", "999-1"), filled)
        yield Case(f"XDELEX in {count}, missing", ("XDELEX", "k", "IDS", 1, "999-1"), filled)
        yield from of_a_key("stream", count, filled)
    yield on_new_key("XADD, a new key", lambda key: ("XADD", key, "*", *entry(1)))
    yield Case("XADD", lambda i: ("XADD", "new:0", "*", *entry(i)), tidy=lambda i: ("UNLINK", "new:0"))
    yield Case("XADD of ten fields", lambda i: ("XADD", "new:0", "*", *entry(i, 10)), tidy=lambda i: ("UNLINK", "new:0"))
    yield Case("XADD of other fields each", lambda i: ("XADD", "new:0", "*", f"field:{i}", VALUE), tidy=lambda i: ("UNLINK", "new:0"))
    yield Case("XSETID", ("XSETID", "k", "2000-1"), stream("k", 5))
    yield Case("XCFGSET", ("XCFGSET", "k", "IDMP-DURATION", 100), stream("k", 5))


def groups():
    group = ("XGROUP", "CREATE", "k", "g", 0)
    for count in (5, 100, 3000):
        filled = stream("k", count) + [group]
        pending = filled + [("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")]
        yield Case(f"XADD, XREADGROUP, XACK in {count}", lambda i: (
            ("XADD", "k", f"2000-{i + 1}", *entry(i)), ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">"), ("XACK", "k", "g", f"2000-{i + 1}")),
                   pending, prepare=lambda i: ("XGROUP", "SETID", "k", "g", "$") if i else ("XADD", "k", "1500-1", *entry(i)), tidy=lambda i: tidy_stream(i, pending))
        yield Case(f"XREADGROUP of {count}, seen", ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", 0), pending)
        yield from both(f"XPENDING of {count}", ("XPENDING", "k", "g"), pending)
        yield Case(f"XPENDING of ten in {count}", ("XPENDING", "k", "g", "-", "+", 10), pending)
        yield Case(f"XCLAIM of one in {count}", ("XCLAIM", "k", "g", "d", 0, "1000-3"), pending)
        yield Case(f"XAUTOCLAIM of ten in {count}", ("XAUTOCLAIM", "k", "g", "d", 0, 0, "COUNT", 10), pending)
        yield Case(f"XACK in {count}, missing", ("XACK", "k", "g", "999-1"), pending)
        yield Case(f"XACKDEL in {count}, missing", ("XACKDEL", "k", "g", "IDS", 1, "999-1"), pending)
        yield Case(f"XINFO GROUPS of {count}", ("XINFO", "GROUPS", "k"), pending)
        yield Case(f"XINFO CONSUMERS of {count}", ("XINFO", "CONSUMERS", "k", "g"), pending)
        yield Case(f"XINFO STREAM FULL of {count}", ("XINFO", "STREAM", "k", "FULL"), pending)
        yield Case(f"DUMP of a stream of {count} with a group", ("DUMP", "k"), pending)
        yield Case(f"XGROUP SETID in {count}", ("XGROUP", "SETID", "k", "g", 0), filled)
        yield Case(f"XGROUP CREATE and DESTROY in {count}", (("XGROUP", "CREATE", "k", "h", 0), ("XGROUP", "DESTROY", "k", "h")), filled)
        yield Case(f"XGROUP CREATECONSUMER and DELCONSUMER in {count}", (
            ("XGROUP", "CREATECONSUMER", "k", "g", "x"), ("XGROUP", "DELCONSUMER", "k", "g", "x")), filled)


def tidy_stream(i, pending):
    return [("UNLINK", "k"), *pending] if i == 0 else ("PING",)


def suggestions():
    filled = [("FT.SUGADD", "k", f"word number {i}", i) for i in range(1000)]
    yield Case("FT.SUGADD", lambda i: ("FT.SUGADD", "k", f"word number {i % 1000}", i), filled)
    yield Case("FT.SUGGET", ("FT.SUGGET", "k", "word number 1"), filled)
    yield Case("FT.SUGLEN", ("FT.SUGLEN", "k"), filled)
    yield Case("FT.SUGDEL, missing", ("FT.SUGDEL", "k", "missing"), filled)


LIBRARY = """#!lua name=lib
redis.register_function('set', function(keys, args) return redis.call('set', keys[1], args[1]) end)
redis.register_function{function_name='get', callback=function(keys, args) return redis.call('get', keys[1]) end, flags={'no-writes'}}
"""
# Scripts by name: keys and arguments, text.
SCRIPTS = {
    "a constant": ((), (), "return 1"),
    "GET": (("k",), (), "return redis.call('get', KEYS[1])"),
    "SET": (("k",), (VALUE,), "return redis.call('set', KEYS[1], ARGV[1])"),
    "ten INCR": (("n",), (), "for i = 1, 10 do redis.call('incr', KEYS[1]) end return 1"),
    "a table of 10": ((), (), "local t = {} for i = 1, 10 do t[i] = i end return t"),
    "a table of 200": ((), (), "local t = {} for i = 1, 200 do t[i] = i end return t"),
    "a table of 200 texts": ((), (), "local t = {} for i = 1, 200 do t[i] = 'value' .. i end return t"),
    "LRANGE of 100": (("list",), (), "return redis.call('lrange', KEYS[1], 0, -1)"),
    "HGETALL of 100": (("hash",), (), "local t = redis.call('hgetall', KEYS[1]) return #t"),
    "an error caught": ((), (), "local e = redis.pcall('lpush', 'k', 1) return e.err ~= nil and 1 or 0"),
    "a loop of 1,000": ((), (), "local s = 0 for i = 1, 1000 do s = s + i % 7 end return s"),
    "text of 100 pieces": ((), (), "local s = '' for i = 1, 100 do s = s .. i end return s"),
    "string functions": ((), (), "local s = string.rep('ab', 50) return {string.find(s, 'ba'), string.upper(s), string.gsub(s, 'a', 'c')}"),
    "table.sort of 100": ((), (), "local t = {} for i = 1, 100 do t[i] = (i * 37) % 101 end table.sort(t) return t[1]"),
    "cjson of a small object": ((), (), """return cjson.encode(cjson.decode('{"a":1,"b":[1,2,3],"c":{"d":"text","e":null}}'))"""),
    "cjson.decode of 2 kB": ((), ("[" + ",".join(f'{{"id":{i},"name":"name{i}"}}' for i in range(80)) + "]",), "return #cjson.decode(ARGV[1])"),
    "cjson.encode of 100": ((), (), "local t = {} for i = 1, 100 do t[i] = {id = i, name = 'name' .. i} end return #cjson.encode(t)"),
    "cmsgpack": ((), (), "return cmsgpack.unpack(cmsgpack.pack({1, 2, 3, 'four', {a = 5}}))[4]"),
    "struct": ((), (), "return struct.unpack('>I4', struct.pack('>I4', 77))"),
    "bit": ((), (), "return bit.bxor(bit.lshift(5, 3), 77)"),
    "sha1hex": ((), (), "return redis.sha1hex('some text')"),
    "string.format": ((), (), "return string.format('%s:%d:%.3f', 'name', 77, 1.5)"),
}


def scripts():
    filled = [("SET", "k", VALUE), ("RPUSH", "list", *members(100)), ("HSET", "hash", *fields(100))]
    for name, (names, arguments, script) in SCRIPTS.items():
        rest = (len(names), *names, *arguments)
        yield from both(f"EVAL of {name}", ("EVAL", script, *rest), filled)
        yield Case(f"EVALSHA of {name}", ("EVALSHA", PAYLOAD, *rest), filled, fetch=("SCRIPT", "LOAD", script))
    yield Case("EVAL_RO of GET", ("EVAL_RO", SCRIPTS["GET"][2], 1, "k"), filled)
    yield Case("EVALSHA_RO of GET", ("EVALSHA_RO", PAYLOAD, 1, "k"), filled, fetch=("SCRIPT", "LOAD", SCRIPTS["GET"][2]))
    yield Case("EVAL of a new text each", lambda i: ("EVAL", f"return {i}", 0), tidy=lambda i: ("SCRIPT", "FLUSH"))
    loaded = filled + [("FUNCTION", "LOAD", "REPLACE", LIBRARY)]
    yield Case("FCALL", ("FCALL", "set", 1, "k", VALUE), loaded)
    yield Case("FCALL_RO", ("FCALL_RO", "get", 1, "k"), loaded)
    yield Case("FUNCTION LOAD", ("FUNCTION", "LOAD", "REPLACE", LIBRARY), loaded)
    yield Case("FUNCTION LOAD and DELETE", (("FUNCTION", "LOAD", "REPLACE", LIBRARY), ("FUNCTION", "DELETE", "lib")), loaded)
    yield Case("FUNCTION LIST", ("FUNCTION", "LIST"), loaded)
    yield Case("FUNCTION STATS", ("FUNCTION", "STATS"), loaded)
    yield Case("FUNCTION DUMP", ("FUNCTION", "DUMP"), loaded)
    yield Case("FUNCTION RESTORE", ("FUNCTION", "RESTORE", PAYLOAD, "REPLACE"), loaded, fetch=("FUNCTION", "DUMP"))
    yield Case("FUNCTION FLUSH", ("FUNCTION", "FLUSH"), loaded)
    yield Case("SCRIPT LOAD, known", ("SCRIPT", "LOAD", "return 1"))
    yield Case("SCRIPT EXISTS", ("SCRIPT", "EXISTS", "0" * 40))
    yield Case("SCRIPT SHOW", ("SCRIPT", "SHOW", PAYLOAD), fetch=("SCRIPT", "LOAD", "return 1"))
    yield Case("SCRIPT FLUSH", ("SCRIPT", "FLUSH"))


def transactions():
    yield Case("MULTI, SET, GET, INCR, EXEC", (("MULTI",), ("SET", "k", VALUE), ("GET", "k"), ("INCR", "n"), ("EXEC",)))
    yield Case("MULTI, 50 SET, EXEC", (("MULTI",), *(("SET", f"k:{i}", VALUE) for i in range(50)), ("EXEC",)))
    yield Case("MULTI, DISCARD", (("MULTI",), ("SET", "k", VALUE), ("DISCARD",)))
    yield Case("WATCH, UNWATCH", (("WATCH", "k"), ("UNWATCH",)))
    yield Case("WATCH, GET, MULTI, SET, EXEC", (("WATCH", "k"), ("GET", "k"), ("MULTI",), ("SET", "k", VALUE), ("EXEC",)))


def messages():
    yield Case("PUBLISH to nobody", ("PUBLISH", "channel", VALUE))
    yield Case("PUBLISH to itself", ("PUBLISH", "channel", VALUE), [("SUBSCRIBE", "channel")], resp=3)
    yield Case("PUBLISH to itself by a pattern", ("PUBLISH", "channel", VALUE), [("PSUBSCRIBE", "ch*")], resp=3)
    yield Case("SPUBLISH to nobody", ("SPUBLISH", "channel", VALUE))
    for prefix in ("", "P", "S"):
        yield Case(f"{prefix}SUBSCRIBE, {prefix}UNSUBSCRIBE", ((f"{prefix}SUBSCRIBE", "channel"), (f"{prefix}UNSUBSCRIBE", "channel")), resp=3)
    subscribed = [("SUBSCRIBE", *(f"channel:{i}" for i in range(100)))]
    yield Case("PUBSUB CHANNELS of 100", ("PUBSUB", "CHANNELS"), subscribed, resp=3)
    yield Case("PUBSUB NUMSUB", ("PUBSUB", "NUMSUB", "channel:1", "x"), subscribed, resp=3)
    yield Case("PUBSUB NUMPAT", ("PUBSUB", "NUMPAT"), subscribed, resp=3)
    yield Case("PUBSUB SHARDCHANNELS", ("PUBSUB", "SHARDCHANNELS"), subscribed, resp=3)
    yield Case("PUBSUB SHARDNUMSUB", ("PUBSUB", "SHARDNUMSUB", "x"), subscribed, resp=3)


def connection():
    yield Case("PING", ("PING",))
    yield Case("PING with text", ("PING", VALUE))
    yield Case("ECHO", ("ECHO", VALUE))
    yield Case("SELECT", ("SELECT", 0))
    yield from both("HELLO", ("HELLO",))
    yield Case("AUTH", ("AUTH", "default", "any"))
    yield Case("RESET", ("RESET",))
    for words in (("ID",), ("GETNAME",), ("SETNAME", "name"), ("INFO",), ("LIST",), ("GETREDIR",), ("SETINFO", "LIB-NAME", "lib"), ("TRACKINGINFO",),
                  ("NO-EVICT", "ON"), ("MAINT_NOTIFICATIONS", "OFF"), ("NO-TOUCH", "OFF"), ("UNBLOCK", 99_999_999), ("UNPAUSE",)):
        yield Case(f"CLIENT {words[0]}", ("CLIENT", *words))
    yield Case("CLIENT TRACKING ON, OFF", (("CLIENT", "TRACKING", "ON"), ("CLIENT", "TRACKING", "OFF")), resp=3)
    tracked = [("SET", "k", VALUE), ("CLIENT", "TRACKING", "ON", "OPTIN")]
    yield Case("CLIENT CACHING, GET", (("CLIENT", "CACHING", "YES"), ("GET", "k")), tracked, resp=3)
    tracked = [("SET", "k", VALUE), ("CLIENT", "TRACKING", "ON")]
    yield Case("GET, tracked", ("GET", "k"), tracked, resp=3)
    yield Case("GET, tracked, and SET", (("GET", "k"), ("SET", "k", VALUE)), tracked, resp=3)
    yield Case("PIPELINE ABORT ON, OFF", (("PIPELINE", "ABORT", "ON"), ("PIPELINE", "ABORT", "OFF")))
    yield Case("PIPELINE SYNC", ("PIPELINE", "SYNC"), [("PIPELINE", "ABORT", "ON")])
    yield Case("PING, PIPELINE ABORT ON", ("PING",), [("PIPELINE", "ABORT", "ON")])
    yield from both("PIPELINE INFO", ("PIPELINE", "INFO"))
    yield Case("WAIT 0", ("WAIT", 0, 0))


def administration():
    yield from both("INFO", ("INFO",))
    for section in ("server", "clients", "memory", "persistence", "stats", "replication", "cpu", "commandstats", "latencystats", "keyspace", "everything"):
        yield Case(f"INFO {section}", ("INFO", section))
    yield Case("TIME", ("TIME",))
    yield Case("LASTSAVE", ("LASTSAVE",))
    yield Case("ROLE", ("ROLE",))
    yield Case("LOLWUT", ("LOLWUT", "VERSION", 1))
    yield from both("CONFIG GET of one", ("CONFIG", "GET", "maxmemory"))
    yield Case("CONFIG GET of a pattern", ("CONFIG", "GET", "*max-*"))
    yield from both("CONFIG GET of all", ("CONFIG", "GET", "*"))
    yield Case("CONFIG SET", ("CONFIG", "SET", "slowlog-max-len", 128))
    yield Case("CONFIG RESETSTAT", ("CONFIG", "RESETSTAT"))
    for words in (("COUNT",), ("DOCS", "get"), ("GETKEYS", "MSET", "a", 1, "b", 2), ("GETKEYSANDFLAGS", "SET", "a", 1), ("INFO", "get"), ("LIST",)):
        yield Case(f"COMMAND {words[0]}", ("COMMAND", *words))
    yield from both("COMMAND", ("COMMAND",))
    yield Case("COMMAND DOCS of all", ("COMMAND", "DOCS"))
    for word in ("SLOWLOG", "COMMANDLOG"):
        more = () if word == "SLOWLOG" else ("slow",)
        yield Case(f"{word} GET", (word, "GET", 10, *more))
        yield Case(f"{word} LEN", (word, "LEN", *more))
        yield Case(f"{word} RESET", (word, "RESET", *more))
    for words in (("GET", 10), ("LEN",), ("RESET",)):
        yield Case(f"BATCHLOG {words[0]}", ("BATCHLOG", *words))
    yield Case("LATENCY BATCHES", ("LATENCY", "BATCHES"))
    for words in (("DOCTOR",), ("HISTOGRAM", "get"), ("HISTORY", "command"), ("LATEST",), ("RESET",)):
        yield Case(f"LATENCY {words[0]}", ("LATENCY", *words))
    for words in (("DOCTOR",), ("STATS",)):
        yield Case(f"MEMORY {words[0]}", ("MEMORY", *words))
    for words in (("CAT",), ("CAT", "string"), ("WHOAMI",), ("USERS",), ("LIST",), ("GETUSER", "default"), ("GENPASS",), ("LOG",),
                  ("DRYRUN", "default", "GET", "k"), ("SETUSER", "default", "on")):
        yield Case(f"ACL {' '.join(words[:2])}", ("ACL", *words))
    yield Case("ACL SETUSER, DELUSER", (("ACL", "SETUSER", "u", "on", ">pass", "~key:*", "+@read"), ("ACL", "DELUSER", "u")))
    for words in (("LIST",), ("RESET",)):
        yield Case(f"ADVISE {words[0]}", ("ADVISE", *words))
    for word in ("ACL", "CLIENT", "COMMAND", "COMMANDLOG", "CONFIG", "FUNCTION", "LATENCY", "MEMORY", "OBJECT", "PUBSUB", "SCRIPT", "SLOWLOG",
                 "XGROUP", "XINFO", "ADVISE", "BATCHLOG"):
        yield Case(f"{word} HELP", (word, "HELP"))
