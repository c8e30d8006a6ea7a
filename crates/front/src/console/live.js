// Live views: commands as they run, published messages, the command logs, replicas and cluster nodes.

import { decoded, fields, isReadOnly, live, one, parts, Refused, run } from "./api.js";
import { h, patch, table } from "./dom.js";
import { bytes, count, microseconds, primaryLink, printed, seconds } from "./text.js";

const LINES_MAX = 500;
const LOG_SHOWN = 128;
const RATES = [10, 100, 1000];
// The command logs: the name for COMMANDLOG, the title, and the meaning of an entry's figure.
const LOGS = [["slow", "slow commands", microseconds], ["large-request", "large requests", bytes], ["large-reply", "large replies", bytes]];

export const interval = 2000;

let log = "slow";
/** Elements that last as long as the page, so that a stream survives a visit to another view. */
let streams = null;

export function open() {
  streams ??= h("div.grid", {}, monitor(), messages());
  // Elements that return to the page begin at their top.
  requestAnimationFrame(() => {
    for (const lines of streams.querySelectorAll("pre")) lines.scrollTop = lines.scrollHeight;
  });
}

export async function gather() {
  const [entries, info] = await run([["COMMANDLOG", "GET", LOG_SHOWN, log], ["INFO", "replication", "cluster"]]);
  if (entries instanceof Error && info instanceof Error) throw entries;
  const figures = info instanceof Error ? {} : fields(info);
  const [nodes] = figures.cluster_enabled === "1" ? await run([["CLUSTER", "NODES"]]) : [null];
  return { entries, info, figures, nodes };
}

export function show(view, { entries, info, figures, nodes }, refresh) {
  patch(view, streams, logCard(entries, refresh), h("br"), replicationCard(info, figures), clusterCard(nodes));
}

/** A list of lines with a bound, and the buttons that start and end its stream. */
function stream(title, inputs, path, args, shown, about) {
  const [lines, state] = [h("pre.stream", { tabIndex: 0, role: "log", ariaLabel: title, ariaLive: "off" }), h("p.quiet", { role: "status" }, "stopped")];
  let running = null;
  let pending = [];
  // Lines arrive faster than a page can be drawn, so they are added once per frame.
  const flush = () => {
    const isAtEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8;
    lines.append(...pending.map((line) => h("span", {}, `${line}\n`)));
    pending = [];
    while (lines.childNodes.length > LINES_MAX) lines.firstChild.remove();
    if (isAtEnd) lines.scrollTop = lines.scrollHeight;
  };
  const take = (found) => {
    if ("seen" in found) {
      state.textContent = found.matched === found.shown ? `${count(found.seen)}/s` : `${count(found.seen)}/s, ${count(found.matched)} match, ${count(found.shown)} shown`;
      return;
    }
    if (pending.length === 0) requestAnimationFrame(flush);
    pending.push("error" in found ? found.error : shown(found));
    if (pending.length > LINES_MAX) pending.shift();
  };
  const toggle = async (event) => {
    event.preventDefault();
    if (running !== null) return running.abort();
    const mine = new AbortController();
    running = mine;
    button.textContent = "stop";
    state.textContent = "starting";
    try {
      await live(path, args(), mine.signal, take);
      state.textContent = "The server ended the view.";
    } catch (error) {
      state.textContent = error.name === "AbortError" ? "stopped" : error instanceof Refused || error.name !== "TypeError" ? error.message : "The server doesn't answer.";
    }
    running = null;
    button.textContent = "start";
    return null;
  };
  const button = h("button.main", { type: "submit" }, "start");
  const clear = h("button", { type: "button", onclick: () => lines.replaceChildren() }, "clear");
  return h("section.card", {}, h("h2", {}, title), h("p.quiet", {}, about), h("form.row", { onsubmit: toggle }, inputs, button, clear), state, lines);
}

function monitor() {
  const filter = h("input", { type: "text", placeholder: "only lines with this text", ariaLabel: "only commands with this text", spellcheck: false });
  const rate = h("select", { ariaLabel: "lines a second" }, RATES.map((lines) => h("option", { value: lines, selected: lines === 100 }, `${lines} lines/s`)));
  const shown = ({ result }) => {
    const [, at, rest] = /^(\d+\.\d+) (.*)$/s.exec(result) ?? [null, null, result];
    return at === null ? rest : `${new Date(at * 1000).toLocaleTimeString([], { timeStyle: "medium" })} ${rest}`;
  };
  return stream("Commands", [filter, rate], "/console/monitor", () => [rate.value, filter.value], shown, "MONITOR, as a sample of the commands. Its cost for a busy server is the same for any filter.");
}

