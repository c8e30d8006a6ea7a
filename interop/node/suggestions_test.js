// node-redis's calls for RediSearch's suggestions, unmodified, in both protocols.
"use strict";

const { createClient } = require("redis");
const { check, run } = require("./checks.js");

const URL = process.env.PENSTOCK_URL;
const PATIENCE_MS = 60_000;

async function suggestions(RESP) {
  const client = createClient({ url: URL, RESP, unstableResp3: true });
  await client.connect();
  await client.flushAll();
  check("an empty key", await client.ft.sugGet("ac", "a"), []);
  check("sugAdd", await client.ft.sugAdd("ac", "The Matrix", 10, { PAYLOAD: "1999" }), 1);
  check("sugAdd", await client.ft.sugAdd("ac", "Métropolis", 3), 2);
  check("sugAdd", await client.ft.sugAdd("ac", "The Mask", 4, { INCR: true }), 3);
  check("sugLen", await client.ft.sugLen("ac"), 3);
  check("sugGet", await client.ft.sugGet("ac", "the m"), ["The Matrix", "The Mask"]);
  check("fuzzy", await client.ft.sugGet("ac", "MXT", { FUZZY: true }), ["Métropolis"]);
  check("one", await client.ft.sugGet("ac", "t", { MAX: 1 }), ["The Matrix"]);
  check("sugGetWithPayloads", await client.ft.sugGetWithPayloads("ac", "the m"), [
    { suggestion: "The Matrix", payload: "1999" },
    { suggestion: "The Mask", payload: null },
  ]);
  const scored = await client.ft.sugGetWithScoresWithPayloads("ac", "the matri");
  check("sugGetWithScoresWithPayloads", scored, [{ suggestion: "The Matrix", score: 7.071067810058594, payload: "1999" }]);
  const [{ score }] = await client.ft.sugGetWithScores("ac", "mét");
  check("sugGetWithScores", Math.abs(score - 3 / Math.sqrt(7)) < 1e-6, true);
  check("sugDel", await client.ft.sugDel("ac", "The Mask"), 1);
  check("sugDel", await client.ft.sugDel("ac", "The Mask"), 0);
  check("type", await client.type("ac"), "trietype0");
  await client.close();
}

async function main() {
  await suggestions(2);
  await suggestions(3);
}

run(main, PATIENCE_MS);
