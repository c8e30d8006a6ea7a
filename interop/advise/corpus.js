"use strict";
// The JavaScript applications of the advisor's corpus: `corpus.js NAME` runs one of them. See corpus.py for its environment, and
// corpus.tsv for what each does right or wrong. Packages are those of ../node.

const { createRequire } = require("node:module");
const path = require("node:path");
const load = createRequire(path.join(__dirname, "../node/package.json"));

const Redis = load("ioredis");
const URL_ = process.env.PENSTOCK_URL;
const ROUNDS = Number(process.env.ROUNDS ?? 100);
const THINK_MS = 20;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const numbers = Array.from({ length: ROUNDS }, (_, n) => n);
const connection = () => ({ host: "127.0.0.1", port: Number(new URL(URL_).port), maxRetriesPerRequest: null });

async function fill(command) {
  const direct = new Redis(process.env.DIRECT_URL);
  await direct.pipeline(numbers.map(command)).exec();
  direct.disconnect();
}

async function nodeRedis() {
  const client = load("redis").createClient({ url: URL_ });
  await client.connect();
  return client;
}

const applications = {
  async "ioredis-get-loop"() {
    await fill((n) => ["set", `user:${n}:mail`, `mail ${n}`]);
    const redis = new Redis(URL_);
    for (const n of numbers) await redis.get(`user:${n}:mail`);
    redis.disconnect();
  },

  async "ioredis-get-loop-rewritten"() {
    await fill((n) => ["set", `user:${n}:mail`, `mail ${n}`]);
    const redis = new Redis(URL_);
    await redis.mget(numbers.map((n) => `user:${n}:mail`));
    redis.disconnect();
  },

  async "ioredis-auto-pipelining"() {
    await fill((n) => ["set", `user:${n}:mail`, `mail ${n}`]);
    const redis = new Redis(URL_, { enableAutoPipelining: true });
    await redis.ping();
    for (let round = 0; round < 10; round++) await Promise.all(numbers.map((n) => redis.get(`user:${n}:mail`)));
    redis.disconnect();
  },

  async "node-redis-promise-all"() {
    await fill((n) => ["hset", `user:${n}`, "mail", `mail ${n}`]);
    const client = await nodeRedis();
    for (let round = 0; round < 10; round++) await Promise.all(numbers.map((n) => client.hGet(`user:${n}`, "mail")));
    client.destroy();
  },

  async "node-redis-hset-loop"() {
    const client = await nodeRedis();
    for (const n of numbers) await client.hSet("prices", `article ${n}`, String(n));
    client.destroy();
  },

  async "node-redis-hset-loop-rewritten"() {
    const client = await nodeRedis();
    await client.hSet("prices", Object.fromEntries(numbers.map((n) => [`article ${n}`, String(n)])));
    client.destroy();
  },

  // A web server with sessions: each request reads its session and touches it.
  async "connect-redis-requests"() {
    const client = await nodeRedis();
    const { RedisStore } = load("connect-redis");
    const store = new RedisStore({ client });
    const session = (n) => ({ cookie: { maxAge: 60_000 }, user: n });
    for (let n = 0; n < 40; n++) {
      await store.set(`visitor${n}`, session(n));
      await sleep(THINK_MS);
      const found = await store.get(`visitor${n}`);
      await store.touch(`visitor${n}`, found);
      await sleep(THINK_MS);
    }
    client.destroy();
  },

  async "connect-redis-destroy-loop"() {
    const client = await nodeRedis();
    const { RedisStore } = load("connect-redis");
    const store = new RedisStore({ client });
    for (const n of numbers) await store.destroy(`visitor${n}`);
    client.destroy();
  },

  async "redlock"() {
    const redis = new Redis(URL_);
    const Redlock = load("redlock");
    const locks = new Redlock([redis]);
    for (const n of numbers) {
      const lock = await locks.lock(`lock:account:${n % 10}`, 2000);
      await sleep(THINK_MS);
      await lock.unlock();
    }
    redis.disconnect();
  },

  async "rate-limiter-flexible"() {
    const { RateLimiterRedis } = load("rate-limiter-flexible");
    const redis = new Redis(URL_);
    const limiter = new RateLimiterRedis({ storeClient: redis, points: 1000, duration: 60, keyPrefix: "limit" });
    for (let n = 0; n < 60; n++) {
      await limiter.consume(`address ${n % 5}`);
      await sleep(THINK_MS);
    }
    redis.disconnect();
  },

  async "bullmq-add-loop"() {
    const { Queue } = load("bullmq");
    const queue = new Queue("letters", { connection: connection() });
    await queue.waitUntilReady();
    for (const n of numbers) await queue.add("letter", { n });
    await queue.close();
  },

  async "bullmq-add-loop-rewritten"() {
    const { Queue } = load("bullmq");
    const queue = new Queue("letters", { connection: connection() });
    await queue.waitUntilReady();
    await queue.addBulk(numbers.map((n) => ({ name: "letter", data: { n } })));
    await queue.close();
  },

  async "bullmq-worker"() {
    const { Queue, Worker } = load("bullmq");
    const port = Number(new URL(process.env.DIRECT_URL).port);
    const direct = { ...connection(), port, connectionName: "setup" };
    const queue = new Queue("letters", { connection: direct });
    await queue.addBulk(numbers.slice(0, 40).map((n) => ({ name: "letter", data: { n } })));
    let done = 0;
    const worker = new Worker("letters", async () => sleep(THINK_MS), { connection: connection() });
    worker.on("completed", () => done++);
    while (done < 40) await sleep(10);
    await worker.close();
    await queue.close();
  },

  async "ioredis-hgetall-loop"() {
    await fill((n) => ["hset", `user:${n}`, "mail", `mail ${n}`]);
    const redis = new Redis(URL_);
    for (const n of numbers) await redis.hgetall(`user:${n}`);
    redis.disconnect();
  },

  async "ioredis-set-loop"() {
    const redis = new Redis(URL_);
    for (const n of numbers) await redis.set(`page:${n}`, `text ${n}`);
    redis.disconnect();
  },

  async "ioredis-transaction-per-row"() {
    const redis = new Redis(URL_);
    for (const n of numbers) await redis.multi().hset(`row:${n}`, "value", n).sadd("rows", n).exec();
    redis.disconnect();
  },

  async "ioredis-promise-all"() {
    await fill((n) => ["set", `user:${n}:mail`, `mail ${n}`]);
    const redis = new Redis(URL_);
    for (let round = 0; round < 10; round++) await Promise.all(numbers.map((n) => redis.get(`user:${n}:mail`)));
    redis.disconnect();
  },

  async "ioredis-web-requests"() {
    await fill((n) => ["set", `user:${n}:mail`, `mail ${n}`]);
    const redis = new Redis(URL_);
    for (let n = 0; n < 200; n++) {
      await redis.get(`user:${(n * 7919) % 97}:mail`);
      await sleep(5);
    }
    redis.disconnect();
  },

  async "ioredis-json-chain"() {
    const id = (n) => (n * 7919) % 100_003;
    await fill((n) => ["set", `page:${id(n)}`, JSON.stringify({ next: id(n + 1) })]);
    const redis = new Redis(URL_);
    let page = 0;
    for (let n = 0; n < ROUNDS; n++) page = JSON.parse(await redis.get(`page:${page}`)).next;
    redis.disconnect();
  },

  async "node-redis-get-loop"() {
    await fill((n) => ["set", `user:${n}:mail`, `mail ${n}`]);
    const client = await nodeRedis();
    for (const n of numbers) await client.get(`user:${n}:mail`);
    client.destroy();
  },

  async "node-redis-incr-loop"() {
    const client = await nodeRedis();
    for (let n = 0; n < ROUNDS; n++) await client.incr("clicks");
    client.destroy();
  },

  async "node-redis-multi-of-hundreds"() {
    const client = await nodeRedis();
    for (let round = 0; round < 10; round++) {
      const multi = client.multi();
      for (const n of numbers) multi.set(`bulk:${round}:${n}`, String(n));
      await multi.exec();
    }
    client.destroy();
  },

  async "node-redis-web-requests"() {
    await fill((n) => ["hset", `user:${n}`, "mail", `mail ${n}`]);
    const client = await nodeRedis();
    for (let n = 0; n < 200; n++) {
      await client.hGetAll(`user:${(n * 7919) % 97}`);
      await sleep(5);
    }
    client.destroy();
  },

  async "bullmq-get-job-loop"() {
    const { Queue } = load("bullmq");
    const port = Number(new URL(process.env.DIRECT_URL).port);
    const direct = new Queue("letters", { connection: { ...connection(), port, connectionName: "setup" } });
    await direct.addBulk(numbers.map((n) => ({ name: "letter", data: { n } })));
    const queue = new Queue("letters", { connection: connection() });
    await queue.waitUntilReady();
    for (const n of numbers) await queue.getJob(String(n + 1));
    await queue.close();
    await direct.close();
  },

  // Each basket is asked for before it is removed.
  async "node-redis-exists-then-del"() {
    await fill((n) => ["set", `basket:${n}`, "x"]);
    const client = await nodeRedis();
    for (const n of numbers) if (await client.exists(`basket:${n}`)) await client.del(`basket:${n}`);
    client.destroy();
  },

  // A generator asks for one article's tags after the other.
  async "ioredis-async-generator"() {
    await fill((n) => ["sadd", `tags:${n}`, `tag ${n}`, `tag ${n + 1}`]);
    const redis = new Redis(URL_);
    async function* articles() {
      for (const n of numbers) yield redis.smembers(`tags:${n}`);
    }
    let tags = 0;
    for await (const found of articles()) tags += found.length;
    redis.disconnect();
  },

  // A reader of a stream that takes up to ten entries at a time, and waits for them.
  async "node-redis-stream-reader"() {
    await fill((n) => ["xadd", "readings", `${n + 1}-1`, "value", n]);
    const client = await nodeRedis();
    let id = "0";
    for (let read = 0; read < ROUNDS; ) {
      const [{ messages }] = await client.xRead({ key: "readings", id }, { COUNT: 10, BLOCK: 1000 });
      read += messages.length;
      id = messages.at(-1).id;
    }
    client.destroy();
  },

  // Friends of a user, one by one: EXISTS of all keys would answer only their number.
  async "ioredis-online-friends"() {
    await fill((n) => ["set", `online:${n * 3}`, "1"]);
    const redis = new Redis(URL_);
    const online = [];
    for (const n of numbers) if (await redis.exists(`online:${n}`)) online.push(n);
    redis.disconnect();
  },

  // A session is read for each request, and its life is lengthened when the request is done.
  async "node-redis-session-touch"() {
    await fill((n) => ["set", `sess:${n * 7919}`, JSON.stringify({ uid: n })]);
    const client = await nodeRedis();
    for (let n = 0; n < 80; n++) {
      const session = `sess:${((n * 31) % ROUNDS) * 7919}`;
      await client.get(session);
      await sleep(5 + ((n * 7919) % 15));
      await client.expire(session, 600);
      await sleep(3 + ((n * 7919) % 11));
    }
    client.destroy();
  },

  // The number of a comment's parent stands in the comment.
  async "node-redis-comment-ancestors"() {
    const name = (n) => (n * 7919 + 40_000).toString(16);
    await fill((n) => ["set", `comment:${name(n)}`, JSON.stringify({ text: `text ${n}`, parent: n ? name(n - 1) : null })]);
    const client = await nodeRedis();
    for (let at = name(ROUNDS - 1); at; ) at = JSON.parse(await client.get(`comment:${at}`)).parent;
    client.destroy();
  },
};

const began = performance.now();
applications[process.argv[2]]().then(
  () => {
    console.log(`${((performance.now() - began) / 1000).toFixed(6)} s`);
    process.exit(0);
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
