// @upstash/redis, unmodified, against the HTTP port: commands with all kinds of replies, pipelines of both kinds, transactions, its own
// auto-pipelining, scripts, errors; then by hand what the client doesn't do.
"use strict";

const { inspect } = require("node:util");
const { Redis } = require("@upstash/redis");
const { check, run } = require("./checks.js");
const { HttpServer } = require("./http_server.js");

const PATIENCE_MS = 120_000;
const PASSWORD = "a pass:word";

let server;

function connect(options = {}) {
  return new Redis({ url: server.url, token: `default:${PASSWORD}`, enableTelemetry: false, retry: false, ...options });
}

// Checks that `promise` is refused with a text that has `part` in it.
async function refused(what, part, promise) {
  const answer = await promise.then((value) => `no error but ${inspect(value)}`, (error) => error.message);
  check(`${what}: ${answer}`, answer.includes(part), true);
}

async function commands() {
  const redis = connect({ enableAutoPipelining: false });
  const calls = [
    ["set", ["s", "v"], "OK"],
    ["get", ["s"], "v"],
    ["get", ["none"], null],
    ["set", ["ok", "OK"], "OK"],
    ["get", ["ok"], "OK"],
    ["set", ["text", "é – 日本 \n\"\\"], "OK"],
    ["get", ["text"], "é – 日本 \n\"\\"],
    ["set", ["object", { a: [1, { b: null }] }], "OK"],
    ["get", ["object"], { a: [1, { b: null }] }],
    ["set", ["n", 5, { ex: 100 }], "OK"],
    ["persist", ["n"], 1],
    ["ttl", ["n"], -1],
    ["incrby", ["n", 10], 15],
    ["incrbyfloat", ["n", 0.5], 15.5],
    ["getrange", ["s", 0, 10], "v"],
    ["mset", [{ a: "1", b: "x" }], "OK"],
    ["mget", ["a", "b", "none"], [1, "x", null]],
    ["hset", ["h", { f: "v", g: 2 }], 2],
    ["hgetall", ["h"], { f: "v", g: 2 }],
    ["hget", ["h", "none"], null],
    ["hmget", ["h", "f", "none"], { f: "v", none: null }],
    ["rpush", ["l", "a", "b", "c"], 3],
    ["lrange", ["l", 0, -1], ["a", "b", "c"]],
    ["lpop", ["l", 2], ["a", "b"]],
    ["sadd", ["set", "m"], 1],
    ["smembers", ["set"], ["m"]],
    ["sismember", ["set", "m"], 1],
    ["zadd", ["z", { score: 1, member: "a" }, { score: 2.5, member: "b" }], 2],
    ["zrange", ["z", 0, -1, { withScores: true }], ["a", 1, "b", 2.5]],
    ["zscore", ["z", "b"], 2.5],
    ["type", ["z"], "zset"],
    ["exists", ["z", "none"], 1],
    ["ping", [], "PONG"],
    ["echo", ["hello"], "hello"],
    ["pfadd", ["p", "a", "b"], 1],
    ["geoadd", ["geo", { longitude: 13.361389, latitude: 38.115556, member: "Palermo" }], 1],
    ["bitcount", ["s"], 5],
    ["xadd", ["x", "1-1", { field: "v" }], "1-1"],
    ["xrange", ["x", "-", "+"], { "1-1": { field: "v" } }],
    ["eval", ["return {KEYS[1], ARGV[1], 3}", ["k"], ["a"]], ["k", "a", 3]],
    ["dbsize", [], 14],
    ["del", ["s", "none"], 1],
  ];
  for (const [method, args, expected] of calls) {
    check(`${method} ${inspect(args)}`, await redis[method](...args), expected);
  }
  const [cursor, keys] = await redis.scan(0, { match: "[ab]", count: 1000 });
  check("scan", [cursor, keys.sort()], ["0", ["a", "b"]]);
  const sha = await redis.scriptLoad("return redis.call('incr', KEYS[1])");
  check("evalsha", await redis.evalsha(sha, ["counter"], []), 1);
  await refused("an error", "WRONGTYPE", redis.incr("h"));
  await refused("an unknown command", "ERR unknown command", redis.exec(["NOSUCH", "a"]));
}

async function pipelines() {
  const redis = connect({ enableAutoPipelining: false });
  check("pipeline", await redis.pipeline().set("a", 1).incr("a").get("none").exec(), ["OK", 2, null]);
  const errors = await redis.pipeline().set("word", "x").incr("word").get("word").exec({ keepErrors: true });
  check("errors keep their place", errors.map(({ result, error }) => [result, error]),
    [["OK", undefined], [undefined, "ERR value is not an integer or out of range"], ["x", undefined]]);
  check("transaction", await redis.multi().incr("t").incr("t").get("t").exec(), [1, 2, 2]);
  const long = redis.pipeline();
  for (let i = 0; i < 1000; i += 1) long.set(`long:${i}`, "x".repeat(i));
  check("long pipeline", (await long.exec()).every((reply) => reply === "OK"), true);
  const back = redis.pipeline();
  for (let i = 0; i < 1000; i += 1) back.get(`long:${i}`);
  check("long replies", (await back.exec()).map((reply) => reply.length), Array.from({ length: 1000 }, (_, i) => i));
}

