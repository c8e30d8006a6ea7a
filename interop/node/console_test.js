// The console in a browser: each view, a wrong password, a server that goes away, ten million keys, a narrow screen, read-only, and
// pages of strangers.
"use strict";

const net = require("node:net");
const http = require("node:http");
const { check, run } = require("./checks.js");
const { WAIT_MS, command, open, shot, close, text, sees, go, withBrowser } = require("./console_page.js");
const { HttpServer } = require("./http_server.js");

const PATIENCE_MS = 500_000;
const PASSWORD = "correct horse";
// Number of keys; a machine without the memory for this many can set less.
const KEYS = Number(process.env.CONSOLE_KEYS ?? 10_000_000);

let browser;

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
  await sees(page, "Commands by total time");
  await sees(page, "none since the start");
  await page.click("button:text-is('estimate')");
  await sees(page, /estimated from \d+ random keys/);
  await memoryAddsUp(page);
  // Two samples make a line.
  await page.locator(".chart polyline").first().waitFor();
  await staysInPlace(page);
  await shot(page, "overview");
}

// Parts of the memory's estimate and its rest are all of the used memory.
async function memoryAddsUp(page) {
  const units = { B: 1, KB: 1024, MB: 1024 ** 2, GB: 1024 ** 3 };
  const sizes = (text) => [...text.matchAll(/about ([\d.]+) (\w+)/g)].reduce((sum, [, number, unit]) => sum + Number(number) * units[unit], 0);
  const [, number, unit] = /used ([\d.]+) (\w+)/.exec(await text(page, "main"));
  const [used, sum] = [Number(number) * units[unit], sizes(await text(page, "#by-type"))];
  check(`${sum} of ${used} are explained`, sum > 0.85 * used && sum < 1.15 * used, true);
}

// A refresh keeps the focus and the selected text.
async function staysInPlace(page) {
  await page.focus("button:text-is('estimate again')");
  const heading = await page.evaluateHandle(() => document.querySelector("main h2").firstChild);
  await page.evaluate((node) => getSelection().selectAllChildren(node.parentNode), heading);
  const uptime = await text(page, "#server");
  await page.waitForFunction((before) => document.querySelector("#server").textContent !== before, uptime);
  check("the focus stays", await page.evaluate(() => document.activeElement.textContent), "estimate again");
  check("the selection stays", await page.evaluate(() => String(getSelection())), "Commands a second");
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
  await page.locator("#key tr input[type=text]").fill("Grace");
  await page.locator("#key tr button.main").click();
  check("what is asked", await text(page, "#confirm pre"), "HSET user:1 name Grace");
  await shot(page, "confirm");
  await page.click("#confirm button[value=no]");
  check("not run", (await command(server.port, "HGET user:1 name")).includes("Ada"), true);
  await page.locator("#key tr button.main").click();
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
  check("no time is 0.00", (await text(page, "main")).includes("0.00 µs"), false);
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
    ['echo "\\xff\\x00é"', '"\\xff\\x00'], ["info server", "# Server\nredis_version:"], ["client list", "lib-name=penstock-http"], ["blpop a 0", "use a client of the Redis protocol"]]) {
    await page.fill("#prompt", typed);
    await page.press("#prompt", "Enter");
    await sees(page, printed, "#output");
  }
  check("lines end without escapes", (await text(page, "#output")).includes("\\n"), false);
  await page.press("#prompt", "ArrowUp");
  check("the line before", await page.inputValue("#prompt"), "blpop a 0");
  await page.fill("#prompt", "flushall");
  await page.press("#prompt", "Enter");
  await page.click("#confirm button[value=no]");
  await sees(page, "not run", "#output");
  await shot(page, "line");
  await questions(page);
  await completion(page);
}

// A command that concerns the whole server is asked about, however it is written, and its reply is shown. Others run at once.
async function questions(page) {
  for (const [typed, printed] of [["module list", "(empty array)"], ["cluster keyslot a", "cluster support disabled"]]) {
    await page.fill("#prompt", typed);
    await page.press("#prompt", "Enter");
    await sees(page, printed, "#output");
  }
  for (const typed of ["client kill id 999999", 'CLIENT   "kill" id 999999']) {
    await page.fill("#prompt", typed);
    await page.press("#prompt", "Enter");
    await page.click("#confirm button[value=yes]");
    await page.locator("#output span").last().filter({ hasText: "(integer) 0" }).waitFor();
  }
  check("no question is open", await page.locator("#confirm[open]").count(), 0);
}

