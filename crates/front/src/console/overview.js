// Throughput, latency, depth of batches, memory: now and in the last minutes.

import { fields, one, parts, run } from "./api.js";
import { chart, h, svg, table } from "./dom.js";
import { bytes, count, microseconds, seconds } from "./text.js";

const SAMPLES_MAX = 300;
const COMMANDS_SHOWN = 12;
// Keys that are looked at to tell what types take. Each is drawn by chance, whatever the number of keys.
const SAMPLED_KEYS = 400;
const CLASSES = { string: "s1", hash: "s2", list: "s3", set: "s4", zset: "s5", stream: "s6", trietype0: "s7" };
// Types whose names say little: RediSearch has this one of suggestions.
const NAMES = { trietype0: "suggestions" };

/** Figures so far, kept while other views are shown. */
const history = [];
let before = null;
let sample = null;

export const interval = 1000;

export async function gather() {
  const [info] = await run([["INFO", "server", "clients", "replies", "advisor", "memory", "persistence", "stats", "replication", "commandstats", "latencystats", "keyspace"]]);
  if (info instanceof Error) throw info;
  const now = { at: performance.now(), ...fields(info) };
  if (before !== null && Number(now.total_commands_processed) >= Number(before.total_commands_processed)) history.push(difference(now));
  if (history.length > SAMPLES_MAX) history.shift();
  before = now;
  return now;
}

/** What has happened since the figures before. The console's own commands are among it. */
function difference(now) {
  const elapsed = (now.at - before.at) / 1000;
  const grown = (name) => Number(now[name]) - Number(before[name]);
  const [commands, batches] = [grown("total_commands_processed"), grown("total_batches_processed")];
  const us = (figures) => Object.keys(figures).filter((name) => name.startsWith("cmdstat_")).reduce((sum, name) => sum + Number(parts(figures[name]).usec), 0);
  return {
    commands: commands / elapsed,
    depth: batches > 0 ? commands / batches : 0,
    latency: commands > 0 ? Math.max(0, us(now) - us(before)) / commands : 0,
    input: grown("total_net_input_bytes") / elapsed,
    output: grown("total_net_output_bytes") / elapsed,
    memory: Number(now.used_memory),
  };
}

function card(title, figure, picture, ...more) {
  return h(`section.card${title === "Memory" ? ".double" : ""}`, {}, h("h2", {}, title), h("div.figure", {}, figure), picture, ...more);
}

export function show(view, now) {
  document.querySelector("#server").textContent = `${now.role === "slave" ? "replica, " : ""}port ${now.tcp_port}, ${now.penstock_version}, up ${seconds(Number(now.uptime_in_seconds))}`;
  const last = history.at(-1) ?? { commands: 0, depth: 0, latency: 0, input: 0, output: 0 };
  const series = (name) => history.map((figures) => figures[name]);
  const databases = Object.entries(now).filter(([name]) => /^db\d+$/.test(name)).map(([name, value]) => ({ name, ...parts(value) }));
  const keys = databases.reduce((sum, database) => sum + Number(database.keys), 0);
  view.replaceChildren(
    h("div.grid", {},
      card("Commands a second", count(last.commands), chart(series("commands"), "commands a second")),
      card("Commands a batch", last.depth.toFixed(2), chart(series("depth"), "commands a batch"), h("p.quiet", {}, "what clients send together; 1 is a round trip for each")),
      card("Time of a command", microseconds(last.latency), chart(series("latency"), "mean time of a command in microseconds"), h("p.quiet", {}, "in the server, mean of the last second")),
      card("Network", `${bytes(last.input + last.output)}/s`, chart(series("input"), "bytes a second in and out", series("output")),
        h("p.legend", {}, h("span", {}, h("span.dot.s1"), `in ${bytes(last.input)}/s`), h("span", {}, h("span.dot.s2"), `out ${bytes(last.output)}/s`))),
      memoryCard(now, keys), statusCard(now, keys, databases)),
    h("section.card", {}, h("h2", {}, "Commands that took most"), commandTable(now)));
}

