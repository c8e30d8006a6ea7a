// One key: its value, a part at a time, and its changes.

import { isReadOnly, one, run } from "./api.js";
import { confirmed } from "./confirm.js";
import { h, table } from "./dom.js";
import { FORMATS, formatted } from "./format.js";
import * as stream from "./stream.js";
import { Bytes, bytes, count, counted, seconds } from "./text.js";

// Number of elements that are shown at a time, and bytes of a string.
const PAGE = 100;
const STRING_BYTES = 64 * 1024;
// Longest text in a table's cell.
const CELL_CHARS = 400;

let format = "auto";

/** A time to live in milliseconds as text; empty without one. */
export function timeLeft(ms) {
  return ms === null || ms === undefined || ms < 0 ? "" : seconds(ms / 1000);
}

/** Asks, runs a command, and shows its error in `place`. Returns true if it ran. */
export async function change(command, why, place) {
  try {
    return await confirmed(command, why);
  } catch (error) {
    place.replaceChildren(h("span.error", {}, error.message));
    return false;
  }
}

/** Shows a key in `place`; calls `changed` after a change that affects the list of keys. */
export async function show(place, name, changed) {
  const key = name.argument();
  try {
    const [type, ttl, memory, encoding] = await run([["TYPE", key], ["PTTL", key], ["MEMORY", "USAGE", key], ["OBJECT", "ENCODING", key]]);
    if (type instanceof Error) throw type;
    const kind = KINDS[String(type)];
    const problem = h("p.error", { role: "alert" });
    const again = () => show(place, name, changed);
    const context = { key, problem, again, edit: (command, why) => change(command, why, problem).then((ran) => ran && again()) };
    const facts = [String(type), encoding instanceof Error ? null : String(encoding), typeof memory === "number" ? bytes(memory) : null, ttl >= 0 ? `expires in ${timeLeft(ttl)}` : "never expires"];
    const content = kind ? await kind(context) : [];
    place.replaceChildren(h("h2.mono", {}, String(name)), h("p.quiet", {}, facts.filter(Boolean).join(", ")), problem,
      ...(String(type) === "none" ? [h("p", {}, "The key doesn't exist any more.")] : [actions(context, name, changed), ...content].filter(Boolean)));
  } catch (error) {
    place.replaceChildren(h("h2.mono", {}, String(name)), h("p.error", {}, error.message));
  }
}

function actions({ key, problem, edit }, name, changed) {
  if (isReadOnly) return null;
  const ttl = h("input", { type: "number", min: 1, placeholder: "seconds", ariaLabel: "seconds to live" });
  const gone = (command, why) => async () => (await change(command, why, problem)) && changed();
  const rename = h("input", { type: "text", value: name.text ?? "", ariaLabel: "new name" });
  return h("div", {},
    h("p.row", {}, ttl, h("button", { type: "button", onclick: () => ttl.value && edit(["EXPIRE", key, ttl.value], "") }, "expire"), h("button", { type: "button", onclick: () => edit(["PERSIST", key], "") }, "never expire"),
      h("button.danger", { type: "button", onclick: gone(["UNLINK", key], "Deletes the key.") }, "delete")),
    h("p.row", {}, rename, h("button", { type: "button", onclick: () => rename.value && gone(["RENAMENX", key, rename.value], "An existing key with the new name stays unchanged.")() }, "rename")));
}

/** The choice of a format for values; `changed` is called with each new one. */
function formats(changed) {
  const choose = (event) => {
    format = event.target.value;
    changed();
  };
  return h("label.row", {}, "show as", h("select", { ariaLabel: "format", onchange: choose }, FORMATS.map((name) => h("option", { value: name, selected: name === format }, name))));
}

/** Writes a value in the chosen format into an element. */
function write(value, element, charsMax = Infinity) {
  formatted(value, format).catch((error) => error.message).then((text) => {
    element.textContent = text.length > charsMax ? `${text.slice(0, charsMax)}…` : text;
    element.title = text.length > charsMax ? `${text.length} characters` : "";
  });
  return element;
}

