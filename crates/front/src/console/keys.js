// A browser of keys: found by SCAN, a part at a time, whatever their number.

import { isReadOnly, one, run } from "./api.js";
import * as value from "./value.js";
import { h, table } from "./dom.js";
import { bytes, count } from "./text.js";

const TYPES = ["", "string", "hash", "list", "set", "zset", "stream", "trietype0"];
// Keys that are looked for at a time.
const PAGE = 100;
// How many keys one SCAN looks at: few while all of them match, many while few do.
const [LOOK_MIN, LOOK_MAX] = [100, 10_000];

export const interval = 0;

let found = [];
let cursor = "0";
let looked = 0;
/** The search that is under way, to be stopped. */
let search = null;
let elements = null;

export function open(view) {
  search?.abort();
  const pattern = h("input", { type: "search", value: "*", placeholder: "pattern, such as user:*", ariaLabel: "pattern", spellcheck: false });
  const type = h("select", { ariaLabel: "type" }, TYPES.map((name) => h("option", { value: name }, name || "any type")));
  const form = h("form.row", { onsubmit: (event) => { event.preventDefault(); start(); } }, pattern, type, h("button.main", { type: "submit" }, "search"));
  const more = h("button", { type: "button", onclick: next, hidden: true }, "more");
  const stop = h("button", { type: "button", onclick: () => search?.abort(), hidden: true }, "stop");
  elements = { pattern, type, more, stop, list: h("div", { id: "keys" }), state: h("p.quiet", { role: "status" }), detail: h("section.card", { id: "key", ariaLabel: "key" }, h("p.quiet", {}, "Choose a key.")) };
  view.replaceChildren(h("div.keys", {}, h("section.card", {}, form, elements.state, elements.list, h("p.row", {}, more, stop), isReadOnly ? null : newKey()), elements.detail));
  start();
}

function start() {
  [found, cursor, looked] = [[], "0", 0];
  elements.list.replaceChildren();
  next();
}

async function next() {
  search?.abort();
  const mine = new AbortController();
  search = mine;
  elements.stop.hidden = false;
  elements.more.hidden = true;
  try {
    await fill(mine.signal);
  } catch (error) {
    if (error.name !== "AbortError") elements.state.textContent = error.message;
  }
  if (search !== mine) return;
  elements.stop.hidden = true;
  elements.more.hidden = cursor === "0" && looked > 0;
}

/** Looks until a page is full or all keys have been looked at. */
async function fill(signal) {
  const [wanted, size] = [found.length + PAGE, await one("DBSIZE")];
  let look = LOOK_MIN;
  do {
    const options = elements.type.value ? ["TYPE", elements.type.value] : [];
    const [reply] = await run([["SCAN", cursor, "MATCH", elements.pattern.value || "*", "COUNT", look, ...options]], { signal });
    if (reply instanceof Error) throw reply;
    cursor = String(reply[0]);
    looked += look;
    const names = reply[1];
    if (names.length < look / 4) look = Math.min(LOOK_MAX, look * 4);
    await describe(names, signal);
    const done = cursor === "0" ? "all" : `about ${count(Math.min(looked, size))}`;
    elements.state.textContent = `${count(found.length)} found; looked at ${done} of ${count(size)} keys`;
  } while (cursor !== "0" && found.length < wanted && !signal.aborted);
}

/** Adds keys with what is said of each. */
async function describe(names, signal) {
  if (names.length === 0) return;
  const replies = await run(names.flatMap((name) => [["TYPE", name.argument()], ["PTTL", name.argument()], ["MEMORY", "USAGE", name.argument()]]), { signal });
  const part = (index) => (replies[index] instanceof Error ? null : replies[index]);
  found.push(...names.map((name, index) => ({ name, type: String(part(3 * index) ?? "?"), ttl: part(3 * index + 1), memory: part(3 * index + 2) })));
  elements.list.replaceChildren(table([
    { title: "key", of: (row) => h("button.plain.mono", { type: "button", onclick: (event) => choose(row.name, event.target) }, String(row.name)), long: true },
    { title: "type", of: (row) => row.type },
    { title: "expires", of: (row) => value.timeLeft(row.ttl), number: true },
    { title: "memory", of: (row) => (row.memory === null ? "" : bytes(row.memory)), number: true },
  ], found, "keys"));
}

function choose(name, button) {
  for (const row of elements.list.querySelectorAll(".chosen")) row.classList.remove("chosen");
  button?.closest("tr").classList.add("chosen");
  value.show(elements.detail, name, start);
  if (matchMedia("(max-width: 50rem)").matches) elements.detail.scrollIntoView();
}

function newKey() {
  const [name, text] = [h("input", { type: "text", placeholder: "new key", ariaLabel: "new key" }), h("input", { type: "text", placeholder: "value", ariaLabel: "value of the new key" })];
  const make = async (event) => {
    event.preventDefault();
    if (name.value === "") return;
    if (await value.change(["SET", name.value, text.value, "NX"], "Makes a string; a key that is there stays as it is.", elements.state)) start();
  };
  return h("form.row", { onsubmit: make }, name, text, h("button", { type: "submit" }, "make"));
}
