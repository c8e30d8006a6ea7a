#!/usr/bin/env python3
"""redis-py during planned failovers: see moving_test.py for the contract of these programs."""

import json
import os
import sys
import threading
import time

import redis

WRITERS = 8
DEPTH = 20
stop = threading.Event()
errors, longest = [], [0.0]
acknowledged, pushed, popped = [0] * WRITERS, [0], [0]


def timed(call, allowed_s=0.0):
    """Runs a call. Notes its time beyond `allowed_s`, and its error."""
    began = time.monotonic()
    try:
        return call()
    except redis.RedisError as error:
        errors.append(f"{type(error).__name__}: {error}")
        return None
    finally:
        longest[0] = max(longest[0], time.monotonic() - began - allowed_s)


def write(client, number):
    """Increments a counter by pipelines, transactions or scripts."""
    script = f"for i = 2, {DEPTH} do redis.call('incr', KEYS[1]) end return redis.call('incr', KEYS[1])"
    while not stop.is_set():
        if number % 3 == 2:
            replies = [timed(lambda: client.eval(script, 1, f"count:{number}"))]
        else:
            pipe = client.pipeline(transaction=number % 3 == 1)
            for _ in range(DEPTH):
                pipe.incr(f"count:{number}")
            replies = timed(pipe.execute)
        if replies and replies[-1]:
            acknowledged[number] = replies[-1]
        time.sleep(0.001)


def push(client):
    while not stop.is_set():
        if timed(lambda: client.rpush("queue", pushed[0])):
            pushed[0] += 1
        time.sleep(0.02)


def pop(client):
    while not stop.is_set():
        if timed(lambda: client.blpop("queue", 1), 1.0):
            popped[0] += 1


client = redis.Redis.from_url(os.environ["PENSTOCK_URL"], protocol=3)
threads = [threading.Thread(target=write, args=(client, number)) for number in range(WRITERS)]
threads += [threading.Thread(target=work, args=(client,)) for work in (push, pop)]
for thread in threads:
    thread.start()
print("running", flush=True)
sys.stdin.read()
stop.set()
for thread in threads:
    thread.join()
print(json.dumps({"errors": errors, "longest_s": longest[0], "acknowledged": acknowledged, "pushed": pushed[0], "popped": popped[0]}))
