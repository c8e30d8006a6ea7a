#!/usr/bin/env python3
"""The Python applications of the advisor's corpus: `corpus.py NAME` runs one of them.

PENSTOCK_URL is where the application connects, through the advisor's proxy; DIRECT_URL is the server itself, for what has to be
there before. ROUNDS is how often a loop goes round. It prints how long it took. What each application does right or wrong stands in corpus.tsv.
"""

import contextlib
import hashlib
import heapq
import json
import os
import random
import sys
import threading
import time
import uuid

import redis

URL = os.environ["PENSTOCK_URL"]
# What is prepared is no part of the application: it is told by this name.
DIRECT = redis.Redis.from_url(os.environ["DIRECT_URL"], client_name="setup")
HOST, PORT = URL.removeprefix("redis://").split(":")
ROUNDS = int(os.environ.get("ROUNDS", "100"))
# Longer than four round trips of the corpus's network: a user's next click, or other work.
THINK_S = 0.02


def client(**options):
    return redis.Redis.from_url(URL, decode_responses=True, **options)


def fill(command, count=ROUNDS):
    """Commands that the server has run before, by a function of a number."""
    pipe = DIRECT.pipeline(transaction=False)
    for number in range(count):
        pipe.execute_command(*command(number))
    pipe.execute()


# --- redis-py alone ---------------------------------------------------------------------------------------------------


def py_get_loop():
    fill(lambda n: ("SET", f"user:{n}:name", f"name {n}"))
    r = client()
    return [r.get(f"user:{n}:name") for n in range(ROUNDS)]


def py_get_loop_rewritten():
    fill(lambda n: ("SET", f"user:{n}:name", f"name {n}"))
    r = client()
    return r.mget([f"user:{n}:name" for n in range(ROUNDS)])


def py_set_loop():
    r = client()
    for n in range(ROUNDS):
        r.set(f"score:{n}", n * 7)


def py_set_loop_rewritten():
    client().mset({f"score:{n}": n * 7 for n in range(ROUNDS)})


def py_set_with_expiry_loop():
    r = client()
    for n in range(ROUNDS):
        r.set(f"token:{n}", f"value {n}", ex=3600)


def py_set_with_expiry_loop_rewritten():
    with client().pipeline(transaction=False) as pipe:
        for n in range(ROUNDS):
            pipe.set(f"token:{n}", f"value {n}", ex=3600)
        pipe.execute()


def py_sadd_loop():
    r = client()
    for n in range(ROUNDS):
        r.sadd("visitors", f"visitor {n}")


def py_sadd_loop_rewritten():
    client().sadd("visitors", *[f"visitor {n}" for n in range(ROUNDS)])


def py_incr_loop():
    r = client()
    for _ in range(ROUNDS):
        r.incr("clicks")


def py_incr_loop_rewritten():
    client().incrby("clicks", ROUNDS)


def py_n_plus_one():
    fill(lambda n: ("HSET", f"order:{n}", "total", n, "customer", n % 7))
    DIRECT.rpush("orders", *range(ROUNDS))
    r = client()
    return [r.hgetall(f"order:{order}") for order in r.lrange("orders", 0, -1)]


def py_n_plus_one_rewritten():
    fill(lambda n: ("HSET", f"order:{n}", "total", n, "customer", n % 7))
    DIRECT.rpush("orders", *range(ROUNDS))
    r = client()
    with r.pipeline(transaction=False) as pipe:
        for order in r.lrange("orders", 0, -1):
            pipe.hgetall(f"order:{order}")
        return pipe.execute()


def py_interleaved():
    r = client()
    for n in range(ROUNDS):
        r.hset(f"item:{n}", "price", n)
        r.zadd("items", {f"item {n}": n})


def py_interleaved_rewritten():
    with client().pipeline(transaction=False) as pipe:
        for n in range(ROUNDS):
            pipe.hset(f"item:{n}", "price", n)
            pipe.zadd("items", {f"item {n}": n})
        pipe.execute()


def py_counter_by_hand():
    DIRECT.set("stock", 5000)
    r = client()
    for _ in range(ROUNDS):
        r.set("stock", int(r.get("stock")) + 1)


def py_counter_by_hand_rewritten():
    DIRECT.set("stock", 5000)
    r = client()
    for _ in range(ROUNDS):
        r.incrby("stock", 1)


