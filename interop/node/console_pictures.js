// Makes the pictures of the console that the pages show: a server with a load of a minute, then with an append-only file that it
// syncs for each write.
//
//     PENSTOCK_PROGRAM=target/release/penstock node interop/node/console_pictures.js docs/images
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");
const { command, go, open, sees, withBrowser } = require("./console_page.js");
const { HttpServer } = require("./http_server.js");

// One load after the other; together about a minute.
const LOADS = [
  ["-t", "set,hset,zadd,lpush,sadd", "-n", "200000", "-r", "100000", "-P", "16", "-c", "20"],
  ["-t", "get", "-n", "30000", "-r", "100000", "-P", "1", "-c", "5"],
  ["-t", "get,set,incr", "-n", "400000", "-r", "100000", "-P", "64", "-c", "10"],
  ["-t", "get,zpopmin,lrange_100", "-n", "100000", "-r", "100000", "-P", "32", "-c", "10"],
  ["-t", "mset,get,set", "-n", "300000", "-r", "100000", "-P", "128", "-c", "10"],
];

function load(port, args) {
  const bench = spawn(process.env.PENSTOCK_PROGRAM, ["bench", "-p", String(port), "-q", ...args], { stdio: "ignore" });
  return new Promise((resolve) => bench.once("exit", resolve));
}

async function main(directory) {
  const server = await HttpServer.start();
  await withBrowser(async () => {
    const page = await open(server, { viewport: { width: 1280, height: 860 } });
    const end = Date.now() + 60_000;
    for (let next = 0; Date.now() < end; next += 1) await load(server.port, LOADS[next % LOADS.length]);
    await sees(page, "Commands a second");
    await page.screenshot({ path: path.join(directory, "console.png") });
    await go(page, "batches");
    for (const line of ["CONFIG SET appendonly yes", "CONFIG SET appendfsync always"]) await command(server.port, line);
    for (const depth of ["1", "4", "64", "256"]) await load(server.port, ["-t", "set,get", "-n", String(8000 * Math.min(16, depth)), "-r", "100000", "-P", depth, "-c", "10"]);
    await page.setViewportSize({ width: 1280, height: 1040 });
    await page.click(".ranges button:text-is('2 min')");
    await sees(page, "Batches by depth");
    await page.screenshot({ path: path.join(directory, "console-batches.png") });
  });
  await server.end();
  process.exit(0);
}

main(process.argv[2]);
