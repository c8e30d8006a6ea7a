#!/usr/bin/env python3
"""redis-py, unmodified: one table of calls through every way of making them, then what a table can't hold.

The table's calls go one by one, through a pipeline and through MULTI/EXEC, in RESP2 and in RESP3, as bytes and decoded.
"""

import os
import sys
import threading
import time
import warnings

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PORT = int(os.environ["PENSTOCK_PORT"])
# A blocking call or a message that does not come within this long is a failure. It is never waited for otherwise.
PATIENCE_SECONDS = 10

checks = 0
# The client marks methods that Redis has superseded; the server must answer them all the same.
warnings.simplefilter("ignore", DeprecationWarning)


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def raises(what, text, call):
    """Checks that `call` ends with an error reply of exactly this text, its code word included."""
    try:
        answer = call()
    except redis.ResponseError as error:
        codes = {redis.exceptions.ExecAbortError: "EXECABORT "}
        check(what, codes.get(type(error), "") + str(error), text)
    else:
        check(what, answer, f"the error {text}")


def client(**options):
    return redis.Redis(port=PORT, socket_timeout=PATIENCE_SECONDS, **options)


class ByProtocol(tuple):
    """An answer that the protocols give in two shapes: RESP2's, RESP3's."""


STRINGS = [
    (("set", "s", "1"), {}, True),
    (("get", "s"), {}, "1"),
    (("get", "missing"), {}, None),
    (("set", "s", "2"), {"nx": True}, None),
    (("set", "s", "3"), {"xx": True, "get": True}, "1"),
    (("set", "s", "4"), {"ex": 100}, True),
    (("ttl", "s"), {}, 100),
    (("set", "s", "5"), {"keepttl": True}, True),
    (("ttl", "s"), {}, 100),
    (("getex", "s"), {"persist": True}, "5"),
    (("ttl", "s"), {}, -1),
    (("incr", "s"), {}, 6),
    (("incrby", "s", 10), {}, 16),
    (("decr", "s", 6), {}, 10),
    (("incrbyfloat", "s", 0.5), {}, 10.5),
    (("append", "s", "xyz"), {}, 7),
    (("strlen", "s"), {}, 7),
    (("getrange", "s", -3, -1), {}, "xyz"),
    (("setrange", "s", 4, "ABC"), {}, 7),
    (("getset", "s", "new"), {}, "10.5ABC"),
    (("getdel", "s"), {}, "new"),
    (("mset", {"a": 1, "b": 2}), {}, True),
    (("mget", "a", "b", "missing"), {}, ["1", "2", None]),
    (("msetnx", {"a": 1, "c": 2}), {}, False),
    (("setnx", "a", 1), {}, False),
    (("setex", "a", 10, "v"), {}, True),
    (("psetex", "b", 10_000, "v"), {}, True),
    (("set", "grüße", "wörld"), {}, True),
    (("get", "grüße"), {}, "wörld"),
    (("set", "empty", ""), {}, True),
    (("get", "empty"), {}, ""),
]

KEYS = [
    (("set", "k", "v"), {}, True),
    (("exists", "k", "k", "missing"), {}, 2),
    (("type", "k"), {}, "string"),
    (("type", "missing"), {}, "none"),
    (("expire", "k", 100), {}, True),
    (("expire", "k", 50), {"gt": True}, False),
    (("persist", "k"), {}, True),
    (("pexpireat", "k", 32503680000000), {}, True),
    (("pexpiretime", "k"), {}, 32503680000000),
    (("expiretime", "k"), {}, 32503680000),
    (("rename", "k", "k2"), {}, True),
    (("renamenx", "k2", "k3"), {}, True),
    (("copy", "k3", "k4"), {}, True),
    (("touch", "k3", "k4"), {}, 2),
    (("object", "encoding", "k4"), {}, "embstr"),
    (("unlink", "k3"), {}, 1),
    (("delete", "k4", "missing"), {}, 1),
    (("dbsize",), {}, 0),
    (("randomkey",), {}, None),
    (("rpush", "l", 3, 1, 2), {}, 3),
    (("sort", "l"), {"desc": True}, ["3", "2", "1"]),
    (("sort", "l"), {"store": "sorted"}, 3),
    (("keys", "sort*"), {}, ["sorted"]),
]

