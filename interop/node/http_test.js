// The HTTP port by hand: metrics as promtool and redis_exporter's dashboards want them, files, limits, slow and hostile clients.
"use strict";

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const net = require("node:net");
const path = require("node:path");
const { check, run } = require("./checks.js");
const { HttpServer } = require("./http_server.js");

const PATIENCE_MS = 300_000;
// All that the dashboards and alerts show which redis_exporter comes with, but its own. `cluster` has those of clusters.
const DASHBOARDS = ["up", "uptime_in_seconds", "connected_clients", "blocked_clients", "memory_used_bytes", "memory_max_bytes", "memory_used_rss_bytes", "memory_fragmentation_ratio",
  "commands_processed_total", "keyspace_hits_total", "keyspace_misses_total", "net_input_bytes_total", "net_output_bytes_total", "db_keys{db=\"db0\"}", "db_keys_expiring{db=\"db0\"}",
  "expired_keys_total", "evicted_keys_total", "commands_total{cmd=\"set\"}", "commands_duration_seconds_total{cmd=\"set\"}", "connected_slaves", "total_system_memory_bytes", "slowlog_length",
  "rejected_connections_total", "rdb_last_save_timestamp_seconds", "rdb_changes_since_last_save", "aof_last_write_status", "instance_info{", "exporter_last_scrape_error{err=\"\"}"];
const OURS = ["batches_total", "advisor_batches_total", "advisor_findings", "advisor_round_trips_wasted_total", "reply_waiting_clients", "reply_memory_bytes", "reply_spill_bytes", "log_unsynced_bytes", "worker_threads"];

// Sends bytes as they are; answers all that comes until the connection ends.
function raw(server, bytes, { thenWait = false } = {}) {
  return new Promise((resolve) => {
    let got = "";
    const socket = net.connect(server.httpPort, "127.0.0.1", () => { for (const part of [bytes].flat()) socket.write(part); });
    socket.on("data", (data) => { got += data; if (!thenWait && /\r\n\r\n/.test(got)) socket.end(); });
    socket.on("error", () => {});
    socket.on("close", () => resolve(got));
  });
}

const status = (answer) => Number(answer.split(" ")[1]);

