// ioredis, unmodified: one table of calls through every way of making them, in RESP2 and RESP3, then what a table can't
// hold: auto-pipelining, errors in mid-pipeline, transactions, subscriptions, waiting, streams of scans, MONITOR.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { inspect } = require("node:util");
const { Redis } = require("ioredis");
const { check, fail, run } = require("./checks.js");

const PORT = Number(process.env.PENSTOCK_PORT);
// A reply that does not come within this long is a failure.
const PATIENCE_MS = 120_000;

// Checks that `promise` is refused with exactly this text.
async function refused(what, text, promise) {
  const answer = await promise.then((value) => `no error but ${inspect(value)}`, (error) => error.message);
  check(what, answer, text);
}

const open = [];

// A client that gives up at the first broken connection: the server is not supposed to break any.
function connect(options = {}) {
  const client = new Redis({ port: PORT, host: "127.0.0.1", retryStrategy: () => null, ...options });
  client.on("error", (error) => fail(`a connection broke: ${error.stack}`));
  open.push(client);
  return client;
}

// Each: method, arguments, reply.
const CALLS = [
  ["set", ["s", "1"], "OK"],
  ["set", ["s", "2", "NX"], null],
  ["set", ["s", "2", "EX", 100, "GET"], "1"],
  ["ttl", ["s"], 100],
  ["persist", ["s"], 1],
  ["incr", ["s"], 3],
  ["incrbyfloat", ["s", 0.5], "3.5"],
  ["append", ["s", "é"], 5],
  ["get", ["s"], "3.5é"],
  ["getrange", ["s", 0, 2], "3.5"],
  ["getdel", ["s"], "3.5é"],
  ["get", ["s"], null],
  ["mset", [{ a: 1, b: 2 }], "OK"],
  ["mset", [new Map([["c", "3"]])], "OK"],
  ["mget", ["a", "b", "none"], ["1", "2", null]],
  ["mget", [["a", "c"]], ["1", "3"]],
  ["exists", ["a", "b", "none"], 2],
  ["type", ["a"], "string"],
  ["expire", ["a", 100, "NX"], 1],
  ["expire", ["a", 50, "GT"], 0],
  ["copy", ["a", "d"], 1],
  ["rename", ["b", "e"], "OK"],
  ["object", ["ENCODING", "e"], "int"],
  ["unlink", ["a", "c", "d", "e"], 4],
  ["hset", ["h", { f: "v", g: 1 }], 2],
  ["hset", ["h", "i", 2, "j", 3], 2],
  ["hget", ["h", "f"], "v"],
  ["hmget", ["h", "f", "none"], ["v", null]],
  ["hgetall", ["h"], { f: "v", g: "1", i: "2", j: "3" }],
  ["hgetall", ["none"], {}],
  ["hincrby", ["h", "g", 41], 42],
  ["hdel", ["h", "i", "j"], 2],
  ["hkeys", ["h"], ["f", "g"]],
  ["rpush", ["l", "a", "b", "c"], 3],
  ["lpush", ["l", ["z"]], 4],
  ["lrange", ["l", 0, -1], ["z", "a", "b", "c"]],
  ["lpos", ["l", "c"], 3],
  ["lpop", ["l", 2], ["z", "a"]],
  ["rpop", ["l"], "c"],
  ["lmove", ["l", "m", "LEFT", "RIGHT"], "b"],
  ["lmpop", [2, "l", "m", "LEFT"], ["m", ["b"]]],
  ["lmpop", [2, "l", "m", "LEFT"], null],
  ["sadd", ["t", "a", "b", "c"], 3],
  ["sismember", ["t", "a"], 1],
  ["smismember", ["t", "a", "x"], [1, 0]],
  ["srem", ["t", "b", "c"], 2],
  ["smembers", ["t"], ["a"]],
  ["sunionstore", ["u", "t", "t"], 1],
  ["spop", ["t"], "a"],
  ["zadd", ["z", 1, "a", 2.5, "b"], 2],
  ["zadd", ["z", "XX", "CH", 3, "a"], 1],
  ["zscore", ["z", "a"], "3"],
  ["zscore", ["z", "none"], null],
  ["zrange", ["z", 0, -1], ["b", "a"]],
  ["zrange", ["z", 0, -1, "WITHSCORES"], ["b", "2.5", "a", "3"]],
  ["zrangebyscore", ["z", "(2.5", "+inf"], ["a"]],
  ["zincrby", ["z", "inf", "a"], "inf"],
  ["zpopmin", ["z"], ["b", "2.5"]],
  ["zmscore", ["z", "a", "none"], ["inf", null]],
  ["bzpopmax", ["z", 1], ["z", "a", "inf"]],
  ["echo", ["x"], "x"],
  ["ping", [], "PONG"],
  ["dbsize", [], 2],
  ["flushdb", [], "OK"],
];

