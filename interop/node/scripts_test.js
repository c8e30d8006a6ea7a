// Libraries whose work is scripts, unmodified: ioredis's own commands by script, locks by redlock, and the rate limiters
// of rate-limiter-flexible.
"use strict";

const { Redis } = require("ioredis");
const Redlock = require("redlock");
const { RateLimiterRedis, BurstyRateLimiter } = require("rate-limiter-flexible");
const { check, fail, run } = require("./checks.js");

// Nothing here takes long; a script that waits for a reply would wait for ever.
const PATIENCE_MS = 60_000;

async function commands(redis) {
  redis.defineCommand("addTo", {
    numberOfKeys: 1,
    lua: "local n = tonumber(redis.call('GET', KEYS[1]) or 0) + ARGV[1] redis.call('SET', KEYS[1], n) return n",
  });
  check("a script's command", await redis.addTo("sum", 5), 5);
  check("again, by its digest", await redis.addTo("sum", 6), 11);
  const replies = await redis.pipeline().addTo("sum", 1).get("sum").addTo("sum", 2).exec();
  check("in a pipeline", replies, [[null, 12], [null, "12"], [null, 14]]);
  await redis.script("FLUSH");
  check("after SCRIPT FLUSH", await redis.addTo("sum", 1), 15);
  check("in a transaction", await redis.multi().addTo("sum", 1).exec(), [[null, 16]]);
  const sha = await redis.script("LOAD", "return {KEYS[1], ARGV[1], 7}");
  check("loaded", await redis.script("EXISTS", sha, "0".repeat(40)), [1, 0]);
  check("by digest", await redis.evalsha(sha, 1, "key", "arg"), ["key", "arg", 7]);
}

async function locks(redis) {
  const redlock = new Redlock([redis], { retryCount: 0 });
  const lock = await redlock.lock("lock", 10_000);
  check("a lock that is held", await redlock.lock("lock", 100).catch((error) => error.name), "LockError");
  const longer = await lock.extend(20_000);
  check("a lock that was extended", (await redis.pttl("lock")) > 10_000, true);
  await longer.unlock();
  check("a lock that was given back", await redis.exists("lock"), 0);
  check("a lock twice given back", await longer.unlock().catch((error) => error.name), "LockError");
}

async function limiters(storeClient) {
  const limiter = new RateLimiterRedis({ storeClient, points: 3, duration: 60, blockDuration: 90 });
  for (const left of [2, 1, 0]) check("points left", (await limiter.consume("user")).remainingPoints, left);
  check("none left", (await limiter.consume("user").catch((refusal) => refusal)).remainingPoints, 0);
  check("blocked", (await limiter.get("user")).msBeforeNext > 60_000, true);
  check("freed", await limiter.delete("user"), true);
  const bursty = new BurstyRateLimiter(
    new RateLimiterRedis({ storeClient, keyPrefix: "steady", points: 1, duration: 60 }),
    new RateLimiterRedis({ storeClient, keyPrefix: "burst", points: 2, duration: 60 }),
  );
  const answers = [];
  for (let i = 0; i < 4; i += 1) answers.push(await bursty.consume("user").then(() => true, () => false));
  check("a burst", answers, [true, true, true, false]);
}

async function main() {
  const redis = new Redis({ port: Number(process.env.PENSTOCK_PORT), retryStrategy: () => null });
  redis.on("error", (error) => fail(`a connection broke: ${error.stack}`));
  for (const part of [commands, locks, limiters]) await part(redis);
  redis.disconnect();
}

run(main, PATIENCE_MS);
