// The console in a browser: each view, a wrong password, a server that goes away, ten million keys, a narrow screen, read-only, and
// pages of strangers. Debian's chromium, without a window. With CONSOLE_SHOTS set to a directory, pictures are left there.
"use strict";

const path = require("node:path");
const net = require("node:net");
const http = require("node:http");
const { chromium } = require("playwright-core");
const { check, run } = require("./checks.js");
const { HttpServer } = require("./http_server.js");

const PATIENCE_MS = 500_000;
// For one thing to appear: the machine may be busy, and the server not built for speed.
const WAIT_MS = Number(process.env.CONSOLE_WAIT_MS ?? 90_000);
const PASSWORD = "correct horse";
const BROWSER = process.env.CONSOLE_BROWSER ?? "/usr/bin/chromium";
// What the browsers of a test on a machine without this many keys' memory get instead.
const KEYS = Number(process.env.CONSOLE_KEYS ?? 10_000_000);

let browser;

// A command by the Redis protocol; answers what arrives first.
function command(port, line) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, "127.0.0.1", () => socket.write(`${line}\r\n`));
    socket.once("data", (data) => { socket.destroy(); resolve(String(data)); });
    socket.once("error", reject);
  });
}

// A page of its own, whose errors are failures, and whose requests go to its own server only.
async function open(server, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  page.trouble = [];
  page.on("pageerror", (error) => page.trouble.push(String(error)));
  page.on("console", (message) => message.type() === "error" && !/status of 4\d\d|ERR_CONNECTION|Failed to load/.test(message.text()) && page.trouble.push(message.text()));
  page.on("request", (request) => request.url().startsWith(server.url) || page.trouble.push(`asked for ${request.url()}`));
  page.on("request", (request) => request.url().includes("horse") && page.trouble.push(`a secret in ${request.url()}`));
  await page.goto(server.url);
  return page;
}

async function shot(page, name) {
  if (process.env.CONSOLE_SHOTS) await page.screenshot({ path: path.join(process.env.CONSOLE_SHOTS, `${name}.png`) });
}

async function close(page) {
  check("no errors on the page", page.trouble, []);
  await page.context().close();
}

const text = (page, selector) => page.locator(selector).first().textContent();

// Waits until an element has this in it.
async function sees(page, what, selector = "main") {
  await page.locator(selector).filter({ hasText: what }).first().waitFor();
  check(`${selector} has ${what}`, true, true);
}

async function go(page, view) {
  await page.click(`nav a[href="#${view}"]`);
}

async function fill(server) {
  for (const line of ["SET greeting hello", "SET counter 5 EX 5000", "HSET user:1 name Ada born 1815", "RPUSH queue a b c", "SADD tags x y", "ZADD scores 1 one 2.5 two", "XADD events 1-1 kind start", "FT.SUGADD titles Alien 1979 PAYLOAD sf",
    "SET markup <b>bold</b><script>document.title=1</script>", "CONFIG SET slowlog-log-slower-than 0", "PING", "CONFIG SET slowlog-log-slower-than 10000"]) {
    await command(server.port, line);
  }
  // A loop that the advisor finds: each waits for its reply.
  const socket = net.connect(server.port, "127.0.0.1");
  for (let i = 0; i < 200; i += 1) {
    socket.write(`SET loop:${i} v\r\n`);
    await new Promise((resolve) => socket.once("data", resolve));
  }
  socket.end();
}

async function overview(page) {
  await sees(page, "Commands a second");
  await sees(page, "Commands that took most");
  await page.click("button:text-is('what types take')");
  await sees(page, /estimated from \d+ keys/);
  // Two more looks make a line.
  await page.locator("svg.chart polyline").first().waitFor();
  await shot(page, "overview");
}

async function keys(page, server) {
  await go(page, "keys");
  await page.fill('input[type="search"]', "greet*");
  await page.click("button:text-is('search')");
  await sees(page, "greeting", "#keys");
  await page.fill('input[type="search"]', "user:*");
  await page.selectOption("select", "hash");
  await page.click("button:text-is('search')");
  await sees(page, "1 found", "[role=status]");
  await page.click("#keys button");
  await sees(page, "Ada", "#key");
  await shot(page, "keys-hash");
  // A field is changed, after it was asked about.
  await page.locator("#key tr", { hasText: "Ada" }).locator("button:text-is('edit')").click();
  await page.locator("#key input[placeholder=value]").fill("Grace");
  await page.locator("#key button.main").first().click();
  check("what is asked", await text(page, "#confirm pre"), "HSET user:1 name Grace");
  await shot(page, "confirm");
  await page.click("#confirm button[value=no]");
  check("not run", (await command(server.port, "HGET user:1 name")).includes("Ada"), true);
  await page.locator("#key button.main").first().click();
  await page.click("#confirm button[value=yes]");
  await sees(page, "Grace", "#key");
  check("run", (await command(server.port, "HGET user:1 name")).includes("Grace"), true);
  await string(page, server);
  for (const [type, name, part] of [["list", "queue", "element"], ["set", "tags", "member"], ["zset", "scores", "2.5"], ["stream", "events", "kind: start"], ["trietype0", "titles", "Alien"]]) {
    await page.selectOption("select", type);
    await page.fill('input[type="search"]', name);
    await page.click("button:text-is('search')");
    await page.locator("#keys button", { hasText: name }).click();
    await sees(page, part, "#key");
  }
}