async function figures() {
  const server = await HttpServer.start("--appendonly", "yes");
  await fetch(`${server.url}/pipeline`, { method: "POST", body: '[["SET","a","b"],["GET","a"],["GET","none"],["NOSUCH"]]' });
  const response = await fetch(`${server.url}/metrics`);
  const text = await response.text();
  check("type", response.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const lines = text.split("\n");
  const has = (name) => lines.some((line) => line.startsWith(name) && (name.endsWith("{") || /^ [-0-9.e+]+$/.test(line.slice(name.length))));
  for (const name of DASHBOARDS) check(name, has(`redis_${name}`), true);
  for (const name of OURS) check(name, has(`penstock_${name}`), true);
  check("calls", lines.includes('redis_commands_total{cmd="get"} 2'), true);
  check("keys", lines.includes('redis_db_keys{db="db0"} 1'), true);
  const promtool = spawnSync("promtool", ["check", "metrics"], { input: text });
  check("promtool", [promtool.status, String(promtool.stdout) + String(promtool.stderr)], [0, ""]);
  // HEAD is GET without a body.
  const head = await fetch(`${server.url}/metrics`, { method: "HEAD" });
  check("head", [head.status, await head.text()], [200, ""]);
  server.remove();
  const guarded = await HttpServer.start("--requirepass", "secret");
  check("with a password", (await fetch(`${guarded.url}/metrics`)).status, 401);
  check("and with it", (await fetch(`${guarded.url}/metrics`, { headers: { authorization: "Bearer secret" } })).status, 200);
  guarded.remove();
}

// A primary and its replica, by redis_exporter's names.
async function replication() {
  const primary = await HttpServer.start();
  const replica = await HttpServer.start("--replicaof", `127.0.0.1 ${primary.port}`);
  const follows = `{master_host="127.0.0.1",master_port="${primary.port}"}`;
  const read = async (server) => (await (await fetch(`${server.url}/metrics`)).text()).split("\n");
  const value = (lines, name) => lines.find((line) => line.startsWith(`${name} `))?.split(" ").at(-1);
  let lines = [];
  while (value(lines, `redis_master_link_up${follows}`) !== "1") {
    await new Promise((resolve) => setTimeout(resolve, 50));
    lines = await read(replica);
  }
  await fetch(`${primary.url}/set/a/b`, { method: "POST" });
  const offset = value(await read(primary), "redis_master_repl_offset");
  check("something was sent", Number(offset) > 0, true);
  while (Number(value(lines, `redis_slave_repl_offset${follows}`)) < Number(offset)) lines = await read(replica);
  for (const [name, expected] of [[`redis_master_sync_in_progress${follows}`, "0"], [`redis_slave_info{master_host="127.0.0.1",master_port="${primary.port}",read_only="1"}`, "1"], ["redis_connected_slaves", "0"]]) {
    check(name, value(lines, name), expected);
  }
  check("when it heard", Number(value(lines, `redis_master_last_io_seconds_ago${follows}`)) >= 0, true);
  const labels = `{slave_ip="127.0.0.1",slave_port="${replica.port}",slave_state="online"}`;
  while (!(Number(value(lines, `redis_connected_slave_offset_bytes${labels}`)) >= Number(offset))) lines = await read(primary);
  for (const [name, expected] of [["redis_connected_slaves", "1"], ["redis_replica_resyncs_full", "1"], ["redis_replica_partial_resync_accepted", "0"], ["redis_replica_partial_resync_denied", "0"], ["redis_repl_backlog_is_active", "1"]]) {
    check(name, value(lines, name), expected);
  }
  check("lag", Number(value(lines, `redis_connected_slave_lag_seconds${labels}`)) >= 0, true);
  const promtool = spawnSync("promtool", ["check", "metrics"], { input: lines.join("\n") });
  check("promtool, a primary", [promtool.status, String(promtool.stdout) + String(promtool.stderr)], [0, ""]);
  await primary.end();
  while (value(lines, `redis_master_link_up${follows}`) !== "0") lines = await read(replica);
  replica.remove();
  primary.remove();
}

async function files() {
  const server = await HttpServer.start();
  check("none", (await fetch(`${server.url}/files/`)).status, 404);
  server.remove();
  const place = fs.mkdtempSync(path.join(require("node:os").tmpdir(), "penstock-pages-"));
  fs.mkdirSync(path.join(place, "root"));
  fs.writeFileSync(path.join(place, "root", "index.html"), "<title>é</title>");
  fs.writeFileSync(path.join(place, "secret"), "secret");
  fs.writeFileSync(path.join(place, "root", "large.bin"), Buffer.alloc((16 << 20) + 1));
  const pages = await HttpServer.start("--http-files", path.join(place, "root"), "--requirepass", "secret");
  const page = await fetch(`${pages.url}/files/`);
  check("page", [page.status, page.headers.get("content-type"), await page.text()], [200, "text/html; charset=utf-8", "<title>é</title>"]);
  check("policy", page.headers.get("content-security-policy").startsWith("default-src 'self'"), true);
  for (const wrong of ["/files/../secret", "/files/%2e%2e/secret", "/files/..%2fsecret", "/files/none", "/files//etc/passwd"]) {
    const answer = await raw(pages, `GET ${wrong} HTTP/1.1\r\nhost: localhost\r\n\r\n`);
    check(wrong, [status(answer), answer.includes("root:"), answer.endsWith("secret")], [404, false, false]);
  }
  check("too large", (await fetch(`${pages.url}/files/large.bin`)).status, 413);
  pages.remove();
  fs.rmSync(place, { recursive: true });
}

async function limits() {
  const server = await HttpServer.start("--http-max-body", "2000", "--http-max-reply", "100000", "--http-timeout", "2", "--http-max-connections", "20", "--http-max-running", "2", "--busy-reply-threshold", "100");
  const post = (target, body) => fetch(server.url + target, { method: "POST", body });
  check("a body", (await post("/set/a", "x".repeat(2000))).status, 200);
  check("a larger one", (await post("/set/a", "x".repeat(2001))).status, 413);
  const chunks = Array(3).fill(`3e8\r\n${"x".repeat(1000)}\r\n`);
  check("one of unknown size", status(await raw(server, [`POST /set/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n`, ...chunks, "0\r\n\r\n"])), 413);
  check("a large reply", (await post("/", '["EVAL","return string.rep(\'x\', 99000)",0]')).status, 200);
  check("a larger one", (await post("/", '["EVAL","return string.rep(\'x\', 200000)",0]')).status, 413);
  check("many parts", (await post("/", '["EVAL","local t = {} for i = 1, 20000 do t[i] = i end return t",0]')).status, 413);
  check("and goes on", (await post("/ping")).status, 200);
  check("headers", status(await raw(server, `GET / HTTP/1.1\r\nhost: localhost\r\nx: ${"x".repeat(100_000)}\r\n\r\n`)), 431);
  check("many headers", status(await raw(server, `GET / HTTP/1.1\r\nhost: localhost\r\n${"x: y\r\n".repeat(100)}\r\n`)), 431);
  check("no HTTP", status(await raw(server, "*1\r\n$4\r\nPING\r\n\r\n")), 400);
  check("two lengths", status(await raw(server, "POST /ping HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab")), 400);
  check("silence", await raw(server, "", { thenWait: true }), "");
  check("half a request", [0, 408].includes(status(await raw(server, "GET /ping HTTP/1.1\r\nhost: ", { thenWait: true })) || 0), true);
  check("half a body", status(await raw(server, "POST /set/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nabc", { thenWait: true })), 408);
  const busy = post("/", '["EVAL","local n = 0 while true do n = n + 1 end",0]');
  check("a script without end", (await busy).status, 504);
  const killed = await post("/script/kill");
  check("is ended", [killed.status, await killed.text()], [200, '{"result":"OK"}']);
  await crowd(server);
  await unread(server);
  server.remove();
}

// More connections than there may be: the rest is told so, and there is room again.
async function crowd(server) {
  const all = Array.from({ length: 30 }, () => raw(server, "", { thenWait: true }));
  const answers = await Promise.all(all);
  const told = answers.filter((answer) => status(answer) === 503).length;
  check(`told: ${told}`, told >= 10 && told < 30, true);
  check("room again", (await fetch(`${server.url}/ping`, { method: "POST" })).status, 200);
}

// A client that reads nothing of much is given up, and others are served meanwhile.
async function unread(server) {
  const socket = net.connect({ port: server.httpPort, host: "127.0.0.1", highWaterMark: 1 });
  socket.on("error", () => {});
  socket.pause();
  const request = `POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 47\r\n\r\n["EVAL","return string.rep('x', 90000)",0]     `;
  for (let i = 0; i < 200; i += 1) socket.write(request);
  check("others", (await fetch(`${server.url}/ping`, { method: "POST" })).status, 200);
  const closed = new Promise((resolve) => socket.once("close", resolve));
  // What it did not read is there until it does; the end comes behind it.
  await new Promise((resolve) => setTimeout(resolve, 6000));
  socket.resume();
  await closed;
  check("given up", true, true);
}

async function off() {
  const server = await HttpServer.start("--requirepass", "secret");
  const threads = () => fs.readdirSync(`/proc/${server.process.pid}/task`).map((task) => fs.readFileSync(`/proc/${server.process.pid}/task/${task}/comm`, "utf8").trim());
  check("a thread of its own", threads().includes("http"), true);
  server.remove();
}

// The figures of a node of a cluster, under redis_exporter's names.
async function cluster() {
  const nodes = await HttpServer.startCluster();
  const [first, second] = nodes;
  const lines = async () => (await (await fetch(`${first.url}/metrics`)).text()).split("\n");
  const ask = async (...words) => (await (await fetch(first.url, { method: "POST", body: JSON.stringify(words) })).json()).result;
  check("before", (await lines()).includes("redis_cluster_state 0"), true);
  check("ADDSLOTSRANGE", await ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383"), "OK");
  check("MEET", await ask("CLUSTER", "MEET", "127.0.0.1", String(second.port), String(second.busPort)), "OK");
  const expected = ["redis_cluster_state 1", "redis_cluster_slots_assigned 16384", "redis_cluster_slots_ok 16384", "redis_cluster_slots_fail 0", "redis_cluster_known_nodes 2",
    "redis_cluster_size 1", "penstock_cluster_links 2"];
  for (const deadline = Date.now() + PATIENCE_MS / 5; Date.now() < deadline; await new Promise((resolve) => setTimeout(resolve, 50))) {
    const found = await lines();
    if (expected.every((line) => found.includes(line))) break;
  }
  const found = await lines();
  for (const line of expected) check(line, found.includes(line), true);
  check("messages", found.some((line) => /^redis_cluster_messages_sent_total [1-9]/.test(line)), true);
  const promtool = spawnSync("promtool", ["check", "metrics"], { input: found.join("\n") });
  check("promtool", [promtool.status, String(promtool.stdout) + String(promtool.stderr)], [0, ""]);
  nodes.forEach((node) => node.remove());
  // A server outside a cluster has no such figures, and counts no error because of them.
  const alone = await HttpServer.start();
  const others = (await (await fetch(`${alone.url}/metrics`)).text() + await (await fetch(`${alone.url}/metrics`)).text()).split("\n");
  check("outside a cluster", others.filter((line) => /_cluster_(state|links)|errors_total\{/.test(line)), []);
  alone.remove();
}

async function main() {
  await figures();
  await cluster();
  await replication();
  await files();
  await limits();
  await off();
}

run(main, PATIENCE_MS).finally(() => process.exit());