def py_take_and_delete():
    fill(lambda n: ("SET", f"job:{n}", f"payload {n}"))
    r = client()
    for n in range(ROUNDS):
        if r.get(f"job:{n}"):
            r.delete(f"job:{n}")


def py_flag_for_each_item():
    DIRECT.set("flag:new-checkout", "enabled")
    r = client()
    for n in range(ROUNDS):
        if r.get("flag:new-checkout") == "enabled":
            r.rpush(f"checkout:{n}", "item")


def py_flag_for_each_item_rewritten():
    DIRECT.set("flag:new-checkout", "enabled")
    r = client()
    is_new = r.get("flag:new-checkout") == "enabled"
    with r.pipeline(transaction=False) as pipe:
        for n in range(ROUNDS):
            if is_new:
                pipe.rpush(f"checkout:{n}", "item")
        pipe.execute()


def py_polled_queue():
    r = client()
    for n in range(ROUNDS):
        if n % 25 == 0:
            DIRECT.lpush("mail", f"letter {n}")
        r.rpop("mail")
        time.sleep(THINK_S)


def py_connection_per_request():
    fill(lambda n: ("SET", f"page:{n}", f"text {n}"))
    for n in range(ROUNDS):
        r = client()
        r.get(f"page:{n}")
        r.close()


def py_transaction_in_slices():
    r = client(single_connection_client=True)
    for n in range(ROUNDS):
        r.execute_command("MULTI")
        r.execute_command("INCRBY", f"account:{n}", 10)
        r.execute_command("DECRBY", "account:bank", 10)
        r.execute_command("EXEC")


def py_transaction_in_slices_rewritten():
    r = client()
    for n in range(ROUNDS):
        with r.pipeline(transaction=True) as pipe:
            pipe.incrby(f"account:{n}", 10)
            pipe.decrby("account:bank", 10)
            pipe.execute()


def py_script_in_full():
    r = client()
    text = "return redis.call('INCRBY', KEYS[1], ARGV[1]) -- " + "a script as long as scripts are " * 10
    for n in range(ROUNDS):
        r.eval(text, 1, f"meter:{n}", 5)
        time.sleep(THINK_S)


def py_keys():
    fill(lambda n: ("SET", f"user:{n}:mail", "x"), 1000)
    r = client()
    for _ in range(8):
        r.keys("user:*:mail")
        time.sleep(THINK_S)


def py_members_of_a_large_set():
    DIRECT.sadd("followers", *[f"follower number {n}" for n in range(20_000)])
    r = client()
    for _ in range(8):
        r.smembers("followers")
        time.sleep(THINK_S)


def py_pipeline_of_hundreds():
    r = client()
    for chunk in range(20):
        with r.pipeline(transaction=False) as pipe:
            for n in range(200):
                pipe.set(f"bulk:{chunk}:{n}", n)
            pipe.execute()


def py_linked_list():
    fill(lambda n: ("SET", f"node:{n * 7919 % 100_003}", (n + 1) * 7919 % 100_003))
    r, node = client(), 0
    for _ in range(ROUNDS):
        node = r.get(f"node:{node}")


def py_scan():
    fill(lambda n: ("SET", f"cart:{n}", n), 2000)
    assert len(set(client().scan_iter(match="cart:*", count=50))) == 2000


def py_hscan():
    fill(lambda n: ("HSET", "catalogue", f"article {n}", n), 3000)
    assert len(dict(client().hscan_iter("catalogue", count=50))) == 3000


def py_cache_aside():
    r = client()
    for n in range(60):
        key = f"report:{n % 30}"
        if r.get(key) is None:
            time.sleep(THINK_S)
            r.set(key, f"result {n}", ex=60)
        time.sleep(THINK_S)


def py_optimistic_lock():
    DIRECT.set("balance", 1000)
    r = client()

    def spend(pipe):
        balance = int(pipe.get("balance"))
        pipe.multi()
        pipe.set("balance", balance - 7)

    for _ in range(30):
        r.transaction(spend, "balance")
        time.sleep(THINK_S)


def py_optimistic_counter():
    DIRECT.set("tickets", 5000)
    r = client()

    def take(pipe):
        number = int(pipe.get("tickets"))
        pipe.multi()
        pipe.set("tickets", number + 1)

    for _ in range(60):
        r.transaction(take, "tickets")


