// The buttons that choose the time range of charts, and the card of a chart.

import { chart } from "./chart.js";
import { h, patch } from "./dom.js";
import * as history from "./history.js";

/** Buttons for the time range of all charts. */
export function ranges(refresh) {
  const choose = (seconds) => () => {
    history.choose(seconds);
    refresh();
  };
  return h("div.row.ranges", { role: "group", ariaLabel: "time range" },
    history.RANGES.map(([seconds, title]) => h("button", { type: "button", ariaPressed: String(seconds === history.range()), onclick: choose(seconds) }, title)));
}

/** Creates a chart's card, and the function that updates it from the history. */
export function card({ title, format, isBinary, isStacked, most, series, figure, about }) {
  const picture = chart({ label: title, format, isBinary, isStacked, most });
  const number = h("div.figure");
  const element = h("section.card", {}, h("h2", {}, title), number, picture.element, about ? h("p.quiet", {}, about) : null);
  const update = () => {
    const present = figure();
    patch(number, present === null ? "" : format(present));
    picture.set(series());
  };
  return { element, update };
}
