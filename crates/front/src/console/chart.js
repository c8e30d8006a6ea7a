// A chart of figures over time: axes with units, gaps, and the values at the pointer or the cursor keys.

import { h, svg } from "./dom.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [62, 8, 8, 20];
const HEIGHT = 150;
// A longer time between two points than this many intervals is a gap.
const GAP_INTERVALS = 2.5;
const GRID_LINES = 4;
const TIME_STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200];

/** Creates a chart. `format` writes a value with its unit; `isBinary` selects steps of 1024 for bytes; `isStacked` puts the series on top of each other. */
export function chart({ label, format, isBinary = false, isStacked = false, most = null }) {
  let [shown, cursor, width] = [{ times: [], series: [], step: 1, span: 60 }, null, 300];
  const tip = h("div.tip", { role: "status", hidden: true });
  const picture = svg("svg", { role: "img", "aria-label": label, tabindex: 0, height: HEIGHT });
  const legend = h("p.legend");
  const element = h("div.chart", {}, picture, tip, legend);

  const present = () => scales(isStacked ? { ...shown, series: [whole(shown)] } : shown, width, isBinary, most);
  const content = (scale) => (isStacked ? areas(shown, scale) : shown.series.flatMap((series, index) => line(shown, series, index, scale)));
  const draw = () => {
    const scale = present();
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const parts = [...axes(scale, format, width), ...content(scale), ...(isStacked ? mark({ ...shown, series: [] }, cursor, scale) : mark(shown, cursor, scale))];
    picture.replaceChildren(...parts.filter((part) => part !== null));
    legend.replaceChildren(...(shown.series.length > 1 ? shown.series : []).map((series, index) => h("span", {}, h(`span.dot.s${index + 1}`), series.name)));
    tell(scale);
  };
  const tell = (scale) => {
    tip.hidden = cursor === null || !(cursor in shown.times);
    if (tip.hidden) return;
    const time = new Date(shown.times[cursor] * 1000).toLocaleString([], shown.span > 43_200 ? { dateStyle: "short", timeStyle: "short" } : { timeStyle: "medium" });
    const value = (series) => (series.values[cursor] === null ? "no data" : format(series.values[cursor]));
    const sum = isStacked ? h("div", {}, `total ${value(whole(shown))}`) : "";
    tip.replaceChildren(h("div.quiet", {}, time), sum, ...shown.series.map((series, index) => h("div", {}, h(`span.dot.s${index + 1}`), `${series.name} ${value(series)}`)));
    const x = scale.x(shown.times[cursor]);
    if (x > width / 2) [tip.style.right, tip.style.left] = [`${width - x + 10}px`, "auto"];
    else [tip.style.left, tip.style.right] = [`${x + 10}px`, "auto"];
  };
  const point = (index) => {
    cursor = index;
    draw();
  };
  picture.addEventListener("pointermove", (event) => {
    const scale = present();
    point(nearest(shown.times, scale.time(event.clientX - picture.getBoundingClientRect().left)));
  });
  picture.addEventListener("pointerleave", () => point(null));
  picture.addEventListener("blur", () => point(null));
  picture.addEventListener("keydown", (event) => {
    const last = shown.times.length - 1;
    const moves = { ArrowLeft: () => Math.max(0, (cursor ?? last + 1) - 1), ArrowRight: () => Math.min(last, (cursor ?? last - 1) + 1), Home: () => 0, End: () => last, Escape: () => null };
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    point(moves[event.key]());
  });
  new ResizeObserver(([entry]) => {
    width = Math.max(160, Math.round(entry.contentRect.width));
    draw();
  }).observe(element);

  return {
    element,
    /** Shows series of values at times in seconds; `null` is no value. */
    set(next) {
      // The cursor stays at its time while the points move to the left.
      const time = cursor === null ? null : shown.times[cursor];
      shown = next;
      cursor = time === null ? null : nearest(shown.times, time);
      draw();
    },
  };
}

function nearest(times, time) {
  if (times.length === 0) return null;
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}

