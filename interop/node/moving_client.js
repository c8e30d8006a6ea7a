// node-redis during planned failovers: see moving_test.py for the contract of these programs.

'use strict';

const { createClient } = require('redis');

const WRITERS = 8;
const DEPTH = 20;
const errors = [];
let longest = 0;
let stopped = false;
let pushed = 0;
let popped = 0;
const acknowledged = Array(WRITERS).fill(0);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Runs a call. Notes its time beyond `allowed` milliseconds, and its error. */
async function timed(call, allowed = 0) {
  const began = performance.now();
  try {
    return await call();
  } catch (error) {
    errors.push(String(error));
    return undefined;
  } finally {
    longest = Math.max(longest, performance.now() - began - allowed);
  }
}

async function connect() {
  const client = createClient({ url: process.env.PENSTOCK_URL, RESP: 3 });
  client.on('error', (error) => errors.push(`event: ${error}`));
  await client.connect();
  return client;
}

async function write(number) {
  const client = await connect();
  while (!stopped) {
    const replies = await timed(() => Promise.all(Array.from({ length: DEPTH }, () => client.incr(`count:${number}`))));
    if (replies) acknowledged[number] = replies.at(-1);
    await sleep(1);
  }
  client.destroy();
}

async function push() {
  const client = await connect();
  while (!stopped) {
    if (await timed(() => client.rPush('queue', String(pushed)))) pushed += 1;
    await sleep(20);
  }
  client.destroy();
}

async function pop() {
  const client = await connect();
  while (!stopped) {
    if (await timed(() => client.blPop('queue', 1), 1000)) popped += 1;
  }
  client.destroy();
}

async function main() {
  const work = [...acknowledged.map((_, number) => write(number)), push(), pop()];
  console.log('running');
  await new Promise((resolve) => process.stdin.on('end', resolve).resume());
  stopped = true;
  await Promise.all(work);
  console.log(JSON.stringify({ errors, longest_s: longest / 1000, acknowledged, pushed, popped }));
  process.exit(0);
}

main();
