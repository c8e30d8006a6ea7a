// A stream: entries, consumer groups, consumers, pending entries.

import { isReadOnly, one, pairs, run } from "./api.js";
import { h, patch, table } from "./dom.js";
import { count, counted, seconds } from "./text.js";

const PAGE = 100;
const PENDING_SHOWN = 50;

export async function show(context) {
  const [length, groups] = await run([["XLEN", context.key], ["XINFO", "GROUPS", context.key]]);
  const [entries, holder] = [[], h("div")];
  let end = "+";
  const more = h("button", { type: "button", onclick: () => fill().catch((error) => context.problem.replaceChildren(error.message)) }, "more");
  const fill = async () => {
    const found = await one("XREVRANGE", context.key, end, "-", "COUNT", PAGE);
    entries.push(...found);
    if (found.length > 0) end = `(${found.at(-1)[0]}`;
    more.hidden = found.length < PAGE;
    patch(holder, entryTable(context, entries));
  };
  await fill();
  const list = Array.isArray(groups) ? groups.map(pairs) : [];
  return [h("h3", {}, counted(list.length, "group")), ...list.map((group) => element(context, group)), h("h3", {}, `${count(length)} ${length === 1 ? "entry" : "entries"}, the latest first`), holder, more];
}

function when(id) {
  const ms = Number(String(id).split("-")[0]);
  return ms > 1e11 && ms < 1e13 ? new Date(ms).toLocaleString() : "";
}

function entryTable({ key, edit }, entries) {
  const columns = [
    { title: "id", of: ([id]) => String(id), mono: true },
    { title: "time", of: ([id]) => when(id) },
    { title: "fields", of: ([, list]) => h("pre", {}, list.map((part, index) => (index % 2 === 0 ? `${part}: ` : `${part}\n`)).join("").trimEnd()), long: true },
  ];
  if (!isReadOnly) columns.push({ title: "", of: ([id]) => h("button.plain", { type: "button", onclick: () => edit(["XDEL", key, String(id)], "Deletes the entry.") }, "remove") });
  return table(columns, entries, "entries", ([id]) => String(id));
}

/** A group, with its consumers and pending entries once it is open. */
function element(context, group) {
  const name = group.name.argument();
  const details = h("div");
  const toggle = (event) => event.target.open && inside(context, name).then((parts) => details.replaceChildren(...parts), (error) => details.replaceChildren(h("p.error", {}, error.message)));
  const lag = group.lag === null || group.lag === undefined ? "unknown" : count(group.lag);
  return h("details", { ontoggle: toggle }, h("summary", {}, h("strong.mono", {}, String(group.name)),
    h("span.quiet", {}, ` ${counted(group.consumers, "consumer")}, ${count(group.pending)} pending, lag ${lag}, last delivered ${group["last-delivered-id"]}`)), details);
}

async function inside(context, name) {
  const [consumers, pending] = await run([["XINFO", "CONSUMERS", context.key, name], ["XPENDING", context.key, name, "-", "+", PENDING_SHOWN]]);
  if (consumers instanceof Error) throw consumers;
  if (pending instanceof Error) throw pending;
  const columns = [
    { title: "entry", of: ([id]) => String(id), mono: true }, { title: "consumer", of: ([, consumer]) => String(consumer) },
    { title: "idle", of: ([, , idle]) => seconds(idle / 1000), number: true }, { title: "deliveries", of: ([, , , times]) => count(times), number: true },
  ];
  const done = (id) => context.edit(["XACK", context.key, name, String(id)], "Marks the entry as processed.");
  if (!isReadOnly) columns.push({ title: "", of: ([id]) => h("button.plain", { type: "button", onclick: () => done(id) }, "acknowledge") });
  return [
    h("h3", {}, "Consumers"), table([
      { title: "name", of: (row) => String(row.name) }, { title: "pending", of: (row) => count(row.pending), number: true },
      { title: "idle", of: (row) => seconds(row.idle / 1000), number: true }, { title: "inactive", of: (row) => (row.inactive >= 0 ? seconds(row.inactive / 1000) : ""), number: true },
    ], consumers.map(pairs), "consumers"),
    h("h3", {}, `Pending entries${pending.length === PENDING_SHOWN ? `, the first ${PENDING_SHOWN}` : ""}`), table(columns, pending, "pending entries")];
}
