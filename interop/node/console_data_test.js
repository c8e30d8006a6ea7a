// The console's charts, tools for keys, and live views in a browser; the keyboard alone; and accessibility by axe-core.
"use strict";

const fs = require("node:fs");
const net = require("node:net");
const zlib = require("node:zlib");
const { setTimeout: sleep } = require("node:timers/promises");
const { check, run } = require("./checks.js");
const { command, open, shot, close, text, sees, go, withBrowser } = require("./console_page.js");
const { HttpServer } = require("./http_server.js");

const PATIENCE_MS = 500_000;
const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const VIEWS = ["overview", "keys", "clients", "batches", "live", "advisor", "line"];


// A command with arguments of any bytes.
function send(port, ...args) {
  const parts = args.map((arg) => Buffer.from(arg));
  const head = (text) => Buffer.from(text);
  const request = Buffer.concat([head(`*${parts.length}\r\n`), ...parts.flatMap((part) => [head(`$${part.length}\r\n`), part, head("\r\n")])]);
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, "127.0.0.1", () => socket.write(request));
    socket.once("data", (data) => { socket.destroy(); resolve(String(data)); });
    socket.once("error", reject);
  });
}

async function fill(server) {
  const { port } = server;
  for (let i = 0; i < 30; i += 1) await command(port, `SET user:${i}:name someone`);
  for (let i = 0; i < 5; i += 1) await command(port, `SET session:${i} ${"x".repeat(3000)} EX 1000`);
  await send(port, "SET", "json", '{"name":"Ada","born":1815,"big":12345678901234567890,"list":[1,2],"none":{}}');
  await send(port, "SET", "packed", Buffer.from([0x82, 0xa4, ...Buffer.from("name"), 0xa3, ...Buffer.from("Ada"), 0xa4, ...Buffer.from("born"), 0xcd, 0x07, 0x17]));
  await send(port, "SET", "zipped", zlib.gzipSync('{"in":"gzip"}'));
  await send(port, "SET", "binary", Buffer.from([0xff, 0x00, 0x41]));
  for (const line of ["HSET times a 1 b 2", "HPEXPIRE times 5000000 FIELDS 1 a", "ZADD ranks 1 one 2 two 3 three", "XADD stream 1-1 kind start", "XADD stream 2-1 kind end", "XGROUP CREATE stream workers 0",
    "XREADGROUP GROUP workers alice COUNT 1 STREAMS stream >", "CONFIG SET slowlog-log-slower-than 0", "ECHO slow", "CONFIG SET slowlog-log-slower-than 10000"]) {
    await command(port, line);
  }
}

// The server keeps the history, so a page that is opened later shows what happened before.
async function charts(server) {
  for (let i = 0; i < 4; i += 1) {
    for (let n = 0; n < 50; n += 1) await command(server.port, "GET json");
    await sleep(1100);
  }
  const page = await open(server);
  await page.locator(".chart polyline").first().waitFor();
  const titles = ["Commands a second", "Commands a batch", "Duration of commands", "Time of a batch", "Network", "Memory", "Hit ratio", "Keys removed", "Calls of each command", "Errors and connections"];
  check("charts", await page.locator(".charts .card:has(.chart) h2").allTextContents(), titles);
  const first = page.locator(".charts .card").first();
  check("axes", (await first.locator("svg text").count()) > 4, true);
  const history = await (await fetch(`${server.url}/console/history?span=600`)).json();
  check("before the page there was a history", history.points.length >= 4, true);
  const rate = history.names.indexOf("commands");
  check("with the commands' rate", history.points.some(([, values]) => values[rate] > 5), true);
  await sees(page, "get", ".charts .legend");
  // Values at the pointer, and by the keyboard.
  const box = await first.locator("svg").boundingBox();
  await page.mouse.move(box.x + box.width - 12, box.y + 60);
  await sees(page, /commands [\d.,]+/, ".tip");
  await shot(page, "chart-pointer");
  await page.mouse.move(5, 5);
  await first.locator(".tip").waitFor({ state: "hidden" });
  await first.locator("svg").focus();
  await page.keyboard.press("ArrowLeft");
  await first.locator(".tip").waitFor();
  // The cursor stays while points arrive.
  await sleep(2500);
  check("the cursor stays", await first.locator(".tip").isVisible(), true);
  await page.keyboard.press("Escape");
  for (const range of ["2 min", "1 h", "3 h", "24 h", "10 min"]) {
    await page.click(`.ranges button:text-is('${range}')`);
    await page.locator(`.ranges button[aria-pressed=true]:text-is('${range}')`).waitFor();
  }
  // A visit to another view leaves no gap.
  await go(page, "advisor");
  const left = Date.now() / 1000;
  await sleep(5000);
  await go(page, "overview");
  await page.locator(".chart polyline").first().waitFor();
  // The page asks for all points since its last one, the absence included. A busy server may miss a sample.
  const since = await (await fetch(`${server.url}/console/history?span=600&since=${Math.floor(left)}`)).json();
  check("points of the absence", since.points.filter(([at]) => at < left + 5).length > 0, true);
  await shot(page, "charts");
  await close(page);
  for (const query of ["span=x", "since=-1"]) check(query, (await fetch(`${server.url}/console/history?${query}`)).status, 400);
}

