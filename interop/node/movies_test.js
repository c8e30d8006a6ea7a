// examples/movies as its README has it: titles made up, loaded by `penstock load`, and a page that Penstock itself serves and that
// completes while one types, in Debian's chromium without a window. With MOVIES_SHOTS set to a directory, pictures are left there.
"use strict";

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");
const { check, run } = require("./checks.js");
const { HttpServer } = require("./http_server.js");

const PATIENCE_MS = 400_000;
// For one thing to appear: the machine may be busy, and the server not built for speed.
const WAIT_MS = Number(process.env.CONSOLE_WAIT_MS ?? 90_000);
const BROWSER = process.env.CONSOLE_BROWSER ?? "/usr/bin/chromium";
const EXAMPLE = path.join(__dirname, "../../examples/movies");
const COUNT = 10_000;
// The advisor's time for a finding, and the number of imports that it may take.
const ADVICE_MS = 6_000;
const IMPORTS_MAX = 5;
// How many titles the page shows.
const SHOWN = 10;

let browser;

// Runs a program to its end; answers what it has printed.
function program(name, args, options = {}) {
  const done = spawnSync(name, args.map(String), { encoding: "utf8", ...options });
  check(`${name} ${args[0]}: ${done.stderr}`, done.status, 0);
  return done.stdout + done.stderr;
}

async function rest(server, ...words) {
  const response = await fetch(server.url, { method: "POST", body: JSON.stringify(words) });
  return (await response.json()).result;
}

function load(server) {
  const csv = path.join(server.directory, "titles.csv");
  fs.writeFileSync(csv, program("python3", [path.join(EXAMPLE, "titles.py"), COUNT]));
  const report = program(process.env.PENSTOCK_PROGRAM, ["load", "-p", server.port, "--csv", csv, "FT.SUGADD movies {title} {votes}"]);
  check(report, report.includes("10,000 commands executed, 0 failed, 0 lines rejected"), true);
}