function pipelineReplies(way, replies) {
  check(`${way}: replies`, replies.length, CALLS.length);
  CALLS.forEach(([name, args, reply], index) => {
    check(`${way}: ${name} ${inspect(args)}`, replies[index], [null, reply]);
  });
}

async function table(redis, protocol) {
  for (const [name, args, reply] of CALLS) {
    check(`RESP${protocol}: ${name} ${inspect(args)}`, await redis[name](...args), reply);
  }
  for (const way of ["pipeline", "multi"]) {
    const chain = redis[way]();
    for (const [name, args] of CALLS) chain[name](...args);
    pipelineReplies(`RESP${protocol}, ${way}`, await chain.exec());
  }
  // Without an await in between, the client writes one request after another and takes the replies as they come.
  const replies = await Promise.all(CALLS.map(([name, args]) => redis[name](...args)));
  pipelineReplies(`RESP${protocol}, not awaited`, replies.map((reply) => [null, reply]));
}

async function nativeReplies() {
  const redis = connect({ protocol: 3, replyMapping: "resp3" });
  await redis.flushall();
  await redis.zadd("z", 1.5, "a", "inf", "b");
  check("a double", await redis.zscore("z", "a"), 1.5);
  check("infinity", await redis.zscore("z", "b"), Infinity);
  check("pairs", await redis.zrange("z", 0, -1, "WITHSCORES"), [["a", 1.5], ["b", Infinity]]);
  await redis.hset("h", "f", "v");
  check("a map", { ...(await redis.hgetall("h")) }, { f: "v" });
  check("CONFIG GET as a map", { ...(await redis.config("GET", "port")) }, { port: String(PORT) });
}

async function errors(redis) {
  await redis.set("s", "text");
  const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value";
  await refused("wrong type", wrongType, redis.lpush("s", 1));
  await refused("not a number", "ERR value is not an integer or out of range", redis.incr("s"));
  await refused("unknown", "ERR unknown command 'nosuch', with args beginning with: 'a' ", redis.call("nosuch", "a"));
  await refused("arity", "ERR wrong number of arguments for 'get' command", redis.call("get"));
  const replies = await redis.pipeline().set("n", 1).lpush("s", 1).call("get").call("nosuch").incr("n").exec();
  check("errors in mid-pipeline", replies.map(([error, reply]) => (error ? error.message.split(" ")[0] : reply)),
    ["OK", "WRONGTYPE", "ERR", "ERR", 2]);
  const inMulti = await redis.multi().incr("n").lpush("s", 1).incr("n").exec();
  check("an error within MULTI", inMulti.map(([error, reply]) => (error ? error.message : reply)), [3, wrongType, 4]);
  const aborted = redis.multi().incr("n").call("get").exec();
  await refused("EXECABORT", "EXECABORT Transaction discarded because of previous errors.", aborted);
  check("nothing of it ran", await redis.get("n"), "4");
}