def py_shortest_way():
    """A search through a graph: the nearest node comes next, and each reply has the ways from it."""
    nodes = 400
    pipe = DIRECT.pipeline(transaction=False)
    for node in range(nodes):
        pipe.hset(f"node:{node}", mapping={(node * turn * 7 + turn * 131 + 1) % nodes: 1 + (node * 31 + turn * 17) % 97 for turn in (1, 2, 3)})
    pipe.execute()
    r, known, near = client(), set(), [(0, 0)]
    while near and len(known) < 150:
        way, node = heapq.heappop(near)
        if node not in known:
            known.add(node)
            for other, length in r.hgetall(f"node:{node}").items():
                heapq.heappush(near, (way + int(length), int(other)))


def py_blocking_worker():
    r = client()

    def produce():
        for n in range(60):
            DIRECT.lpush("work", f"task {n}")
            time.sleep(0.004)

    producer = threading.Thread(target=produce)
    producer.start()
    for _ in range(60):
        assert r.brpop("work", timeout=5)
    producer.join()


def py_stream_consumer():
    r = client()
    r.xgroup_create("events", "readers", id="0", mkstream=True)
    fill(lambda n: ("XADD", "events", "*", "n", n), 400)
    while True:
        batch = r.xreadgroup("readers", "one", {"events": ">"}, count=20, block=10)
        if not batch:
            return
        time.sleep(THINK_S / 4)
        r.xack("events", "readers", *[entry for entry, _ in batch[0][1]])


def py_subscriber():
    subscription = client().pubsub()
    subscription.subscribe("news")
    subscription.get_message(timeout=1)
    for n in range(ROUNDS):
        DIRECT.publish("news", f"item {n}")
        assert subscription.get_message(timeout=5)


def py_evalsha():
    r = client()
    script = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    for n in range(60):
        script(keys=[f"meter:{n}"], args=[5])
        time.sleep(THINK_S)


def py_leaderboard():
    r = client()
    for n in range(50):
        r.zadd("board", {f"player {n % 9}": n * 3})
        r.zrevrange("board", 0, 9, withscores=True)
        time.sleep(THINK_S)


