// Who is connected, and what took long.

import { isReadOnly, run } from "./api.js";
import { confirmed } from "./confirm.js";
import { h, table } from "./dom.js";
import { bytes, count, microseconds, seconds } from "./text.js";

const SHOWN_MAX = 500;

export const interval = 2000;

export async function gather() {
  const [list, log] = await run([["CLIENT", "LIST"], ["SLOWLOG", "GET", 128]]);
  return { list, log };
}

/** A line of CLIENT LIST. */
function client(line) {
  return Object.fromEntries(line.split(" ").map((part) => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]));
}

export function show(view, { list, log }, refresh) {
  view.replaceChildren(
    h("section.card", {}, h("h2", {}, "Clients"), list instanceof Error ? h("p.error", {}, list.message) : clientTable(list, refresh)),
    h("br"),
    h("section.card", {}, h("h2", {}, "Slow commands"), log instanceof Error ? h("p.error", {}, log.message) : slowLog(log)));
}

function clientTable(list, refresh) {
  const all = String(list).split("\n").filter((line) => line !== "").map(client);
  const depth = (row) => (Number(row["avg-pipeline-len-cnt"]) > 0 ? (Number(row["tot-cmds"]) / Number(row["avg-pipeline-len-cnt"])).toFixed(1) : "");
  const columns = [
    { title: "id", of: (row) => row.id, number: true },
    { title: "address", of: (row) => row.addr, mono: true },
    { title: "name", of: (row) => row.name, long: true },
    { title: "library", of: (row) => `${row["lib-name"]} ${row["lib-ver"]}` },
    { title: "user", of: (row) => row.user },
    { title: "db", of: (row) => row.db, number: true },
    { title: "age", of: (row) => seconds(Number(row.age)), number: true },
    { title: "idle", of: (row) => seconds(Number(row.idle)), number: true },
    { title: "last command", of: (row) => row.cmd, mono: true },
    { title: "commands", of: (row) => count(row["tot-cmds"] ?? 0), number: true },
    { title: "a batch", of: depth, number: true },
    { title: "memory", of: (row) => bytes(Number(row["tot-mem"])), number: true },
  ];
  if (!isReadOnly) {
    const close = (row) => confirmed(["CLIENT", "KILL", "ID", row.id], "Closes this connection.").then((ran) => ran && refresh());
    columns.push({ title: "", of: (row) => h("button.danger", { type: "button", onclick: () => close(row) }, "close") });
  }
  const more = all.length > SHOWN_MAX ? h("p.quiet", {}, `the first ${SHOWN_MAX} of ${count(all.length)}`) : null;
  return h("div", {}, table(columns, all.slice(0, SHOWN_MAX), "clients"), more);
}

function slowLog(log) {
  if (log.length === 0) return h("p.quiet", {}, "none so far; slowlog-log-slower-than says from when on a command is slow");
  return table([
    { title: "when", of: ([, at]) => new Date(at * 1000).toLocaleString() },
    { title: "took", of: ([, , us]) => microseconds(us), number: true },
    { title: "command", of: ([, , , words]) => words.map(String).join(" "), long: true, mono: true },
    { title: "client", of: ([, , , , address]) => String(address ?? ""), mono: true },
    { title: "name", of: ([, , , , , name]) => String(name ?? "") },
  ], log, "slow commands");
}

