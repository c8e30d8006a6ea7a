// One key: what it holds, a part at a time, and changing it.

import { isReadOnly, one, run } from "./api.js";
import { confirmed } from "./confirm.js";
import { h, table } from "./dom.js";
import { Bytes, bytes, count, seconds } from "./text.js";

// Elements that are shown at a time, and bytes of a string.
const PAGE = 100;
const STRING_BYTES = 64 * 1024;

/** What PTTL answers, for people. */
export function timeLeft(ms) {
  if (ms === null || ms === undefined) return "";
  return ms < 0 ? "" : seconds(ms / 1000);
}

/** Asks, runs, and says what went wrong. Answers whether it ran. */
export async function change(command, why, place) {
  try {
    return await confirmed(command, why);
  } catch (error) {
    place.replaceChildren(h("span.error", {}, error.message));
    return false;
  }
}

/** Shows a key in `place`; `changed` is told when the list of keys isn't right any more. */
export async function show(place, name, changed) {
  const key = name.argument();
  try {
    const [type, ttl, memory, encoding] = await run([["TYPE", key], ["PTTL", key], ["MEMORY", "USAGE", key], ["OBJECT", "ENCODING", key]]);
    if (type instanceof Error) throw type;
    const kind = KINDS[String(type)];
    const problem = h("p.error", { role: "alert" });
    const again = () => show(place, name, changed);
    const context = { key, problem, again, edit: (command, why) => change(command, why, problem).then((ran) => ran && again()) };
    const said = [String(type), encoding instanceof Error ? null : String(encoding), typeof memory === "number" ? bytes(memory) : null, ttl >= 0 ? `expires in ${timeLeft(ttl)}` : "doesn't expire"];
    place.replaceChildren(h("h2.mono", {}, String(name)), h("p.quiet", {}, said.filter(Boolean).join(", ")), problem,
      String(type) === "none" ? h("p", {}, "It is gone.") : actions(context, name, changed), ...(kind ? await kind(context) : []));
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
      h("button.danger", { type: "button", onclick: gone(["UNLINK", key], "Removes the key.") }, "delete")),
    h("p.row", {}, rename, h("button", { type: "button", onclick: () => rename.value && gone(["RENAMENX", key, rename.value], "A key that has the new name stays as it is.")() }, "rename")));
}

const KINDS = {
  string: async ({ key, edit }) => {
    const [length, text] = await run([["STRLEN", key], ["GETRANGE", key, 0, STRING_BYTES - 1]]);
    const whole = length <= STRING_BYTES && text.text !== null;
    const area = h("textarea", { value: String(text), readOnly: isReadOnly || !whole, spellcheck: false, ariaLabel: "value" });
    const why = "Replaces the value; when it expires stays.";
    return [h("h3", {}, `${count(length)} bytes`), area,
      whole ? null : h("p.quiet", {}, text.text === null ? "Not text: bytes are shown as \\x00, and can't be edited here." : `The first ${count(STRING_BYTES)} bytes.`),
      isReadOnly || !whole ? null : h("p", {}, h("button.main", { type: "button", onclick: () => edit(["SET", key, area.value, "KEEPTTL"], why) }, "save"))].filter(Boolean);
  },
  hash: (context) => scanned(context, "HSCAN", "HLEN", {
    columns: ["field", "value"], set: (field, text) => ["HSET", context.key, field, text], remove: (field) => ["HDEL", context.key, field],
  }),
  set: (context) => scanned(context, "SSCAN", "SCARD", { columns: ["member"], set: (member) => ["SADD", context.key, member], remove: (member) => ["SREM", context.key, member] }),
  zset: async (context) => paged(context, "ZCARD", {
    columns: ["member", "score"], page: async (at) => chunks(await one("ZRANGE", context.key, at, at + PAGE - 1, "WITHSCORES"), 2),
    set: (member, score) => ["ZADD", context.key, score, member], remove: (member) => ["ZREM", context.key, member],
  }),
  list: async (context) => paged(context, "LLEN", {
    columns: ["index", "element"], page: async (at) => (await one("LRANGE", context.key, at, at + PAGE - 1)).map((element, index) => [at + index, element]),
    set: (index, text) => (index === "" ? ["RPUSH", context.key, text] : ["LSET", context.key, index, text]), remove: null, hint: "without an index, the element goes to the end",
  }),
  stream: async ({ key }) => {
    const [length, entries] = await run([["XLEN", key], ["XREVRANGE", key, "+", "-", "COUNT", PAGE]]);
    const fields = (list) => chunks(list, 2).map(([field, text]) => `${field}: ${text}`).join("\n");
    return [h("h3", {}, `${count(length)} entries, the latest first`), table([{ title: "id", of: ([id]) => String(id), mono: true }, { title: "fields", of: ([, list]) => h("pre", {}, fields(list)), long: true }], entries, "entries")];
  },
  // Suggestions; the name is RediSearch's.
  trietype0: async ({ key }) => {
    const [length, best] = await run([["FT.SUGLEN", key], ["FT.SUGGET", key, "", "MAX", PAGE, "WITHSCORES", "WITHPAYLOADS"]]);
    const columns = ["text", "rank", "payload"].map((title, index) => ({ title, of: (row) => String(row[index] ?? ""), long: index !== 1, mono: true }));
    return [h("h3", {}, `${count(length)} suggestions, the best first`), table(columns, chunks(best, 3), "suggestions")];
  },
};

