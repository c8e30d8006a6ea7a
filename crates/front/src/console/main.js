// The page: its views, the login, and retries while the server doesn't answer.

import * as advisor from "./advisor.js";
import { fields, isReadOnly, logIn, logOut, one, Refused, run, selectDatabase, selectedDatabase, whenUnauthorized } from "./api.js";
import * as batches from "./batches.js";
import * as clients from "./clients.js";
import { h, patch } from "./dom.js";
import * as keys from "./keys.js";
import * as line from "./line.js";
import * as live from "./live.js";
import * as overview from "./overview.js";
import { loadingProgress, seconds } from "./text.js";

const VIEWS = { overview: ["Overview", overview], keys: ["Keys", keys], clients: ["Clients", clients], batches: ["Batches", batches], live: ["Live", live], advisor: ["Advisor", advisor], line: ["Command line", line] };
// Interval of retries while the server doesn't answer, and while the user may not see the view.
const RETRY_MS = 2000;
const RETRY_FORBIDDEN_MS = 10_000;
// Interval of the server's description in the header.
const HEADER_MS = 2000;

const $ = (selector) => document.querySelector(selector);
let current = null;
let timer = null;
/** Counts the changes of the shown view; an answer for an earlier view is dropped. */
let turn = 0;

function name() {
  const wanted = location.hash.slice(1);
  return wanted in VIEWS ? wanted : "overview";
}

function open() {
  turn += 1;
  current?.close?.();
  current = VIEWS[name()][1];
  document.title = `${VIEWS[name()][0]} - Penstock`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name()}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  banner("");
  $("#view").replaceChildren(h("p.quiet", {}, "Loading…"));
  current.open?.($("#view"));
  refresh();
  if (!$("#login").open) describe();
}

/** Reads the view's data and shows them, and does so again after the view's interval. */
async function refresh() {
  clearTimeout(timer);
  const [view, mine] = [current, turn];
  let wait = view.interval;
  try {
    if (view.gather && !document.hidden) {
      const found = await view.gather();
      if (mine !== turn) return;
      banner("");
      view.show($("#view"), found, refresh);
    }
  } catch (error) {
    if (mine !== turn) return;
    wait = failed(error);
  }
  if (wait) timer = setTimeout(refresh, wait);
}

/** Describes the server in the header of every view, as far as the user may see it. */
async function describe() {
  const [info] = document.hidden ? [null] : await run([["INFO", "server", "persistence", "replication"]]).catch(() => [null]);
  if (info === null || info instanceof Error) return;
  const now = fields(info);
  const loading = loadingProgress(now);
  patch($("#server"), `${loading === null ? "" : `loading its data: ${loading}; `}${now.role === "slave" ? "replica, " : ""}port ${now.tcp_port}, ${now.penstock_version}, up ${seconds(Number(now.uptime_in_seconds))}`);
}

/** Shows an error. Returns the time until the next try in milliseconds; 0 is never. */
function failed(error) {
  if (error instanceof Refused && error.status === 401) return 0;
  if (/^(NOPERM|DENIED)/.test(error.message)) {
    banner("");
    $("#view").replaceChildren(h("section.card", {}, h("h2", {}, "No permission for this view"),
      h("p", {}, `The user ${$("#user").textContent || "default"} may not run a command that this view needs. The other views may still work.`), h("pre", {}, error.message)));
    return RETRY_FORBIDDEN_MS;
  }
  if (error instanceof Refused || error.message.startsWith("ERR")) banner(error.message);
  else banner("The server doesn't answer. The page tries again every two seconds.");
  return RETRY_MS;
}

function banner(text) {
  if ($("#banner").textContent !== text) $("#banner").textContent = text;
  $("#banner").hidden = text === "";
}

function askForPassword(why) {
  const dialog = $("#login");
  // The login's own attempt shows its error itself.
  if (dialog.open) return;
  dialog.querySelector(".error").textContent = why;
  dialog.showModal();
  dialog.querySelector("input[name=password]").focus();
}

async function enter(event) {
  event.preventDefault();
  const form = event.target;
  logIn(form.user.value, form.password.value);
  try {
    const user = await one("ACL", "WHOAMI").catch((error) => (error instanceof Refused || error instanceof TypeError ? Promise.reject(error) : form.user.value));
    form.password.value = "";
    $("#user").textContent = String(user);
    $("#log-out").hidden = false;
    $("#login").close();
    open();
  } catch (error) {
    logOut();
    form.querySelector(".error").textContent = error instanceof Refused ? error.message : "The server doesn't answer.";
    form.password.select();
  }
}

/** Sets the colours: the system's, unless the user has chosen. */
function theme(next = false) {
  const all = ["auto", "light", "dark"];
  let chosen = localStorage.getItem("penstock-theme") ?? "auto";
  if (next) {
    chosen = all[(all.indexOf(chosen) + 1) % all.length];
    localStorage.setItem("penstock-theme", chosen);
  }
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = chosen === "auto" ? system : chosen;
  $("#theme").textContent = { auto: "◐", light: "☀", dark: "☾" }[chosen];
  $("#theme").ariaLabel = `colours: ${chosen}`;
}

$("nav").append(...Object.entries(VIEWS).map(([id, [title]]) => h("a", { href: `#${id}` }, title)));
$("#mode").hidden = !isReadOnly;
whenUnauthorized(askForPassword);
$("#login form").addEventListener("submit", enter);
// The page shows nothing without a login, so the dialog can't be cancelled.
$("#login").addEventListener("cancel", (event) => event.preventDefault());
$("#theme").addEventListener("click", () => theme(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
$("#log-out").addEventListener("click", () => {
  // A reload forgets everything that was shown and typed.
  logOut();
  location.reload();
});
$("#database").addEventListener("change", () => {
  selectDatabase(Math.max(0, Number.parseInt($("#database").value, 10) || 0));
  open();
});
// SELECT on the command line changes the database, too.
addEventListener("database", () => { $("#database").value = String(selectedDatabase()); });
document.addEventListener("visibilitychange", () => document.hidden || refresh());
addEventListener("hashchange", open);
theme();
open();
// Without a password nothing is asked, so that the login's error stays.
setInterval(() => $("#login").open || describe(), HEADER_MS);
