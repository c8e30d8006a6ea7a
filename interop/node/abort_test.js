// The ioredis example of docs/pipeline-control.md that stops at a failure, as it stands there.
"use strict";

const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { check, run } = require("./checks.js");

const PATIENCE_MS = 60_000;
const PAGE = join(__dirname, "../../docs/pipeline-control.md");

async function main() {
  const blocks = [...readFileSync(PAGE, "utf8").matchAll(/^```js\n(.*?)^```$/gms)].map((found) => found[1]);
  const code = blocks.find((block) => block.includes("ABORT"));
  const { Redis, runUntilFailure } = new Function("require", `${code}\nreturn { Redis, runUntilFailure };`)(require);
  const redis = new Redis(process.env.PENSTOCK_URL);
  const outcome = await runUntilFailure(redis, [
    ["set", "color", "red"],
    ["incr", "color"],
    ["set", "color", "blue"],
  ]);
  const text = "ERR value is not an integer or out of range";
  check("the replies", outcome.replies.map(([error, reply]) => error?.message ?? reply), [
    "OK",
    text,
    `ABORTED after command 2: ${text}`,
  ]);
  delete outcome.replies;
  check("the account", outcome, { executed: 2, failed: 2, error: text, skipped: 1 });
  check("the value", await redis.get("color"), "red");
  const replies = await redis.pipeline().incr("color").set("color", "blue").exec();
  check("without the mode", replies[1][1], "OK");
  const { failed, executed } = await runUntilFailure(redis, [["get", "color"]]);
  check("no failure", [executed, failed], [1, 0]);
  redis.disconnect();
}

run(main, PATIENCE_MS);