async function transactions(redis) {
  const mixed = await redis.pipeline().set("a", 1).multi().incr("a").incr("a").exec().get("a").exec();
  check("MULTI within a pipeline", mixed.map(([, reply]) => reply), ["OK", "OK", "QUEUED", "QUEUED", [2, 3], "3"]);
  await redis.multi({ pipeline: false });
  check("QUEUED", await redis.incr("a"), "QUEUED");
  check("EXEC", await redis.exec(), [[null, 4]]);
  const other = connect();
  await other.watch("a");
  await redis.incr("a");
  check("EXEC after a change", await other.multi().incr("a").exec(), null);
  await other.watch("a");
  check("EXEC without a change", await other.multi().incr("a").exec(), [[null, 6]]);
}

async function autoPipelining() {
  const redis = connect({ enableAutoPipelining: true });
  await redis.flushall();
  const sets = Array.from({ length: 5000 }, (_, n) => redis.set(`auto:${n}`, n));
  check("5,000 SETs in a turn", new Set(await Promise.all(sets)), new Set(["OK"]));
  const gets = await Promise.all(Array.from({ length: 5000 }, (_, n) => redis.get(`auto:${n}`)));
  check("5,000 GETs in a turn", gets, Array.from({ length: 5000 }, (_, n) => String(n)));
  const mixed = await Promise.allSettled([redis.incr("auto:1"), redis.lpush("auto:1", 1), redis.incr("auto:1")]);
  check("an error among them", mixed.map((one) => one.value ?? one.reason.message.split(" ")[0]), [2, "WRONGTYPE", 3]);
}

async function large(redis) {
  await redis.flushall();
  const pipeline = redis.pipeline();
  for (let n = 0; n < 50_000; n += 1) pipeline.set(`k${n}`, n).get(`k${n}`);
  const replies = await pipeline.exec();
  const wrong = replies.findIndex(([error, reply], at) => error || reply !== (at % 2 ? String((at - 1) / 2) : "OK"));
  check("100,000 commands in a pipeline", wrong, -1);
  const blob = Buffer.alloc(10_000_000, "any bytes \x00\xff\r\n");
  await redis.set("blob", blob);
  const blobs = await redis.pipeline().getBuffer("blob").getBuffer("blob").strlen("blob").exec();
  check("10 MB twice", [blobs[0][1].equals(blob), blobs[1][1].equals(blob), blobs[2][1]], [true, true, blob.length]);
}

async function subscriptions(redis, protocol) {
  const subscriber = connect({ protocol });
  const got = [];
  const finished = new Promise((resolve) => {
    const take = (...message) => {
      got.push(message);
      if (message.at(-1) === "stop") resolve();
    };
    subscriber.on("message", take);
    subscriber.on("pmessage", take);
  });
  check("SUBSCRIBE", await subscriber.subscribe("news", "weather"), 2);
  check("PSUBSCRIBE", await subscriber.psubscribe("sport.*"), 3);
  check("PUBSUB CHANNELS", (await redis.pubsub("CHANNELS")).sort(), ["news", "weather"]);
  const pipeline = redis.pipeline();
  const expected = [];
  for (let n = 0; n < 1000; n += 1) {
    pipeline.publish(n % 2 ? "news" : "sport.chess", n);
    expected.push(n % 2 ? ["news", String(n)] : ["sport.*", "sport.chess", String(n)]);
  }
  check("receivers", new Set((await pipeline.exec()).map(([, count]) => count)), new Set([1]));
  await redis.publish("weather", "stop");
  await finished;
  check(`RESP${protocol}: messages`, got, [...expected, ["weather", "stop"]]);
  check("UNSUBSCRIBE", await subscriber.unsubscribe("news", "weather"), 1);
  check("PUNSUBSCRIBE", await subscriber.punsubscribe(), 0);
  check("then an ordinary connection again", await subscriber.get("none"), null);
}

async function blockedClients(redis, count) {
  while (!(await redis.info("clients")).includes(`blocked_clients:${count}\r\n`));
}

