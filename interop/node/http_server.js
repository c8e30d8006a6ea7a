// A server with an HTTP port, for the scripts that need one: on free ports, with a directory of its own, ended with the script.
"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");

// How long a server may take to start and to end on a busy machine.
const PATIENCE_MS = 60_000;
const running = new Set();

process.on("exit", () => {
  for (const server of running) server.remove();
});

// A port that is free now.
async function freePort() {
  const probe = net.createServer();
  await new Promise((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

class HttpServer {
  // Starts one; `settings` are more of its arguments.
  static async start(...settings) {
    const server = new HttpServer();
    server.directory = fs.mkdtempSync(path.join(os.tmpdir(), "penstock-http-"));
    [server.port, server.httpPort] = [await freePort(), await freePort()];
    server.url = `http://127.0.0.1:${server.httpPort}`;
    server.settings = settings;
    running.add(server);
    await server.begin();
    return server;
  }

  // Starts two nodes of a cluster that know each other. The first one has all slots.
  static async startCluster() {
    const nodes = [];
    for (let count = 0; count < 2; count += 1) {
      const busPort = await freePort();
      nodes.push(Object.assign(await HttpServer.start("--cluster-enabled", "yes", "--cluster-port", busPort), { busPort }));
    }
    return nodes;
  }

  // Starts the process, on the same ports as before.
  async begin() {
    const args = ["--port", this.port, "--bind", "127.0.0.1", "--http-port", this.httpPort, "--save", "", "--dir", this.directory, ...this.settings];
    this.process = spawn(process.env.PENSTOCK_PROGRAM, args.map(String), { stdio: "ignore" });
    const deadline = Date.now() + PATIENCE_MS;
    // A page without a password is there as soon as the port is.
    while (!(await fetch(`${this.url}/console/icon.svg`).then(() => true, () => false))) {
      if (Date.now() > deadline || this.process.exitCode !== null) throw new Error("the server does not start");
      await sleep(20);
    }
  }

  // Ends the process.
  async end() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill();
    await ended;
  }

  remove() {
    this.process?.kill("SIGKILL");
    fs.rmSync(this.directory, { recursive: true, force: true });
    running.delete(this);
  }
}

module.exports = { HttpServer };
