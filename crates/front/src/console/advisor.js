// Which round trips clients waste, and what to write instead.

import { isReadOnly, one, pairs, run } from "./api.js";
import { confirmed } from "./confirm.js";
import { h } from "./dom.js";
import { count, microseconds } from "./text.js";

/** Details that have been opened, by the finding's id. */
const opened = new Map();
let language = "python";

export const interval = 5000;

export async function gather() {
  const [list] = await run([["ADVISE", "LIST", "COUNT", 50]]);
  if (list instanceof Error) throw list;
  return list.map(pairs);
}

export function show(view, findings, refresh) {
  const forget = () => confirmed(["ADVISE", "RESET"], "Forgets all findings, for everybody.").then((ran) => ran && refresh());
  view.replaceChildren(h("section.card", {}, h("h2", {}, "Round trips that clients waste"),
    h("p.quiet", {}, "A client that waits for each reply pays for a round trip each time. These loops cost the most."),
    findings.length === 0 ? h("p", {}, "Nothing found so far.") : findings.map((finding) => element(finding)),
    isReadOnly || findings.length === 0 ? null : h("p", {}, h("button.danger", { type: "button", onclick: forget }, "forget all"))));
}

function text(value) {
  return Array.isArray(value) ? value.map(text).join("; ") : String(value ?? "");
}

function element(finding) {
  const id = text(finding.id);
  const details = h("div", {}, opened.get(id) ?? []);
  const box = h("details", { open: opened.has(id) },
    h("summary", {}, h("strong.mono", {}, text(finding.steps)), h("br"), text(finding.remedy), h("br"),
      h("span.quiet", {}, `${count(finding["round-trips-made"])} round trips, ${count(finding["round-trips-needed"])} needed, ${microseconds(finding["time-lost-us"])} lost; `
        + `confidence ${text(finding.confidence)}; ${text(finding.client)}`)),
    h("p", {}, text(finding.seen)), details);
  box.addEventListener("toggle", async () => {
    if (!box.open) return opened.delete(id);
    if (opened.has(id)) return null;
    opened.set(id, [h("p.quiet", {}, "…")]);
    opened.set(id, await about(id));
    return details.replaceChildren(...opened.get(id));
  });
  return box;
}

async function about(id) {
  try {
    const found = pairs(await one("ADVISE", "GET", id));
    return [facts(found), ...code(found)];
  } catch (error) {
    return [h("p.error", {}, error.message)];
  }
}

/** What the summary doesn't say yet. */
function facts(found) {
  const when = (name) => new Date(found[name] * 1000).toLocaleString();
  const rows = [["times", count(found.count)], ["clients", count(found.clients)], ["first seen", when("first-seen")], ["last seen", when("last-seen")],
    ["time in the server", microseconds(found["busy-us"])], ["followed by", text(found["followed-by"])], ["such as", text(found.samples)]];
  return h("div.scroll", {}, h("table", {}, h("tbody", {}, rows.filter(([, value]) => value !== "").map(([name, value]) => h("tr", {}, h("th", {}, name), h("td.long", {}, value))))));
}

/** The code to write instead, in the language that was chosen last. */
function code(found) {
  if (!Array.isArray(found.code)) return [];
  const languages = pairs(found.code);
  const names = Object.keys(languages);
  if (!names.includes(language)) [language] = names;
  const shown = h("pre", {}, text(languages[language]));
  const choose = h("select", { ariaLabel: "language", onchange: () => {
    language = choose.value;
    shown.textContent = text(languages[language]);
  } }, names.map((name) => h("option", { value: name, selected: name === language }, name)));
  return [h("h3", {}, "Instead, in ", choose), shown];
}
