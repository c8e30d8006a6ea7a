// Three ways to import the same films, with the round trips and the time that each one takes.
//
// Each film goes into a sorted set for every prefix of its words. The ways differ in the commands and in when they are sent: with every
// command on its own, each one pays for a round trip.
"use strict";

// Number of films; `?films=10` imports fewer.
const FILMS = Math.min(100, Number(new URLSearchParams(location.search).get("films")) || 100);
// Commands in one request of the pipelined way.
const BATCH = 500;
const PREFIX_LETTERS_MIN = 2;
const INDEX = "films:index:";
const DATA = "films:data";
const WORDS = ["Silent", "Golden", "Broken", "Midnight", "Restless", "Velvet", "Winter", "Hollow", "Paper", "Distant"];
const THINGS = ["River", "Harbour", "Machine", "Orchard", "Lantern", "Voyage", "Garden", "Signal", "Mountain", "Letter"];

const table = document.getElementById("ways");
let running = null;

function films() {
  return Array.from({ length: FILMS }, (_, at) => ({ title: `The ${WORDS[at % 10]} ${THINGS[Math.floor(at / 10)]}`, votes: 1 + ((at * 37) % 1000) }));
}

function prefixes(title) {
  const found = title.toLowerCase().split(" ").flatMap((word) => Array.from({ length: Math.max(0, word.length - PREFIX_LETTERS_MIN + 1) }, (_, at) => word.slice(0, at + PREFIX_LETTERS_MIN)));
  return [...new Set(found)];
}

// Sends commands in one request, and returns their results.
async function send(count, commands) {
  const response = await fetch("/pipeline", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(commands), signal: running.signal });
  const replies = await response.json();
  if (!response.ok) throw new Error(replies.error);
  const failed = replies.find((reply) => "error" in reply);
  if (failed) throw new Error(failed.error);
  count(commands.length);
  return replies.map((reply) => reply.result);
}

const one = async (count, ...command) => (await send(count, [command]))[0];
const last = ({ title, votes }) => [["HSET", DATA, title, JSON.stringify({ title, votes })], ["FT.SUGADD", "movies", title, String(votes)]];

// Reads the score before every write, as the first program did.
async function oneByOne(count) {
  for (const film of films()) {
    for (const prefix of prefixes(film.title)) {
      const score = await one(count, "ZSCORE", INDEX + prefix, film.title);
      await one(count, "ZADD", INDEX + prefix, score ?? film.votes, film.title);
    }
    for (const command of last(film)) await one(count, ...command);
  }
}

// A film has one score, so no score is read.
async function oneScore(count) {
  for (const film of films()) {
    for (const prefix of prefixes(film.title)) await one(count, "ZADD", INDEX + prefix, film.votes, film.title);
    for (const command of last(film)) await one(count, ...command);
  }
}

// The same commands, sent together.
async function pipelined(count) {
  const commands = films().flatMap((film) => [...prefixes(film.title).map((prefix) => ["ZADD", INDEX + prefix, film.votes, film.title]), ...last(film)]);
  for (let at = 0; at < commands.length; at += BATCH) await send(count, commands.slice(at, at + BATCH));
}

const WAYS = [
  ["one by one", "reads each score, then writes it", oneByOne],
  ["one score", "writes the film's one score", oneScore],
  ["pipelined", `writes the same, ${BATCH} commands in a request`, pipelined],
];

// The results by way: commands, round trips, seconds. A bar shows the round trips in proportion to the largest number.
const results = new Map();
const bars = new Map();

function element(name, text = "", className = "") {
  const found = document.createElement(name);
  found.textContent = text;
  found.className = className;
  return found;
}

const number = (value) => value.toLocaleString("en-US");

function report(text) {
  document.getElementById("import-state").textContent = text;
}

function showBars() {
  const most = Math.max(...[...results.values()].map(({ trips }) => trips));
  for (const [name, { trips }] of results) {
    bars.get(name).style.width = `${(100 * trips) / most}%`;
    bars.get(name).classList.toggle("some", trips > 0);
  }
}

