// Values as text for people: JSON, hexadecimal, MessagePack, gzip.

import { Bytes } from "./text.js";

export const FORMATS = ["auto", "text", "JSON", "hex", "MessagePack", "gzip"];
// Limits for a compressed or deeply nested value that would freeze the page.
const UNPACKED_BYTES_MAX = 4 << 20;
const DEPTH_MAX = 64;
const HEX_ROW = 16;

/** Writes a value in this format; `auto` recognizes gzip, JSON and MessagePack. Throws if the value has another format. */
export async function formatted(value, format) {
  switch (format) {
    case "text": return String(value);
    case "JSON": return json(value);
    case "hex": return hex(value.bytes);
    case "MessagePack": return messagePack(value.bytes);
    case "gzip": return formatted(await unpacked(value.bytes), "auto");
    default: return recognized(value);
  }
}

async function recognized(value) {
  const { bytes, text } = value;
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) return formatted(await unpacked(bytes), "auto").catch(() => String(value));
  if (text !== null && /^\s*[[{]/.test(text)) return attempt(() => json(value), text);
  if (text !== null) return text;
  // A number or a short text is also valid MessagePack; only collections are recognized.
  const isCollection = (bytes[0] >= 0x80 && bytes[0] <= 0x9f) || (bytes[0] >= 0xdc && bytes[0] <= 0xdf);
  return isCollection ? attempt(() => messagePack(bytes), hex(bytes)) : hex(bytes);
}

function attempt(write, otherwise) {
  try {
    return write();
  } catch {
    return otherwise;
  }
}

/** Indents JSON. The text of numbers and strings stays as it is, so that large numbers keep their digits. */
function json({ text }) {
  if (text === null) throw new Error("not JSON: the bytes aren't text");
  JSON.parse(text);
  let [out, depth] = ["", 0];
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
      out += token + line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      out = /[[{]\s*$/.test(out) ? out.trimEnd() + token : out + line() + token;
    } else if (token === ",") out += token + line();
    else out += token === ":" ? ": " : token;
  }
  return out;
}

function hex(bytes) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += HEX_ROW) {
    const row = [...bytes.subarray(at, at + HEX_ROW)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(HEX_ROW * 3 - 1);
    rows.push(`${at.toString(16).padStart(8, "0")}  ${digits}  ${row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("")}`);
  }
  return rows.join("\n");
}

async function unpacked(bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const parts = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
    if (length > UNPACKED_BYTES_MAX) throw new Error("the unpacked value is larger than 4 MB");
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return new Bytes(all);
}

/** Decodes MessagePack, and writes it as JSON. */
function messagePack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const take = (length) => {
    if (at + length > bytes.length) throw new Error("not MessagePack: the value is cut off");
    at += length;
    return at - length;
  };
  const number = (kind, length) => view[`get${kind}`](take(length));
  const text = (length) => {
    const from = take(length);
    return new Bytes(bytes.subarray(from, at)).toString();
  };
  const binary = (length) => {
    const from = take(length);
    return `bytes ${[...bytes.subarray(from, at)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  };
  const extension = (length) => ({ [`extension ${number("Int8", 1)}`]: binary(length) });
  const list = (length, depth) => {
    const found = [];
    for (let index = 0; index < length; index += 1) found.push(value(depth + 1));
    return found;
  };
  const map = (length, depth) => {
    // Without a prototype, every key is an ordinary one.
    const found = Object.create(null);
    for (let index = 0; index < length; index += 1) {
      const key = value(depth + 1);
      found[typeof key === "object" ? JSON.stringify(key) : String(key)] = value(depth + 1);
    }
    return found;
  };
  const value = (depth) => {
    if (depth > DEPTH_MAX) throw new Error("not MessagePack: nested too deeply");
    const head = number("Uint8", 1);
    if (head <= 0x7f) return head;
    if (head >= 0xe0) return head - 0x100;
    if (head <= 0x8f) return map(head & 0x0f, depth);
    if (head <= 0x9f) return list(head & 0x0f, depth);
    if (head <= 0xbf) return text(head & 0x1f);
    switch (head) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: return binary(number("Uint8", 1));
      case 0xc5: return binary(number("Uint16", 2));
      case 0xc6: return binary(number("Uint32", 4));
      case 0xc7: return extension(number("Uint8", 1));
      case 0xc8: return extension(number("Uint16", 2));
      case 0xc9: return extension(number("Uint32", 4));
      case 0xca: return number("Float32", 4);
      case 0xcb: return number("Float64", 8);
      case 0xcc: return number("Uint8", 1);
      case 0xcd: return number("Uint16", 2);
      case 0xce: return number("Uint32", 4);
      case 0xcf: return whole(number("BigUint64", 8));
      case 0xd0: return number("Int8", 1);
      case 0xd1: return number("Int16", 2);
      case 0xd2: return number("Int32", 4);
      case 0xd3: return whole(number("BigInt64", 8));
      case 0xd9: return text(number("Uint8", 1));
      case 0xda: return text(number("Uint16", 2));
      case 0xdb: return text(number("Uint32", 4));
      case 0xdc: return list(number("Uint16", 2), depth);
      case 0xdd: return list(number("Uint32", 4), depth);
      case 0xde: return map(number("Uint16", 2), depth);
      case 0xdf: return map(number("Uint32", 4), depth);
      default: break;
    }
    if (head >= 0xd4 && head <= 0xd8) return extension(1 << (head - 0xd4));
    throw new Error("not MessagePack");
  };
  const found = value(0);
  if (at !== bytes.length) throw new Error("not MessagePack: bytes follow the value");
  return JSON.stringify(found, null, 2);
}

/** A number beyond the exact range of JSON's numbers becomes a text. */
function whole(number) {
  return Number.isSafeInteger(Number(number)) ? Number(number) : String(number);
}
