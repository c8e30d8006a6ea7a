#!/usr/bin/env python3
"""redis-py's RedisCluster, in RESP2 and RESP3, through a reshard, a failover and the death of a primary. See interop/cluster.py."""

import os
import pathlib
import re
import socket
import sys
import threading
import time

import redis
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.maint_notifications import MaintNotificationsConfig

PORTS = [int(port) for port in os.environ["PENSTOCK_PORTS"].split(",")]
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/cluster.md"
KEYS = 200
# Commands of one pipeline.
DEPTH = 2_000
# Keys of the slot that moves.
MOVING = 1_000
PATIENCE_SECONDS = 60

checks = 0


def check(what, actual, expected):
    """One check: ends the script where `actual` is not `expected`."""
    global checks
    checks += 1
    if actual != expected:
        sys.exit(f"{what}:\n  expected {expected!r}\n  got      {actual!r}")


def check_error(what, kind, text, call):
    """Checks that `call` raises an error of this kind and text."""
    try:
        call()
    except kind as error:
        check(what, str(error), text)
    else:
        sys.exit(f"{what}: no error, expected {text}")


def event(request):
    """Sends a request to the cluster's harness, and returns the answer."""
    with socket.create_connection(("127.0.0.1", int(os.environ["PENSTOCK_EVENTS"])), PATIENCE_SECONDS) as connection:
        connection.sendall(f"{request}\n".encode())
        return connection.makefile().readline().strip()


def during(request, work):
    """Repeats `work` until the event is over; returns how often."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(event(request)))
    thread.start()
    rounds = 0
    while thread.is_alive() or not rounds:
        work()
        rounds += 1
    thread.join()
    check(request, answers, ["ok"])
    return rounds


def until_done(work):
    """Repeats `work` until it succeeds, as an application does while a shard has no primary."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return work()
        except (redis.RedisError, redis.exceptions.RedisClusterException, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def connect(protocol, **options):
    return RedisCluster(
        startup_nodes=[ClusterNode("127.0.0.1", port) for port in PORTS[:2]], decode_responses=True, protocol=protocol, **options
    )


def the_pages_client():
    """Connects with the code of docs/cluster.md, to this cluster's ports, and runs the pipeline of the page."""
    code = "".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S))
    for shown, port in zip(("7100", "7101"), PORTS):
        code = code.replace(shown, str(port))
    names = {}
    exec(code, names)
    with names["client"] as client:
        check("SET by the page's client", client.set("py:page", 1), True)
        pages = [str(number) for number in range(KEYS)]
        for count in (1, 2):
            check("visits", names["count_visits"](client, pages), [count] * KEYS)


def single_commands(client):
    for number in range(KEYS):
        check("SET", client.set(f"py:{number}", number), True)
    for number in range(KEYS):
        check("GET", client.get(f"py:{number}"), str(number))
    check("DBSIZE of all nodes", client.dbsize(target_nodes=RedisCluster.PRIMARIES) >= KEYS, True)
    check("SCAN of all nodes", sum(1 for _ in client.scan_iter("py:[0-9]*", count=500)), KEYS)