// Pipelines of several depths against a server that syncs each write: the parts are stacked, and the disk has a share.
async function batches() {
  const server = await HttpServer.start("--appendonly", "yes", "--appendfsync", "always", "--batchlog-log-slower-than", "0");
  const page = await open(server);
  await go(page, "batches");
  const end = Date.now() + 4000;
  while (Date.now() < end) {
    for (const depth of [1, 20, 200]) await command(server.port, Array(depth).fill("LPUSH jobs a").join("\r\n"));
    await sleep(100);
  }
  for (const title of ["Batches of 1 command", "Batches of 16-127 commands", "Batches of 128 and more commands"]) {
    const chart = page.locator(".charts .card", { hasText: title });
    await chart.locator("polygon.s2").first().waitFor();
    check(`${title}: parts`, await chart.locator(".legend span:not(.dot)").allTextContents(), ["turn", "execution", "disk", "replicas", "client"]);
    await stacks(chart);
  }
  const row = page.locator("tr", { has: page.locator("td:text-is('16-127')") });
  check("the disk's share", await row.locator(".stack[aria-label*='disk']").count(), 1);
  check("batches are counted", Number((await row.locator("td").nth(1).textContent()).replaceAll(",", "")) >= 10, true);
  check("and have percentiles", /^[\d.]+ [µm]?s$/.test(await row.locator("td").nth(2).textContent()), true);
  await page.locator(".card", { hasText: "Slow batches" }).locator("tr", { hasText: "lpush" }).first().waitFor();
  const shown = page.locator(".charts .card", { hasText: "Batches of 1 command" });
  await shown.locator("svg").focus();
  // A second without such a batch has no value.
  let tip = "";
  for (let left = 0; left < 20 && !/total [\d.]+ [µm]?s/.test(tip); left += 1) {
    await page.keyboard.press("ArrowLeft");
    tip = await shown.locator(".tip").textContent();
  }
  check(`values at the cursor: ${tip}`, /total [\d.]+ [µm]?sturn [\d.]+ [µm]?sexecution [\d.]+/.test(tip), true);
  await page.keyboard.press("Escape");
  await shot(page, "batches");
  // The counts and the log can be emptied, after a question.
  await page.click("button:text-is('remove the entries')");
  check("the command is shown", await text(page, "#confirm pre"), "BATCHLOG RESET");
  await page.click("#confirm button[value=no]");
  await command(server.port, "CONFIG SET batchlog-log-slower-than -1");
  await page.click("button:text-is('remove the entries')");
  await page.click("#confirm button[value=yes]");
  await sees(page, "None.", ".card");
  await page.click("button:text-is('reset the counts')");
  await page.click("#confirm button[value=yes]");
  await page.waitForFunction(() => ![...document.querySelectorAll("td:first-child")].some((cell) => cell.textContent === "128 and more" && cell.nextSibling.textContent !== "0"));
  await close(page);
  server.remove();
}

