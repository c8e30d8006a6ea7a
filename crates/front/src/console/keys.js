// The keys of a database: search, tree, memory by prefix, bulk delete. SCAN reads a part at a time, for any number of keys.

import { isReadOnly, run } from "./api.js";
import * as bulk from "./bulk.js";
import { h, patch, table } from "./dom.js";
import { Bytes, bytes, count, counted } from "./text.js";
import * as value from "./value.js";

// The names of SCAN's TYPE, and their titles.
const TYPES = { "": "any type", string: "string", hash: "hash", list: "list", set: "set", zset: "sorted set", stream: "stream", trietype0: "suggestions" };
// Number of keys that a search adds to the list.
const PAGE = 100;
// Number of keys that one SCAN reads: few while all of them match, many while few do.
const [LOOK_MIN, LOOK_MAX] = [100, 10_000];
const SEPARATOR = ":";
// A pattern without these characters is a name.
const GLOB = /[\\*?[]/;
/** The order of folders: numbers by their value. */
const order = new Intl.Collator("en", { numeric: true });
const EXPIRIES = { "": "any expiry", yes: "expires", no: "never expires" };
const SIZES = { 0: "any size", 1024: "from 1 KB", 102_400: "from 100 KB", 1_048_576: "from 1 MB" };

export const interval = 0;

let found = [];
let cursor = "0";
let looked = 0;
/** The search that is under way; it can be aborted. */
let search = null;
let elements = null;
let isTree = false;
/** Prefixes of the open folders. */
const opened = new Set();

export function open(view) {
  close();
  const choice = (label, options, onchange) => h("select", { ariaLabel: label, onchange }, Object.entries(options).map(([id, title]) => h("option", { value: id }, title)));
  const pattern = h("input", { type: "search", value: "*", placeholder: "pattern, for example user:*", ariaLabel: "pattern", spellcheck: false });
  const type = choice("type", TYPES);
  const [expiry, size] = [choice("expiry", EXPIRIES), choice("size", SIZES)];
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); start(); } }, h("div.row", {}, pattern, h("button.main", { type: "submit" }, "search")), h("div.row", {}, type, expiry, size));
  const tree = h("label.row", {}, h("input", { type: "checkbox", checked: isTree, onchange: (event) => { isTree = event.target.checked; list(); } }), "tree");
  const more = h("button", { type: "button", onclick: next, hidden: true }, "more");
  const stop = h("button", { type: "button", onclick: close, hidden: true }, "stop");
  const tools = h("details", { id: "tools" }, h("summary", {}, "Memory by prefix, bulk delete"), bulk.tools(() => pattern.value || "*", start));
  elements = { pattern, type, expiry, size, more, stop, list: h("div", { id: "keys" }), state: h("p.quiet", { role: "status" }), detail: h("section.card", { id: "key", ariaLabel: "key" }, h("p.quiet", {}, "Select a key.")) };
  view.replaceChildren(h("div.keys", {}, h("section.card", {}, form, h("div.row", {}, elements.state, h("span.space"), tree), elements.list, h("p.row", {}, more, stop), isReadOnly ? null : newKey(), tools), elements.detail));
  start();
}

/** Ends the search; called when the view is left. */
export function close() {
  search?.abort();
  bulk.stop();
}

function start() {
  [found, cursor, looked] = [[], "0", 0];
  opened.clear();
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
    if (error.name !== "AbortError") elements.state.textContent = error.name === "TypeError" ? "The server doesn't answer." : error.message;
  }
  if (search !== mine) return;
  elements.stop.hidden = true;
  elements.more.hidden = cursor === "0" && looked > 0;
}

/** Finds the key of this name without reading the others. */
async function lookUp(name, signal) {
  const [type] = await run([["TYPE", name]], { signal });
  if (type instanceof Error) throw type;
  [cursor, looked] = ["0", 1];
  const isWanted = String(type) !== "none" && (elements.type.value === "" || elements.type.value === String(type));
  if (isWanted) await describe([Bytes.of(name)], signal);
  elements.state.textContent = `${count(found.length)} found; looked up by name`;
}