function memoryCard(now, keys) {
  const limit = Number(now.maxmemory) > 0 ? ` of ${bytes(Number(now.maxmemory))}` : "";
  const button = h("button", { type: "button", disabled: keys === 0, onclick: () => takeSample(button) }, sample === null ? "what types take" : "look again");
  return card("Memory", bytes(Number(now.used_memory)) + limit, chart(history.map((figures) => figures.memory), "memory used"),
    h("p.quiet", {}, `peak ${bytes(Number(now.used_memory_peak))}, of the process ${bytes(Number(now.used_memory_rss))}`), button, h("div", { id: "by-type" }, sampleParts()));
}

async function takeSample(button) {
  button.disabled = true;
  try {
    sample = await byType();
  } catch (error) {
    sample = { error };
  }
  document.querySelector("#by-type")?.replaceChildren(...sampleParts());
  button.disabled = false;
}

/** The mean size of keys drawn by chance, by their type, as parts of all. */
async function byType() {
  const names = (await run(Array(SAMPLED_KEYS).fill(["RANDOMKEY"]))).filter((key) => key !== null && !(key instanceof Error)).map((key) => key.argument());
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
  const found = Object.entries(sums).map(([type, sum]) => ({ type, keys: (sum.keys / seen) * size, bytes: (sum.bytes / seen) * size }));
  return { found: found.sort((a, b) => b.bytes - a.bytes), seen };
}

function sampleParts() {
  if (sample === null) return [];
  if (sample.error) return [h("p.error", {}, sample.error.message)];
  const total = sample.found.reduce((sum, part) => sum + part.bytes, 0);
  let at = 0;
  const bars = sample.found.map((part) => {
    const bar = svg("rect", { x: at, y: 0, height: 10, width: (part.bytes / total) * 1000, class: CLASSES[part.type] ?? "s6" });
    at += (part.bytes / total) * 1000;
    return bar;
  });
  const line = (part) => h("span", {}, h(`span.dot.${CLASSES[part.type] ?? "s6"}`), `${NAMES[part.type] ?? part.type}: about ${bytes(part.bytes)} in ${count(Math.round(part.keys))} keys`);
  return [svg("svg", { class: "stack", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": "memory by type" }, ...bars),
    h("p.legend", {}, sample.found.map(line)), h("p.quiet", {}, `estimated from ${sample.seen} keys of this database, drawn by chance`)];
}

function statusCard(now, keys, databases) {
  const line = (name, value) => h("tr", {}, h("th", {}, name), h("td.number", {}, value));
  const rows = [
    line("clients", `${now.connected_clients} of ${count(now.maxclients)}`), line("waiting in a command", now.blocked_clients),
    line("replies that wait", `${now.reply_waiting_clients} clients, ${bytes(Number(now.reply_memory))}, on disk ${bytes(Number(now.reply_spill))}`),
    line("keys", `${count(keys)} in ${databases.length} database${databases.length === 1 ? "" : "s"}`),
    line("found, not found", `${count(now.keyspace_hits)}, ${count(now.keyspace_misses)}`), line("expired, evicted", `${count(now.expired_keys)}, ${count(now.evicted_keys)}`),
    line("errors answered", count(now.total_error_replies)),
    line("append-only file", now.aof_enabled === "1" ? `${bytes(Number(now.aof_current_size))}, ${now.aof_last_write_status}` : "off"),
    line("last snapshot", `${seconds(Math.max(0, Number(now.server_time_usec) / 1e6 - Number(now.rdb_last_save_time)))} ago, ${now.rdb_last_bgsave_status}`),
    line("round trips wasted", count(now.advisor_round_trips_wasted ?? 0)),
  ];
  if (now.role === "slave") rows.push(line("primary", `${now.master_host}:${now.master_port}, ${now.master_link_status}, ${now.master_last_io_seconds_ago} s ago`));
  return h("section.card.double", {}, h("h2", {}, "State"), h("table", {}, h("tbody", {}, rows)));
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
    { title: "time in all", of: (row) => microseconds(Number(row.usec)), number: true },
    { title: "mean", of: (row) => microseconds(Number(row.usec_per_call)), number: true },
    { title: "median", of: (row) => percentile(row, "p50"), number: true },
    { title: "99 %", of: (row) => percentile(row, "p99"), number: true },
    { title: "failed", of: (row) => count(Number(row.failed_calls) + Number(row.rejected_calls)), number: true },
  ], rows.slice(0, COMMANDS_SHOWN), "commands that took most time");
}