// Each part begins where the part below it ends.
async function stacks(chart) {
  const areas = await chart.locator("polygon").evaluateAll((all) => all.map((area) => area.getAttribute("points").split(" ").map((point) => point.split(",").map(Number))));
  const parts = areas.slice(0, 5);
  const upper = (points) => points.slice(0, points.length / 2);
  const lower = (points) => points.slice(points.length / 2).reverse();
  for (let index = 1; index < parts.length; index += 1) check("a part begins where the one below ends", lower(parts[index]), upper(parts[index - 1]));
}

async function look(page, name) {
  await page.fill('input[type="search"]', name);
  await page.click("button:text-is('search')");
  await page.locator("#keys button.mono", { hasText: name }).first().click();
}

async function keys(page, server) {
  await go(page, "keys");
  await sees(page, "searched all of", "[role=status]");
  await look(page, "json");
  await sees(page, '"big": 12345678901234567890,', "#formatted");
  await sees(page, '"none": {}', "#formatted");
  await page.selectOption("#key select", "hex");
  await sees(page, "00000000  7b 22", "#formatted");
  await page.selectOption("#key select", "auto");
  await look(page, "packed");
  await sees(page, '"born": 1815', "#formatted");
  await look(page, "zipped");
  await sees(page, '"in": "gzip"', "#formatted");
  await shot(page, "keys-gzip");
  await look(page, "binary");
  await sees(page, "ff 00 41", "#formatted");
  await page.selectOption("#key select", "JSON");
  await sees(page, "not JSON", "#formatted");
  await page.selectOption("#key select", "auto");
  // Times of hash fields.
  await look(page, "times");
  await sees(page, /1 h \d+ min/, "#key tr");
  await page.locator("#key tr", { hasText: /1 h \d+ min/ }).locator("button:text-is('expire')").click();
  await page.locator("#key tr input[type=number]").fill("600");
  await page.locator("#key tr button.main").click();
  check("a field's time", await text(page, "#confirm pre"), "HEXPIRE times 600 FIELDS 1 a");
  await page.click("#confirm button[value=yes]");
  await sees(page, /\d s/, "#key tr");
  // Ranks.
  await look(page, "ranks");
  await page.selectOption("#key select[aria-label=order]", "REV");
  await sees(page, "three", "#key tbody tr:first-child");
  await page.fill("#key input[aria-label='from rank']", "2");
  await page.click("#key button:text-is('go')");
  await page.waitForFunction(() => document.querySelectorAll("#key tbody tr").length === 1);
  await sees(page, "one", "#key tbody");
  await page.locator("#key tbody button:text-is('edit')").click();
  await page.locator("#key tr input[type=text]").fill("10");
  await page.locator("#key tr button.main").click();
  check("a new score", await text(page, "#confirm pre"), "ZADD ranks XX 10 one");
  await page.click("#confirm button[value=no]");
  // Groups.
  await look(page, "stream");
  await page.locator("#key summary", { hasText: "workers" }).click();
  await sees(page, "Pending entries", "#key");
  await sees(page, "alice", "#key");
  await sees(page, "1-1", "#key details tbody");
  await shot(page, "keys-stream");
  await tree(page);
  await prefixes(page);
  await bulkDelete(page, server);
}

