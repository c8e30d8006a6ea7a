// node-redis's client-side cache, unmodified: of one connection and of a pool.
"use strict";

const { createClient, createClientPool } = require("redis");
const { check, run } = require("./checks.js");

const URL = process.env.PENSTOCK_URL;
// Nothing here takes long; a reply that never comes would be waited for for ever.
const PATIENCE_MS = 60_000;
// An invalidation comes within a millisecond, and later on a busy machine.
const PATIENCE_OF_CHANGES_MS = 10_000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Checks that `read()` soon is `expected`.
async function becomes(what, expected, read) {
  const deadline = Date.now() + PATIENCE_OF_CHANGES_MS;
  while (JSON.stringify(await read()) !== JSON.stringify(expected) && Date.now() < deadline) {
    await sleep(1);
  }
  check(what, await read(), expected);
}

// How many GETs the server has run for `use()`.
async function reads(other, use) {
  const counted = async () => Number(/cmdstat_get:calls=(\d+)/.exec(await other.info("commandstats"))?.[1] ?? 0);
  const before = await counted();
  await use();
  return (await counted()) - before;
}

const cacheOptions = { ttl: 0, maxEntries: 1000, evictPolicy: "LRU" };

async function changes(cache, other, what) {
  await other.set("k", "1");
  check(`${what}: the first read`, await reads(other, () => cache.get("k")), 1);
  const again = async () => {
    for (let n = 0; n < 10; n++) check("k", await cache.get("k"), "1");
  };
  check(`${what}: ten more`, await reads(other, again), 0);
  await other.set("k", "2");
  await becomes(`${what}: changed by another connection`, "2", () => cache.get("k"));
  await cache.set("k", "3");
  await becomes(`${what}: changed by itself`, "3", () => cache.get("k"));
  await other.multi().set("k", "4").set("j", "5").exec();
  await becomes(`${what}: changed in a transaction`, ["4", "5"], async () => [await cache.get("k"), await cache.get("j")]);
  await other.set("k", "6", { PX: 30 });
  await becomes(`${what}: with a time`, "6", () => cache.get("k"));
  await becomes(`${what}: expired`, null, () => cache.get("k"));
  await other.set("k", "7");
  await becomes(`${what}: again`, "7", () => cache.get("k"));
  await other.flushAll();
  await becomes(`${what}: flushed`, null, () => cache.get("k"));
}

async function nothingOutdatedStays(other) {
  const caches = await Promise.all(
    [0, 1, 2].map(() => createClient({ url: URL, RESP: 3, clientSideCache: cacheOptions }).connect()),
  );
  const keys = Array.from({ length: 20 }, (_, n) => `key:${n}`);
  const any = (n) => keys[(n * 7919) % keys.length];
  let isOver = false;
  const reading = caches.map(async (cache) => {
    for (let n = 0; !isOver; n++) {
      await Promise.all([cache.get(any(n)), cache.get(any(n + 1)), cache.get(any(n + 2))]);
      await sleep(0);
    }
  });
  for (let n = 0; n < 1000; n++) {
    await Promise.all([other.set(any(n), `${n}`), other.set(any(n * 3 + 1), `${n}`)]);
  }
  isOver = true;
  await Promise.all(reading);
  await sleep(100);
  const present = await other.mGet(keys);
  for (const [number, cache] of caches.entries()) {
    check(`cache ${number}`, await Promise.all(keys.map((key) => cache.get(key))), present);
    cache.destroy();
  }
}

async function main() {
  const other = await createClient({ url: URL }).connect();
  await other.flushAll();
  const cache = await createClient({ url: URL, RESP: 3, clientSideCache: cacheOptions }).connect();
  await changes(cache, other, "a connection");
  cache.destroy();
  const { BasicPooledClientSideCache } = require("redis");
  const pooled = new BasicPooledClientSideCache(cacheOptions);
  const pool = await createClientPool({ url: URL, RESP: 3 }, { clientSideCache: pooled, minimum: 2, maximum: 4 }).connect();
  await changes(pool, other, "a pool");
  pool.destroy();
  await nothingOutdatedStays(other);
  other.destroy();
}

run(main, PATIENCE_MS);
