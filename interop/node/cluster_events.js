// What the scripts of cluster clients share: requests to the harness (see ../cluster.py), and writes that go on during events.
"use strict";

const { readFileSync } = require("node:fs");
const net = require("node:net");
const { join } = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const { check, fail } = require("./checks.js");

const PORTS = process.env.PENSTOCK_PORTS.split(",").map(Number);
// Commands that are in flight at once.
const DEPTH = 2000;
// Keys of the slot that moves.
const MOVING = 1000;
const PATIENCE_MS = 60_000;

const PAGE = join(__dirname, "../../docs/cluster.md");

const numbers = (count) => Array.from({ length: count }, (_, number) => number);

// Sends a request to the harness, and returns its answer.
function event(request) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(process.env.PENSTOCK_EVENTS), "127.0.0.1", () => socket.write(`${request}\n`));
    let answer = "";
    socket.setEncoding("utf8").on("error", reject);
    socket.on("data", (text) => {
      answer += text;
      if (answer.endsWith("\n")) {
        socket.end();
        resolve(answer.trim());
      }
    });
  });
}

// Repeats `work` until the event is over.
async function during(request, work) {
  let answer;
  const asked = event(request).then((text) => (answer = text));
  do await work();
  while (answer === undefined);
  await asked;
  check(request, answer, "ok");
}

// Repeats `work` until it succeeds, as an application does while a shard has no primary.
async function untilDone(work) {
  for (const deadline = Date.now() + PATIENCE_MS; ; await sleep(50)) {
    try {
      return await work();
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
  }
}

// Waits until `read` answers `expected`: a replica or the bus may be behind.
async function becomes(what, read, expected) {
  const deadline = Date.now() + PATIENCE_MS;
  while ((await read()) !== expected) {
    if (Date.now() > deadline) fail(`waited in vain until ${what} is ${expected}`);
    await sleep(10);
  }
  check(what, expected, expected);
}

// Counters that are increased while the cluster changes. Each INCR must be carried out once.
class Counters {
  constructor(client, keys) {
    Object.assign(this, { client, keys, rounds: 0 });
  }

  async increase() {
    this.rounds += 1;
    const replies = await Promise.all(this.keys.map((key) => this.client.incr(key)));
    check("INCR in flight", replies, this.keys.map(() => this.rounds));
  }

  async verify() {
    const values = await Promise.all(this.keys.map((key) => this.client.get(key)));
    check("counters", values, this.keys.map(() => String(this.rounds)));
  }
}

// Slots move while the client writes. Returns its counters.
async function reshard(client, prefix) {
  const tag = await event("tag");
  const moving = new Counters(client, numbers(MOVING).map((number) => `{${tag}}${prefix}:${number}`));
  await moving.increase();
  await during("reshard", () => moving.increase());
  await moving.verify();
  return moving;
}

// Slots move, a replica takes over, and a primary dies, while the client writes. It must follow redirects.
async function changes(client, prefix) {
  const moving = await reshard(client, prefix);
  const [moved, asked] = (await event("redirects")).split(" ").map(Number);
  check(`${moved} MOVED and ${asked} ASK were followed`, moved > 0 && asked > 0, true);

  const kept = new Counters(client, numbers(500).map((number) => `${prefix}:f:${number}`));
  await kept.increase();
  await during("failover", () => kept.increase());
  for (let round = 0; round < 5; round++) await kept.increase();
  await kept.verify();

  check("kill", await event("kill"), "ok");
  const keys = numbers(2000).map((number) => `${prefix}:k:${number}`);
  const replies = await untilDone(() => Promise.all(keys.map((key) => client.set(key, key))));
  check("SET after a kill", replies, keys.map(() => "OK"));
  check("values after a kill", await Promise.all(keys.map((key) => client.get(key))), keys);
  await moving.verify();
  await kept.verify();
}

// Returns the client that the code of docs/cluster.md makes with `constructor`, for this cluster's ports.
async function pagesClient(name, constructor) {
  const blocks = [...readFileSync(PAGE, "utf8").matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
  const [code] = blocks.filter((block) => block.includes(`${name}(`));
  const here = code.replaceAll("7100", String(PORTS[0])).replaceAll("7101", String(PORTS[1]));
  return new Function(name, `return (async () => { ${here} return client; })();`)(constructor);
}

module.exports = { DEPTH, PORTS, becomes, changes, event, numbers, pagesClient, reshard };
