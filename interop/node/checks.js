// What the scripts of this directory share: checks that are counted, and an end in any case.
"use strict";

const { isDeepStrictEqual, inspect } = require("node:util");

let checks = 0;

// Ends the script.
function fail(text) {
  console.log(text);
  process.exit(1);
}

// One check: ends the script where `actual` is not `expected`.
function check(what, actual, expected) {
  checks += 1;
  if (!isDeepStrictEqual(actual, expected)) {
    fail(`${what}:\n  expected ${inspect(expected)}\n  got      ${inspect(actual)}`);
  }
}

// Runs the script's parts and says how much was checked. A reply that does not come within so long is a failure.
async function run(main, patienceMs) {
  setTimeout(() => fail("no end: a reply never came"), patienceMs).unref();
  await main().catch((error) => fail(error.stack));
  console.log(`${checks} checks`);
}

module.exports = { check, fail, run };