HASHES = [
    (("hset", "h", "f", "v"), {}, 1),
    (("hset", "h"), {"mapping": {"n": 1, "f": "w"}}, 1),
    (("hget", "h", "f"), {}, "w"),
    (("hget", "h", "missing"), {}, None),
    (("hmget", "h", ["f", "missing", "n"]), {}, ["w", None, "1"]),
    (("hgetall", "h"), {}, {"f": "w", "n": "1"}),
    (("hgetall", "missing"), {}, {}),
    (("hincrby", "h", "n", 41), {}, 42),
    (("hincrbyfloat", "h", "x", 1.25), {}, 1.25),
    (("hexists", "h", "n"), {}, True),
    (("hexists", "h", "missing"), {}, False),
    (("hsetnx", "h", "n", 1), {}, 0),
    (("hstrlen", "h", "x"), {}, 4),
    (("hkeys", "h"), {}, ["f", "n", "x"]),
    (("hvals", "h"), {}, ["w", "42", "1.25"]),
    (("hlen", "h"), {}, 3),
    (("hscan", "h"), {}, (0, {"f": "w", "n": "42", "x": "1.25"})),
    (("hdel", "h", "f", "x", "missing"), {}, 2),
    (("hrandfield", "h"), {}, "n"),
    (("hrandfield", "h", 2), {}, ["n"]),
]

LISTS = [
    (("rpush", "l", "a", "b", "c"), {}, 3),
    (("lpush", "l", "z"), {}, 4),
    (("lrange", "l", 0, -1), {}, ["z", "a", "b", "c"]),
    (("llen", "l"), {}, 4),
    (("lindex", "l", -1), {}, "c"),
    (("linsert", "l", "before", "b", "x"), {}, 5),
    (("lpos", "l", "b"), {}, 3),
    (("lpos", "l", "missing"), {}, None),
    (("lset", "l", 0, "y"), {}, True),
    (("lrem", "l", 0, "x"), {}, 1),
    (("ltrim", "l", 0, 2), {}, True),
    (("rpop", "l"), {}, "b"),
    (("lpop", "l", 5), {}, ["y", "a"]),
    (("lpop", "l"), {}, None),
    (("lpushx", "l", "a"), {}, 0),
    (("rpush", "l", "a", "b"), {}, 2),
    (("lmove", "l", "l2", "LEFT", "RIGHT"), {}, "a"),
    (("rpoplpush", "l", "l2"), {}, "b"),
    (("lmpop", 2, "l", "l2"), {"direction": "RIGHT", "count": 2}, ["l2", ["a", "b"]]),
    (("rpush", "l", "a", "b"), {}, 2),
    (("blpop", ["missing", "l"]), {"timeout": 1}, ("l", "a")),
    (("brpop", "l"), {"timeout": 1}, ("l", "b")),
]

SETS = [
    (("sadd", "s", "a", "b", "c"), {}, 3),
    (("sadd", "s", "a"), {}, 0),
    (("smembers", "s"), {}, {"a", "b", "c"}),
    (("scard", "s"), {}, 3),
    (("sismember", "s", "a"), {}, 1),
    (("smismember", "s", ["a", "x"]), {}, [1, 0]),
    (("sadd", "t", "b", "x"), {}, 2),
    (("sinter", "s", "t"), {}, {"b"}),
    (("sunion", "s", "t"), {}, {"a", "b", "c", "x"}),
    (("sdiff", "s", "t"), {}, {"a", "c"}),
    (("sintercard", 2, ["s", "t"]), {}, 1),
    (("sunionstore", "u", "s", "t"), {}, 4),
    (("smove", "s", "t", "a"), {}, True),
    (("srem", "s", "b", "missing"), {}, 1),
    (("spop", "s"), {}, "c"),
    (("spop", "s"), {}, None),
    (("srandmember", "missing"), {}, None),
    (("sadd", "ints", 1, 2, 3), {}, 3),
    (("object", "encoding", "ints"), {}, "intset"),
]