function messages() {
  const channels = h("input", { type: "text", value: "*", placeholder: "channels or patterns", ariaLabel: "channels or patterns", spellcheck: false });
  const shown = ({ result }) => {
    const [kind, ...rest] = decoded(result).map(String);
    if (!kind.endsWith("message")) return `${kind} ${rest.join(" ")}`;
    const [channel, text] = rest.slice(-2);
    return `${new Date().toLocaleTimeString([], { timeStyle: "medium" })} ${channel}: ${text}`;
  };
  const card = stream("Messages", [channels], "/console/messages", () => channels.value.split(/\s+/).filter(Boolean), shown, "Published messages of channels and patterns, separated by blanks.");
  if (!isReadOnly) card.append(publisher());
  return card;
}

function publisher() {
  const [channel, text, state] = [h("input", { type: "text", placeholder: "channel", ariaLabel: "channel to publish to" }), h("input", { type: "text", placeholder: "message", ariaLabel: "message" }), h("span.quiet", { role: "status" })];
  const publish = (event) => {
    event.preventDefault();
    if (channel.value !== "") one("PUBLISH", channel.value, text.value).then((receivers) => { state.textContent = `${receivers} receivers`; }, (error) => { state.textContent = error.message; });
  };
  return h("form.row", { onsubmit: publish }, channel, text, h("button", { type: "submit" }, "publish"), state);
}

function logCard(entries, refresh) {
  const choose = (event) => {
    log = event.target.value;
    refresh();
  };
  const [, title, figure] = LOGS.find(([name]) => name === log);
  const choice = h("select", { ariaLabel: "log", onchange: choose }, LOGS.map(([name, text]) => h("option", { value: name, selected: name === log }, text)));
  const content = entries instanceof Error ? h("p.error", {}, entries.message) : entries.length === 0 ? h("p.quiet", {}, `None. commandlog-${log === "slow" ? "execution-slower-than" : `${log}-larger-than`} sets the limit.`)
    : table([
      { title: "time", of: ([, at]) => new Date(at * 1000).toLocaleString() },
      { title: log === "slow" ? "duration" : "size", of: ([, , amount]) => figure(amount), number: true },
      { title: "command", of: ([, , , args]) => args.map((word) => printed(word).slice(1, -1)).join(" ").slice(0, 400), long: true, mono: true },
      { title: "client", of: ([, , , , address]) => String(address ?? ""), mono: true },
      { title: "name", of: ([, , , , , name]) => String(name ?? "") },
    ], entries, title, ([id]) => String(id));
  return h("section.card", {}, h("h2", {}, "Command log"), h("p.row", {}, choice), content);
}

function replicationCard(info, figures) {
  if (info instanceof Error) return h("section.card", {}, h("h2", {}, "Replication"), h("p.error", {}, info.message));
  const replicas = Object.entries(figures).filter(([name]) => /^slave\d+$/.test(name)).map(([name, value]) => ({ name, ...parts(value) }));
  const offset = Number(figures.master_repl_offset);
  const state = figures.role === "slave" ? `replica of ${primaryLink(figures)}` : `primary at offset ${count(offset)}`;
  return h("section.card", {}, h("h2", {}, "Replication"), h("p", {}, state), replicas.length === 0 ? h("p.quiet", {}, "No replicas.") : table([
    { title: "replica", of: (row) => `${row.ip}:${row.port}`, mono: true },
    { title: "state", of: (row) => row.state },
    { title: "behind", of: (row) => bytes(Math.max(0, offset - Number(row.offset))), number: true },
    { title: "last heard", of: (row) => `${seconds(Number(row.lag))} ago`, number: true },
  ], replicas, "replicas", (row) => row.name));
}

function clusterCard(nodes) {
  if (nodes === null) return null;
  if (nodes instanceof Error) return h("section.card", {}, h("h2", {}, "Cluster"), h("p.error", {}, nodes.message));
  const rows = String(nodes).split("\n").filter(Boolean).map((line) => line.split(" "));
  return h("section.card", {}, h("h2", {}, "Cluster"), table([
    { title: "node", of: ([id]) => id.slice(0, 8), mono: true },
    { title: "address", of: ([, address]) => address, mono: true },
    { title: "flags", of: ([, , flags]) => flags },
    { title: "link", of: (row) => row[7] },
    { title: "slots", of: (row) => row.slice(8).join(" "), long: true, mono: true },
  ], rows, "cluster nodes", ([id]) => id));
}
