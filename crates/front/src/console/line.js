// A command line, with the server's own documentation.

import { isReadOnly, one, pairs, run } from "./api.js";
import { confirmed } from "./confirm.js";
import { h } from "./dom.js";
import { printed, words } from "./text.js";

const LINES_MAX = 500;
const SUGGESTED_MAX = 12;
// Asked about before they run: what they do can't be undone. The server decides who may run them at all.
const GRAVE = /^(flushall|flushdb|shutdown|swapdb|debug|replicaof|slaveof|failover|config (set|rewrite|resetstat)|acl (setuser|deluser|load)|client kill|script (flush|kill)|function (flush|delete|restore)|cluster|module)\b/i;

export const interval = 0;

const history = [];
const log = [];
let docs = null;

export function open(view) {
  let at = history.length;
  const output = h("pre", { id: "output", role: "log", ariaLabel: "replies", tabIndex: 0 });
  const about = h("div", { id: "about" });
  const prompt = h("input", { id: "prompt", type: "text", placeholder: "GET key", ariaLabel: "command", spellcheck: false, autocomplete: "off", autocapitalize: "none" });
  const say = (text, kind = "") => {
    log.push([text, kind]);
    if (log.length > LINES_MAX) log.shift();
    output.replaceChildren(...log.map(([line, of]) => h(of ? `span.${of}` : "span", {}, `${line}\n`)));
    output.scrollTop = output.scrollHeight;
  };
  const execute = async (event) => {
    event.preventDefault();
    const line = prompt.value.trim();
    if (line === "") return;
    history.push(line);
    at = history.length;
    prompt.value = "";
    say(`> ${line}`, "asked");
    await answer(line, say);
  };
  const keys = (event) => {
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
    event.preventDefault();
    at = Math.max(0, Math.min(history.length, at + (event.key === "ArrowUp" ? -1 : 1)));
    prompt.value = history[at] ?? "";
    explain(prompt, about);
  };
  prompt.addEventListener("input", () => explain(prompt, about));
  prompt.addEventListener("keydown", keys);
  view.replaceChildren(h("section.card", {}, output, h("form.row", { onsubmit: execute }, prompt, h("button.main", { type: "submit" }, "run")),
    isReadOnly ? h("p.quiet", {}, "Read-only: commands that change something are refused.") : null, about));
  if (log.length > 0) output.replaceChildren(...log.map(([line, of]) => h(of ? `span.${of}` : "span", {}, `${line}\n`)));
  prompt.focus();
  explain(prompt, about);
}

async function answer(line, say) {
  try {
    const command = words(line);
    if (GRAVE.test(line) && !isReadOnly) {
      if (!(await confirmed(command, "This can't be undone."))) return say("not run", "quiet");
      return say("OK");
    }
    const [reply] = await run([command]);
    return say(reply === "OK" ? "OK" : printed(reply), reply instanceof Error ? "failed" : "");
  } catch (error) {
    return say(error.name === "TypeError" ? "The server doesn't answer." : `(error) ${error.message}`, "failed");
  }
}

/** The documentation of all commands, asked for once. */
async function documentation() {
  docs ??= one("COMMAND", "DOCS").then((list) => {
    const all = new Map();
    const add = (flat) => {
      for (const [name, about] of Object.entries(pairs(flat))) {
        const found = pairs(about);
        all.set(name.replace("|", " "), found);
        if (Array.isArray(found.subcommands)) add(found.subcommands);
      }
    };
    add(list);
    return all;
  });
  docs.catch(() => { docs = null; });
  return docs;
}

async function explain(prompt, about) {
  const all = await documentation().catch(() => null);
  if (all === null) return;
  const typed = prompt.value.trimStart().toLowerCase().split(/\s+/);
  const name = [typed.slice(0, 2).join(" "), typed[0]].find((candidate) => all.has(candidate));
  if (prompt.value.trim() === "") {
    about.replaceChildren(h("p.quiet", {}, `The server has ${all.size} commands. Type the beginning of one.`));
  } else if (name === undefined || (typed.length === 1 && !prompt.value.includes(" "))) {
    const near = [...all.keys()].filter((candidate) => candidate.startsWith(typed.join(" "))).sort().slice(0, SUGGESTED_MAX);
    const take = (candidate) => { prompt.value = `${candidate.toUpperCase()} `; prompt.focus(); explain(prompt, about); };
    about.replaceChildren(h("p.row", {}, near.map((candidate) => h("button.mono", { type: "button", onclick: () => take(candidate) }, candidate))), ...(name === undefined ? [] : page(name, all.get(name))));
  } else {
    about.replaceChildren(...page(name, all.get(name)));
  }
}

function page(name, about) {
  const syntax = Array.isArray(about.arguments) ? about.arguments.map((argument) => shown(pairs(argument))).join(" ") : "";
  return [h("h3.mono", {}, `${name.toUpperCase()} ${syntax}`), h("p", {}, String(about.summary ?? "")),
    h("p.quiet", {}, `${String(about.complexity ?? "")} · since ${String(about.since ?? "")} · ${String(about.group ?? "")}`)];
}

/** An argument as manuals write it. */
function shown(argument) {
  const flags = (argument.flags ?? []).map(String);
  const [type, token] = [String(argument.type), argument.token === undefined ? "" : String(argument.token)];
  const inner = (argument.arguments ?? []).map((part) => shown(pairs(part)));
  let text = type === "oneof" ? inner.join(" | ") : type === "block" ? inner.join(" ") : type === "pure-token" ? token : String(argument.display_text ?? argument.name);
  if (token !== "" && type !== "pure-token") text = `${token} ${text}`;
  if (flags.includes("multiple")) text = flags.includes("multiple_token") ? `${text} [${text} ...]` : `${text} [${text.split(" ").at(-1)} ...]`;
  if (flags.includes("optional")) return `[${text}]`;
  return type === "oneof" ? `<${text}>` : text;
}

