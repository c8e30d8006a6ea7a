"use strict";

// Runs the advisor's suggestions for ioredis and for node-redis: see snippets_test.py.

const fs = require("fs");
const path = require("path");
const Redis = require(path.join(__dirname, "../node/node_modules/ioredis"));
const nodeRedis = require(path.join(__dirname, "../node/node_modules/redis"));

const AsyncFunction = (async () => {}).constructor;

/** The values that the code of node-redis finds: commands take text, and options are objects. */
function ofNodeRedis(scope, input, client) {
  delete scope.redis;
  const own = [];
  const made = (create) => (options) => own[own.push(create(options).on("error", () => {})) - 1];
  const createClient = made(nodeRedis.createClient);
  return { ...scope, client, options: { EX: 60 }, createClient, createCluster: made(nodeRedis.createCluster), own };
}

async function runNodeRedis(snippet, input, client, ready) {
  await prepare(snippet, ready);
  // An earlier snippet may have watched a key.
  await client.unwatch();
  const scope = ofNodeRedis(values(snippet, input), input, client);
  const { own } = scope;
  if (snippet.code.includes("events.")) {
    scope.events = await client.duplicate().connect();
    own.push(scope.events);
  }
  delete scope.own;
  if (snippet.code.includes("createC")) {
    delete scope.client;
  }
  try {
    await new AsyncFunction(...Object.keys(scope), `{${snippet.code}}`)(...Object.values(scope));
    return null;
  } catch (error) {
    return `${error.name === "Error" ? "" : `${error.name}: `}${error.errors?.[0]?.message ?? error.message}`;
  } finally {
    own.forEach((made) => made.destroy());
  }
}

/** Makes the data to begin with. */
async function prepare(snippet, client) {
  for (const words of snippet.seed) await client.call(...words);
}

/** The variables that the code leaves to the application. */
function values(snippet, input) {
  const items = snippet.items;
  const scope = {
    ...snippet.values,
    ...snippet.lists,
    URL: snippet.url,
    options: ["EX", 60],
    items,
    changes: snippet.changes,
    all: items,
    use: () => {},
    changed: () => {},
    chunks: (all, count) => [all.slice(0, count)],
  };
  if (items === null) {
    scope.fields = snippet.map;
  }
  return scope;
}

async function run(snippet, input, client) {
  await prepare(snippet, client);
  await client.unwatch();
  const scope = { ...values(snippet, input), redis: client, Redis };
  // The code of a client that is made anew ends with the client's connection.
  const code = snippet.code.replace(/new (Redis(?:\.Cluster)?)\((.*)\);/, "made($1, $2);");
  const own = [];
  scope.made = (Client, address) => own[own.push(new Client(address)) - 1];
  if (code !== snippet.code) {
    delete scope.redis;
  }
  if (code.includes("events.")) {
    scope.events = client.duplicate();
    own.push(scope.events);
  }
  try {
    // A block, because a snippet may declare a name that is a parameter here.
    await new AsyncFunction(...Object.keys(scope), `{${code}}`)(...Object.values(scope));
    return null;
  } catch (error) {
    return error.name === "ReplyError" ? error.message : `${error.name}: ${error.message}`;
  } finally {
    own.forEach((redis) => redis.disconnect());
  }
}

/** Makes a pipeline reject with its first error, which ioredis returns among the replies. */
function strict(client, method) {
  const make = client[method].bind(client);
  client[method] = (...options) => {
    const pipe = make(...options);
    const exec = pipe.exec.bind(pipe);
    pipe.exec = async () => {
      const replies = await exec();
      const failed = replies.find(([error]) => error);
      if (failed) {
        throw failed[0];
      }
      return replies;
    };
    return pipe;
  };
}

async function main() {
  const input = JSON.parse(fs.readFileSync(0));
  const client = new Redis(input.url);
  strict(client, "pipeline");
  strict(client, "multi");
  const other = await nodeRedis.createClient({ url: input.url }).connect();
  const outcomes = [];
  for (const snippet of input.snippets) {
    const isOther = snippet.language.endsWith("node-redis");
    const error = isOther ? await runNodeRedis(snippet, input, other, client) : await run(snippet, input, client);
    outcomes.push([error, await client.call("EVAL", input.snapshot, "0")]);
  }
  console.log(JSON.stringify(outcomes));
  client.disconnect();
  other.destroy();
}

main();