const KINDS = {
  string: async ({ key, edit }) => {
    const [length, value] = await run([["STRLEN", key], ["GETRANGE", key, 0, STRING_BYTES - 1]]);
    if (value instanceof Error) throw value;
    const isWhole = length <= STRING_BYTES && value.text !== null;
    const view = h("pre", { id: "formatted", tabIndex: 0 });
    const area = h("textarea", { value: String(value), readOnly: isReadOnly || !isWhole, spellcheck: false, ariaLabel: "value" });
    const limit = value.text === null ? "The value isn't text, so it can't be edited here." : `These are the first ${count(STRING_BYTES)} bytes, so the value can't be edited here.`;
    return [h("h3", {}, counted(length, "byte")), h("div.row", {}, formats(() => write(value, view))), write(value, view),
      value.text === null ? null : h("h3", {}, isWhole && !isReadOnly ? "Edit" : "Text"), value.text === null ? null : area, isWhole ? null : h("p.quiet", {}, limit),
      isReadOnly || !isWhole ? null : h("p", {}, h("button.main", { type: "button", onclick: () => edit(["SET", key, area.value, "KEEPTTL"], "Replaces the value; the expiry stays.") }, "save"))].filter(Boolean);
  },
  hash: (context) => {
    const times = { title: "expires in", of: (row) => timeLeft(row.ttl), number: true };
    const expire = (row, text) => (text === "" ? ["HPERSIST", context.key, "FIELDS", 1, argument(row.cells[0])] : ["HEXPIRE", context.key, text, "FIELDS", 1, argument(row.cells[0])]);
    return scanned(context, "HSCAN", "HLEN", {
      columns: ["field", "value"], set: (field, text) => ["HSET", context.key, field, text], remove: (field) => ["HDEL", context.key, field], edited: 1, more: [times], expire, describe: (rows) => fieldTimes(context.key, rows),
    });
  },
  set: (context) => scanned(context, "SSCAN", "SCARD", { columns: ["member"], set: (member) => ["SADD", context.key, member], remove: (member) => ["SREM", context.key, member] }),
  zset: (context) => ranked(context),
  list: (context) => paged(context, "LLEN", {
    columns: ["index", "element"], page: async (at) => (await one("LRANGE", context.key, at, at + PAGE - 1)).map((element, index) => [at + index, element]),
    set: (index, text) => (index === "" ? ["RPUSH", context.key, text] : ["LSET", context.key, index, text]), remove: null, edited: 1, hint: "Without an index, the element is added at the end.",
  }),
  stream: stream.show,
  // Suggestions; the name is RediSearch's.
  trietype0: async ({ key }) => {
    const [length, best] = await run([["FT.SUGLEN", key], ["FT.SUGGET", key, "", "MAX", PAGE, "WITHSCORES", "WITHPAYLOADS"]]);
    const columns = ["text", "rank", "payload"].map((title, index) => ({ title, of: (row) => String(row[index] ?? ""), long: index !== 1, mono: true }));
    return [h("h3", {}, `${counted(length, "suggestion")}, the best first`), table(columns, chunks(best, 3), "suggestions")];
  },
};

const argument = (part) => (part instanceof Bytes ? part.argument() : part);

export function chunks(list, size) {
  return Array.from({ length: Math.floor(list.length / size) }, (_, index) => list.slice(index * size, (index + 1) * size));
}

/** Adds the times to live of hash fields to their rows. Servers without such times return an error, which means none. */
async function fieldTimes(key, rows) {
  if (rows.length === 0) return;
  const [times] = await run([["HPTTL", key, "FIELDS", rows.length, ...rows.map((row) => argument(row.cells[0]))]]);
  if (Array.isArray(times)) rows.forEach((row, index) => { row.ttl = times[index]; });
}

/** A collection that a relative of SCAN reads. */
async function scanned(context, command, counter, kind) {
  let cursor = "0";
  const page = async () => {
    const [next, list] = await one(command, context.key, cursor, "COUNT", PAGE);
    cursor = String(next);
    return { rows: chunks(list, kind.columns.length), isLast: cursor === "0" };
  };
  return collection(context, counter, kind, page);
}

/** A collection with an order. */
async function paged(context, counter, kind) {
  let at = kind.from ?? 0;
  const page = async () => {
    const rows = await kind.page(at);
    at += rows.length;
    return { rows, isLast: rows.length < PAGE };
  };
  return collection(context, counter, kind, page);
}