/** Searches until a page is full or all keys have been read. */
async function fill(signal) {
  const pattern = elements.pattern.value || "*";
  if (!GLOB.test(pattern)) return lookUp(pattern, signal);
  // A user may have the right to SCAN alone.
  const [[size], wanted] = [await run([["DBSIZE"]], { signal }), found.length + PAGE];
  const total = typeof size === "number" ? counted(size, "key") : "the keys";
  let look = LOOK_MIN;
  do {
    const options = elements.type.value ? ["TYPE", elements.type.value] : [];
    const [reply] = await run([["SCAN", cursor, "MATCH", pattern, "COUNT", look, ...options]], { signal });
    if (reply instanceof Error) throw reply;
    cursor = String(reply[0]);
    looked += look;
    const names = reply[1];
    if (names.length < look / 4) look = Math.min(LOOK_MAX, look * 4);
    await describe(names, signal);
    const done = cursor === "0" ? "all" : `about ${count(typeof size === "number" ? Math.min(looked, size) : looked)}`;
    elements.state.textContent = `${count(found.length)} found; searched ${done} of ${total}`;
  } while (cursor !== "0" && found.length < wanted && !signal.aborted);
  return null;
}

/** Adds keys with their type, expiry and memory, if the filters admit them. */
async function describe(names, signal) {
  if (names.length === 0) return;
  const replies = await run(names.flatMap((name) => [["TYPE", name.argument()], ["PTTL", name.argument()], ["MEMORY", "USAGE", name.argument()]]), { signal });
  const part = (index) => (replies[index] instanceof Error ? null : replies[index]);
  const rows = names.map((name, index) => ({ name, type: String(part(3 * index) ?? "?"), ttl: part(3 * index + 1), memory: part(3 * index + 2) }));
  const [expiry, least] = [elements.expiry.value, Number(elements.size.value)];
  // SCAN may return a key twice.
  const known = new Set(found.map((row) => String(row.name)));
  found.push(...rows.filter((row) => !known.has(String(row.name)) && (expiry === "" || (row.ttl >= 0) === (expiry === "yes")) && (row.memory ?? 0) >= least));
  list();
}

function list() {
  patch(elements.list, isTree ? tree() : h("div", {}, flat(found)));
}

function flat(rows) {
  return table([
    { title: "key", of: keyButton, long: true },
    { title: "type", of: (row) => TYPES[row.type] ?? row.type },
    { title: "expires in", of: (row) => value.timeLeft(row.ttl), number: true },
    { title: "memory", of: (row) => (row.memory === null ? "" : bytes(row.memory)), number: true },
  ], rows, "keys", (row) => String(row.name));
}

const keyButton = (row) => h("button.plain.mono", { type: "button", onclick: (event) => choose(row.name, event.target) }, String(row.name));

/** The found keys as folders, by the parts of their names. Only open folders have their content. */
function tree() {
  return h("div.tree.scroll", { tabIndex: 0, role: "region", ariaLabel: "keys" }, found.length === 0 ? null : folder(found, ""));
}

function folder(rows, prefix) {
  const [folders, leaves] = [new Map(), []];
  for (const row of rows) {
    const end = String(row.name).indexOf(SEPARATOR, prefix.length);
    if (end < 0) {
      leaves.push(row);
      continue;
    }
    const name = String(row.name).slice(0, end + 1);
    if (folders.has(name)) folders.get(name).push(row);
    else folders.set(name, [row]);
  }
  const memory = (inside) => inside.reduce((sum, row) => sum + (row.memory ?? 0), 0);
  const toggle = (name) => (event) => {
    if (event.target.open === opened.has(name)) return;
    if (event.target.open) opened.add(name);
    else opened.delete(name);
    list();
  };
  const only = (name) => () => {
    elements.pattern.value = `${escaped(name)}*`;
    start();
  };
  const branch = ([name, inside]) => h("details", { key: `folder ${name}`, open: opened.has(name), ontoggle: toggle(name) },
    h("summary", {}, h("span.mono", {}, name.slice(prefix.length)), h("span.quiet", {}, ` ${counted(inside.length, "key")}, ${bytes(memory(inside))}`)),
    opened.has(name) ? h("div.inside", {}, h("button.plain", { type: "button", onclick: only(name) }, `search all ${name}*`), folder(inside, name)) : null);
  return h("div", {}, [...folders].sort(([a], [b]) => order.compare(a, b)).map(branch), leaves.length > 0 ? flat(leaves) : null);
}

/** A name as a pattern that matches only this name. */
function escaped(name) {
  return name.replace(/[\\*?[\]^]/g, "\\$&");
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
    if (await value.change(["SET", name.value, text.value, "NX"], "Creates a string. An existing key stays unchanged.", elements.state)) start();
  };
  return h("form.row", { onsubmit: make }, name, text, h("button", { type: "submit" }, "create"));
}