async function string(page, server) {
  await page.selectOption("select", "string");
  await page.fill('input[type="search"]', "markup");
  await page.click("button:text-is('search')");
  await page.locator("#keys button", { hasText: "markup" }).click();
  await page.locator("#key textarea").waitFor();
  check("markup is text", await page.locator("#key textarea").inputValue(), "<b>bold</b><script>document.title=1</script>");
  await page.locator("#key textarea").fill("é\nline");
  await page.click("#key button:text-is('save')");
  await page.click("#confirm button[value=yes]");
  await sees(page, "7 bytes", "#key");
  await page.fill("#key input[type=number]", "1000");
  await page.click("#key button:text-is('expire')");
  await page.click("#confirm button[value=yes]");
  await sees(page, "expires in", "#key");
  await shot(page, "keys-string");
  await page.click("#key button:text-is('delete')");
  await page.click("#confirm button[value=yes]");
  await sees(page, "0 found", "[role=status]");
  check("deleted", (await command(server.port, "EXISTS markup")).startsWith(":0"), true);
}

async function clients(page, server) {
  const socket = net.connect(server.port, "127.0.0.1");
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.resume();
  socket.write("CLIENT SETNAME victim\r\n");
  await go(page, "clients");
  await sees(page, "penstock-http");
  await sees(page, "Slow commands");
  await page.locator("tr", { hasText: "victim" }).waitFor();
  await shot(page, "clients");
  await page.locator("tr", { hasText: "victim" }).locator("button").click();
  await page.click("#confirm button[value=yes]");
  await closed;
  check("a client is closed", true, true);
}

async function advisor(page) {
  await go(page, "advisor");
  await sees(page, "SET loop:<n>");
  await page.locator("summary", { hasText: "loop:" }).first().click();
  await sees(page, "Instead, in", "details");
  await page.selectOption("details select", { index: 0 });
  await shot(page, "advisor");
}

async function line(page) {
  await go(page, "line");
  await sees(page, /The server has \d+ commands/, "#about");
  await page.fill("#prompt", "zra");
  await sees(page, "zrangebyscore", "#about");
  await page.fill("#prompt", "set a 'b c'");
  await sees(page, "SET key value", "#about");
  await shot(page, "line-docs");
  for (const [typed, printed] of [["set a 'b c'", "OK"], ["get a", '"b c"'], ["hgetall user:1", '1) "name"'], ["incr a", "(error) ERR value is not an integer"], ["get none", "(nil)"],
    ['echo "\\xff\\x00é"', '"\\xff\\x00'], ["blpop a 0", "use a client of the Redis protocol"]]) {
    await page.fill("#prompt", typed);
    await page.press("#prompt", "Enter");
    await sees(page, printed, "#output");
  }
  await page.press("#prompt", "ArrowUp");
  check("the line before", await page.inputValue("#prompt"), "blpop a 0");
  await page.fill("#prompt", "flushall");
  await page.press("#prompt", "Enter");
  await page.click("#confirm button[value=no]");
  await sees(page, "not run", "#output");
  await shot(page, "line");
}

async function database(page) {
  await page.fill("#database", "3");
  await page.press("#database", "Enter");
  await page.fill("#prompt", "dbsize");
  await page.press("#prompt", "Enter");
  await sees(page, "(integer) 0", "#output");
}

async function everyView() {
  const server = await HttpServer.start();
  await fill(server);
  const page = await open(server);
  await overview(page);
  await keys(page, server);
  await clients(page, server);
  await advisor(page);
  await line(page);
  await database(page);
  await goesAway(page, server);
  await close(page);
  await themes(server);
  await narrow(server);
  await strangers(server);
  server.remove();
}

async function goesAway(page, server) {
  await go(page, "overview");
  await sees(page, "Commands a second");
  await server.end();
  await sees(page, "The server doesn't answer", "#banner");
  await shot(page, "gone");
  await server.begin();
  await page.locator("#banner").waitFor({ state: "hidden" });
  await sees(page, "Commands a second");
}

async function themes(server) {
  const page = await open(server, { colorScheme: "dark" });
  await sees(page, "Commands a second");
  check("dark as the system", await page.getAttribute("html", "data-theme"), "dark");
  await shot(page, "dark");
  await page.click("#theme");
  check("light as chosen", await page.getAttribute("html", "data-theme"), "light");
  await page.reload();
  check("and again", await page.getAttribute("html", "data-theme"), "light");
  await close(page);
}

async function narrow(server) {
  const page = await open(server, { viewport: { width: 360, height: 740 }, colorScheme: "dark" });
  for (const view of ["overview", "keys", "clients", "advisor", "line"]) {
    await go(page, view);
    await page.locator("main .card").first().waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    check(`${view} is as wide as the screen`, wide, 0);
    await shot(page, `narrow-${view}`);
  }
  await close(page);
}