function scales({ times, series, span }, width, isBinary, most) {
  const end = times.at(-1) ?? Date.now() / 1000;
  const start = end - span;
  let top = most ?? 0;
  if (most === null) for (const { values } of series) for (const value of values) if (value > top) top = value;
  const step = niceStep(top / GRID_LINES || (isBinary ? 256 : 0.25), isBinary);
  top = most ?? step * Math.max(1, Math.ceil(top / step));
  const [across, down] = [width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
  return { start, end, top, step,
    x: (time) => LEFT + ((time - start) / span) * across,
    y: (value) => TOP + down - (value / top) * down,
    time: (x) => start + ((x - LEFT) / across) * span };
}

/** Removes the zeros behind a round number's point. */
function short(text) {
  return text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

/** Returns a round number that is at least `least`. */
export function niceStep(least, isBinary) {
  const unit = isBinary && least >= 1024 ? 1024 ** Math.floor(Math.log(least) / Math.log(1024)) : 1;
  const power = 10 ** Math.floor(Math.log10(least / unit));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power * unit >= least * (1 - 1e-9));
  // 1000 KB isn't round beside the next step, 1 MB.
  return isBinary && step === 1000 ? unit * 1024 : unit * step;
}

function axes({ start, end, top, step, x, y }, format, width) {
  const parts = [];
  for (let value = 0; value <= top * 1.001; value += step) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, short(format(value))));
  }
  const span = end - start;
  const labels = Math.max(2, Math.floor((width - LEFT) / 90));
  const every = TIME_STEPS_S.find((seconds) => span / seconds <= labels) ?? 86_400;
  const offset = new Date(end * 1000).getTimezoneOffset() * 60;
  for (let time = Math.ceil((start - offset) / every) * every + offset; time <= end; time += every) {
    const text = new Date(time * 1000).toLocaleTimeString([], every < 60 ? { timeStyle: "medium" } : { timeStyle: "short" });
    const anchor = x(time) > width - 40 ? "end" : x(time) < LEFT + 20 ? "start" : "middle";
    parts.push(svg("line", { class: "tick", x1: x(time), x2: x(time), y1: y(0), y2: y(0) + 4 }), svg("text", { x: x(time), y: HEIGHT - 4, "text-anchor": anchor }, text));
  }
  return parts;
}

/** The sum of all series at each time. */
function whole({ times, series }) {
  const sum = (_, at) => (series.some(({ values }) => values[at] === null) ? null : series.reduce((total, { values }) => total + values[at], 0));
  return { name: "total", values: times.map(sum) };
}

/** The indices of the points with a value, in pieces between gaps. */
function pieces({ times, step }, values, start) {
  const found = [];
  let before = null;
  for (let at = 0; at < times.length; at += 1) {
    if (values[at] === null || times[at] < start) continue;
    if (before === null || times[at] - before > GAP_INTERVALS * step) found.push([]);
    found.at(-1).push(at);
    before = times[at];
  }
  return found;
}

const asPoints = (points) => points.map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join(" ");

/** A line that is broken at gaps; the only series of a chart has an area below. */
function line(shown, { values }, index, { start, x, y }) {
  return pieces(shown, values, start).flatMap((piece) => {
    const points = piece.map((at) => [x(shown.times[at]), y(values[at])]);
    if (points.length === 1) return [svg("circle", { class: `l${index + 1}`, cx: points[0][0], cy: points[0][1], r: 1.5 })];
    const area = [[points[0][0], y(0)], ...points, [points.at(-1)[0], y(0)]];
    return [shown.series.length === 1 ? svg("polygon", { points: asPoints(area) }) : null, svg("polyline", { class: `l${index + 1}`, points: asPoints(points) })];
  });
}

/** Areas on top of each other, broken at gaps. A single point is a line upwards. */
function areas(shown, { start, x, y }) {
  return pieces(shown, whole(shown).values, start).flatMap((piece) => {
    const floor = piece.map(() => 0);
    return shown.series.flatMap(({ values }, index) => {
      const below = piece.map((at, n) => [x(shown.times[at]), y(floor[n])]);
      piece.forEach((at, n) => { floor[n] += values[at]; });
      const above = piece.map((at, n) => [x(shown.times[at]), y(floor[n])]);
      if (piece.length === 1) return [svg("line", { class: `l${index + 1}`, x1: below[0][0], x2: below[0][0], y1: below[0][1], y2: above[0][1] })];
      return [svg("polygon", { class: `s${index + 1}`, points: asPoints([...above, ...below.reverse()]) })];
    });
  });
}

function mark({ times, series }, cursor, { top, x, y }) {
  if (cursor === null || !(cursor in times)) return [];
  const at = x(times[cursor]);
  const dots = series.map(({ values }, index) => (values[cursor] === null ? null : svg("circle", { class: `l${index + 1}`, cx: at, cy: y(values[cursor]), r: 3 })));
  return [svg("line", { class: "cursor", x1: at, x2: at, y1: y(0), y2: y(top) }), ...dots];
}
