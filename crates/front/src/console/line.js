// A command line with completion, and the server's documentation beside it.

import { isReadOnly, one, pairs, run, selectDatabase, selectedDatabase } from "./api.js";
import { agreed } from "./confirm.js";
import { h } from "./dom.js";
import { asLine, printedReply, words } from "./text.js";

const LINES_MAX = 500;
const SUGGESTED_MAX = 12;
// Commands that can't be undone are confirmed. The server decides who may run them at all.
const GRAVE = /^(flushall|flushdb|shutdown|swapdb|debug|replicaof|slaveof|failover|config (set|rewrite|resetstat)|acl (setuser|deluser|load)|client kill|script (flush|kill)|function (flush|delete|restore)|module (load|loadex|unload)|cluster (?!(count-failure-reports|countkeysinslot|getkeysinslot|getslotmigrations|help|info|keyslot|links|myid|myshardid|nodes|replicas|shards|slaves|slot-stats|slots)$)\S+)( |$)/i;

export const interval = 0;

const history = [];
const log = [];
let docs = null;

export function open(view) {
  let at = history.length;
  const output = h("pre", { id: "output", role: "log", ariaLabel: "replies", tabIndex: 0 });
  const about = h("section.card", { id: "about", ariaLabel: "documentation" });
  const prompt = h("input", { id: "prompt", type: "text", placeholder: "GET key", ariaLabel: "command", spellcheck: false, autocomplete: "off", autocapitalize: "none" });
  const draw = () => {
    output.replaceChildren(...log.map(([line, of]) => h(of ? `span.${of}` : "span", {}, `${line}\n`)));
    output.scrollTop = output.scrollHeight;
  };
  const say = (text, kind = "") => {
    log.push([text, kind]);
    if (log.length > LINES_MAX) log.shift();
    draw();
  };
  const execute = async (event) => {
    event.preventDefault();
    const line = prompt.value.trim();
    if (line === "") return;
    history.push(line);
    at = history.length;
    prompt.value = "";
    say(`${selectedDatabase() === 0 ? "" : `[${selectedDatabase()}]`}> ${line}`, "asked");
    await answer(line, say);
  };
  const keys = (event) => {
    if (event.key === "Tab" && !event.shiftKey && complete(prompt)) {
      event.preventDefault();
      explain(prompt, about);
    }
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
    event.preventDefault();
    at = Math.max(0, Math.min(history.length, at + (event.key === "ArrowUp" ? -1 : 1)));
    prompt.value = history[at] ?? "";
    explain(prompt, about);
  };
  prompt.addEventListener("input", () => explain(prompt, about));
  prompt.addEventListener("keydown", keys);
  view.replaceChildren(h("div.line", {}, h("section.card", {}, output, h("form.row", { onsubmit: execute }, prompt, h("button.main", { type: "submit" }, "run")),
    h("p.quiet", {}, `Tab completes a command's name; the arrow keys recall earlier lines.${isReadOnly ? " Read-only: commands that change something are refused." : ""}`)), about));
  draw();
  prompt.focus();
  explain(prompt, about);
}

async function answer(line, say) {
  try {
    const command = words(line);
    if (await changesDatabase(command)) return say("OK");
    if (isGrave(command) && !isReadOnly && !(await agreed(asLine(command), "This command concerns the whole server."))) return say("not run", "quiet");
    const [reply] = await run([command]);
    return say(printedReply(reply), reply instanceof Error ? "failed" : "");
  } catch (error) {
    return say(error.name === "TypeError" ? "The server doesn't answer." : `(error) ${error.message}`, "failed");
  }
}

const isGrave = (command) => GRAVE.test(command.slice(0, 2).join(" "));

/** Runs SELECT in the page: requests share connections, so each one names its database. */
async function changesDatabase(command) {
  const [name, number] = command;
  if (command.length !== 2 || String(name).toLowerCase() !== "select" || !/^\d+$/.test(String(number))) return false;
  const before = selectedDatabase();
  selectDatabase(Number(number));
  try {
    await one("PING");
  } catch (error) {
    selectDatabase(before);
    throw error;
  }
  dispatchEvent(new Event("database"));
  return true;
}

/** The documentation of all commands, which the page reads once. */
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
    names = [...all.keys()].sort();
    return all;
  });
  docs.catch(() => { docs = null; });
  return docs;
}

let names = [];

/** Completes the name of a command as far as it is unambiguous. Returns false if there is nothing to complete. */
function complete(prompt) {
  const typed = prompt.value.trimStart().toLowerCase();
  if (typed === "") return false;
  const near = names.filter((name) => name.startsWith(typed) && name !== typed);
  // A complete name that other names continue gets its blank.
  if (near.length === 0 || names.includes(typed)) {
    if (!names.includes(typed)) return false;
    prompt.value = `${typed.toUpperCase()} `;
    return true;
  }
  let common = near[0];
  for (const name of near) while (!name.startsWith(common)) common = common.slice(0, -1);
  prompt.value = near.length === 1 ? `${common.toUpperCase()} ` : common.toUpperCase();
  return true;
}

async function explain(prompt, about) {
  const all = await documentation().catch((error) => error);
  if (all instanceof Error) {
    about.replaceChildren(h("h2", {}, "Documentation"), h("p.quiet", {}, `The server gives none: ${all.message}`));
    return;
  }
  const typed = prompt.value.trimStart().toLowerCase().split(/\s+/);
  const name = [typed.slice(0, 2).join(" "), typed[0]].find((candidate) => all.has(candidate));
  if (prompt.value.trim() === "") {
    about.replaceChildren(h("h2", {}, "Documentation"), h("p.quiet", {}, `The server has ${all.size} commands. Type the beginning of a name.`));
  } else if (name === undefined || (typed.length === 1 && !prompt.value.includes(" "))) {
    const near = names.filter((candidate) => candidate.startsWith(typed.join(" "))).slice(0, SUGGESTED_MAX);
    const take = (candidate) => { prompt.value = `${candidate.toUpperCase()} `; prompt.focus(); explain(prompt, about); };
    const none = near.length === 0 && name === undefined ? h("p.quiet", {}, "No command has such a name.") : null;
    about.replaceChildren(...[none, h("p.row", {}, near.map((candidate) => h("button.mono", { type: "button", onclick: () => take(candidate) }, candidate))), ...(name === undefined ? [] : page(name, all.get(name)))].filter(Boolean));
  } else {
    about.replaceChildren(...page(name, all.get(name)));
  }
}

function page(name, about) {
  const syntax = Array.isArray(about.arguments) ? about.arguments.map((argument) => shown(pairs(argument))).join(" ") : "";
  return [h("h3.mono", {}, `${name.toUpperCase()} ${syntax}`), h("p", {}, String(about.summary ?? "")),
    h("p.quiet", {}, `${String(about.complexity ?? "")} · since ${String(about.since ?? "")} · ${String(about.group ?? "")}`)];
}

/** An argument in the notation of manuals. */
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