// Another site's page, and the browser of somebody who can reach the server, which has no password.
async function strangers(server) {
  const form = `<form method=post enctype=text/plain action="${server.url}/"><input name='["SET","stolen","' value='"]'></form>`;
  const page = `<title>stranger</title><img src="${server.url}/set/stolen/1">${form}<script>
    fetch("${server.url}/pipeline", { method: "POST", mode: "no-cors", body: '[["SET","stolen","1"]]' }).finally(() => document.forms[0].submit());</script>`;
  const stranger = http.createServer((_, response) => response.end(page)).listen(0, "127.0.0.1");
  await new Promise((resolve) => stranger.once("listening", resolve));
  const context = await browser.newContext();
  const tab = await context.newPage();
  // The form's answer is what the tab shows in the end.
  await tab.goto(`http://localhost:${stranger.address().port}/`);
  await tab.waitForURL(`${server.url}/`, { timeout: WAIT_MS });
  check("it is told", (await tab.textContent("body")).includes("another site"), true);
  check("and has done nothing", (await command(server.port, "EXISTS stolen")).startsWith(":0"), true);
  // A name of a stranger's that leads here.
  const status = await new Promise((resolve) => http.get({ host: "127.0.0.1", port: server.httpPort, path: "/get/a", headers: { host: `evil.example:${server.httpPort}` } }, (response) => resolve(response.statusCode)));
  check("a stranger's name", status, 403);
  await context.close();
  stranger.close();
}

async function passwords() {
  const server = await HttpServer.start("--requirepass", PASSWORD);
  const page = await open(server);
  await page.locator("#login[open]").waitFor();
  await shot(page, "login");
  await page.fill("input[name=password]", "wrong");
  await page.click("#login button");
  await sees(page, "WRONGPASS", "#login .error");
  await shot(page, "login-wrong");
  check("nothing is shown", await page.locator("main .card").count(), 0);
  await page.fill("input[name=password]", PASSWORD);
  await page.click("#login button");
  await sees(page, "Commands a second");
  check("who", await text(page, "#user"), "default");
  const kept = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]));
  check("the password is nowhere", kept.includes("horse"), false);
  // One whose password is taken away is asked again.
  await command(server.port, "PING");
  await page.click("#log-out");
  await page.locator("#login[open]").waitFor();
  await close(page);
  server.remove();
}

async function readOnly() {
  const server = await HttpServer.start("--http-console", "read-only", "--http-rest", "no");
  await fill(server);
  const page = await open(server);
  await sees(page, "read-only", "#mode");
  await sees(page, "Commands a second");
  await go(page, "keys");
  await page.fill('input[type="search"]', "greeting");
  await page.click("button:text-is('search')");
  await page.click("#keys button");
  await page.locator("#key textarea").waitFor();
  check("no buttons that change", await page.locator("#key button").count(), 0);
  await shot(page, "read-only");
  await go(page, "clients");
  await sees(page, "penstock-http");
  await go(page, "line");
  for (const typed of ["set a b", "config set maxmemory 1", "eval 'return 1' 0", "flushall", "shutdown", "acl setuser x"]) {
    await page.fill("#prompt", typed);
    await page.press("#prompt", "Enter");
    await page.locator("#output .failed").last().filter({ hasText: "read-only" }).waitFor();
  }
  check("nothing is changed", (await command(server.port, "EXISTS a")).startsWith(":0"), true);
  const response = await fetch(server.url, { method: "POST", body: '["PING"]' });
  check("no REST", response.status, 404);
  await close(page);
  await command(server.port, "CONFIG SET http-console no");
  check("no console", (await fetch(server.url)).status, 404);
  check("figures all the same", (await fetch(`${server.url}/metrics`)).status, 200);
  server.remove();
}

async function manyKeys() {
  const server = await HttpServer.start("--enable-debug-command", "yes");
  await command(server.port, `DEBUG POPULATE ${KEYS} key 16`);
  await command(server.port, "SET needle found");
  const page = await open(server);
  await sees(page, KEYS.toLocaleString("en-US").slice(0, -1));
  await page.click("button:text-is('what types take')");
  await sees(page, /estimated from \d+ keys/);
  await go(page, "keys");
  await sees(page, "100 found".slice(3), "[role=status]");
  check("a page of them", (await page.locator("#keys tbody tr").count()) >= 100, true);
  await page.click("button:text-is('more')");
  await page.waitForFunction(() => document.querySelectorAll("#keys tbody tr").length >= 200);
  await shot(page, "many-keys");
  // One in ten million is found, and the search can be stopped.
  await page.fill('input[type="search"]', "needl?");
  await page.click("button:text-is('search')");
  await page.click("button:text-is('stop')");
  await page.locator("button:text-is('more')").waitFor();
  await page.click("button:text-is('search')");
  await sees(page, "needle", "#keys");
  await shot(page, "needle");
  await close(page);
  server.remove();
}

async function main() {
  browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox", "--disable-gpu"] });
  await everyView();
  await passwords();
  await readOnly();
  await manyKeys();
  await browser.close();
}

run(main, PATIENCE_MS).finally(() => process.exit());
