// Charts of the server's history, memory by type, and the present state.

import { fields, one, parts, run } from "./api.js";
import { h, patch, svg, table } from "./dom.js";
import * as history from "./history.js";
import { card, ranges } from "./ranges.js";
import { bytes, count, loadingProgress, microseconds, percent, primaryLink, seconds } from "./text.js";

const COMMANDS_SHOWN = 12;
const COMMAND_RATES_SHOWN = 5;
// Number of random keys for the estimate of memory by type.
const SAMPLED_KEYS = 400;
const CLASSES = { string: "s1", hash: "s2", list: "s3", set: "s4", zset: "s5", stream: "s6", trietype0: "s7" };
// RediSearch's name of the type says little.
const NAMES = { trietype0: "suggestions" };

export const interval = 1000;

let sample = null;
/** The charts' cards. They are created once per page, so that focus and cursors survive a refresh. */
let charts = null;
let grid = null;
/** The edition of the history that the charts show. */
let drawn = null;

const each = (amount, of) => (of > 0 ? amount / of : null);

/** The charts: title, format, series of the history, the figure above it, an explanation. */
function definitions() {
  const rate = (value) => `${count(value)}/s`;
  return [
    { title: "Commands a second", format: count, series: () => history.figures(["commands", (p) => p.commands]), figure: () => history.last((p) => p.commands) },
    { title: "Commands a batch", format: (value) => value.toFixed(value < 10 ? 1 : 0), series: () => history.figures(["commands a batch", (p) => each(p.commands, p.batches)]), figure: () => history.last((p) => each(p.commands, p.batches)),
      about: "commands that clients send together; 1 is a round trip for each command" },
    { title: "Duration of commands", format: microseconds, series: history.percentiles, figure: () => history.last((p) => each(p.command_us, p.commands)), about: "in the server; the figure is the mean" },
    { title: "Time of a batch", format: microseconds, series: () => history.figures(["in commands", (p) => each(p.command_us, p.batches)], ["reading, parsing, sending", (p) => each(Math.max(0, p.turn_us - p.command_us), p.batches)]),
      figure: () => history.last((p) => each(p.turn_us, p.batches)), about: "mean time of the server's threads for a batch, without waits" },
    { title: "Network", format: (value) => `${bytes(value)}/s`, isBinary: true, series: () => history.figures(["in", (p) => p.input], ["out", (p) => p.output]), figure: () => history.last((p) => p.input + p.output) },
    { title: "Memory", format: bytes, isBinary: true, series: () => history.figures(["data", (p) => p.memory], ["process", (p) => p.resident], ["unread replies", (p) => p.unread]), figure: () => history.last((p) => p.memory) },
    { title: "Hit ratio", format: percent, most: 1, series: () => history.figures(["hits of lookups", (p) => each(p.hits, p.hits + p.misses)]), figure: () => history.last((p) => each(p.hits, p.hits + p.misses)), about: "lookups that found their key" },
    { title: "Keys removed", format: rate, series: () => history.figures(["evicted", (p) => p.evicted], ["expired", (p) => p.expired]), figure: () => history.last((p) => p.evicted + p.expired) },
    { title: "Calls of each command", format: rate, series: () => history.commandRates(COMMAND_RATES_SHOWN), figure: () => null, about: "the most frequent commands of this time range" },
    { title: "Errors and connections", format: rate, series: () => history.figures(["error replies", (p) => p.errors], ["new connections", (p) => p.connections]), figure: () => history.last((p) => p.errors) },
  ];
}

export async function gather() {
  const [[info]] = await Promise.all([
    run([["INFO", "server", "clients", "replies", "advisor", "memory", "persistence", "stats", "replication", "commandstats", "latencystats", "keyspace"]]),
    history.refresh()]);
  if (info instanceof Error) throw info;
  return fields(info);
}

export function show(view, now, refresh) {
  charts ??= definitions().map(card);
  grid ??= h("div.grid.charts");
  const databases = Object.entries(now).filter(([name]) => /^db\d+$/.test(name)).map(([name, value]) => ({ name, ...parts(value) }));
  const keys = databases.reduce((sum, database) => sum + Number(database.keys), 0);
  patch(grid, charts.map(({ element }) => element), memoryCard(now, keys), statusCard(now, keys, databases));
  patch(view, ranges(refresh), grid, h("section.card", {}, h("h2", {}, "Commands by total time"), commandTable(now)));
  // With many points a chart takes time to draw.
  if (drawn !== history.edition()) for (const { update } of charts) update();
  drawn = history.edition();
}

function memoryCard(now, keys) {
  const used = Number(now.used_memory);
  const limit = Number(now.maxmemory) > 0 ? ` of ${bytes(Number(now.maxmemory))}` : "";
  const look = async (event) => {
    event.target.disabled = true;
    sample = await byType(used).catch((error) => ({ error }));
    event.target.disabled = false;
    patch(document.querySelector("#by-type"), ...sampleParts());
  };
  return h("section.card", {}, h("h2", {}, "Memory by type"),
    h("p", {}, `used ${bytes(used)}${limit}, peak ${bytes(Number(now.used_memory_peak))}, process ${bytes(Number(now.used_memory_rss))}`), containerLimit(now),
    h("button", { type: "button", disabled: keys === 0, onclick: look }, sample === null ? "estimate" : "estimate again"), h("div", { id: "by-type" }, sampleParts()));
}

