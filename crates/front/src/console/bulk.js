// Work on all keys that match a pattern: memory by prefix, and bulk delete after a count.

import { isReadOnly, one, run } from "./api.js";
import { agreed } from "./confirm.js";
import { h, patch, table } from "./dom.js";
import { bytes, count, counted } from "./text.js";

// Number of keys that one SCAN reads.
const LOOK = 1000;
// Largest number of keys whose memory is measured; the rest is estimated from these.
const MEASURED_MAX = 50_000;
const PREFIXES_SHOWN = 50;
// Largest number of prefixes; further keys are counted together.
const PREFIXES_MAX = 5000;
const EXAMPLES = 5;
const OTHERS = "(other prefixes)";

let running = null;

/** Ends the work. */
export function stop() {
  running?.abort();
}

/** Creates the tools. `pattern` returns the pattern of the search; `changed` is called after a deletion. */
export function tools(pattern, changed) {
  const state = h("p.quiet", { role: "status" });
  const result = h("div");
  const halt = h("button", { type: "button", hidden: true, onclick: stop }, "stop");
  const depth = h("select", { ariaLabel: "parts of the prefix" }, [1, 2, 3].map((parts) => h("option", { value: parts }, `${parts} part${parts > 1 ? "s" : ""} of the name`)));
  const start = (work) => async () => {
    stop();
    const mine = new AbortController();
    running = mine;
    halt.hidden = false;
    patch(result);
    try {
      await work({ pattern: pattern(), signal: mine.signal, state, result, changed, depth: Number(depth.value) });
    } catch (error) {
      state.textContent = error.name === "AbortError" ? `${state.textContent} (stopped)` : error.message;
    }
    if (running === mine) halt.hidden = true;
  };
  return h("div", {}, h("p.quiet", {}, "Both use the pattern of the search, and read all keys of the database in steps."),
    h("p.row", {}, h("button", { type: "button", onclick: start(memory) }, "memory by prefix"), depth, isReadOnly ? null : h("button.danger", { type: "button", onclick: start(remove) }, "count and delete"), halt), state, result);
}

/** Calls `each` with the names of every SCAN. */
async function scan({ pattern, signal }, each) {
  let cursor = "0";
  do {
    const [reply] = await run([["SCAN", cursor, "MATCH", pattern, "COUNT", LOOK]], { signal });
    if (reply instanceof Error) throw reply;
    cursor = String(reply[0]);
    if ((await each(reply[1])) === false) return;
  } while (cursor !== "0" && !signal.aborted);
}

async function memory(work) {
  const { signal, state, result, depth } = work;
  const size = await one("DBSIZE");
  const prefixes = new Map();
  let [measured, all] = [0, 0];
  await scan(work, async (names) => {
    if (names.length === 0) return true;
    all += names.length;
    const replies = await run(names.map((name) => ["MEMORY", "USAGE", name.argument()]), { signal });
    replies.forEach((taken, index) => typeof taken === "number" && add(prefixes, prefixOf(String(names[index]), depth), taken));
    measured += replies.length;
    state.textContent = `${count(measured)} of at most ${count(size)} keys`;
    patch(result, prefixTable(prefixes));
    return measured < MEASURED_MAX;
  });
  state.textContent = measured < MEASURED_MAX ? `all ${count(all)} matching keys` : `the first ${count(measured)} keys that SCAN found, which is a random part of ${count(size)} keys`;
  patch(result, prefixTable(prefixes));
}

function prefixOf(name, depth) {
  const parts = name.split(":");
  return parts.length === 1 ? "(no prefix)" : `${parts.slice(0, Math.min(depth, parts.length - 1)).join(":")}:`;
}

function add(prefixes, name, taken) {
  const prefix = prefixes.has(name) || prefixes.size < PREFIXES_MAX ? name : OTHERS;
  const sum = prefixes.get(prefix) ?? { keys: 0, bytes: 0, largest: 0 };
  prefixes.set(prefix, { keys: sum.keys + 1, bytes: sum.bytes + taken, largest: Math.max(sum.largest, taken) });
}

function prefixTable(prefixes) {
  const rows = [...prefixes].map(([prefix, sum]) => ({ prefix, ...sum })).sort((a, b) => b.bytes - a.bytes);
  const total = rows.reduce((sum, row) => sum + row.bytes, 0);
  return table([
    { title: "prefix", of: (row) => row.prefix, mono: true, long: true },
    { title: "keys", of: (row) => count(row.keys), number: true },
    { title: "memory", of: (row) => bytes(row.bytes), number: true },
    { title: "part", of: (row) => `${((100 * row.bytes) / total).toFixed(1)} %`, number: true },
    { title: "a key", of: (row) => bytes(row.bytes / row.keys), number: true },
    { title: "largest", of: (row) => bytes(row.largest), number: true },
  ], rows.slice(0, PREFIXES_SHOWN), "memory by prefix", (row) => row.prefix);
}

/** Counts the matching keys, asks, and deletes them in steps. */
async function remove(work) {
  const { pattern, signal, state, changed } = work;
  let [matching, examples] = [0, []];
  await scan(work, (names) => {
    matching += names.length;
    examples = [...examples, ...names.map(String)].slice(0, EXAMPLES);
    state.textContent = `counting: ${count(matching)} keys match ${pattern}`;
  });
  if (signal.aborted) return;
  state.textContent = `${count(matching)} keys match ${pattern}`;
  if (matching === 0) return;
  const more = matching > examples.length ? ["..."] : [];
  if (!(await agreed([...examples, ...more].join("\n"), `Deletes ${counted(matching, "key")} that match ${pattern}, and keys that match by then. There is no way back.`))) {
    state.textContent = "nothing deleted";
    return;
  }
  let deleted = 0;
  await scan(work, async (names) => {
    if (names.length === 0) return;
    const [reply] = await run([["UNLINK", ...names.map((name) => name.argument())]], { signal });
    if (reply instanceof Error) throw reply;
    deleted += reply;
    state.textContent = `${count(deleted)} of ${count(matching)} keys deleted`;
  });
  changed();
}
