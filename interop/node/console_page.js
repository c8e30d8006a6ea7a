// The console in a browser, for the scripts that test it: Debian's chromium, without a window. With CONSOLE_SHOTS set to a directory,
// pictures are left there.
"use strict";

const path = require("node:path");
const net = require("node:net");
const { chromium } = require("playwright-core");
const { check } = require("./checks.js");

// Time for one thing to appear: the machine may be busy, and the server not built for speed.
const WAIT_MS = Number(process.env.CONSOLE_WAIT_MS ?? 90_000);
const BROWSER = process.env.CONSOLE_BROWSER ?? "/usr/bin/chromium";

let browser;

// Runs `work` with a browser.
async function withBrowser(work) {
  browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox", "--disable-gpu"] });
  await work(browser);
  await browser.close();
}

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

module.exports = { WAIT_MS, command, open, shot, close, text, sees, go, withBrowser };