async function waiting(redis) {
  await redis.flushall();
  const waiter = connect();
  const first = waiter.blpop("q1", "q2", 0);
  // What follows on the same connection waits with it.
  const second = waiter.incr("after");
  await blockedClients(redis, 1);
  check("the rest waits too", await redis.exists("after"), 0);
  await redis.rpush("q2", "x", "y");
  check("BLPOP", await first, ["q2", "x"]);
  check("what followed it", await second, 1);
  check("what it left", await redis.lrange("q2", 0, -1), ["y"]);
  check("a timeout", await waiter.brpop("none", 0.05), null);
  const move = waiter.blmove("from", "to", "LEFT", "LEFT", 0);
  await blockedClients(redis, 1);
  await redis.pipeline().rpush("from", "m").del("from").exec();
  check("a pipeline that fills and empties", await Promise.race([move, sleep(PATIENCE_MS / 10, "still waiting", { ref: false })]), "m");
}

async function collect(stream) {
  const all = [];
  for await (const part of stream) all.push(...part);
  return all;
}

async function scans(redis) {
  await redis.flushall();
  const names = Array.from({ length: 3000 }, (_, n) => `name:${n}`);
  await redis.mset(names.flatMap((name) => [name, name]));
  await redis.sadd("set", names);
  await redis.hset("hash", Object.fromEntries(names.map((name) => [name, 1])));
  await redis.zadd("zset", names.flatMap((name) => [1, name]));
  const sorted = [...names].sort();
  const scanned = await collect(redis.scanStream({ match: "name:*", count: 100 }));
  check("scanStream", [...new Set(scanned)].sort(), sorted);
  check("scanStream by type", await collect(redis.scanStream({ type: "zset" })), ["zset"]);
  check("sscanStream", [...new Set(await collect(redis.sscanStream("set")))].sort(), sorted);
  const fields = (await collect(redis.hscanStream("hash"))).filter((_, at) => at % 2 === 0);
  check("hscanStream", [...new Set(fields)].sort(), sorted);
  const members = (await collect(redis.zscanStream("zset", { match: "name:29?" }))).filter((_, at) => at % 2 === 0);
  check("zscanStream", [...new Set(members)].sort(), sorted.filter((name) => /^name:29.$/.test(name)));
}

async function connections(redis) {
  const named = connect({ connectionName: "named", db: 3, clientInfoTag: "tag" });
  const info = await named.client("INFO");
  check("CLIENT INFO", /\bname=named\b/.test(info) && /\bdb=3\b/.test(info), true);
  const version = /redis_version:(\d+)\.(\d+)/.exec(await redis.info("server"));
  if (Number(version[1]) * 100 + Number(version[2]) >= 702) {
    check("CLIENT SETINFO", /\blib-name=ioredis\(tag\) lib-ver=\d/.test(info), true);
  }
  const prefixed = connect({ keyPrefix: "pre:" });
  await prefixed.pipeline().set("x", 1).mset("y", 2, "z", 3).exec();
  check("a key prefix", await redis.mget("pre:x", "pre:y", "pre:z"), ["1", "2", "3"]);
  const local = new Redis(process.env.PENSTOCK_SOCKET);
  open.push(local);
  check("the Unix socket", await local.ping(), "PONG");
  const killed = new Redis({ port: PORT, retryStrategy: () => 10 });
  open.push(killed);
  const number = await killed.client("ID");
  check("CLIENT KILL", await redis.client("KILL", "ID", number), 1);
  check("the killed client comes back", (await killed.client("ID")) > number, true);
}

async function monitor(redis) {
  const watching = await redis.monitor();
  watching.on("error", () => {});
  open.push(watching);
  const seen = new Promise((resolve) => {
    watching.on("monitor", (time, args, source, database) => {
      if (args[0] === "set") resolve([typeof time, args, source.split(":")[0], database]);
    });
  });
  await redis.set("mon", 'itor "quoted"');
  check("MONITOR", await seen, ["string", ["set", "mon", 'itor "quoted"'], "127.0.0.1", "0"]);
}

async function main() {
  for (const protocol of [2, 3]) {
    const redis = connect({ protocol });
    await redis.flushall();
    await table(redis, protocol);
    for (const part of [errors, transactions, large, waiting, scans, connections, monitor]) await part(redis, protocol);
    await subscriptions(redis, protocol);
  }
  await autoPipelining();
  await nativeReplies();
  for (const client of open) client.disconnect();
}

run(main, PATIENCE_MS);