/** The limit of the process's container. The system ends a server that exceeds it, so `maxmemory` should be lower. */
function containerLimit(now) {
  const [limit, maxmemory, suggested] = [now.cgroup_memory_limit, now.maxmemory, now.maxmemory_suggested].map(Number);
  if (!(limit > 0)) return null;
  const isUnsafe = maxmemory === 0 || maxmemory >= limit;
  return h(isUnsafe ? "p.warning" : "p.quiet", {}, `The container may use ${bytes(limit)}.${isUnsafe ? ` Set maxmemory to ${bytes(suggested)} or less; beyond the container's limit the system ends the server.` : ""}`);
}

/** Estimates the memory of each type from random keys. The rest of the used memory is shown as such. */
async function byType(used) {
  const names = (await run(Array(SAMPLED_KEYS).fill(["RANDOMKEY"]))).filter((key) => key !== null && !(key instanceof Error)).map((key) => key.argument());
  if (names.length === 0) return { found: [], seen: 0 };
  const replies = await run(names.flatMap((name) => [["TYPE", name], ["MEMORY", "USAGE", name]]));
  const size = await one("DBSIZE");
  const sums = {};
  for (let at = 0; at < replies.length; at += 2) {
    const [type, taken] = [String(replies[at]), replies[at + 1]];
    if (typeof taken !== "number") continue;
    sums[type] ??= { keys: 0, bytes: 0 };
    sums[type].keys += 1;
    sums[type].bytes += taken;
  }
  const seen = Object.values(sums).reduce((sum, { keys }) => sum + keys, 0);
  const found = Object.entries(sums).map(([type, sum]) => ({ type, keys: (sum.keys / seen) * size, bytes: (sum.bytes / seen) * size })).sort((a, b) => b.bytes - a.bytes);
  const rest = used - found.reduce((sum, part) => sum + part.bytes, 0);
  if (rest > 0) found.push({ type: "rest", bytes: rest });
  return { found, seen };
}

function sampleParts() {
  if (sample === null) return [];
  if (sample.error) return [h("p.error", {}, sample.error.message)];
  const total = sample.found.reduce((sum, part) => sum + part.bytes, 0);
  let at = 0;
  const kind = (part) => (part.type === "rest" ? "s8" : (CLASSES[part.type] ?? "s6"));
  const bars = sample.found.map((part) => {
    const bar = svg("rect", { x: at, y: 0, height: 10, width: (part.bytes / total) * 1000, class: kind(part) });
    at += (part.bytes / total) * 1000;
    return bar;
  });
  const text = (part) => (part.type === "rest" ? `rest: about ${bytes(part.bytes)} (tables, connections, other databases)` : `${NAMES[part.type] ?? part.type}: about ${bytes(part.bytes)} in ${count(Math.round(part.keys))} keys`);
  return [svg("svg", { class: "stack", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": "memory by type" }, ...bars),
    h("p.legend", {}, sample.found.map((part) => h("span", {}, h(`span.dot.${kind(part)}`), text(part)))), h("p.quiet", {}, `estimated from ${sample.seen} random keys of this database`)];
}

/** Describes the last snapshot. The server counts its start as a save time, so the number of snapshots decides. */
function lastSnapshot(now) {
  if (now.rdb_last_bgsave_status !== "ok") return "failed";
  if (now.rdb_bgsave_in_progress === "1") return "running";
  if (Number(now.rdb_saves) === 0) return "none since the start";
  return `${seconds(Math.max(0, Number(now.server_time_usec) / 1e6 - Number(now.rdb_last_save_time)))} ago`;
}

function statusCard(now, keys, databases) {
  const line = (name, value) => h("tr", { key: name }, h("th", { scope: "row" }, name), h("td.number", {}, value));
  const rows = [
    line("clients", `${now.connected_clients} of ${count(now.maxclients)}`), line("blocked clients", now.blocked_clients),
    line("unread replies", `${now.reply_waiting_clients} clients, ${bytes(Number(now.reply_memory))}, on disk ${bytes(Number(now.reply_spill))}`),
    line("keys", `${count(keys)} in ${databases.length} database${databases.length === 1 ? "" : "s"}`),
    line("lookups: found, not found", `${count(now.keyspace_hits)}, ${count(now.keyspace_misses)}`), line("keys expired, evicted", `${count(now.expired_keys)}, ${count(now.evicted_keys)}`),
    line("error replies", count(now.total_error_replies)),
    line("append-only file", now.aof_enabled === "1" ? `${bytes(Number(now.aof_current_size))}, ${now.aof_last_write_status}` : "off"),
    line("last snapshot", lastSnapshot(now)),
    line("round trips wasted", count(now.advisor_round_trips_wasted ?? 0)),
  ];
  const loading = loadingProgress(now);
  if (loading !== null) rows.unshift(line("loading its data", loading));
  if (now.role === "slave") rows.push(line("primary", primaryLink(now)));
  return h("section.card.state", {}, h("h2", {}, "State"), h("table", {}, h("tbody", {}, rows)));
}

function commandTable(now) {
  const rows = Object.entries(now).filter(([name]) => name.startsWith("cmdstat_")).map(([name, value]) => ({ name: name.slice(8), ...parts(value) }));
  rows.sort((a, b) => Number(b.usec) - Number(a.usec));
  const percentile = (row, name) => {
    const found = now[`latency_percentiles_usec_${row.name}`];
    return found === undefined ? "" : microseconds(Number(parts(found)[name] ?? 0));
  };
  return table([
    { title: "command", of: (row) => row.name, mono: true },
    { title: "calls", of: (row) => count(row.calls), number: true },
    { title: "total time", of: (row) => microseconds(Number(row.usec)), number: true },
    { title: "mean", of: (row) => microseconds(Number(row.usec_per_call)), number: true },
    { title: "median", of: (row) => percentile(row, "p50"), number: true },
    { title: "99 %", of: (row) => percentile(row, "p99"), number: true },
    { title: "failed", of: (row) => count(Number(row.failed_calls) + Number(row.rejected_calls)), number: true },
  ], rows.slice(0, COMMANDS_SHOWN), "commands by total time", (row) => row.name);
}
