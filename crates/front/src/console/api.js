// The way to the server: commands out, replies in. The token is in this module alone, and nowhere else: no cookie, no storage, no URL.

import { fromBase64 } from "./text.js";

let token = null;
let database = 0;

/** Whether the console may change anything. */
export const isReadOnly = document.documentElement.dataset.mode === "read-only";

/** What the server answers instead of replies. */
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

/** Runs commands as one batch. Answers as many replies; an error in a reply's place is an Error. */
export async function run(commands, options = {}) {
  const headers = { "Content-Type": "application/json", "Upstash-Encoding": "base64", "Penstock-Database": String(database) };
  if (token !== null) headers.Authorization = `Bearer ${asHeader(token)}`;
  const response = await fetch("/console/run", { method: "POST", headers, body: JSON.stringify(commands), signal: options.signal, credentials: "omit" });
  const body = await response.json();
  if (!response.ok) throw new Refused(response.status, body.error ?? response.statusText);
  return body.map((reply) => ("error" in reply ? new Error(reply.error) : decoded(reply.result, true)));
}

/** Runs one command; an error is thrown. */
export async function one(...command) {
  const [reply] = await run([command]);
  if (reply instanceof Error) throw reply;
  return reply;
}

function decoded(result, isTop = false) {
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