SORTED_SETS = [
    (("zadd", "z", {"a": 1, "b": 2.5, "c": 3}), {}, 3),
    (("zadd", "z", {"a": 1.5, "d": 4}), {"ch": True}, 2),
    (("zadd", "z", {"a": 9}), {"nx": True}, 0),
    (("zscore", "z", "b"), {}, 2.5),
    (("zscore", "z", "missing"), {}, None),
    (("zmscore", "z", ["a", "missing"]), {}, [1.5, None]),
    (("zincrby", "z", 2, "a"), {}, 3.5),
    (("zadd", "z", {"a": 1}), {"incr": True}, 4.5),
    (("zrange", "z", 0, -1), {}, ["b", "c", "d", "a"]),
    (("zrange", "z", 0, 1), {"withscores": True}, [("b", 2.5), ("c", 3.0)]),
    (("zrange", "z", "+inf", "(3"), {"byscore": True, "desc": True, "offset": 0, "num": 1}, ["a"]),
    (("zrevrange", "z", 0, 0), {"withscores": True}, [("a", 4.5)]),
    (("zrangebyscore", "z", "-inf", 3), {}, ["b", "c"]),
    (("zcount", "z", 3, "+inf"), {}, 3),
    (("zrank", "z", "b"), {}, 0),
    (("zrevrank", "z", "b"), {}, 3),
    (("zcard", "z"), {}, 4),
    (("zpopmin", "z"), {}, ByProtocol(([("b", 2.5)], ["b", 2.5]))),
    (("zpopmax", "z", 2), {}, [("a", 4.5), ("d", 4.0)]),
    (("zadd", "y", {"c": 7, "e": "inf"}), {}, 2),
    (("zscore", "y", "e"), {}, float("inf")),
    (("zinter", ["z", "y"]), {"withscores": True}, [("c", 10.0)]),
    (("zunionstore", "u", {"z": 1, "y": 2}), {"aggregate": "MAX"}, 2),
    (("zdiff", ["y", "z"]), {}, ["e"]),
    (("zrem", "z", "c", "missing"), {}, 1),
    (("zadd", "lex", dict.fromkeys("abc", 0)), {}, 3),
    (("zlexcount", "lex", "[b", "+"), {}, 2),
    (("zrangebylex", "lex", "-", "(c"), {}, ["a", "b"]),
    (("zremrangebyrank", "lex", 0, 0), {}, 1),
    (("bzpopmin", "lex"), {"timeout": 1}, ("lex", "b", 0.0)),
    (("zscan", "u"), {}, (0, [("c", 14.0), ("e", float("inf"))])),
]

TABLES = {
    "strings": STRINGS,
    "keys": KEYS,
    "hashes": HASHES,
    "lists": LISTS,
    "sets": SETS,
    "sorted sets": SORTED_SETS,
}