async function tree(page) {
  await page.fill('input[type="search"]', "*");
  await page.click("button:text-is('search')");
  await page.check("#view input[type=checkbox]");
  await page.locator(".tree summary", { hasText: "user:" }).click();
  await page.locator(".tree summary", { has: page.locator("span:text-is('7:')") }).click();
  await sees(page, "user:7:name", ".tree");
  const folders = await page.locator(".tree .inside > div > details > summary > .mono").allTextContents();
  check("folders in the order of numbers", folders, Array.from({ length: 30 }, (_, number) => `${number}:`));
  check("the tree scrolls", await page.evaluate(() => document.querySelector(".tree").clientHeight <= 520), true);
  await shot(page, "keys-tree");
  await page.uncheck("#view input[type=checkbox]");
  // Filters.
  await page.selectOption("select[aria-label=expiry]", "yes");
  await page.selectOption("select[aria-label=size]", "1024");
  await page.click("button:text-is('search')");
  await sees(page, "5 found", "[role=status]");
  await page.selectOption("select[aria-label=expiry]", "");
  await page.selectOption("select[aria-label=size]", "0");
}

async function prefixes(page) {
  await page.click("#tools summary");
  await page.fill('input[type="search"]', "*");
  await page.click("button:text-is('memory by prefix')");
  await sees(page, "matching keys", "#tools [role=status]");
  await sees(page, "user:", "#tools td");
  const row = page.locator("#tools tr", { hasText: "session:" });
  check("keys of a prefix", await row.locator("td").nth(1).textContent(), "5");
  await shot(page, "keys-prefixes");
}

async function bulkDelete(page, server) {
  await page.fill('input[type="search"]', "user:*");
  await page.click("button:text-is('count and delete')");
  await page.locator("#confirm[open]").waitFor();
  check("the number is told first", (await text(page, "#confirm .why")).startsWith("Deletes 30 keys that match user:*"), true);
  await shot(page, "keys-bulk-delete");
  await page.click("#confirm button[value=no]");
  await sees(page, "nothing deleted", "#tools");
  check("none is gone", (await command(server.port, "EXISTS user:1:name")).startsWith(":1"), true);
  await page.click("button:text-is('count and delete')");
  await page.click("#confirm button[value=yes]");
  await sees(page, "30 of 30 keys deleted", "#tools");
  check("all are gone", (await command(server.port, "EXISTS user:1:name")).startsWith(":0"), true);
  check("others are there", (await command(server.port, "EXISTS session:1")).startsWith(":1"), true);
}

async function live(page, server) {
  await go(page, "live");
  await sees(page, "ECHO slow", "td");
  const card = (title) => page.locator(".card", { hasText: title });
  await page.fill("input[aria-label='only commands with this text']", "needle");
  await card("MONITOR").locator("button:text-is('start')").click();
  await sees(page, "/s", "#view [role=status]");
  await command(server.port, "GET hay");
  await command(server.port, "GET needle:1");
  await sees(page, "needle:1", ".stream");
  check("the filter", (await page.locator(".stream").first().textContent()).includes("hay"), false);
  await card("Published messages").locator("button:text-is('start')").click();
  await sees(page, "psubscribe * 1", ".stream");
  await command(server.port, "PUBLISH news hello");
  await sees(page, "news: hello", ".stream");
  // The streams go on while another view is shown.
  await go(page, "advisor");
  await command(server.port, "PUBLISH news again");
  await go(page, "live");
  await sees(page, "news: again", ".stream");
  await shot(page, "live");
  await card("MONITOR").locator("button:text-is('stop')").click();
  await card("MONITOR").locator("[role=status]", { hasText: "stopped" }).waitFor();
  await ends(server, "cmd=monitor");
  await page.selectOption("select[aria-label=log]", "large-reply");
  await sees(page, "commandlog-large-reply-larger-than");
  await sees(page, "primary at offset");
}

// Waits until no connection's line in CLIENT LIST has this text.
async function ends(server, part) {
  for (let tries = 0; (await command(server.port, "CLIENT LIST")).includes(part); tries += 1) {
    check("the connection ends", tries < 100, true);
    await sleep(50);
  }
}

