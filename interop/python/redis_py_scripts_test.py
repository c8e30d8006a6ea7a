#!/usr/bin/env python3
"""redis-py's scripts, unmodified: registered scripts, alone and in pipelines, and its locks, under contention."""

import os
import sys
import threading

import redis
from redis.exceptions import LockError, LockNotOwnedError, NoScriptError, ResponseError

PORT = int(os.environ["PENSTOCK_PORT"])
# Threads that compete for a lock, and how often each takes it.
THREADS = 8
TURNS = 50

# A sliding window: how many of the last seconds' requests there may be.
WINDOW = """
local now, seconds, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - seconds)
local count = redis.call('ZCARD', KEYS[1])
if count < most then
  redis.call('ZADD', KEYS[1], now, now .. '-' .. count)
  redis.call('EXPIRE', KEYS[1], seconds)
  return {1, most - count - 1}
end
return {0, 0}
"""

checks = 0


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def raised(call):
    """The class of the error that `call` ends with."""
    try:
        call()
    except redis.RedisError as error:
        return type(error)
    return None


def registered(client):
    add = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    check("a registered script", add(keys=["n"], args=[5]), 5)
    client.script_flush()
    check("it is loaded again when forgotten", add(keys=["n"], args=[1]), 6)
    client.script_flush()
    pipeline = client.pipeline()
    add(keys=["n"], args=[1], client=pipeline)
    pipeline.get("n")
    add(keys=["n"], args=[2], client=pipeline)
    check("in a pipeline", pipeline.execute(), [7, b"7", 9])
    check("an unknown digest", raised(lambda: client.evalsha("0" * 40, 0)), NoScriptError)
    check("an error", raised(lambda: client.eval("error('x')", 0)), ResponseError)
    check("read only", client.eval_ro("return redis.call('GET', KEYS[1])", 1, "n"), b"9")
    window = client.register_script(WINDOW)
    check("a rate limiter", [window(keys=["w"], args=[t, 10, 2]) for t in (1, 2, 3, 12)], [[1, 1], [1, 0], [0, 0], [1, 1]])


def locks(client):
    lock = client.lock("lock", timeout=10)
    check("acquired", lock.acquire(), True)
    check("not twice", client.lock("lock", timeout=10).acquire(blocking=False), False)
    check("extended", lock.extend(10), True)
    check("its time", client.ttl("lock") > 15, True)
    check("renewed", lock.reacquire(), True)
    check("its time again", client.ttl("lock") <= 10, True)
    check("owned", lock.owned(), True)
    lock.release()
    check("released", client.exists("lock"), 0)
    check("released twice", raised(lock.release), LockError)
    lock.acquire()
    client.set("lock", "another owner")
    check("taken over", raised(lock.release), LockNotOwnedError)
    client.delete("lock")


def contention(client):
    inside, overlaps = [], []

    def work():
        own = redis.Redis(port=PORT)
        for _ in range(TURNS):
            with own.lock("contended", timeout=30, sleep=0.001):
                inside.append(1)
                if len(inside) > 1:
                    overlaps.append(1)
                own.set("counter", int(own.get("counter") or 0) + 1)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("no other thread was inside", overlaps, [])
    check("no turn was lost", client.get("counter"), str(THREADS * TURNS).encode())


def main():
    for protocol in (2, 3):
        with redis.Redis(port=PORT, protocol=protocol) as client:
            client.flushall()
            for part in (registered, locks, contention):
                part(client)
    print(f"{checks} checks")


main()