def plain(value):
    """A reply with bytes decoded and sequences of two made tuples alike, so that one expectation serves every mode."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    if isinstance(value, set):
        return {plain(item) for item in value}
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


def same_shape(value):
    """Lists for tuples: the client's RESP3 parsers choose the one where RESP2's choose the other."""
    if isinstance(value, (list, tuple)):
        return [same_shape(item) for item in value]
    if isinstance(value, set):
        return sorted(value)
    return value


def tables(protocol, mode, connection):
    """Every table through `connection`: each call on its own, then all of a table in a pipeline, then as transaction."""
    for name, table in TABLES.items():
        answers = [answer[protocol - 2] if isinstance(answer, ByProtocol) else answer for _, _, answer in table]
        expected = [same_shape(answer) for answer in answers]
        connection.flushall()
        for (call, options, _), answer in zip(table, expected, strict=True):
            got = getattr(connection, call[0])(*call[1:], **options)
            check(f"{mode}, {name}, {call} {options}", same_shape(plain(got)), answer)
        for transaction in (False, True):
            connection.flushall()
            pipeline = connection.pipeline(transaction=transaction)
            for call, options, _ in table:
                getattr(pipeline, call[0])(*call[1:], **options)
            answers = [same_shape(plain(answer)) for answer in pipeline.execute()]
            for (call, options, _), got, answer in zip(table, answers, expected, strict=True):
                check(f"{mode}, {name}, transaction={transaction}, {call} {options}", got, answer)


def errors(connection):
    connection.flushall()
    connection.set("s", "text")
    wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value"
    raises("wrong type", wrong_type, lambda: connection.lpush("s", 1))
    raises("not a number", "value is not an integer or out of range", lambda: connection.incr("s"))
    raises("unknown", "unknown command 'NOSUCH', with args beginning with: 'a' ",
           lambda: connection.execute_command("NOSUCH", "a"))  # fmt: skip
    raises("arity", "wrong number of arguments for 'get' command", lambda: connection.execute_command("GET"))
    pipeline = connection.pipeline(transaction=False)
    pipeline.set("a", 1).lpush("a", 1).execute_command("NOSUCH").execute_command("GET").get("a")
    answers = pipeline.execute(raise_on_error=False)
    check("errors in mid-pipeline", [type(answer) for answer in answers],
          [bool, redis.ResponseError, redis.ResponseError, redis.ResponseError, bytes])  # fmt: skip
    pipeline = connection.pipeline(transaction=True)
    answers = pipeline.set("a", 1).lpush("a", 1).get("a").execute(raise_on_error=False)
    check("errors within a transaction", [answers[0], type(answers[1]), answers[2]],
          [True, redis.ResponseError, b"1"])  # fmt: skip
    pipeline = connection.pipeline(transaction=True)
    pipeline.set("a", 2).execute_command("NOSUCH")
    try:
        pipeline.execute()
    except redis.ResponseError as error:
        check("refused while queued", "unknown command" in str(error), True)
    check("nothing of it ran", connection.get("a"), b"1")


def large(connection):
    """Values and pipelines larger than any buffer."""
    connection.flushall()
    blob = bytes(range(256)) * 40_000
    connection.set("blob", blob)
    check("a value of 10 MB", connection.get("blob") == blob, True)
    pipeline = connection.pipeline(transaction=False)
    for number in range(50_000):
        pipeline.set(f"k{number}", number)
    check("50,000 SETs in one pipeline", pipeline.execute(), [True] * 50_000)
    for number in range(50_000):
        pipeline.get(f"k{number}")
    check("50,000 GETs in one pipeline", pipeline.execute(), [b"%d" % number for number in range(50_000)])
    transaction = connection.pipeline()
    for number in range(10_000):
        transaction.incr("counter")
    check("10,000 INCRs in one transaction", transaction.execute(), list(range(1, 10_001)))
    for _ in range(20):
        pipeline.get("blob")
    check("20 values of 10 MB in one pipeline", all(answer == blob for answer in pipeline.execute()), True)


def watch(connection):
    """The optimistic loop of the client's own documentation, by several threads that get in each other's way."""
    connection.set("watched", 0)

    def increment(pipeline):
        value = int(pipeline.get("watched"))
        pipeline.multi()
        pipeline.set("watched", value + 1)

    def worker():
        own = client()
        for _ in range(50):
            own.transaction(increment, "watched")
        own.close()

    in_threads(4, worker)
    check("WATCH loops by 4 threads", connection.get("watched"), b"200")
    with connection.pipeline() as pipeline:
        pipeline.watch("watched")
        connection.set("watched", "changed")
        pipeline.multi()
        pipeline.get("watched")
        try:
            check("EXEC after a change", pipeline.execute(), "WatchError")
        except redis.WatchError:
            check("EXEC after a change", True, True)


def in_threads(count, work):
    """Runs `work` in `count` threads; a thread's failure is the script's."""
    failures = []

    def guarded():
        try:
            work()
        except BaseException as error:  # noqa: BLE001, it is reported below
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    check("threads end", [thread.is_alive() for thread in threads], [False] * count)
    check("threads' failures", failures, [])


def next_message(subscriber):
    """The next message, without its `pattern: None`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        message = subscriber.get_message(timeout=1)
        if message is not None:
            return message["type"], message["channel"], message["data"]
    sys.exit("no message came")