// A page of its own, whose errors are failures, and whose requests go to its own server only.
async function open(server, options = {}) {
  const context = await browser.newContext({ viewport: { width: 900, height: 700 }, colorScheme: "light", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  page.trouble = [];
  page.on("pageerror", (error) => page.trouble.push(String(error)));
  page.on("console", (message) => message.type() === "error" && !/ERR_CONNECTION|Failed to load|status of 4\d\d/.test(message.text()) && page.trouble.push(message.text()));
  page.on("request", (request) => request.url().startsWith(server.url) || page.trouble.push(`asked for ${request.url()}`));
  await page.goto(`${server.url}/files/`);
  return page;
}

async function shot(page, name) {
  if (process.env.MOVIES_SHOTS) await page.screenshot({ path: path.join(process.env.MOVIES_SHOTS, `movies-${name}.png`) });
}

async function close(page) {
  check("no errors on the page", page.trouble, []);
  await page.context().close();
}

const shown = (page) => page.locator("#found li").allTextContents();

// Waits until the list is this one.
async function lists(page, what, expected) {
  await page.waitForFunction((texts) => JSON.stringify([...document.querySelectorAll("#found li")].map((item) => item.textContent)) === texts, JSON.stringify(expected))
    .catch(async () => check(what, await shown(page), expected));
  check(what, await shown(page), expected);
}

// Each letter has the best titles shown that begin with what has been typed, and nothing else.
async function completes(page, server) {
  const typed = "The Silen";
  for (let end = 1; end <= typed.length; end += 1) {
    await page.locator("#title").pressSequentially(typed[end - 1]);
    const prefix = typed.slice(0, end);
    const expected = await rest(server, "FT.SUGGET", "movies", prefix, "MAX", String(SHOWN));
    await lists(page, prefix, expected);
    check(`${prefix}: how many`, expected.length > 0 && expected.every((title) => title.startsWith(prefix)), true);
  }
  await page.locator("#state").filter({ hasText: /ms/ }).waitFor();
  const untyped = (await shown(page))[0].slice(typed.length);
  // The list for the last letter may be that of the letter before.
  await page.waitForFunction((end) => document.querySelector("#found mark").textContent === end, untyped);
  check("what is typed stands out", await page.locator("#found mark").first().textContent(), untyped);
  check("for a reader of screens", await page.getAttribute("#title", "aria-expanded"), "true");
  await shot(page, "light");
}

// By keys and by the mouse.
async function takes(page) {
  const titles = await shown(page);
  await page.press("#title", "ArrowDown");
  await page.press("#title", "ArrowDown");
  await page.press("#title", "ArrowUp");
  check("chosen", await page.locator('#found [aria-selected="true"]').allTextContents(), [titles[0]]);
  check("told", await page.getAttribute("#title", "aria-activedescendant"), await page.getAttribute('#found [aria-selected="true"]', "id"));
  await shot(page, "chosen");
  await page.press("#title", "ArrowUp");
  check("round", await page.locator('#found [aria-selected="true"]').allTextContents(), [titles.at(-1)]);
  await page.press("#title", "Enter");
  check("taken", [await page.inputValue("#title"), await shown(page)], [titles.at(-1), []]);
  await page.fill("#title", "the silen");
  await lists(page, "in small letters", titles);
  await page.locator("#found li").nth(1).click();
  check("taken by the mouse", [await page.inputValue("#title"), await shown(page)], [titles[1], []]);
  await page.fill("#title", "the silen");
  await lists(page, "again", titles);
  await page.press("#title", "Escape");
  check("closed", [await page.inputValue("#title"), await shown(page)], ["the silen", []]);
  await page.press("#title", "Escape");
  check("cleared", await page.inputValue("#title"), "");
}

async function mistakes(page, server) {
  await page.fill("#title", "the silem");
  await lists(page, "one wrong letter", await rest(server, "FT.SUGGET", "movies", "the silen", "MAX", String(SHOWN)));
  await shot(page, "fuzzy");
  await page.fill("#title", "xyzzy");
  await page.locator("#state").filter({ hasText: "No such title" }).waitFor();
  check("nothing", await shown(page), []);
  await page.fill("#title", "x".repeat(101));
  await lists(page, "too long to ask for", []);
  await page.fill("#title", "é".repeat(60));
  await page.locator("#state").filter({ hasText: "No such title" }).waitFor();
  // A title is text, whatever it looks like.
  const markup = "<img src=x onerror='document.title=1'> & co";
  await rest(server, "FT.SUGADD", "movies", markup, "1e9");
  await page.fill("#title", "<img");
  await lists(page, "markup", [markup]);
  check("nothing ran", [await page.title(), await page.locator("#found img").count()], ["Films", 0]);
}

// What is answered late, to fewer letters, doesn't take the place of what is newer.
async function late(page, server) {
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await page.route(`${server.url}/`, async (route) => {
    if (route.request().postData().includes('"the l"')) await held;
    await route.continue();
  });
  await page.fill("#title", "the l");
  await page.fill("#title", "the lo");
  const expected = await rest(server, "FT.SUGGET", "movies", "the lo", "MAX", String(SHOWN));
  await lists(page, "the newer", expected);
  const answered = page.waitForResponse((response) => response.request().postData()?.includes('"the l"'));
  release();
  await (await answered).finished();
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 100)));
  check("still the newer", await shown(page), expected);
  await page.unroute(`${server.url}/`);
}

async function goesAway(page, server) {
  await server.end();
  await page.fill("#title", "the m");
  await page.locator("#state").filter({ hasText: "The server can't be asked" }).waitFor();
  check("nothing is left", await shown(page), []);
  await shot(page, "gone");
  await server.begin();
  await rest(server, "FT.SUGADD", "movies", "The Mask", "1");
  await page.fill("#title", "the ma");
  await lists(page, "it is back", ["The Mask"]);
}

async function looks(server) {
  const page = await open(server, { viewport: { width: 360, height: 640 }, colorScheme: "dark" });
  await page.locator("#title").pressSequentially("the s");
  await page.locator("#found li").first().waitFor();
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check("as wide as the screen", wide, 0);
  await shot(page, "narrow-dark");
  await close(page);
}

// Waits for a way's end, and returns its commands and round trips.
async function importBy(page, way) {
  const row = page.locator("#ways tr", { has: page.locator(`button:text-is('${way}')`) });
  await row.locator("button").click();
  await page.waitForFunction((name) => {
    const button = [...document.querySelectorAll("#ways button")].find((found) => found.textContent === name);
    return button && !document.querySelector("#ways button:disabled") && button.closest("tr").querySelectorAll("td")[3].textContent !== "";
  }, way);
  check(`${way} works`, await page.locator("#import-state").textContent(), "");
  const [, commands, trips] = await row.locator("td").allTextContents();
  return [commands, trips].map((text) => Number(text.replaceAll(",", "")));
}

