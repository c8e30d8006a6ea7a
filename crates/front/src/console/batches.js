// The times of batches by depth: the parts over time, the percentiles, and the slowest batches.

import { fields, isReadOnly, pairs, parts, run } from "./api.js";
import { offered } from "./confirm.js";
import { h, patch, svg, table } from "./dom.js";
import * as history from "./history.js";
import { card, ranges } from "./ranges.js";
import { bytes, count, microseconds } from "./text.js";

const DEPTHS = ["1", "2-15", "16-127", "128+"];
// The parts in the order of their colours: name, what a batch waits for, and the remedy for a large value.
const PARTS = [
  ["turn", "its thread, which serves other connections", "Find slow commands in the command log, split them, or add threads."],
  ["execution", "its own commands", "The slowest batches below name their longest command."],
  ["disk", "the append-only file", "Use a faster disk, or appendfsync everysec."],
  ["replicas", "acknowledgements of replicas", "Check the link and the load of the replicas."],
  ["client", "the client, which does not read its earlier replies", "Read replies while you write."],
];
const NAMES = PARTS.map(([name]) => name);
const LOG_SHOWN = 128;
const PERCENTILES = ["p50", "p99", "p99.9"];

export const interval = 1000;

/** The charts' cards by depth. They are created once per page, so that focus and cursors survive a refresh. */
let charts = null;
let grid = null;
/** The edition of the history that the charts show. */
let drawn = null;

const batchesOf = (depth) => `batches_${depth}`;
const partOf = (depth, part) => `batches_${depth}_${part}_us`;
const commands = (depth) => (depth === "1" ? "1 command" : `${depth.replace("+", " and more")} commands`);
const mean = (sum, batches) => (batches > 0 ? sum / batches : null);

/** A chart of a depth: the mean time of each part, on top of each other. */
function definition(depth) {
  const part = (name) => (p) => mean(p[partOf(depth, name)], p[batchesOf(depth)]);
  const whole = (p) => mean(NAMES.reduce((sum, name) => sum + p[partOf(depth, name)], 0), p[batchesOf(depth)]);
  return { title: `Batches of ${commands(depth)}`, format: microseconds, isStacked: true, series: () => history.figures(...NAMES.map((name) => [name, part(name)])), figure: () => history.last(whole) };
}

export async function gather() {
  const [[info, log]] = await Promise.all([run([["INFO", "batches"], ["BATCHLOG", "GET", LOG_SHOWN]]), history.refresh()]);
  if (info instanceof Error) throw info;
  return { now: fields(info), log };
}

export function show(view, { now, log }, refresh) {
  charts ??= DEPTHS.map((depth) => ({ depth, ...card(definition(depth)) }));
  grid ??= h("div.grid.charts.batches");
  const rows = DEPTHS.map((depth) => row(depth, now)).filter(({ inRange, all }) => inRange > 0 || all > 0);
  const seen = new Set(rows.filter(({ inRange }) => inRange > 0).map(({ depth }) => depth));
  place(charts.filter(({ depth }) => seen.has(depth)).map(({ element }) => element));
  patch(view, ranges(refresh), seen.size > 0 ? grid : h("section.card", {}, h("p.quiet", {}, "No batches in this time range.")), depthCard(rows, refresh), logCard(log, refresh), explanation());
  if (drawn !== history.edition()) for (const { update } of charts) update();
  drawn = history.edition();
}

/** Shows these charts. `patch` could copy one chart into another, so it doesn't serve here. */
function place(elements) {
  const isSame = elements.length === grid.children.length && elements.every((element, index) => grid.children[index] === element);
  if (!isSame) grid.replaceChildren(...elements);
}

/** The figures of a depth: means of this time range, and percentiles since the start. */
function row(depth, now) {
  const sums = history.sums([batchesOf(depth), ...NAMES.map((name) => partOf(depth, name))]);
  const [batches, ...times] = sums;
  const percentiles = parts(now[`batches_usec_${depth}_total`] ?? "");
  return { depth, inRange: batches, all: Number(parts(now[batchesOf(depth)] ?? "").count ?? 0), means: times.map((time) => mean(time, batches)), percentiles };
}

