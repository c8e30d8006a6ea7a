// The page: its views, who is logged in, and what happens while the server doesn't answer.

import * as advisor from "./advisor.js";
import { hasToken, isReadOnly, logIn, logOut, one, Refused, selectDatabase } from "./api.js";
import * as clients from "./clients.js";
import { h } from "./dom.js";
import * as keys from "./keys.js";
import * as line from "./line.js";
import * as overview from "./overview.js";

const VIEWS = { overview: ["Overview", overview], keys: ["Keys", keys], clients: ["Clients", clients], advisor: ["Advisor", advisor], line: ["Command line", line] };
// While the server doesn't answer, it is asked again this often.
const RETRY_MS = 2000;

const $ = (selector) => document.querySelector(selector);
let current = null;
let timer = null;
/** Counts up whenever what is shown changes: an answer that comes too late is thrown away. */
let turn = 0;

function name() {
  const wanted = location.hash.slice(1);
  return wanted in VIEWS ? wanted : "overview";
}

function open() {
  turn += 1;
  current = VIEWS[name()][1];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name()}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  $("#view").replaceChildren(h("p.quiet", {}, "…"));
  current.open?.($("#view"));
  refresh();
}

/** Gathers and shows anew, and again after the view's interval. */
async function refresh() {
  clearTimeout(timer);
  const [view, mine] = [current, turn];
  let wait = view.interval;
  try {
    if (view.gather && !document.hidden) {
      const found = await view.gather();
      if (mine !== turn) return;
      banner("");
      // What is being used isn't replaced under the user's hands.
      if (!$("#view").querySelector("select:focus, .danger:focus")) view.show($("#view"), found, refresh);
    }
  } catch (error) {
    if (mine !== turn) return;
    wait = failed(error);
  }
  if (wait) timer = setTimeout(refresh, wait);
}

/** Says what went wrong; answers when to try again. */
function failed(error) {
  if (error instanceof Refused && error.status === 401) {
    askForPassword(hasToken() ? error.message : "");
    return 0;
  }
  if (error instanceof Refused || error.message.startsWith("NOPERM") || error.message.startsWith("ERR")) {
    banner(error.message);
  } else {
    banner("The server doesn't answer. It is asked again every two seconds.");
  }
  return RETRY_MS;
}

function banner(text) {
  $("#banner").textContent = text;
  $("#banner").hidden = text === "";
}

function askForPassword(why) {
  const dialog = $("#login");
  dialog.querySelector(".error").textContent = why;
  if (!dialog.open) dialog.showModal();
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

/** Which colours: the system's, unless the user has chosen. */
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
$("#login form").addEventListener("submit", enter);
// Without the server's word there is nothing to see.
$("#login").addEventListener("cancel", (event) => event.preventDefault());
$("#theme").addEventListener("click", () => theme(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
$("#log-out").addEventListener("click", () => {
  // Whatever was shown and typed is forgotten with the page.
  logOut();
  location.reload();
});
$("#database").addEventListener("change", () => {
  selectDatabase(Math.max(0, Number.parseInt($("#database").value, 10) || 0));
  open();
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
addEventListener("hashchange", open);
theme();
open();