/** A sorted set by rank, from either end and from any rank. */
async function ranked(context) {
  const holder = h("div");
  const rank = h("input", { type: "number", min: 0, value: 0, ariaLabel: "from rank" });
  const order = h("select", { ariaLabel: "order" }, h("option", { value: "" }, "lowest score first"), h("option", { value: "REV" }, "highest score first"));
  const fill = async () => {
    const reverse = order.value === "" ? [] : ["REV"];
    const page = async (at) => chunks(await one("ZRANGE", context.key, at, at + PAGE - 1, ...reverse, "WITHSCORES"), 2).map(([member, score], index) => [at + index, member, score]);
    holder.replaceChildren(...await paged(context, "ZCARD", {
      columns: ["rank", "member", "score"], inputs: ["member", "score"], page, from: Math.max(0, Number(rank.value) || 0), identity: 1, edited: 2,
      set: (member, score) => ["ZADD", context.key, score, member], change: (row, score) => ["ZADD", context.key, "XX", score, argument(row[1])], remove: (member) => ["ZREM", context.key, member],
    }));
  };
  await fill();
  const go = (event) => {
    event?.preventDefault();
    fill().catch((error) => context.problem.replaceChildren(error.message));
  };
  order.addEventListener("change", () => go());
  return [h("form.row", { onsubmit: go }, order, h("label.row", {}, "from rank", rank), h("button", { type: "submit" }, "go")), holder];
}

async function collection(context, counter, kind, page) {
  const size = await one(counter, context.key);
  const [rows, holder] = [[], h("div")];
  const fill = async () => {
    const { rows: found, isLast } = await page();
    const next = found.map((cells) => ({ cells }));
    await kind.describe?.(next);
    rows.push(...next);
    more.hidden = isLast;
    draw();
  };
  const draw = () => {
    const top = holder.firstChild?.scrollTop ?? 0;
    holder.replaceChildren(elements(context, kind, rows, draw));
    holder.firstChild.scrollTop = top;
  };
  const more = h("button", { type: "button", onclick: () => fill().catch((error) => context.problem.replaceChildren(error.message)) }, "more");
  await fill();
  const inputs = (kind.inputs ?? kind.columns).map((column) => h("input", { type: "text", placeholder: column, ariaLabel: column }));
  const add = h("form.row", { onsubmit: (event) => { event.preventDefault(); context.edit(kind.set(...inputs.map((input) => input.value)), kind.hint ?? ""); } }, inputs, h("button.main", { type: "submit" }, "set"));
  return [h("h3", {}, counted(size, "element")), h("div.row", {}, formats(draw)), ...(isReadOnly ? [] : [add]), holder, more];
}

function elements(context, kind, rows, draw) {
  const cell = (part) => (part instanceof Bytes ? write(part, h("span.pre"), CELL_CHARS) : String(part));
  const columns = kind.columns.map((title, index) => ({ title, of: (row) => (row.editing && index === kind.edited ? editor(context, kind, row, draw) : cell(row.cells[index])), long: true, mono: true }));
  columns.push(...(kind.more ?? []));
  if (!isReadOnly) columns.push({ title: "", of: (row) => buttons(context, kind, row, draw) });
  return table(columns, rows, "elements");
}

function buttons(context, kind, row, draw) {
  const last = row.cells[kind.edited];
  const canEdit = kind.edited !== undefined && !row.editing && (!(last instanceof Bytes) || last.text !== null);
  const edit = (what) => () => {
    row.editing = what;
    draw();
  };
  const identity = argument(row.cells[kind.identity ?? 0]);
  return h("span.row", {}, canEdit ? h("button.plain", { type: "button", onclick: edit("value") }, "edit") : null,
    kind.expire && !row.editing ? h("button.plain", { type: "button", onclick: edit("time") }, "expire") : null,
    kind.remove ? h("button.plain", { type: "button", onclick: () => context.edit(kind.remove(identity), "") }, "remove") : null);
}

/** An input in the place of a value. A change is confirmed before it runs. */
function editor(context, kind, row, draw) {
  const isTime = row.editing === "time";
  const [first] = row.cells;
  const input = isTime ? h("input", { type: "number", min: 1, placeholder: "seconds; empty: never", ariaLabel: "seconds to live" })
    : h("input", { type: "text", value: String(row.cells[kind.edited]), ariaLabel: `new ${kind.columns[kind.edited]}` });
  const cancel = () => {
    row.editing = null;
    draw();
  };
  const save = (event) => {
    event.preventDefault();
    if (isTime) context.edit(kind.expire(row, input.value), "");
    else context.edit(kind.change ? kind.change(row.cells, input.value) : kind.set(argument(first), input.value), kind.hint && kind.change ? kind.hint : "");
  };
  queueMicrotask(() => input.focus());
  return h("form.row", { onsubmit: save, onkeydown: (event) => event.key === "Escape" && cancel() }, input, h("button.main", { type: "submit" }, "save"), h("button", { type: "button", onclick: cancel }, "cancel"));
}
