// ioredis's Cluster, unmodified, through a reshard, a failover and the death of a primary. See ../cluster.py.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { Cluster } = require("ioredis");
const { check, run } = require("./checks.js");
const { DEPTH, PORTS, becomes, changes, numbers, pagesClient } = require("./cluster_events.js");

const KEYS = 200;
const PATIENCE_MS = 120_000;

const connect = (options) => new Cluster(PORTS.slice(0, 2).map((port) => ({ host: "127.0.0.1", port })), options);

async function singleCommands(client) {
  for (const number of numbers(KEYS)) check("SET", await client.set(`io:${number}`, number), "OK");
  for (const number of numbers(KEYS)) check("GET", await client.get(`io:${number}`), String(number));
  const sizes = await Promise.all(client.nodes("master").map((node) => node.dbsize()));
  check("keys of all nodes", sizes.reduce((sum, size) => sum + size), KEYS);
}

// Commands over all slots are written without waiting for replies; with auto-pipelining, as one pipeline for each node.
async function pipelines(client) {
  const calls = (number) => [client.set(`io:p:${number}`, number), client.incr(`io:p:${number}`), client.get(`io:p:${number}`)];
  const replies = await Promise.all(numbers(DEPTH).flatMap(calls));
  check("replies in order", replies, numbers(DEPTH).flatMap((number) => ["OK", number + 1, String(number + 1)]));
  const mixed = numbers(DEPTH).map((number) => (number % 100 ? client.get(`io:p:${number}`) : client.lpush(`io:p:${number}`, 1)));
  const outcomes = await Promise.allSettled(mixed);
  const shown = outcomes.map((outcome) => outcome.value ?? outcome.reason.message.split(" ")[0]);
  check("errors in their place", shown, numbers(DEPTH).map((number) => (number % 100 ? String(number + 1) : "WRONGTYPE")));
}

async function oneSlot(client) {
  const pipe = client.pipeline();
  for (const number of numbers(DEPTH)) pipe.set(`{io}${number}`, number).get(`{io}${number}`);
  const expected = numbers(DEPTH).flatMap((number) => [[null, "OK"], [null, String(number)]]);
  check("a pipeline of one slot", await pipe.exec(), expected);
  const transaction = client.multi().set("{io}a", 1).incr("{io}a").get("{io}a");
  check("MULTI", await transaction.exec(), [[null, "OK"], [null, 2], [null, "2"]]);
  check("MSET", await client.mset("{io}b", 1, "{io}c", 2), "OK");
  check("MGET", await client.mget("{io}c", "{io}b", "{io}none"), ["2", "1", null]);
  const refusal = await client.mget("io:1", "io:2").catch((error) => error.message);
  const own = "All the keys in a pipeline command should belong to the same slot";
  const isOwn = client.options.enableAutoPipelining;
  check("CROSSSLOT", refusal, isOwn ? own : "CROSSSLOT Keys in request don't hash to the same slot");
}

async function scripts(client) {
  const script = "return {KEYS[1], redis.call('INCRBY', KEYS[1], ARGV[1])}";
  check("EVAL", await client.eval(script, 1, "{io}n", 5), ["{io}n", 5]);
  client.defineCommand("add", { numberOfKeys: 1, lua: script });
  for (const number of numbers(30)) check("EVALSHA", await client.add(`io:s:${number}`, number), [`io:s:${number}`, number]);
}

async function subscriptions(client) {
  const subscriber = connect();
  const heard = new Map();
  subscriber.on("message", (channel, message) => heard.set(channel, message));
  await subscriber.subscribe("io:news");
  const publish = async () => {
    await client.publish("io:news", "hello");
    await sleep(20);
    return heard.get("io:news");
  };
  await becomes("a message", publish, "hello");
  subscriber.disconnect();
  const sharded = connect({ shardedSubscribers: true });
  sharded.on("smessage", (channel, message) => heard.set(channel, message));
  for (const number of numbers(6)) {
    const channel = `io:shard:${number}`;
    await sharded.ssubscribe(channel);
    const publishThere = async () => {
      await client.spublish(channel, "hello");
      await sleep(20);
      return heard.get(channel);
    };
    await becomes("a message of a shard", publishThere, "hello");
  }
  sharded.disconnect();
}

async function replicas() {
  const reader = connect({ scaleReads: "slave" });
  for (const number of numbers(KEYS)) await becomes("GET from a replica", () => reader.get(`io:${number}`), String(number));
  for (const node of reader.nodes("slave")) {
    check("a replica has answered", /cmdstat_get:/.test(await node.info("commandstats")), true);
  }
  reader.disconnect();
}

async function main() {
  for (const options of [{}, { enableAutoPipelining: true }]) {
    const client = connect(options);
    await new Promise((resolve) => client.once("ready", resolve));
    for (const node of client.nodes("master")) check("FLUSHALL", await node.flushall(), "OK");
    for (const part of [singleCommands, pipelines, oneSlot, scripts, subscriptions]) await part(client);
    client.disconnect();
  }
  const ofPage = await pagesClient("Cluster", Cluster);
  check("SET by the page's client", await ofPage.set("io:page", 1), "OK");
  ofPage.disconnect();
  await replicas();
  const client = connect();
  await changes(client, "io");
  for (const number of numbers(KEYS)) check("GET at the end", await client.get(`io:${number}`), String(number));
  client.disconnect();
}

run(main, PATIENCE_MS);