function chunks(list, size) {
  return Array.from({ length: Math.floor(list.length / size) }, (_, index) => list.slice(index * size, (index + 1) * size));
}

/** What SCAN's relatives go through. */
async function scanned(context, command, counter, kind) {
  let cursor = "0";
  const page = async () => {
    const [next, list] = await one(command, context.key, cursor, "COUNT", PAGE);
    cursor = String(next);
    return { rows: chunks(list, kind.columns.length), isLast: cursor === "0" };
  };
  return collection(context, counter, kind, page);
}

/** What has an order. */
async function paged(context, counter, kind) {
  let at = 0;
  const page = async () => {
    const rows = await kind.page(at);
    at += rows.length;
    return { rows, isLast: rows.length < PAGE };
  };
  return collection(context, counter, kind, page);
}

async function collection(context, counter, kind, page) {
  const size = await one(counter, context.key);
  const [rows, holder] = [[], h("div")];
  const more = h("button", { type: "button", onclick: () => fill().catch((error) => context.problem.replaceChildren(error.message)) }, "more");
  const inputs = kind.columns.map((column) => h("input", { type: "text", placeholder: column, ariaLabel: column }));
  const fill = async () => {
    const { rows: found, isLast } = await page();
    rows.push(...found);
    more.hidden = isLast;
    holder.replaceChildren(elements(context, kind, rows, inputs));
  };
  await fill();
  const add = h("form.row", { onsubmit: (event) => { event.preventDefault(); context.edit(kind.set(...inputs.map((input) => input.value)), kind.hint ?? ""); } }, inputs, h("button.main", { type: "submit" }, "set"));
  return [h("h3", {}, `${count(size)} ${size === 1 ? "element" : "elements"}`), ...(isReadOnly ? [] : [add]), holder, more];
}

function elements(context, kind, rows, inputs) {
  const columns = kind.columns.map((title, index) => ({ title, of: (row) => String(row[index]), long: true, mono: true }));
  if (!isReadOnly) {
    const edit = (row) => row.forEach((part, index) => { inputs[index].value = String(part); });
    const argument = (part) => (part instanceof Bytes ? part.argument() : part);
    const isText = (row) => row.every((part) => !(part instanceof Bytes) || part.text !== null);
    columns.push({ title: "", of: (row) => h("span.row", {},
      isText(row) ? h("button.plain", { type: "button", onclick: () => edit(row) }, "edit") : null,
      kind.remove ? h("button.plain", { type: "button", onclick: () => context.edit(kind.remove(argument(row[0])), "") }, "remove") : null) });
  }
  return table(columns, rows, "elements");
}
