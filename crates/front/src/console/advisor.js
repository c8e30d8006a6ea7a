// Findings of the advisor: wasted round trips, and the code to write instead.

import { isReadOnly, one, pairs, run } from "./api.js";
import { offered } from "./confirm.js";
import { h, patch } from "./dom.js";
import { count, microseconds } from "./text.js";

/** Details of the open findings by their id; null while they are on their way. */
const opened = new Map();
let language = "python";

export const interval = 5000;

export async function gather() {
  const [list] = await run([["ADVISE", "LIST", "COUNT", 50]]);
  if (list instanceof Error) throw list;
  return list.map(pairs);
}

export function show(view, findings, refresh) {
  const forget = () => offered(["ADVISE", "RESET"], "Removes all findings, for everybody.", refresh);
  patch(view, h("section.card", {}, h("h2", {}, "Wasted round trips"),
    h("p.quiet", {}, "A client that waits for each reply pays for a round trip each time. These loops cost the most."),
    findings.length === 0 ? h("p", {}, "There are no findings.") : findings.map((finding) => element(finding, refresh)),
    isReadOnly || findings.length === 0 ? null : h("p", {}, h("button.danger", { type: "button", onclick: forget }, "remove all"))));
}

function text(value) {
  return Array.isArray(value) ? value.map(text).join("; ") : String(value ?? "");
}

function element(finding, refresh) {
  const id = text(finding.id);
  const toggle = async (event) => {
    if (!event.target.open) return opened.delete(id);
    if (opened.has(id)) return null;
    opened.set(id, null);
    opened.set(id, await one("ADVISE", "GET", id).then(pairs, (error) => error));
    return refresh();
  };
  return h("details", { key: id, open: opened.has(id), ontoggle: toggle },
    h("summary", {}, h("strong.mono", {}, text(finding.steps)), h("br"), text(finding.remedy), h("br"),
      h("span.quiet", {}, `${count(finding["round-trips-made"])} round trips, ${count(finding["round-trips-needed"])} needed, ${microseconds(finding["time-lost-us"])} lost; `
        + `confidence ${text(finding.confidence)}; ${text(finding.client)}`)),
    h("p", {}, text(finding.seen)), h("div", {}, about(opened.get(id), refresh)));
}

function about(found, refresh) {
  if (found === undefined) return [];
  if (found === null) return [h("p.quiet", {}, "Loading…")];
  if (found instanceof Error) return [h("p.error", {}, found.message)];
  return [facts(found), ...code(found, refresh)];
}

/** The facts that the summary leaves out. */
function facts(found) {
  const when = (name) => new Date(found[name] * 1000).toLocaleString();
  const rows = [["times", count(found.count)], ["clients", count(found.clients)], ["first seen", when("first-seen")], ["last seen", when("last-seen")],
    ["time in the server", found["busy-us"] > 0 ? microseconds(found["busy-us"]) : ""], ["followed by", text(found["followed-by"])], ["examples", text(found.samples)]];
  return h("div.scroll", { tabIndex: 0, role: "region", ariaLabel: "facts" },
    h("table", {}, h("tbody", {}, rows.filter(([, value]) => value !== "").map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td.long", {}, value))))));
}

/** The code to write instead, in the language that was chosen last. */
function code(found, refresh) {
  if (!Array.isArray(found.code)) return [];
  const languages = pairs(found.code);
  const names = Object.keys(languages);
  if (!names.includes(language)) [language] = names;
  const choose = (event) => {
    language = event.target.value;
    refresh();
  };
  return [h("h3", {}, "Instead, in ", h("select", { ariaLabel: "language", onchange: choose }, names.map((name) => h("option", { value: name, selected: name === language }, name)))),
    h("pre", {}, text(languages[language]))];
}
