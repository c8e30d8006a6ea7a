#!/usr/bin/env python3
"""redis-py's asyncio client, unmodified: many tasks at once, pipelines, transactions, subscriptions, waiting calls."""

import asyncio
import os
import sys

from redis import WatchError
from redis import asyncio as redis
from redis.exceptions import ResponseError

PORT = int(os.environ["PENSTOCK_PORT"])
PATIENCE_SECONDS = 20
checks = 0


def check(what, actual, expected):
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def client(protocol, **options):
    return redis.Redis(port=PORT, protocol=protocol, decode_responses=True, **options)


async def many_tasks(connection):
    """A hundred tasks, each with its own connection from the pool and its own keys."""

    async def work(number):
        for turn in range(20):
            await connection.set(f"task:{number}", turn)
            got = await connection.get(f"task:{number}")
            async with connection.pipeline(transaction=turn % 2 == 0) as pipeline:
                answers = await pipeline.incr("shared").get(f"task:{number}").execute()
            if (got, answers[1]) != (str(turn), str(turn)):
                return (got, answers[1], turn)
        return "right"

    check("100 tasks", set(await asyncio.gather(*map(work, range(100)))), {"right"})
    check("their sum", await connection.get("shared"), "2000")


async def pipelines(connection):
    pipeline = connection.pipeline(transaction=False)
    for number in range(20_000):
        pipeline.set(f"p{number}", number)
        pipeline.get(f"p{number}")
    answers = await pipeline.execute()
    check("40,000 commands", answers == [item for n in range(20_000) for item in (True, str(n))], True)
    pipeline.set("text", "x").incr("text").get("text")
    answers = await pipeline.execute(raise_on_error=False)
    check("an error in between", (answers[0], type(answers[1]), answers[2]), (True, ResponseError, "x"))


async def optimistic(connection):
    async def increment(pipeline):
        value = int(await pipeline.get("watched") or 0)
        pipeline.multi()
        pipeline.set("watched", value + 1)

    await asyncio.gather(*(connection.transaction(increment, "watched") for _ in range(50)))
    check("50 optimistic increments", await connection.get("watched"), "50")
    async with connection.pipeline() as pipeline:
        await pipeline.watch("watched")
        await connection.incr("watched")
        pipeline.multi()
        pipeline.get("watched")
        try:
            check("a change meanwhile", await pipeline.execute(), "WatchError")
        except WatchError:
            check("a change meanwhile", True, True)


async def subscriptions(connection):
    async with connection.pubsub() as subscriber:
        await subscriber.subscribe("channel")
        await subscriber.psubscribe("pat*")
        got = []

        async def read():
            async for message in subscriber.listen():
                if message["type"].endswith("message"):
                    got.append((message["channel"], message["data"]))
                if message["data"] == "stop":
                    return

        reader = asyncio.create_task(read())
        while await connection.pubsub_numpat() == 0:
            await asyncio.sleep(0.005)
        expected = []
        for number in range(500):
            name = "pattern" if number % 5 == 0 else "channel"
            expected.append((name, str(number)))
            await connection.publish(name, number)
        await connection.publish("channel", "stop")
        await asyncio.wait_for(reader, PATIENCE_SECONDS)
        check("501 messages in order", got, [*expected, ("channel", "stop")])


async def waiting(connection):
    calls = [asyncio.create_task(connection.blpop(["queue"], timeout=PATIENCE_SECONDS)) for _ in range(20)]
    while (await connection.info("clients"))["blocked_clients"] < 20:
        await asyncio.sleep(0.005)
    pipeline = connection.pipeline(transaction=False)
    for number in range(20):
        pipeline.rpush("queue", number)
    await pipeline.execute()
    answers = await asyncio.gather(*calls)
    check("20 waiting calls", sorted(int(value) for _, value in answers), list(range(20)))
    check("nothing left", await connection.exists("queue"), 0)
    check("a timeout", await connection.bzpopmin("nothing", timeout=0.05), None)


async def main():
    for protocol in (2, 3):
        connection = client(protocol, max_connections=200)
        await connection.flushall()
        for part in (many_tasks, pipelines, optimistic, subscriptions, waiting):
            await asyncio.wait_for(part(connection), 60)
        await connection.aclose()
    print(f"{checks} checks")


asyncio.run(main())