// What is called together goes together: the server counts one batch.
async function autoPipelining() {
  const redis = connect({ enableAutoPipelining: true });
  const batches = async () => Number(/total_batches_processed:(\d+)/.exec(await redis.exec(["INFO", "stats"]))[1]);
  await redis.set("warm", 1);
  const before = await batches();
  const replies = await Promise.all(Array.from({ length: 200 }, (_, i) => redis.set(`auto:${i}`, i)));
  const read = await Promise.all(Array.from({ length: 200 }, (_, i) => redis.get(`auto:${i}`)));
  const after = await batches();
  check("replies", replies.every((reply) => reply === "OK"), true);
  check("values", read, Array.from({ length: 200 }, (_, i) => i));
  check(`few batches: ${after - before}`, after - before <= 12, true);
  await refused("an error amid others", "WRONGTYPE", Promise.all([redis.get("warm"), redis.lpush("warm", 1)]));
}

async function post(path, body, headers = {}) {
  const response = await fetch(server.url + path, { method: "POST", body, headers: { authorization: `Bearer default:${PASSWORD}`, ...headers } });
  return [response.status, await response.text()];
}

async function byHand() {
  check("one", await post("/", '["SET","k",1]'), [200, '{"result":"OK"}']);
  check("path", await post("/set/k/v/EX/100"), [200, '{"result":"OK"}']);
  check("body as value", await post("/set/k?EX=100", "é"), [200, '{"result":"OK"}']);
  check("what it made", await post("/get/k"), [200, '{"result":"é"}']);
  check("base64", await post("/get/k", "", { "upstash-encoding": "base64" }), [200, '{"result":"w6k="}']);
  check("resp2", await post("/get/k", "", { "upstash-response-format": "resp2" }), [200, "$2\r\né\r\n"]);
  check("wrong encoding", (await post("/get/k", "", { "upstash-response-format": "xml" }))[0], 400);
  check("an error", await post("/incr/k"), [400, '{"error":"ERR value is not an integer or out of range"}']);
  check("no JSON", (await post("/", "SET k v"))[0], 400);
  check("no commands", (await post("/pipeline", "[]"))[0], 400);
  check("a wrong transaction", await post("/multi-exec", '[["INCR"]]'),
    [400, '{"error":"EXECABORT Transaction discarded because of: ERR wrong number of arguments for \'incr\' command"}']);
  for (const command of [["BLPOP", "a", 0], ["XREAD", "BLOCK", 0, "STREAMS", "a", "$"], ["SUBSCRIBE", "c"], ["MONITOR"], ["MULTI"],
    ["WATCH", "a"], ["SELECT", 1], ["AUTH", "x"], ["HELLO", 3], ["RESET"], ["QUIT"], ["CLIENT", "REPLY", "OFF"], ["UNSUBSCRIBE"]]) {
    const [status, text] = await post("/", JSON.stringify(command));
    check(`${command}: ${text}`, status === 400 && text.includes("use a client of the Redis protocol"), true);
    check(`${command} amid others`, (await post("/multi-exec", JSON.stringify([["PING"], command])))[0], 400);
  }
  check("what only may wait", await post("/xread/STREAMS/none/0"), [200, '{"result":null}']);
  check("an unknown token", await post("/ping", "", { authorization: "Bearer wrong" }),
    [401, '{"error":"WRONGPASS invalid username-password pair or user is disabled."}']);
  check("no token", (await post("/ping", "", { authorization: "" }))[0], 401);
  check("another scheme", (await post("/ping", "", { authorization: "Basic eDp5" }))[0], 401);
  check("a token in the URL", (await post("/ping?_token=x"))[0], 400);
  const response = await fetch(`${server.url}/get/k`, { method: "DELETE" });
  check("another method", [response.status, response.headers.get("allow")], [405, "GET, HEAD, POST, PUT"]);
}

// What a user may, and for how long.
async function users() {
  const redis = connect();
  const as = (token, command) => post("/", JSON.stringify(command), { authorization: `Bearer ${token}` });
  await redis.exec(["ACL", "SETUSER", "reader", "on", ">first", "+get", "~a*"]);
  check("allowed", (await as("reader:first", ["GET", "a"]))[0], 200);
  check("another key", (await as("reader:first", ["GET", "b"]))[1].includes("NOPERM"), true);
  check("another command", (await as("reader:first", ["SET", "a", 1]))[1].includes("NOPERM"), true);
  await redis.exec(["ACL", "SETUSER", "reader", "resetpass", ">second"]);
  check("the password of before", (await as("reader:first", ["GET", "a"]))[0], 401);
  check("the present one", (await as("reader:second", ["GET", "a"]))[0], 200);
  await redis.exec(["ACL", "DELUSER", "reader"]);
  check("a user that is gone", (await as("reader:second", ["GET", "a"]))[0], 401);
  // Guesses are limited, and whoever knows the password isn't disturbed by them.
  const guesses = await Promise.all(Array.from({ length: 100 }, (_, i) => as(`default:${i}`, ["PING"])));
  check("guesses", guesses.some(([status]) => status === 429), true);
  check("meanwhile", await redis.ping(), "PONG");
}

async function main() {
  server = await HttpServer.start("--requirepass", PASSWORD);
  await commands();
  await pipelines();
  await autoPipelining();
  await byHand();
  await users();
}

run(main, PATIENCE_MS).finally(() => process.exit());
