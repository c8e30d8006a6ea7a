#!/usr/bin/env python3
"""redis-py's client-side cache, unmodified: what is cached, what ends it, and that nothing outdated stays.

The cache asks for RESP3 and CLIENT TRACKING by itself. Whether a value comes from it is seen by the server's count of commands.
"""

import os
import random
import sys
import threading
import time

import redis
from redis.cache import CacheConfig

PORT = int(os.environ["PENSTOCK_PORT"])
# A reply or an invalidation that does not come within this long is a failure.
PATIENCE_SECONDS = 10

checks = 0


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def becomes(what, expected, read):
    """Checks that `read()` soon is `expected`: invalidations come on their own."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while read() != expected and time.monotonic() < deadline:
        time.sleep(0.001)
    check(what, read(), expected)


def caching(**options):
    return redis.Redis(
        port=PORT, protocol=3, cache_config=CacheConfig(), decode_responses=True, socket_timeout=PATIENCE_SECONDS, **options
    )


def reads(other, run):
    """How many GETs and HGETALLs the server has run for `run()`."""

    def counted():
        stats = other.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("get", "hgetall", "mget"))

    before = counted()
    run()
    return counted() - before


def values_come_from_the_cache(cache, other):
    other.mset({"k": "1", "j": "2"})
    other.hset("h", mapping={"a": "1", "b": "2"})
    check("the first read", reads(other, lambda: check("k", cache.get("k"), "1")), 1)
    check("ten more", reads(other, lambda: [check("k", cache.get("k"), "1") for _ in range(10)]), 0)
    check("a hash", reads(other, lambda: [cache.hgetall("h") for _ in range(5)]), 1)
    check("several keys", reads(other, lambda: [cache.mget("k", "j") for _ in range(5)]), 1)
    check("what is missing", reads(other, lambda: [cache.get("missing") for _ in range(5)]) <= 5, True)


def changes_end_it(cache, other):
    check("k", cache.get("k"), "1")
    other.set("k", "3")
    becomes("k, changed by another connection", "3", lambda: cache.get("k"))
    other.hset("h", "a", "9")
    becomes("h, changed by another connection", {"a": "9", "b": "2"}, lambda: cache.hgetall("h"))
    cache.set("k", "4")
    becomes("k, changed by itself", "4", lambda: cache.get("k"))
    other.delete("k")
    becomes("k, deleted", None, lambda: cache.get("k"))
    other.set("k", "5", px=30)
    becomes("k, with a time", "5", lambda: cache.get("k"))
    becomes("k, expired", None, lambda: cache.get("k"))
    other.set("k", "6")
    becomes("k, again", "6", lambda: cache.get("k"))
    other.flushall()
    becomes("k, flushed", None, lambda: cache.get("k"))
    with other.pipeline() as pipeline:
        pipeline.set("k", "7").set("j", "8").execute()
    becomes("k, changed in a transaction", ["7", "8"], lambda: [cache.get("k"), cache.get("j")])
    other.eval("redis.call('set', KEYS[1], 'script')", 1, "k")
    becomes("k, changed by a script", "script", lambda: cache.get("k"))


def nothing_outdated_stays(other):
    """Threads with caches read what others write; when it is quiet, all caches have what the server has."""
    keys = [f"key:{n}" for n in range(20)]
    over = threading.Event()

    def read(cache):
        chance = random.Random(1)
        while not over.is_set():
            cache.get(chance.choice(keys))

    def write():
        chance = random.Random(2)
        for n in range(2000):
            other.set(chance.choice(keys), n)

    caches = [caching() for _ in range(3)]
    readers = [threading.Thread(target=read, args=(cache,)) for cache in caches]
    writers = [threading.Thread(target=write) for _ in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    for thread in readers:
        thread.join()
    time.sleep(0.1)
    present = other.mget(keys)
    for number, cache in enumerate(caches):
        check(f"cache {number}", [cache.get(key) for key in keys], present)
        cache.close()


def main():
    other = redis.Redis(port=PORT, decode_responses=True, socket_timeout=PATIENCE_SECONDS)
    other.flushall()
    cache = caching()
    values_come_from_the_cache(cache, other)
    changes_end_it(cache, other)
    check("clients that cache", other.info("clients")["tracking_clients"] >= 1, True)
    cache.close()
    nothing_outdated_stays(other)
    print(f"{checks} checks")


main()