// Compares the fastest complete way with the slowest one.
function showVerdict() {
  const complete = [...results].filter(([, { isComplete }]) => isComplete).sort(([, one], [, other]) => one.seconds - other.seconds);
  const [[fastest, best], [slowest, worst]] = [complete.at(0) ?? ["", {}], complete.at(-1) ?? ["", {}]];
  document.getElementById("verdict").textContent = complete.length < 2 ? "" :
    `${fastest}: ${number(best.trips)} ${best.trips === 1 ? "round trip" : "round trips"} instead of ${number(worst.trips)}, ${number(Math.max(1, Math.round(worst.seconds / best.seconds)))} times as fast as ${slowest}.`;
}

// Runs one way, and counts while it does so.
async function runWay(name, work, show) {
  const result = { commands: 0, trips: 0, seconds: 0, isComplete: false };
  const began = performance.now();
  const tick = () => {
    result.seconds = (performance.now() - began) / 1000;
    show(result);
    showBars();
  };
  results.set(name, result);
  const timer = setInterval(tick, 100);
  try {
    await work((amount) => {
      result.commands += amount;
      result.trips += 1;
    });
    result.isComplete = true;
    report("");
  } catch (error) {
    report(error.name === "AbortError" ? "stopped" : `The import failed: ${error.message}`);
  }
  clearInterval(timer);
  tick();
  showVerdict();
}

function rows([name, about, work]) {
  const [line, under] = [element("tr"), element("tr")];
  const button = element("button", name);
  const numbers = Array.from({ length: 3 }, () => element("td", "", "number"));
  const head = element("td");
  head.append(button);
  line.append(head, ...numbers);
  const place = element("td", "", "bar");
  place.colSpan = 4;
  bars.set(name, element("div"));
  place.append(element("small", about), bars.get(name));
  under.append(place);
  const show = ({ commands, trips, seconds }) => {
    [number(commands), number(trips), seconds.toFixed(2)].forEach((text, at) => (numbers[at].textContent = text));
  };
  button.addEventListener("click", async () => {
    if (running) return running.abort();
    running = new AbortController();
    for (const other of table.querySelectorAll("button")) other.disabled = other !== button;
    button.textContent = "stop";
    await runWay(name, work, show);
    running = null;
    button.textContent = name;
    for (const other of table.querySelectorAll("button")) other.disabled = false;
    return advice();
  });
  return [line, under];
}

// --- the advisor ---

// Number of findings to show, and of questions for a finding: the advisor reports a loop when it has ended for some time.
const FINDINGS = 2;
const QUESTIONS = 5;
const QUESTION_MS = 1000;
const language = document.getElementById("language");
let findings = [];

const pairs = (list) => Object.fromEntries(Array.from({ length: list.length / 2 }, (_, at) => [list[2 * at], list[2 * at + 1]]));

async function ask(...words) {
  const response = await fetch("/", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(words) });
  return (await response.json()).result ?? [];
}

function showFindings() {
  const place = document.getElementById("advice");
  if (findings.length === 0) return place.replaceChildren(element("p", "No finding yet: the advisor reports repeated round trips that the client could save.", "quiet"));
  return place.replaceChildren(...findings.flatMap((found) => {
    const remedy = element("p", "Instead: ");
    remedy.append(element("strong", found.remedy));
    return [element("p", `${found.seen}.`), remedy, element("pre", found.code[language.value] ?? "")];
  }));
}

// Shows the costliest findings about the import's keys, with the code to write instead.
async function advice() {
  for (let question = 0; question < QUESTIONS && !running; question += 1) {
    try {
      const listed = (await ask("ADVISE", "LIST", "COUNT", "-1")).map(pairs).filter(({ steps }) => [steps].flat(3).some((step) => step.includes(INDEX)));
      const details = await Promise.all(listed.slice(0, FINDINGS).map(({ id }) => ask("ADVISE", "GET", id)));
      findings = details.map(pairs).filter(({ code }) => code).map((found) => ({ ...found, code: pairs(found.code) }));
    } catch {
      findings = [];
    }
    showFindings();
    if (findings.length > 0) return;
    await new Promise((resolve) => setTimeout(resolve, QUESTION_MS));
  }
}

language.append(...["JavaScript", "Python", "Ruby", "Go", "Java"].map((name) => element("option", name)));
language.addEventListener("change", showFindings);
document.getElementById("films").textContent = FILMS;
table.append(...WAYS.flatMap(rows));
showFindings();
