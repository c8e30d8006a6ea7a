// Connected clients.

import { isReadOnly, run } from "./api.js";
import { offered } from "./confirm.js";
import { h, patch, table } from "./dom.js";
import { bytes, count, counted, seconds } from "./text.js";

// Clients that are shown at first, and more at each request.
const PAGE = 100;

let shown = PAGE;
let wanted = "";

export const interval = 2000;

export async function gather() {
  const [list] = await run([["CLIENT", "LIST"]]);
  if (list instanceof Error) throw list;
  return list;
}

/** Parses a line of CLIENT LIST. */
function client(line) {
  return Object.fromEntries(line.split(" ").map((part) => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]));
}

export function show(view, list, refresh) {
  const lines = String(list).split("\n").filter((line) => line !== "");
  const matching = lines.filter((line) => line.includes(wanted));
  const filter = (event) => {
    [wanted, shown] = [event.target.value, PAGE];
    refresh();
  };
  const more = () => {
    shown += PAGE;
    refresh();
  };
  patch(view, h("section.card", {}, h("h2", {}, counted(lines.length, "client")),
    h("p.row", {}, h("input", { type: "search", value: wanted, placeholder: "filter, for example user=app or cmd=get", ariaLabel: "filter", spellcheck: false, oninput: filter })),
    clientTable(matching.slice(0, shown).map(client), refresh),
    matching.length > shown ? h("p.row", {}, h("span.quiet", {}, `${count(shown)} of ${count(matching.length)}`), h("button", { type: "button", onclick: more }, "more")) : null));
}

function clientTable(clients, refresh) {
  const depth = (row) => (Number(row["avg-pipeline-len-cnt"]) > 0 ? (Number(row["tot-cmds"]) / Number(row["avg-pipeline-len-cnt"])).toFixed(1) : "");
  const columns = [
    { title: "id", of: (row) => row.id, number: true },
    { title: "address", of: (row) => row.addr, mono: true },
    { title: "name", of: (row) => row.name },
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
    const close = (row) => offered(["CLIENT", "KILL", "ID", row.id], "Closes this connection.", refresh);
    columns.push({ title: "", of: (row) => h("button.danger", { type: "button", ariaLabel: `close client ${row.id}`, onclick: () => close(row) }, "close") });
  }
  return table(columns, clients, "clients", (row) => row.id);
}
