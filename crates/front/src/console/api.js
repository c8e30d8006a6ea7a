// Requests to the server. Only this module has the token: no cookie, no storage and no URL contains it.

import { fromBase64 } from "./text.js";

let token = null;
let database = 0;

/** True if the console only runs commands that read. */
export const isReadOnly = document.documentElement.dataset.mode === "read-only";

/** An error of a whole request. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function logIn(user, password) {
  token = `${user}:${password}`;
}

export function logOut() {
  token = null;
}

export function hasToken() {
  return token !== null;
}

export function selectDatabase(number) {
  database = number;
}

/** Headers carry bytes, and a password is its UTF-8. */
function asHeader(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}

let onUnauthorized = () => {};

/** Registers the function that asks for a password when the server refuses a request without the right one. */
export function whenUnauthorized(callback) {
  onUnauthorized = callback;
}

export function selectedDatabase() {
  return database;
}

/** Sends a request. Throws `Refused` for any other status than 200. */
async function send(path, options = {}) {
  const headers = { "Content-Type": "application/json", "Upstash-Encoding": "base64", "Penstock-Database": String(database) };
  if (token !== null) headers.Authorization = `Bearer ${asHeader(token)}`;
  const response = await fetch(path, { ...options, headers, credentials: "omit" });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const refused = new Refused(response.status, body.error ?? response.statusText);
  if (response.status === 401) onUnauthorized(token === null ? "" : refused.message);
  throw refused;
}

/** Runs commands as one batch. Returns a reply per command; a failed command's reply is an Error. */
export async function run(commands, options = {}) {
  const response = await send("/console/run", { method: "POST", body: JSON.stringify(commands), signal: options.signal });
  return (await response.json()).map((reply) => ("error" in reply ? new Error(reply.error) : decoded(reply.result, true)));
}

/** Reads JSON at a path. */
export async function get(path) {
  return (await send(path)).json();
}

/** Opens a live view, and calls `onLine` with the object of each line until the view ends. */
export async function live(path, args, signal, onLine) {
  const response = await send(path, { method: "POST", body: JSON.stringify(args), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) onLine(JSON.parse(line));
  }
}

/** Runs one command; an error is thrown. */
export async function one(...command) {
  const [reply] = await run([command]);
  if (reply instanceof Error) throw reply;
  return reply;
}

/** Converts strings in base64 of a reply to bytes. */
export function decoded(result, isTop = false) {
  if (Array.isArray(result)) return result.map((part) => decoded(part));
  if (result !== null && typeof result === "object") return new Error(result.error);
  if (typeof result !== "string") return result;
  return isTop && result === "OK" ? "OK" : fromBase64(result);
}

/** INFO's fields. */
export function fields(info) {
  const found = {};
  for (const line of String(info).split("\r\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) found[line.slice(0, colon)] = line.slice(colon + 1);
  }
  return found;
}

/** The parts of a value such as keys=1,expires=0. */
export function parts(value) {
  return Object.fromEntries(value.split(",").map((part) => part.split("=", 2)));
}

/** A flat list of names and values as an object. */
export function pairs(list) {
  const found = {};
  for (let at = 0; at + 1 < list.length; at += 2) found[String(list[at])] = list[at + 1];
  return found;
}
