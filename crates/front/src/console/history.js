// The history of the server's figures, as far as this page has asked for it. The server keeps a day.

import { get } from "./api.js";

export const RANGES = [[120, "2 min"], [600, "10 min"], [3600, "1 h"], [10_800, "3 h"], [86_400, "24 h"]];

// Shortest time that a chart shows.
const SPAN_MIN_S = 60;

let span = 600;
let known = empty();
let asked = 0;
/** Counts the changes of the points. */
let version = 0;

function empty() {
  return { step: 1, names: [], percentiles: [], points: [] };
}

/** Returns a number that changes with the points. */
export function edition() {
  return version;
}

export function range() {
  return span;
}

export function choose(seconds) {
  span = seconds;
  known = empty();
  asked = 0;
  version += 1;
}

/** Asks for the points since the last ones. Points at long intervals are asked for that seldom. */
export async function refresh() {
  if (performance.now() - asked < (known.step - 0.5) * 1000 && known.points.length > 0) return;
  const mine = span;
  const since = known.points.at(-1)?.[0] ?? 0;
  const found = await get(`/console/history?span=${span}&since=${since}`);
  if (mine !== span) return;
  asked = performance.now();
  if (found.points.length > 0) version += 1;
  // A server that has started anew, or another interval, has other points.
  const isSame = found.step === known.step && found.names.join() === known.names.join();
  known = { ...found, points: isSame ? [...known.points, ...found.points] : found.points };
  const end = known.points.at(-1)?.[0] ?? 0;
  known.points = known.points.filter(([at]) => at > end - span);
}

/** The frame of a chart: times, interval and range. A history that is shorter than the range fills the chart. */
function frame(series) {
  const times = known.points.map(([at]) => at);
  const age = times.length > 0 ? times.at(-1) - times[0] : 0;
  return { times, step: known.step, span: Math.min(span, Math.max(SPAN_MIN_S, age)), series };
}

/** Series of figures; each is a name for people and a function of a point's figures. */
export function figures(...wanted) {
  const all = known.points.map(([, values]) => Object.fromEntries(known.names.map((name, index) => [name, values[index]])));
  return frame(wanted.map(([name, of]) => ({ name, values: all.map((point) => finite(of(point))) })));
}

export function percentiles() {
  return frame(known.percentiles.map((percent, index) => ({ name: percent === 50 ? "median" : `${percent} %`, values: known.points.map(([, , values]) => values[index]) })));
}

/** The rates of the commands that ran most often in this range. */
export function commandRates(most) {
  const sums = new Map();
  for (const [, , , commands] of known.points) for (const [name, rate] of commands) sums.set(name, (sums.get(name) ?? 0) + rate);
  const names = [...sums].sort((a, b) => b[1] - a[1]).slice(0, most).map(([name]) => name);
  return frame(names.map((name) => ({ name, values: known.points.map(([, , , commands]) => commands.find(([found]) => found === name)?.[1] ?? 0) })));
}

/** The sums of figures over all points of this range, in the order of the names. */
export function sums(names) {
  return names.map((name) => {
    const at = known.names.indexOf(name);
    return at < 0 ? 0 : known.points.reduce((sum, [, values]) => sum + (values[at] ?? 0), 0);
  });
}

/** The last point's figure. */
export function last(of) {
  const values = known.points.at(-1)?.[1];
  return values === undefined ? null : finite(of(Object.fromEntries(known.names.map((name, index) => [name, values[index]]))));
}

function finite(value) {
  return Number.isFinite(value) ? value : null;
}