function depthCard(rows, refresh) {
  const time = (value) => (value === null || value === undefined ? "" : microseconds(Number(value)));
  const content = rows.length === 0 ? h("p.quiet", {}, "No batches since the start.") : table([
    { title: "commands", of: ({ depth }) => commands(depth).replace(/ commands?/, "") },
    { title: "batches", of: ({ all }) => count(all), number: true },
    ...PERCENTILES.map((name) => ({ title: name, of: ({ percentiles }) => time(percentiles[name]), number: true })),
    { title: "mean of this range", of: ({ means }) => bar(means), long: true },
    ...NAMES.map((name, index) => ({ title: name, of: ({ means }) => time(means[index]), number: true })),
  ], rows, "batches by depth", ({ depth }) => depth);
  return h("section.card", {}, h("h2", {}, "Batches by depth"), h("p.quiet", {}, "Number of batches and percentiles since the start; means of the time range. This page's own requests are batches, too."), content,
    isReadOnly ? null : h("p.row", {}, h("button", { type: "button", onclick: () => offered(["LATENCY", "BATCHES", "RESET"], "Removes the counts of batches.", refresh) }, "reset the counts")));
}

/** The shares of the parts as a bar. */
function bar(times) {
  const total = times.reduce((sum, time) => sum + (time ?? 0), 0);
  if (!(total > 0)) return "";
  let at = 0;
  const pieces = times.map((time, index) => {
    const piece = svg("rect", { x: at, y: 0, height: 10, width: (time / total) * 1000, class: `s${index + 1}` });
    at += (time / total) * 1000;
    return piece;
  });
  const label = times.map((time, index) => [NAMES[index], time]).filter(([, time]) => time > 0).map(([name, time]) => `${name} ${microseconds(time)}`).join(", ");
  return svg("svg", { class: "stack", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": label }, ...pieces);
}

function logCard(log, refresh) {
  const head = h("h2", {}, "Slow batches");
  if (log instanceof Error) return h("section.card", {}, head, h("p.error", {}, log.message));
  const entries = log.map(pairs).sort((a, b) => b.usec - a.usec);
  const content = entries.length === 0 ? h("p.quiet", {}, "None.") : table([
    { title: "time", of: (entry) => new Date(entry.time * 1000).toLocaleString() },
    { title: "duration", of: (entry) => microseconds(entry.usec), number: true },
    { title: "parts", of: (entry) => bar(NAMES.map((name) => entry[name])), long: true },
    { title: "commands", of: (entry) => count(entry.depth), number: true },
    { title: "size", of: (entry) => bytes(entry.bytes), number: true },
    { title: "longest command", of: (entry) => (entry.command === null ? "" : `${entry.command} ${microseconds(entry["command-usec"])}`), mono: true },
    { title: "client", of: (entry) => [entry.addr, entry.name].map(String).filter(Boolean).join(" "), mono: true },
    { title: "library", of: (entry) => `${entry["lib-name"]} ${entry["lib-ver"]}`.trim() },
  ], entries, "slow batches", (entry) => String(entry.id));
  return h("section.card", {}, head, h("p.quiet", {}, "The slowest first. The directive batchlog-log-slower-than sets the limit."), content,
    isReadOnly || entries.length === 0 ? null : h("p.row", {}, h("button", { type: "button", onclick: () => offered(["BATCHLOG", "RESET"], "Removes the entries of the log.", refresh) }, "remove the entries")));
}

function explanation() {
  return h("section.card", {}, h("h2", {}, "The parts"), table([
    { title: "part", of: ([name, , , index]) => [h(`span.dot.s${index}`), name] },
    { title: "the batch waits for", of: ([, reason]) => reason, long: true },
    { title: "if it is large", of: ([, , remedy]) => remedy, long: true },
  ], PARTS.map((part, index) => [...part, index + 1]), "the parts", ([name]) => name));
}