def py_threads_share_a_loop():
    """Two connections of one pool, each with half of one loop."""
    fill(lambda n: ("SET", f"user:{n}:name", f"name {n}"))
    r = client()

    def half(first):
        for n in range(first, ROUNDS, 2):
            r.get(f"user:{n}:name")

    threads = [threading.Thread(target=half, args=(first,)) for first in (0, 1)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


# --- more of redis-py -------------------------------------------------------------------------------------------------


def py_lindex_loop():
    DIRECT.rpush("log", *[f"line {n}" for n in range(ROUNDS)])
    r = client()
    return [r.lindex("log", n) for n in range(ROUNDS)]


def py_lpos_loop():
    DIRECT.rpush("queue", *[f"job {n}" for n in range(ROUNDS)])
    r = client()
    return [r.lpos("queue", f"job {n}") for n in range(ROUNDS)]


def py_pages_of_ten():
    DIRECT.rpush("feed", *[f"post {n}" for n in range(ROUNDS * 10)])
    r = client()
    return [r.lrange("feed", start, start + 9) for start in range(0, ROUNDS * 10, 10)]


def stream(count=ROUNDS):
    DIRECT.xgroup_create("events", "readers", id="0", mkstream=True)
    return [DIRECT.xadd("events", {"n": n}) for n in range(count)]


def py_xack_loop():
    entries = stream()
    r = client()
    DIRECT.xreadgroup("readers", "one", {"events": ">"}, count=ROUNDS)
    for entry in entries:
        r.xack("events", "readers", entry)


def py_xdel_loop():
    entries = stream()
    r = client()
    for entry in entries:
        r.xdel("events", entry)


def py_xreadgroup_one_by_one():
    stream()
    r = client()
    for _ in range(ROUNDS):
        [[_, [[entry, _]]]] = r.xreadgroup("readers", "one", {"events": ">"}, count=1)
        r.xack("events", "readers", entry)


def py_xreadgroup_by_twenty():
    stream()
    r = client()
    while batch := r.xreadgroup("readers", "one", {"events": ">"}, count=20):
        r.xack("events", "readers", *[entry for entry, _ in batch[0][1]])


def py_geoadd_loop():
    r = client()
    for n in range(ROUNDS):
        r.geoadd("shops", [n % 80, n % 70, f"shop {n}"])


def py_geopos_loop():
    DIRECT.geoadd("shops", [part for n in range(ROUNDS) for part in (n % 80, n % 70, f"shop {n}")])
    r = client()
    return [r.geopos("shops", f"shop {n}") for n in range(ROUNDS)]


def py_touch_loop():
    fill(lambda n: ("SET", f"page:{n}", n))
    r = client()
    for n in range(ROUNDS):
        r.touch(f"page:{n}")


def py_pfadd_loop():
    r = client()
    for n in range(ROUNDS):
        r.pfadd("visitors", f"visitor {n}")


def py_publish_loop():
    r = client()
    for n in range(ROUNDS):
        r.publish("news", f"item {n}")


def py_rpush_loop():
    r = client()
    for n in range(ROUNDS):
        r.rpush("jobs", f"job {n}")


def py_drained_queue():
    DIRECT.rpush("jobs", *[f"job {n}" for n in range(ROUNDS)])
    r = client()
    while r.lpop("jobs"):
        pass


def py_hget_fields_of_one_hash():
    DIRECT.hset("settings", mapping={f"field {n}": n for n in range(ROUNDS)})
    r = client()
    return [r.hget("settings", f"field {n}") for n in range(ROUNDS)]


def py_sismember_loop():
    DIRECT.sadd("banned", *[f"user {n}" for n in range(0, ROUNDS, 3)])
    r = client()
    return [r.sismember("banned", f"user {n}") for n in range(ROUNDS)]


def py_scores_of_one_board():
    DIRECT.zadd("board", {f"player {n}": n * 3 for n in range(ROUNDS)})
    r = client()
    return [r.zscore("board", f"player {n}") for n in range(ROUNDS)]


def py_expire_loop():
    fill(lambda n: ("SET", f"page:{n}", n))
    r = client()
    for n in range(ROUNDS):
        r.expire(f"page:{n}", 60)


def py_members_then_hashes():
    """The ids come from a set, without an order."""
    fill(lambda n: ("HSET", f"user:{n * 7919 % 100_003}", "name", f"name {n}"))
    DIRECT.sadd("users", *[n * 7919 % 100_003 for n in range(ROUNDS)])
    r = client()
    return [r.hgetall(f"user:{user}") for user in r.smembers("users")]


def py_json_document_changed():
    fill(lambda n: ("SET", f"doc:{n}", json.dumps({"id": n, "views": n * 31, "title": f"title {n}"})))
    r = client()
    for n in range(ROUNDS):
        document = json.loads(r.get(f"doc:{n}"))
        document["views"] += 1
        r.set(f"doc:{n}", json.dumps(document))


def py_two_reads_for_each():
    fill(lambda n: ("SET", f"price:{n}", n * 5))
    fill(lambda n: ("HSET", f"stock:{n}", "berlin", n))
    r = client()
    return [(r.get(f"price:{n}"), r.hget(f"stock:{n}", "berlin")) for n in range(ROUNDS)]


def py_new_ids():
    """Each hash has the id that INCR gave."""
    DIRECT.set("next-id", 50_000)
    r = client()
    for n in range(ROUNDS):
        r.hset(f"order:{r.incr('next-id')}", "total", n)


def py_ping_before_each():
    fill(lambda n: ("SET", f"user:{n}:mail", f"mail {n}"))
    r = client()
    for n in range(ROUNDS):
        r.ping()
        r.get(f"user:{n}:mail")


def py_evalsha_for_each():
    r = client()
    script = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    for n in range(ROUNDS):
        script(keys=[f"meter:{n}"], args=[5])


def py_values_in_script():
    r = client()
    for n in range(ROUNDS):
        r.eval(f"return redis.call('INCRBY', KEYS[1], {n * 17})", 1, f"meter:{n % 10}")
        time.sleep(THINK_S)


def py_polled_lock():
    DIRECT.set("lock:report", "another", px=int(THINK_S * 60_000))
    r = client()
    while not r.set("lock:report", "me", nx=True, px=10_000):
        time.sleep(THINK_S)


def py_queues_polled_in_turn():
    r = client()
    for _ in range(ROUNDS // 2):
        for queue in ("high", "middle", "low"):
            r.rpop(f"queue:{queue}")
        time.sleep(THINK_S)


def py_transaction_per_row():
    r = client()
    for n in range(ROUNDS):
        with r.pipeline(transaction=True) as pipe:
            pipe.hset(f"row:{n}", "value", n)
            pipe.sadd("rows", n)
            pipe.execute()


def py_pipeline_of_two_per_row():
    r = client()
    for n in range(ROUNDS):
        with r.pipeline(transaction=False) as pipe:
            pipe.hset(f"row:{n}", "value", n)
            pipe.sadd("rows", n)
            pipe.execute()


def py_pipeline_of_two_per_request():
    r = client()
    for n in range(ROUNDS):
        with r.pipeline(transaction=False) as pipe:
            pipe.incr(f"rate:{n % 7}")
            pipe.expire(f"rate:{n % 7}", 60)
            pipe.execute()
        time.sleep(0.005)


def py_web_worker_of_two_ms():
    """Each request of two milliseconds reads a user of its own."""
    fill(lambda n: ("SET", f"user:{n}", f"name {n}"), 1000)
    r, users = client(), random.Random(7)
    for _ in range(ROUNDS * 3):
        r.get(f"user:{users.randrange(1000)}")
        time.sleep(0.002)


def py_json_chain():
    fill(lambda n: ("SET", f"page:{n * 7919 % 100_003}", json.dumps({"next": (n + 1) * 7919 % 100_003})))
    r, page = client(), 0
    for _ in range(ROUNDS):
        page = json.loads(r.get(f"page:{page}"))["next"]


def py_tree_of_ids():
    """Each node names its two children, in JSON."""
    node = lambda n: n * 7919 % 100_003  # noqa: E731
    fill(lambda n: ("SET", f"tree:{node(n)}", json.dumps({"children": [node(2 * n + 1), node(2 * n + 2)]})), 200)
    r, todo = client(), [0]
    for _ in range(ROUNDS):
        todo += json.loads(r.get(f"tree:{todo.pop(0)}"))["children"]


def py_chain_of_hashes():
    digest = lambda n: hashlib.sha1(str(n).encode()).hexdigest()  # noqa: E731
    fill(lambda n: ("HSET", f"commit:{digest(n)}", "parent", digest(n + 1), "message", f"message {n}"))
    r, commit = client(), digest(0)
    for _ in range(ROUNDS):
        commit = r.hget(f"commit:{commit}", "parent")


def py_binary_search():
    DIRECT.rpush("sorted", *range(0, 4096 * 3, 3))
    r, wanted = client(), random.Random(3)
    for _ in range(10):
        low, high, value = 0, 4096, wanted.randrange(4096) * 3
        while low < high:
            middle = (low + high) // 2
            if int(r.lindex("sorted", middle)) < value:
                low = middle + 1
            else:
                high = middle
        time.sleep(THINK_S)


def py_multi_get_every_ten_ms():
    fill(lambda n: ("SET", f"user:{n}", f"name {n}"), 1000)
    r, users = client(), random.Random(7)
    for _ in range(ROUNDS):
        r.mget([f"user:{users.randrange(1000)}" for _ in range(8)])
        time.sleep(0.01)


def py_misses_of_requests():
    """Different keys, none of which exists."""
    r, tokens = client(), random.Random(5)
    for _ in range(ROUNDS):
        r.get(f"token:{tokens.getrandbits(64):016x}")
        time.sleep(0.004)


def py_page_by_last_score():
    DIRECT.zadd("feed", {f"post {n}": n * 7919 % 100_003 for n in range(ROUNDS * 10)})
    r, last = client(), "-inf"
    while page := r.zrange("feed", f"({last}", "+inf", byscore=True, offset=0, num=10, withscores=True):
        last = page[-1][1]


def py_pages_of_a_stream():
    stream(ROUNDS * 5)
    r, last = client(), "-"
    while page := r.xrange("events", f"({last}" if last != "-" else "-", "+", count=10):
        last = page[-1][0]


def py_four_web_threads():
    """Threads of a web server, with requests for random users."""
    fill(lambda n: ("SET", f"user:{n}", f"name {n}"), 1000)
    r = client()

    def serve(seed):
        users = random.Random(seed)
        for _ in range(ROUNDS):
            r.get(f"user:{users.randrange(1000)}")
            time.sleep(users.uniform(0.002, 0.006))

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def py_import_in_chunks():
    r = client()
    for chunk in range(10):
        r.mset({f"bulk:{chunk}:{n}": n for n in range(ROUNDS)})


def py_import_in_chunks_of_pipelines():
    r = client()
    for chunk in range(10):
        with r.pipeline(transaction=True) as pipe:
            for n in range(ROUNDS):
                pipe.hset(f"bulk:{chunk}:{n}", "n", n)
            pipe.execute()


def py_waits_for_several_queues():
    r = client()
    for n in range(40):
        DIRECT.lpush(f"queue:{n % 3}", f"job {n}")
        assert r.brpop(["queue:0", "queue:1", "queue:2"], timeout=5)
        time.sleep(THINK_S / 4)


def py_one_lock_for_each_job():
    r = client()
    for n in range(40):
        assert r.set(f"lock:{n}", "me", nx=True, px=10_000)
        time.sleep(THINK_S)
        r.delete(f"lock:{n}")


def py_sessions_by_uuid():
    fill(lambda n: ("HSET", f"session:{uuid.UUID(int=n * 31)}", "user", n))
    r = client()
    for n in range(ROUNDS):
        r.hgetall(f"session:{uuid.UUID(int=n * 31)}")
        time.sleep(0.005)


def py_leader_of_each_click():
    DIRECT.zadd("board", {f"player {n}": n for n in range(1000)})
    r, pages = client(), random.Random(2)
    for _ in range(ROUNDS):
        start = pages.randrange(90) * 10
        r.zrevrange("board", start, start + 9, withscores=True)
        time.sleep(0.005)


# --- Django -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def django():
    import django
    from django.conf import settings

    backend = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": URL}
    settings.configure(CACHES={"default": backend}, SESSION_ENGINE="django.contrib.sessions.backends.cache")
    django.setup()
    from django.core.cache import cache

    yield cache


def django_get_loop():
    with django() as cache:
        cache.set_many({f"article-{n}": f"text {n}" for n in range(ROUNDS)})
        for n in range(ROUNDS):
            cache.get(f"article-{n}")


def django_get_loop_rewritten():
    with django() as cache:
        cache.set_many({f"article-{n}": f"text {n}" for n in range(ROUNDS)})
        assert len(cache.get_many([f"article-{n}" for n in range(ROUNDS)])) == ROUNDS


def django_set_loop():
    with django() as cache:
        for n in range(ROUNDS):
            cache.set(f"article-{n}", f"text {n}", 300)


def django_many():
    with django() as cache:
        for chunk in range(10):
            articles = {f"article-{chunk}-{n}": f"text {n}" for n in range(20)}
            cache.set_many(articles)
            cache.get_many(list(articles))


def django_sessions():
    with django():
        from django.contrib.sessions.backends.cache import SessionStore

        for user in range(30):
            session = SessionStore()
            session["user"] = user
            session.save()
            time.sleep(THINK_S)
            again = SessionStore(session.session_key)
            assert again["user"] == user
            again["visits"] = 1
            again.save()
            time.sleep(THINK_S)


def django_session_saved_for_each_change():
    with django():
        from django.contrib.sessions.backends.cache import SessionStore

        session = SessionStore()
        session.create()
        for n in range(ROUNDS):
            session[f"item-{n}"] = n
            session.save()


# --- flask-limiter ----------------------------------------------------------------------------------------------------


def flask_limiter():
    from flask import Flask
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    app = Flask("corpus")
    Limiter(get_remote_address, app=app, storage_uri=URL, default_limits=["1000 per hour"])
    app.add_url_rule("/", "page", lambda: "page")
    web = app.test_client()
    for _ in range(40):
        assert web.get("/").status_code == 200
        time.sleep(THINK_S)


# --- RQ ---------------------------------------------------------------------------------------------------------------


def rq_enqueue_many():
    from rq import Queue

    queue = Queue(connection=redis.Redis.from_url(URL))
    jobs = [Queue.prepare_data(time.sleep, (0,)) for _ in range(ROUNDS)]
    queue.enqueue_many(jobs)


def rq_status_loop():
    from rq import Queue
    from rq.job import Job

    direct = Queue(connection=DIRECT)
    ids = [direct.enqueue(time.sleep, 0).id for _ in range(ROUNDS)]
    connection = redis.Redis.from_url(URL)
    for job_id in ids:
        Job.exists(job_id, connection=connection)


# --- Celery -----------------------------------------------------------------------------------------------------------


def celery_app():
    import celery

    app = celery.Celery("corpus", broker=URL, backend=URL)
    app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
    app.task(name="add")(lambda a, b: a + b)
    return app


def celery_delay_loop():
    app = celery_app()
    for n in range(ROUNDS):
        app.send_task("add", (n, 1), ignore_result=True)


def celery_polled_result():
    app = celery_app()
    result = app.AsyncResult("3e8d4b0e-9a3c-4d4e-8f16-1fb9dd1a3e2c")
    for _ in range(ROUNDS):
        result.ready()
        time.sleep(THINK_S)


def celery_results_one_by_one():
    app = celery_app()
    ids = [f"3e8d4b0e-9a3c-4d4e-8f16-{n:012x}" for n in range(ROUNDS)]
    done = b'{"status": "SUCCESS", "result": 3, "traceback": null, "children": [], "date_done": null, "task_id": "%s"}'
    fill(lambda n: ("SET", f"celery-task-meta-{ids[n]}", done % ids[n].encode()))
    return [app.AsyncResult(one).state for one in ids]


# --- times to live, and a limiter -------------------------------------------------------------------------------------


def py_sessions_prolonged():
    """Each session that soon ends is prolonged: its time to live is read, and set."""
    fill(lambda n: ("SET", f"session:{n}", f"user {n}", "EX", 900 + n))
    r = client()
    for n in range(ROUNDS):
        if r.ttl(f"session:{n}") < 3600:
            r.expire(f"session:{n}", 7200)


def py_sliding_window():
    """A limiter that keeps the times of a user's requests: one pipeline for each request."""
    r = client()
    for n in range(50):
        key, now = f"window:{n * 7919 % 13}", time.time()
        with r.pipeline() as pipe:
            pipe.zremrangebyscore(key, 0, now - 60)
            pipe.zadd(key, {f"request {n}": now})
            pipe.zcard(key)
            pipe.expire(key, 60)
            pipe.execute()
        time.sleep(THINK_S)


# --- leases, claims and searches --------------------------------------------------------------------------------------


def py_leader_heartbeat():
    """A leader that lengthens its own lease as long as it has it."""
    r = client()
    r.set("leader", "node-a1b2c3", nx=True, px=3000)
    for _ in range(50):
        if r.get("leader") == "node-a1b2c3":
            r.pexpire("leader", 3000)
        time.sleep(0.05)


def py_transfers():
    """Transfers between two accounts, each behind WATCH of both."""
    fill(lambda n: ("SET", f"account:{n}", 10_000 + n * 31))
    r, chance = client(), random.Random(4)
    for _ in range(50):
        source, target = (f"account:{n}" for n in chance.sample(range(ROUNDS), 2))
        with r.pipeline() as pipe:
            pipe.watch(source, target)
            first, second = map(int, pipe.mget(source, target))
            pipe.multi()
            pipe.set(source, first - 5)
            pipe.set(target, second + 5)
            pipe.execute()
        time.sleep(THINK_S)


def py_failed_jobs_again():
    """Each failed job goes back to the queue."""
    fill(lambda n: ("RPUSH", "jobs:failed", json.dumps({"id": n, "amount": n * 7919 % 1009})))
    r = client()
    while job := r.lpop("jobs:failed"):
        r.rpush("jobs:ready", job)


def py_uploads_without_end():
    """The time to live of each upload is read, and most of them get one."""
    chance = random.Random(5)
    for n in range(ROUNDS):
        DIRECT.set(f"upload:{n * 7919 % 10_007}", "x", ex=500 if chance.random() < 0.25 else None)
    r = client()
    for n in range(ROUNDS):
        if r.ttl(f"upload:{n * 7919 % 10_007}") == -1:
            r.expire(f"upload:{n * 7919 % 10_007}", 3600)


APPLICATIONS = {name.replace("_", "-"): run for name, run in list(globals().items()) if callable(run)}

if __name__ == "__main__":
    began = time.perf_counter()
    APPLICATIONS[sys.argv[1]]()
    print(f"{time.perf_counter() - began:.6f} s")