// Nothing needs a pointer: views, a search, a key, an edit, and dialogs.
async function keyboard(server) {
  const page = await open(server);
  await page.locator("main .card").first().waitFor();
  const press = (...names) => names.reduce((before, name) => before.then(() => page.keyboard.press(name)), Promise.resolve());
  const tabTo = async (selector) => {
    for (let i = 0; i < 80; i += 1) {
      if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return;
      await press("Tab");
    }
    check(`Tab reaches ${selector}`, false, true);
  };
  await tabTo("nav a[href='#keys']");
  await press("Enter");
  await page.locator("#keys td").first().waitFor();
  await tabTo("input[type=search]");
  await page.keyboard.type("json", { delay: 5 });
  await page.evaluate(() => { document.querySelector("input[type=search]").value = "json"; });
  await press("Enter");
  await sees(page, "1 found", "[role=status]");
  await tabTo("#keys button.mono");
  await press("Enter");
  await page.locator("#key textarea").waitFor();
  await tabTo("#key textarea");
  await press("Control+A");
  await page.keyboard.type("new");
  await tabTo("#key button.main");
  await press("Enter");
  await page.locator("#confirm[open]").waitFor();
  await press("Escape");
  await page.locator("#confirm").waitFor({ state: "hidden" });
  check("Escape means no", (await command(server.port, "GET json")).includes("Ada"), true);
  await close(page);
}

async function accessible(server) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(server, { colorScheme });
    for (const view of VIEWS) {
      await go(page, view);
      await page.locator("main .card").first().waitFor();
      if (view === "keys") {
        await page.locator("#keys button.mono").first().click();
        await page.locator("#key h3").first().waitFor();
      }
      await page.evaluate(AXE);
      const { violations } = await page.evaluate(() => globalThis.axe.run());
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      check(`axe-core in ${view}, ${colorScheme}`, serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" | ")}`), []);
      await shot(page, `${colorScheme}-${view}`);
    }
    await close(page);
  }
}

async function probes() {
  const server = await HttpServer.start("--requirepass", "secret");
  for (const path of ["/healthz", "/readyz"]) {
    const response = await fetch(`${server.url}${path}`);
    check(path, [response.status, await response.text()], [200, "ok\n"]);
  }
  check("an icon", (await fetch(`${server.url}/favicon.ico`)).headers.get("content-type"), "image/svg+xml");
  check("no history without the password", (await fetch(`${server.url}/console/history`)).status, 401);
  check("no stream without the password", (await fetch(`${server.url}/console/monitor`, { method: "POST", body: '["10",""]' })).status, 401);
  server.remove();
  const replica = await HttpServer.start("--replicaof", "127.0.0.1 1");
  const response = await fetch(`${replica.url}/readyz`);
  check("a replica without a link", [response.status, await response.text()], [503, "the replica has no link to its primary\n"]);
  check("is alive", (await fetch(`${replica.url}/healthz`)).status, 200);
  replica.remove();
}

// At most eight views at a time, and a view ends with the user's rights.
async function limits(server) {
  const view = () => fetch(`${server.url}/console/monitor`, { method: "POST", body: '["10","nothing"]' });
  const views = [];
  for (let i = 0; i < 8; i += 1) views.push(await view());
  check("eight views", views.map(({ status }) => status), Array(8).fill(200));
  const ninth = await view();
  check("no ninth", [ninth.status, (await ninth.json()).error.includes("live views are open")], [503, true]);
  await command(server.port, "ACL SETUSER someone on");
  for (const { body } of views) for await (const piece of body) check("counts", String.fromCharCode(...piece.slice(0, 8)), '{"seen":');
  for (const [path, body] of [["monitor", "[]"], ["monitor", '["0",""]'], ["monitor", "x"], ["messages", "[]"]]) {
    check(`${path} ${body}`, (await fetch(`${server.url}/console/${path}`, { method: "POST", body })).status, 400);
  }
}

async function main() {
  await probes();
  const server = await HttpServer.start();
  await fill(server);
  await charts(server);
  await batches();
  await keyboard(server);
  await accessible(server);
  const page = await open(server);
  await keys(page, server);
  await live(page, server);
  await close(page);
  // The server notices a moment later that the page has closed its view.
  await ends(server, "cmd=psubscribe");
  await limits(server);
  server.remove();
}

run(() => withBrowser(main), PATIENCE_MS).finally(() => process.exit());