def publish_subscribe(protocol):
    connection = client(protocol=protocol, decode_responses=True)
    subscriber = connection.pubsub()
    subscriber.subscribe("news", "weather")
    subscriber.psubscribe("sport.*")
    for expected in [("subscribe", "news", 1), ("subscribe", "weather", 2), ("psubscribe", "sport.*", 3)]:
        check("subscribe", next_message(subscriber), expected)
    check("PUBSUB CHANNELS", sorted(connection.pubsub_channels()), ["news", "weather"])
    check("PUBSUB NUMSUB", connection.pubsub_numsub("news", "none"), [("news", 1), ("none", 0)])
    check("PUBSUB NUMPAT", connection.pubsub_numpat(), 1)
    check("PUBLISH", connection.publish("news", "hello"), 1)
    check("message", next_message(subscriber), ("message", "news", "hello"))
    check("PUBLISH to a pattern", connection.publish("sport.chess", "e4"), 1)
    check("pmessage", next_message(subscriber), ("pmessage", "sport.chess", "e4"))
    pipeline = connection.pipeline(transaction=False)
    for number in range(1000):
        pipeline.publish("weather", number)
    check("1,000 PUBLISHes in a pipeline", pipeline.execute(), [1] * 1000)
    for number in range(1000):
        check("order of messages", next_message(subscriber), ("message", "weather", str(number)))
    # In RESP3 the answer is an ordinary reply, which this client's subscriber takes for a message.
    if protocol == 2:
        subscriber.ping("alive?")
        check("PING while subscribed", next_message(subscriber)[::2], ("pong", "alive?"))
    subscriber.unsubscribe("news")
    check("unsubscribe", next_message(subscriber), ("unsubscribe", "news", 2))
    subscriber.close()
    sharded = connection.pubsub()
    sharded.ssubscribe("shard")
    check("ssubscribe", next_message(sharded), ("ssubscribe", "shard", 1))
    check("SPUBLISH", connection.spublish("shard", "x"), 1)
    check("smessage", next_message(sharded), ("smessage", "shard", "x"))
    sharded.close()


def blocking(connection):
    """Waiting calls: woken by another connection, timed out, and in the order in which they waited."""
    connection.flushall()
    waiting = client()
    got = []

    def wait(call):
        thread = threading.Thread(target=lambda: got.append(call()))
        thread.start()
        while not any(c["flags"].startswith("b") for c in connection.client_list()):
            if not thread.is_alive():
                sys.exit("a call that should wait has ended")
            time.sleep(0.005)
        return thread

    for call, wake, answer in [
        (lambda: waiting.blpop(["q1", "q2"], timeout=PATIENCE_SECONDS - 1), lambda: connection.rpush("q2", "x"),
         (b"q2", b"x")),
        (lambda: waiting.brpop("q1", timeout=0), lambda: connection.rpush("q1", "y", "z"), (b"q1", b"z")),
        (lambda: waiting.blmove("q3", "q4", 0), lambda: connection.rpush("q3", "m"), b"m"),
        (lambda: waiting.bzpopmax("zs", 0), lambda: connection.zadd("zs", {"m": 2}), (b"zs", b"m", 2.0)),
        (lambda: waiting.blmpop(0, 1, "q5", direction="LEFT"), lambda: connection.rpush("q5", "m"), [b"q5", [b"m"]]),
        (lambda: waiting.blpop("q6", 0), lambda: connection.client_unblock(client_id(waiting)), None),
    ]:  # fmt: skip
        thread = wait(call)
        wake()
        thread.join(PATIENCE_SECONDS)
        check("a waiting call", same_shape(got.pop()) if got else "nothing", same_shape(answer))
    check("a timeout", waiting.blpop("nothing", timeout=0.05), None)
    check("in a transaction it does not wait", connection.pipeline().blpop("nothing").execute(), [None])


