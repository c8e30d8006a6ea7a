// Elements, made without ever reading text as markup.

/** An element: its name with classes ("td.number"), attributes, children. */
export function h(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length > 0) element.classList.add(...classes);
  set(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function set(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of a picture. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A table; each column: title, whether it has numbers, and what a row has in it. */
export function table(columns, rows, caption) {
  const cell = (kind, column, content) => h(`${kind}${column.number ? ".number" : ""}${column.long ? ".long" : ""}${column.mono ? ".mono" : ""}`, {}, content);
  return h("div.scroll", {}, h("table", { ariaLabel: caption },
    h("thead", {}, h("tr", {}, columns.map((column) => cell("th", { ...column, mono: false }, column.title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column) => cell("td", column, column.of(row))))))));
}

/** A line through values, the latest at the right; `more` is a second one on the same scale. */
export function chart(values, label, more = []) {
  const [width, height, most] = [300, 100, Math.max(1e-9, ...values, ...more) * 1.1];
  const slots = Math.max(2, values.length, more.length, 60);
  const points = (series) => series.map((value, index) => [width - ((series.length - 1 - index) * width) / (slots - 1), height - (value / most) * height]);
  const text = (list) => list.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const main = points(values);
  const parts = [25, 50, 75].map((y) => svg("line", { x1: 0, x2: width, y1: y, y2: y }));
  if (main.length > 1) {
    parts.push(svg("polygon", { points: text([[main[0][0], height], ...main, [width, height]]) }), svg("polyline", { points: text(main) }));
  }
  if (more.length > 1) parts.push(svg("polyline", { class: "second", points: text(points(more)) }));
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...parts);
}
