// node-redis's cluster client, unmodified, through a reshard, a failover and the death of a primary. See ../cluster.py.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { createCluster } = require("redis");
const { check, run } = require("./checks.js");
const { DEPTH, PORTS, becomes, changes, numbers, pagesClient, reshard } = require("./cluster_events.js");

const KEYS = 200;
const PATIENCE_MS = 120_000;
// Time after which the client asks for the slots again while a node is away; its default is 5000.
const REFRESH_MS = 500;

async function connect(options) {
  const client = createCluster({
    rootNodes: PORTS.slice(0, 2).map((port) => ({ url: `redis://127.0.0.1:${port}` })),
    topologyRefreshOnReconnectionAttemptStrategy: REFRESH_MS,
    ...options,
  });
  // A node that dies is an event of the client, and no error of a command.
  client.on("error", () => {});
  client.on("node-error", () => {});
  return client.connect();
}

async function singleCommands(client) {
  for (const number of numbers(KEYS)) check("SET", await client.set(`nr:${number}`, number), "OK");
  for (const number of numbers(KEYS)) check("GET", await client.get(`nr:${number}`), String(number));
}

// The client writes all commands of a turn of the event loop as one pipeline for each node.
async function pipelines(client) {
  const calls = (number) => [client.set(`nr:p:${number}`, number), client.incr(`nr:p:${number}`), client.get(`nr:p:${number}`)];
  const replies = await Promise.all(numbers(DEPTH).flatMap(calls));
  check("replies in order", replies, numbers(DEPTH).flatMap((number) => ["OK", number + 1, String(number + 1)]));
  const mixed = numbers(DEPTH).map((number) => (number % 100 ? client.get(`nr:p:${number}`) : client.lPush(`nr:p:${number}`, "1")));
  const outcomes = await Promise.allSettled(mixed);
  const shown = outcomes.map((outcome) => outcome.value ?? outcome.reason.message.split(" ")[0]);
  check("errors in their place", shown, numbers(DEPTH).map((number) => (number % 100 ? String(number + 1) : "WRONGTYPE")));
}

async function oneSlot(client) {
  const pipe = client.multi();
  for (const number of numbers(DEPTH)) pipe.set(`{nr}${number}`, number).get(`{nr}${number}`);
  check("a pipeline of one slot", await pipe.execAsPipeline(), numbers(DEPTH).flatMap((number) => ["OK", String(number)]));
  check("MULTI", await client.multi().set("{nr}a", 1).incr("{nr}a").get("{nr}a").exec(), ["OK", 2, "2"]);
  check("MSET", await client.mSet({ "{nr}b": "1", "{nr}c": "2" }), "OK");
  check("MGET", await client.mGet(["{nr}c", "{nr}b", "{nr}none"]), ["2", "1", null]);
  // The client itself divides MGET among the nodes, but no other command.
  check("MGET over several slots", await client.mGet(["nr:1", "nr:2", "nr:3"]), ["1", "2", "3"]);
  const refusal = await client.sUnion(["nr:u:1", "nr:u:2"]).catch((error) => error.message);
  check("CROSSSLOT", refusal, "CROSSSLOT Keys in request don't hash to the same slot");
}

async function scripts(client) {
  const script = "return {KEYS[1], redis.call('INCRBY', KEYS[1], ARGV[1])}";
  check("EVAL", await client.eval(script, { keys: ["{nr}n"], arguments: ["5"] }), ["{nr}n", 5]);
  for (const number of numbers(30)) {
    const call = { keys: [`nr:s:${number}`], arguments: [String(number)] };
    check("EVAL", await client.eval(script, call), [`nr:s:${number}`, number]);
  }
}

async function subscriptions(client) {
  const heard = new Map();
  const hear = (message, channel) => heard.set(channel, message);
  await client.subscribe("nr:news", hear);
  const publish = async () => {
    await client.publish("nr:news", "hello");
    await sleep(20);
    return heard.get("nr:news");
  };
  await becomes("a message", publish, "hello");
  await client.unsubscribe("nr:news");
  for (const number of numbers(6)) {
    const channel = `nr:shard:${number}`;
    await client.sSubscribe(channel, hear);
    const publishThere = async () => {
      await client.sPublish(channel, "hello");
      await sleep(20);
      return heard.get(channel);
    };
    await becomes("a message of a shard", publishThere, "hello");
    await client.sUnsubscribe(channel);
  }
}

async function replicas() {
  const reader = await connect({ useReplicas: true });
  for (const number of numbers(KEYS)) await becomes("GET from any node", () => reader.get(`nr:${number}`), String(number));
  for (const node of reader.replicas) {
    const replica = await reader.nodeClient(node);
    check("a replica has answered", /cmdstat_get:/.test(await replica.info("commandstats")), true);
  }
  await reader.close();
}

async function main() {
  for (const RESP of [2, 3]) {
    const client = await connect({ RESP });
    for (const node of client.masters) check("FLUSHALL", await (await client.nodeClient(node)).flushAll(), "OK");
    for (const part of [singleCommands, pipelines, oneSlot, scripts, subscriptions]) await part(client);
    await client.close();
  }
  const ofPage = await pagesClient("createCluster", createCluster);
  check("SET by the page's client", await ofPage.set("nr:page", 1), "OK");
  await ofPage.close();
  await replicas();
  // By default the client listens to announcements (SMIGRATED). It may meet no MOVED then.
  const listener = await connect();
  await reshard(listener, "nr:announced");
  await listener.close();
  const client = await connect({ defaults: { maintNotifications: "disabled" } });
  await changes(client, "nr");
  for (const number of numbers(KEYS)) check("GET at the end", await client.get(`nr:${number}`), String(number));
  client.destroy();
}

run(main, PATIENCE_MS);