def client_id(other):
    """The id of a connection that is busy waiting and can't be asked."""
    del other
    blocked = [c for c in client().client_list() if c["flags"].startswith("b")]
    check("one connection waits", len(blocked), 1)
    return int(blocked[0]["id"])


def scanning(connection):
    connection.flushall()
    names = {f"key:{number}" for number in range(5000)}
    connection.mset(dict.fromkeys(names, "x"))
    connection.rpush("a list", 1)
    found = [plain(name) for name in connection.scan_iter(match="key:*", count=100)]
    check("scan_iter", set(found) == names, True)
    check("scan_iter by type", list(connection.scan_iter(_type="list")), [b"a list"])
    connection.sadd("set", *names)
    check("sscan_iter", {plain(name) for name in connection.sscan_iter("set", count=50)} == names, True)
    connection.hset("hash", mapping=dict.fromkeys(names, "v"))
    check("hscan_iter", {plain(name) for name, _ in connection.hscan_iter("hash")} == names, True)
    connection.zadd("zset", {name: 1 for name in names})
    check("zscan_iter", {plain(name) for name, _ in connection.zscan_iter("zset", match="key:1*")},
          {name for name in names if name.startswith("key:1")})  # fmt: skip


def administration(protocol):
    """What the client parses of CLIENT, INFO, CONFIG, COMMAND, SLOWLOG and their like."""
    connection = client(protocol=protocol, decode_responses=True, client_name="admin")
    check("CLIENT GETNAME", connection.client_getname(), "admin")
    own = connection.client_info()
    check("CLIENT INFO", (own["name"], own["cmd"], own["db"], own["resp"]), ("admin", "client|info", 0, str(protocol)))
    check("CLIENT ID", connection.client_id(), int(own["id"]))
    listed = connection.client_list(client_id=[own["id"]])
    check("CLIENT LIST ID", [entry["name"] for entry in listed], ["admin"])
    check("CLIENT SETNAME", connection.client_setname("renamed"), True)
    victim = client()
    number = victim.client_id()
    check("CLIENT KILL ID", connection.client_kill_filter(_id=number), 1)
    check("the killed client reconnects", victim.ping() and victim.client_id() > number, True)
    information = connection.info()
    for field in ["redis_version", "uptime_in_seconds", "connected_clients", "used_memory", "total_commands_processed",
                  "role", "used_cpu_sys", "tcp_port", "keyspace_hits"]:  # fmt: skip
        check(f"INFO has {field}", field in information, True)
    check("INFO tcp_port", information["tcp_port"], PORT)
    check("INFO keyspace", information["db0"]["keys"], connection.dbsize())
    connection.config_resetstat()
    for _ in range(7):
        connection.get("x")
    check("INFO commandstats", connection.info("commandstats")["cmdstat_get"]["calls"], 7)
    check("CONFIG GET", connection.config_get("maxmemory-pol*"), {"maxmemory-policy": "noeviction"})
    check("CONFIG SET", connection.config_set("maxmemory-policy", "allkeys-lru"), True)
    check("CONFIG GET, several", connection.config_get("maxmemory-policy", "port"),
          {"maxmemory-policy": "allkeys-lru", "port": str(PORT)})  # fmt: skip
    connection.config_set("maxmemory-policy", "noeviction")
    table = connection.command()
    check("COMMAND", (table["get"]["arity"], table["get"]["first_key_pos"], set(table["set"]["flags"])),
          (2, 1, {"write", "denyoom"}))  # fmt: skip
    check("COMMAND COUNT", connection.command_count(), len(table))
    check("COMMAND GETKEYS", connection.command_getkeys("MSET", "a", 1, "b", 2), ["a", "b"])
    connection.config_set("slowlog-log-slower-than", 0)
    connection.slowlog_reset()
    connection.set("slow", "entry")
    check("SLOWLOG GET", connection.slowlog_get(128)[0]["command"] in ("SET slow entry", b"SET slow entry"), True)
    connection.config_set("slowlog-log-slower-than", 10_000)
    seconds, micros = connection.time()
    check("TIME", abs(seconds - time.time()) < 5 and 0 <= micros < 1_000_000, True)
    check("ECHO", connection.echo("x"), "x")
    check("ROLE", connection.role()[0], "master")
    check("MEMORY USAGE", connection.memory_usage("slow") > 20, True)
    check("SELECT", client(db=9, decode_responses=True).client_info()["db"], 9)
    check("SWAPDB", connection.swapdb(0, 9) and client(db=9).exists("slow") and connection.swapdb(0, 9), True)
    check("LASTSAVE", connection.lastsave().year >= 2024, True)