async function completion(page) {
  for (const [typed, expected] of [["hgeta", "HGETALL "], ["config se", "CONFIG SET "], ["zrangeby", "ZRANGEBY"], ["nosuch", "nosuch"]]) {
    await page.fill("#prompt", typed);
    await page.press("#prompt", "Tab");
    check(`${typed} and Tab`, await page.inputValue("#prompt"), expected);
    await page.focus("#prompt");
  }
  await page.fill("#prompt", "");
  await page.press("#prompt", "Tab");
  check("Tab leaves an empty line", await page.evaluate(() => document.activeElement.id === "prompt"), false);
}

async function database(page) {
  await page.fill("#database", "3");
  await page.press("#database", "Enter");
  await page.fill("#prompt", "dbsize");
  await page.press("#prompt", "Enter");
  await sees(page, "(integer) 0", "#output");
  // SELECT changes the database of the page.
  const ask = async (line) => {
    await page.fill("#prompt", line);
    await page.press("#prompt", "Enter");
  };
  await ask("select 5");
  await page.waitForFunction(() => document.querySelector("#database").value === "5");
  await ask("set here yes");
  await sees(page, "[5]> set here yes", "#output");
  await ask("select 99");
  await sees(page, "DB index is out of range", "#output");
  check("an invalid database changes nothing", await page.inputValue("#database"), "5");
  await ask("select 0");
  await page.waitForFunction(() => document.querySelector("#database").value === "0");
  await ask("exists here");
  await sees(page, "(integer) 0", "#output");
}

async function everyView() {
  const server = await HttpServer.start();
  await fill(server);
  const page = await open(server);
  await figures(page);
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
  await widths(server);
  await strangers(server);
  server.remove();
}

// The view of live data shows the nodes of a cluster with their slots and links.
async function cluster() {
  const nodes = await HttpServer.startCluster();
  const [first, second] = nodes;
  await command(first.port, "CLUSTER ADDSLOTSRANGE 0 16383");
  await command(first.port, `CLUSTER MEET 127.0.0.1 ${second.port} ${second.busPort}`);
  const page = await open(first);
  await go(page, "line");
  await page.fill("#prompt", "cluster info");
  await page.press("#prompt", "Enter");
  await sees(page, "cluster_slots_assigned:16384", "#output");
  await go(page, "live");
  await sees(page, `127.0.0.1:${second.port}@${second.busPort}`);
  await sees(page, "0-16383");
  await sees(page, /myself,master/);
  await sees(page, "connected");
  await shot(page, "cluster");
  await close(page);
  nodes.forEach((node) => node.remove());
}

// A replica without a link says so in the header and in the views, also after a reload.
async function linkless() {
  const server = await HttpServer.start("--replicaof", "127.0.0.1 1");
  const page = await open(server);
  await sees(page, /127\.0\.0\.1:1, link down for \d+ s/, ".state");
  await go(page, "live");
  await page.reload();
  await sees(page, /replica of 127\.0\.0\.1:1, link down for \d+ s/);
  await sees(page, /replica, port \d+, .*up \d+ s/, "#server");
  await close(page);
  server.remove();
}