def pipelines(client):
    pipe = client.pipeline()
    for number in range(DEPTH):
        pipe.set(f"py:p:{number}", number).incrby(f"py:p:{number}", 1).get(f"py:p:{number}")
    expected = [reply for number in range(DEPTH) for reply in (True, number + 1, str(number + 1))]
    check("a pipeline over all slots", pipe.execute(), expected)
    for number in range(DEPTH):
        pipe.get(f"py:p:{number}")
        if number % 100 == 0:
            pipe.lpush(f"py:p:{number}", 1)
    replies = pipe.execute(raise_on_error=False)
    wrong = [reply for reply in replies if isinstance(reply, redis.ResponseError)]
    check("errors in a pipeline", len(wrong), DEPTH // 100)
    check("text of the errors", {str(error).partition("WRONGTYPE")[1] for error in wrong} <= {"WRONGTYPE", ""}, True)
    values = [reply for reply in replies if not isinstance(reply, redis.ResponseError)]
    check("values beside the errors", values, [str(number + 1) for number in range(DEPTH)])


def one_slot(client):
    with client.pipeline(transaction=True) as pipe:
        pipe.set("{py}a", 1).incr("{py}a").get("{py}a")
        check("MULTI", pipe.execute(), ["OK", 2, "2"])
    check("MSET", client.mset({"{py}b": 1, "{py}c": 2}), True)
    check("MGET", client.mget(["{py}c", "{py}b", "{py}d"]), ["2", "1", None])
    own = "MGET - all keys must map to the same key slot"
    check_error("the client's refusal", redis.exceptions.RedisClusterException, own, lambda: client.mget(["py:1", "py:2"]))
    check("MGET over several slots", client.mget_nonatomic("py:1", "py:2"), ["1", "2"])
    text = "Keys in request don't hash to the same slot"
    node = client.get_node_from_key("py:1")
    check_error("CROSSSLOT", redis.exceptions.ClusterCrossSlotError, text, lambda: client.execute_command("MGET", "py:1", "py:2", target_nodes=node))


def scripts(client):
    script = "return {KEYS[1], redis.call('INCRBY', KEYS[1], ARGV[1])}"
    check("EVAL", client.eval(script, 1, "{py}n", 5), ["{py}n", 5])
    run = client.register_script(script)
    for number in range(20):
        check("EVALSHA", run(keys=[f"py:s:{number}"], args=[number]), [f"py:s:{number}", number])
    foreign = "return redis.call('GET', 'py:elsewhere' .. ARGV[1])"
    try:
        for number in range(10):
            client.eval(foreign, 1, "{py}n", number)
    except redis.ResponseError as error:
        check("a key of another node", "Script attempted to access" in str(error), True)
    else:
        sys.exit("a script read foreign keys")


def subscriptions(client):
    subscriber = client.pubsub()
    subscriber.subscribe("py:news")
    check("SUBSCRIBE", subscriber.get_message(timeout=10)["type"], "subscribe")
    until_heard(lambda: client.publish("py:news", "hello"), subscriber, "py:news")
    subscriber.close()
    sharded = client.pubsub()
    for number in range(6):
        sharded.ssubscribe(f"py:shard:{number}")
    for number in range(6):
        channel = f"py:shard:{number}"
        until_heard(lambda: client.spublish(channel, "hello"), sharded, channel, client.get_node_from_key(channel))
    sharded.close()


def until_heard(publish, subscriber, channel, node=None):
    """Publishes until a message arrives: a message on the bus before its receiver has subscribed is lost."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        publish()
        message = subscriber.get_sharded_message(timeout=0.1, target_node=node) if node else subscriber.get_message(timeout=0.1)
        if message and message["type"] in ("message", "smessage") and message["channel"] == channel:
            check("the message", message["data"], "hello")
            return
    sys.exit(f"nothing was heard on {channel}")


def replicas(protocol):
    reader = connect(protocol, load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN)
    for node in reader.get_replicas():
        check("READONLY", reader.execute_command("READONLY", target_nodes=node), True)
    for number in range(200):
        check("GET from primaries and replicas", until_equal(reader, f"py:{number}", str(number)), str(number))
    calls = [int(reader.info("commandstats", target_nodes=node)["cmdstat_get"]["calls"]) for node in reader.get_replicas()]
    check("replicas have answered", all(calls), True)
    reader.close()


def until_equal(reader, key, value):
    """Reads until the value is there: a replica may be behind."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := reader.get(key)) != value and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


class Counters:
    """Counters that pipelines increase while the cluster changes; each command must be carried out once."""

    def __init__(self, client, keys):
        self.client, self.keys, self.rounds = client, keys, 0

    def increase(self):
        pipe = self.client.pipeline()
        for key in self.keys:
            pipe.incr(key)
        self.rounds += 1
        check("INCR in a pipeline", pipe.execute(), [self.rounds] * len(self.keys))

    def verify(self):
        pipe = self.client.pipeline()
        for key in self.keys:
            pipe.get(key)
        check("counters", pipe.execute(), [str(self.rounds)] * len(self.keys))


def increase_during_reshard(client, prefix):
    tag = event("tag")
    counters = Counters(client, [f"{{{tag}}}{prefix}:{number}" for number in range(MOVING)])
    counters.increase()
    during("reshard", counters.increase)
    counters.verify()


def reshard(client):
    increase_during_reshard(client, "py")
    moved, asked = map(int, event("redirects").split())
    check(f"{asked} ASK and {moved} MOVED were followed", asked > 0 and moved > 0, True)


def announced_reshard():
    """Slots move while the client listens to announcements (SMIGRATED), as it does by default with RESP3. It may meet no MOVED then."""
    with connect(3) as client:
        increase_during_reshard(client, "py:announced")


def failover(client):
    counters = Counters(client, [f"py:f:{number}" for number in range(500)])
    counters.increase()
    during("failover", counters.increase)
    for _ in range(5):
        counters.increase()
    counters.verify()


def kill(client):
    values = {f"py:k:{number}": str(number) for number in range(2_000)}
    check("kill", event("kill"), "ok")

    def write():
        pipe = client.pipeline()
        for key, value in values.items():
            pipe.set(key, value)
        check("SET after a kill", pipe.execute(), [True] * len(values))

    until_done(write)
    for number in range(100):
        check("SET with the client's own retries", client.set(f"py:{number}", number), True)
    pipe = client.pipeline()
    for key in values:
        pipe.get(key)
    check("values after a kill", pipe.execute(), list(values.values()))


def main():
    for protocol in (2, 3):
        client = connect(protocol)
        check("FLUSHALL", set(client.flushall(target_nodes=RedisCluster.PRIMARIES).values()), {True})
        for part in (single_commands, pipelines, one_slot, scripts, subscriptions):
            part(client)
        client.close()
    the_pages_client()
    replicas(3)
    announced_reshard()
    # Without announcements, the client follows redirects.
    client = connect(3, maint_notifications_config=MaintNotificationsConfig(enabled=False))
    for part in (reshard, failover, kill):
        part(client)
    for number in range(KEYS):
        check("GET at the end", client.get(f"py:{number}"), str(number))
    client.close()
    print(f"{checks} checks")


main()