def authentication(connection):
    """A password that is set while clients are connected: those that are in stay in, the others must know it."""

    def refusal(**options):
        try:
            return client(retry=Retry(NoBackoff(), 0), **options).ping()
        except redis.AuthenticationError as error:
            return str(error)

    connection.config_set("requirepass", "secret")
    check("without a password", refusal(protocol=2), "Authentication required.")
    wrong = "invalid username-password pair or user is disabled."
    check("with a wrong one, AUTH", refusal(password="wrong", protocol=2), wrong)
    check("with a wrong one, HELLO", refusal(password="wrong", protocol=3), wrong)
    for protocol in (2, 3):
        known = client(password="secret", protocol=protocol)
        check("with the password", known.pipeline(transaction=False).set("a", 1).get("a").execute(), [True, b"1"])
        check("with the user's name", client(username="default", password="secret", protocol=protocol).ping(), True)
    check("a client that was in stays in", connection.ping() and connection.config_set("requirepass", ""), True)
    check("no password again", refusal(), True)


def monitor(connection):
    with client().monitor() as watching:
        stream = watching.listen()
        connection.set("mon", 'quo"ted\n\x01é')
        while (entry := next(stream))["command"].split()[0] != "SET":
            pass
    check("MONITOR", entry["command"], r'SET mon quo"ted\n\x01\xc3\xa9')
    check("MONITOR's sender", (entry["db"], entry["client_address"], entry["client_type"]), (0, "127.0.0.1", "tcp"))


def pool():
    """One pool of a few connections under more threads than it has connections."""
    shared = redis.BlockingConnectionPool(host="127.0.0.1", port=PORT, max_connections=4, timeout=60)
    redis.Redis(connection_pool=shared).flushall()

    def work():
        mine = redis.Redis(connection_pool=shared)
        for number in range(200):
            mine.incr("pooled")
            pipeline = mine.pipeline(transaction=number % 2 == 0)
            answers = pipeline.incr("pooled").lpush("list", number).llen("list").execute()
            if answers[1] > answers[2]:
                sys.exit(f"a list got shorter: {answers}")

    in_threads(10, work)
    own = redis.Redis(connection_pool=shared)
    check("10 threads with 4 connections", (own.get("pooled"), own.llen("list")), (b"4000", 2000))
    shared.disconnect()


def unix_socket():
    local = redis.Redis(unix_socket_path=os.environ["PENSTOCK_SOCKET"])
    check("through the Unix socket", (local.set("u", 1), local.get("u")), (True, b"1"))
    check("its flag", "U" in local.client_info()["flags"], True)


def main():
    for protocol in (2, 3):
        for decode in (False, True):
            mode = f"RESP{protocol}{', decoded' if decode else ''}"
            with client(protocol=protocol, decode_responses=decode) as connection:
                tables(protocol, mode, connection)
        with client(protocol=protocol) as connection:
            for part in (errors, large, watch, blocking, scanning, authentication, monitor):
                part(connection)
        publish_subscribe(protocol)
        administration(protocol)
    pool()
    unix_socket()
    print(f"{checks} checks")


main()