// The page is as wide as the screen, and its tables stay in their cards.
async function widths(server) {
  for (const width of [1280, 1000, 768]) {
    const page = await open(server, { viewport: { width, height: 800 } });
    for (const view of ["overview", "keys", "clients", "batches", "live", "advisor", "line"]) {
      await go(page, view);
      await page.locator("main .card").first().waitFor();
      if (view === "overview") await sees(page, "round trips wasted", ".state");
      check(`${view} at ${width}`, await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
      const outside = await page.evaluate(() => [...document.querySelectorAll(".card")].filter((card) => card.scrollWidth > card.clientWidth).map((card) => card.textContent.slice(0, 60)));
      check(`${view} at ${width}: cards that are too narrow`, outside, []);
    }
    await close(page);
  }
}

// Figures as text: no "60 s" within a minute, round steps of bytes, bytes of a command, and no "null" in charts.
async function figures(page) {
  await sees(page, "Commands a second");
  const found = await page.evaluate(async () => {
    const [text, chart] = [await import("/console/text.js"), await import("/console/chart.js")];
    return { times: [59.6, 119.7, 3599.8].map(text.seconds), steps: [300, 990, 1000, 1_000_000].map((least) => chart.niceStep(least, true)), line: text.asLine(["UNLINK", { base64: "/wBh" }, "a b"]),
      loading: [{ loading: "1", loading_loaded_perc: "32.94", loading_eta_seconds: "20" }, { loading: "1" }, { loading: "0" }].map(text.loadingProgress) };
  });
  check("times", found.times, ["1 min 0 s", "2 min 0 s", "1 h 0 min"]);
  check("steps", found.steps, [500, 1024, 1024, 1 << 20]);
  check("a server that loads", found.loading, ["33 %, about 20 s left", "0 %", null]);
  check("bytes of a command", found.line, 'UNLINK "\\xff\\x00a" "a b"');
  await page.locator(".chart polyline").first().waitFor();
  // The history of a young server fills the charts.
  const shown = await page.evaluate(async () => {
    const history = await import("/console/history.js");
    return [history.range(), history.figures(["one", () => 1]).span];
  });
  check("the range is ten minutes, and the history is shorter", shown[0] === 600 && shown[1] >= 60 && shown[1] < 600, true);
  check("no null", (await page.locator(".charts").textContent()).includes("null"), false);
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
  const sockets = await Promise.all(Array.from({ length: 60 }, () => new Promise((resolve) => { const socket = net.connect(server.port, "127.0.0.1", () => resolve(socket)); })));
  for (const view of ["overview", "keys", "clients", "batches", "live", "advisor", "line"]) {
    await go(page, view);
    await page.locator("main .card").first().waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    check(`${view} is as wide as the screen`, wide, 0);
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    check(`${view} has ${height} pixels, a bounded height`, height < 6000, true);
    await shot(page, `narrow-${view}`);
  }
  for (const socket of sockets) socket.destroy();
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
  await page.click("#log-out");
  await page.locator("#login[open]").waitFor();
  // A reload forgets the password, and every view asks for it again.
  for (const view of ["keys", "line", "clients", "batches", "live", "advisor", "overview"]) {
    await page.goto(`${server.url}/#${view}`);
    await page.reload();
    await page.locator("#login[open]").waitFor();
    await page.fill("input[name=password]", PASSWORD);
    await page.click("#login button");
    await page.locator("#login").waitFor({ state: "hidden" });
    await page.locator("main .card").first().waitFor();
  }
  await close(page);
  server.remove();
}

// A user without INFO is told so, and may use the other views.
async function limitedUser() {
  const server = await HttpServer.start("--requirepass", PASSWORD);
  const socket = net.connect(server.port, "127.0.0.1");
  socket.write(`AUTH "${PASSWORD}"\r\nACL SETUSER reader on ">${PASSWORD}" ~* +@read +acl|whoami +command +ping +memory +client|list\r\nACL SETUSER few on ">${PASSWORD}" ~* +get +scan +type\r\nSET greeting hello\r\n`);
  await new Promise((resolve) => socket.once("data", resolve));
  socket.destroy();
  const page = await open(server);
  await page.fill("input[name=user]", "reader");
  await page.fill("input[name=password]", PASSWORD);
  await page.click("#login button");
  await sees(page, "No permission for this view");
  await sees(page, "The user reader may not run");
  await shot(page, "no-permission");
  await go(page, "keys");
  await sees(page, "1 found; searched all of 1 key", "[role=status]");
  // The question of a button stays open with the error of a refused command.
  await go(page, "clients");
  await page.locator("main td button").first().click();
  await page.click("#confirm button[value=yes]");
  await sees(page, "NOPERM", "#confirm .error");
  await page.click("#confirm button[value=no]");
  await page.locator("#confirm").waitFor({ state: "hidden" });
  await close(page);
  await fewRights(server);
  server.remove();
}

// SCAN and TYPE suffice for a search, and a command line without documentation says why.
async function fewRights(server) {
  const page = await open(server);
  await page.fill("input[name=user]", "few");
  await page.fill("input[name=password]", PASSWORD);
  await page.click("#login button");
  await go(page, "keys");
  await sees(page, "1 found; searched all of the keys", "[role=status]");
  await page.click("#keys button.mono");
  await sees(page, "greeting", "#key");
  await go(page, "line");
  await sees(page, "NOPERM", "#about");
  await page.fill("#prompt", "get greeting");
  await page.press("#prompt", "Enter");
  await sees(page, "hello", "#output");
  await shot(page, "few-rights");
  await close(page);
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
  check("no deletion", await page.locator("button:text-is('count and delete')").count(), 0);
  await shot(page, "read-only");
  await go(page, "batches");
  await sees(page, "Batches by depth");
  check("no resets", await page.locator("main .card button").count(), 0);
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
  await page.click("button:text-is('estimate')");
  await sees(page, /estimated from \d+ random keys/);
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
  // A whole name needs no search.
  await page.fill('input[type="search"]', "needle");
  await page.click("button:text-is('search')");
  await sees(page, "1 found; looked up by name", "[role=status]");
  await page.fill('input[type="search"]', "needles");
  await page.click("button:text-is('search')");
  await sees(page, "0 found; looked up by name", "[role=status]");
  await close(page);
  server.remove();
}

async function main(opened) {
  browser = opened;
  await everyView();
  await cluster();
  await linkless();
  await passwords();
  await limitedUser();
  await readOnly();
  await manyKeys();
}

run(() => withBrowser(main), PATIENCE_MS).finally(() => process.exit());