const widths = (page) => page.locator("#ways .bar div").evaluateAll((bars) => bars.map((bar) => Number.parseFloat(bar.style.width || "0")));

const isAdvised = (page) => page.locator("#advice pre").first().waitFor({ timeout: ADVICE_MS }).then(() => true, () => false);

// The advisor names the loop of the first way, and shows the code of the other two.
async function advises(page) {
  await page.locator("#advice pre").first().waitFor();
  const text = await page.locator("#advice").textContent();
  check(`the finding: ${text}`, /ZSCORE films:index:.*round trips|reads/.test(text) && text.includes("Instead: "), true);
  check("in JavaScript", /await (redis|pipe)\./.test(await page.locator("#advice pre").first().textContent()), true);
  await page.selectOption("#language", "Python");
  check("in Python", /await|const/.test(await page.locator("#advice pre").first().textContent()), false);
}

// The page imports films in three ways: fewer commands, then fewer round trips.
async function imports() {
  const server = await HttpServer.start("--http-files", EXAMPLE);
  const page = await open(server);
  await page.goto(`${server.url}/files/?films=10`);
  let first = await importBy(page, "one by one");
  check("no verdict about one way", await page.locator("#verdict").textContent(), "");
  // A busy machine makes pauses in the import, and a loop with pauses is several short ones.
  for (let tries = 0; tries < IMPORTS_MAX && !(await isAdvised(page)); tries += 1) first = await importBy(page, "one by one");
  await advises(page);
  const numbers = [first, await importBy(page, "one score"), await importBy(page, "pipelined")];
  const [[readCommands, readTrips], [commands, trips], [sameCommands, batches]] = numbers;
  check("a round trip per command", [readTrips, trips], [readCommands, commands]);
  check("the scores are not read", readCommands > 1.8 * commands, true);
  check("the same commands in few requests", [sameCommands, batches], [commands, Math.ceil(commands / 500)]);
  check("bars", (await widths(page)).map(Math.round), [100, Math.round((100 * trips) / readTrips), Math.round(100 / readTrips)]);
  const verdict = await page.locator("#verdict").textContent();
  check(verdict, /^pipelined: 1 round trip instead of \d+, [\d,]+ times as fast as one (by one|score)\.$/.test(verdict), true);
  check("films", await rest(server, "HLEN", "films:data"), 10);
  check("prefixes", await rest(server, "ZCARD", "films:index:the"), 10);
  await shot(page, "imports");
  await page.locator("#title").pressSequentially("the silent r");
  await lists(page, "the films are completed", ["The Silent River"]);
  await close(page);
  await narrowImport(server);
  server.remove();
}

// A way that is stopped says so and has no verdict. All of it fits a narrow screen.
async function narrowImport(server) {
  const page = await open(server, { viewport: { width: 360, height: 640 }, colorScheme: "dark" });
  await page.locator("#ways button").first().click();
  await page.waitForFunction(() => document.querySelectorAll("#ways td")[2].textContent !== "");
  await page.locator("#ways button", { hasText: "stop" }).click();
  await page.locator("#import-state", { hasText: "stopped" }).waitFor();
  check("no verdict", await page.locator("#verdict").textContent(), "");
  await page.locator("#advice pre").first().waitFor();
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check("as wide as the screen", wide, 0);
  await shot(page, "imports-narrow-dark");
  await close(page);
}

// Where `default` has a password, the page is there, and says what it is told.
async function password() {
  const server = await HttpServer.start("--http-files", EXAMPLE, "--requirepass", "secret");
  const page = await open(server);
  await page.fill("#title", "the");
  await page.locator("#state").filter({ hasText: "a token is missing" }).waitFor();
  await close(page);
  server.remove();
}

async function main() {
  browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox", "--disable-gpu"] });
  const server = await HttpServer.start("--http-files", EXAMPLE);
  load(server);
  const page = await open(server);
  await completes(page, server);
  await takes(page);
  await mistakes(page, server);
  await late(page, server);
  await looks(server);
  await goesAway(page, server);
  await close(page);
  server.remove();
  await password();
  await imports();
  await browser.close();
}

run(main, PATIENCE_MS).finally(() => process.exit());
