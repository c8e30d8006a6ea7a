// Bytes, numbers and commands as text for people, and the words of a line.

const strict = new TextDecoder("utf-8", { fatal: true });
const encoder = new TextEncoder();

/** A string of a reply: its bytes, and its text if they are valid UTF-8. */
export class Bytes {
  constructor(bytes) {
    this.bytes = bytes;
    try {
      this.text = strict.decode(bytes);
    } catch {
      this.text = null;
    }
  }

  /** Makes the string of a text. */
  static of(text) {
    return new Bytes(encoder.encode(text));
  }

  /** Returns the text; bytes that aren't text are escaped, as redis-cli does. */
  toString() {
    return this.text ?? escaped(this.bytes);
  }

  /** Returns the string as an argument of a command. */
  argument() {
    return this.text ?? { base64: btoa(Array.from(this.bytes, (byte) => String.fromCharCode(byte)).join("")) };
  }
}

export function fromBase64(text) {
  return new Bytes(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)));
}

function escaped(bytes) {
  const one = (byte) =>
    byte === 0x5c ? "\\\\" : byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`;
  return Array.from(bytes, one).join("");
}

export function bytes(number) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  for (; number >= 1024 && unit < units.length - 1; unit += 1) number /= 1024;
  return `${unit === 0 ? Math.round(number) : number.toFixed(number < 10 ? 2 : 1)} ${units[unit]}`;
}

export function count(number) {
  return Number(number).toLocaleString("en-US", { maximumFractionDigits: number < 10 ? 2 : 0 });
}

/** A number with its noun: "1 key", "2 keys". */
export function counted(number, noun) {
  return `${count(number)} ${noun}${Number(number) === 1 ? "" : "s"}`;
}

export function microseconds(us) {
  if (us === 0) return "0 µs";
  if (us < 1000) return `${us < 10 ? Number(us).toFixed(2) : Math.round(us)} µs`;
  return us < 1_000_000 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1_000_000).toFixed(2)} s`;
}

export function seconds(s) {
  s = Math.round(s);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return s < 86_400 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min` : `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** The state of a replica's link to its primary, by the fields of INFO. */
export function primaryLink(figures) {
  const [heard, down] = [Number(figures.master_last_io_seconds_ago), Number(figures.master_link_down_since_seconds ?? -1)];
  const since = heard >= 0 ? `, last data ${seconds(heard)} ago` : down >= 0 ? ` for ${seconds(down)}` : "";
  return `${figures.master_host}:${figures.master_port}, link ${figures.master_link_status}${since}`;
}

/** The progress of a server that loads its data, by the fields of INFO; null after it. */
export function loadingProgress(figures) {
  if (figures.loading !== "1") return null;
  const [part, left] = [Number(figures.loading_loaded_perc), Number(figures.loading_eta_seconds)];
  return `${Math.round(part || 0)} %${left > 0 ? `, about ${seconds(left)} left` : ""}`;
}

/** A ratio in percent. */
export function percent(ratio) {
  return `${(ratio * 100).toFixed(ratio > 0 && ratio < 1 ? 1 : 0)} %`;
}

/** A command as one would type it. */
export function asLine(words) {
  return words.map((word) => (typeof word === "object" ? `"${fromBase64(word.base64)}"` : quoted(String(word)))).join(" ");
}

function quoted(word) {
  return /^[\w.:@*+?/|-]+$/.test(word) ? word : JSON.stringify(word);
}

/** The words of a line, with quotes as redis-cli has them. Throws where a quote isn't closed. */
export function words(line) {
  const found = [];
  let at = 0;
  while (at < line.length) {
    if (/\s/.test(line[at])) {
      at += 1;
      continue;
    }
    const [word, end] = line[at] === '"' ? doubleQuoted(line, at + 1) : line[at] === "'" ? singleQuoted(line, at + 1) : bare(line, at);
    if (end < line.length && !/\s/.test(line[end])) throw new Error("a quote must be followed by a blank");
    found.push(word);
    at = end;
  }
  return found;
}

function bare(line, at) {
  const end = at + line.slice(at).search(/\s|$/);
  return [line.slice(at, end), end];
}

function singleQuoted(line, at) {
  let word = "";
  for (; at < line.length && line[at] !== "'"; at += 1) {
    if (line[at] === "\\" && line[at + 1] === "'") at += 1;
    word += line[at];
  }
  if (at >= line.length) throw new Error("a quote isn't closed");
  return [word, at + 1];
}

function doubleQuoted(line, at) {
  const out = [];
  const letters = { n: 10, r: 13, t: 9, b: 8, a: 7 };
  for (; at < line.length && line[at] !== '"'; at += 1) {
    const hex = /^\\x([0-9a-fA-F]{2})/.exec(line.slice(at, at + 4));
    if (hex) {
      out.push(Number.parseInt(hex[1], 16));
      at += 3;
    } else if (line[at] === "\\" && at + 1 < line.length) {
      at += 1;
      out.push(...(line[at] in letters ? [letters[line[at]]] : encoder.encode(line[at])));
    } else {
      const char = String.fromCodePoint(line.codePointAt(at));
      out.push(...encoder.encode(char));
      at += char.length - 1;
    }
  }
  if (at >= line.length) throw new Error("a quote isn't closed");
  return [new Bytes(Uint8Array.from(out)).argument(), at + 1];
}

/** A reply of a command as redis-cli prints it. Texts of several lines, for example INFO's, are printed as lines. */
export function printedReply(reply) {
  return reply instanceof Bytes && reply.text?.includes("\n") ? reply.text.replaceAll("\r\n", "\n").replace(/\n$/, "") : printed(reply);
}

/** A reply as redis-cli prints it within other replies. */
export function printed(reply, indent = "") {
  if (reply === null) return "(nil)";
  if (typeof reply === "number") return `(integer) ${reply}`;
  if (reply instanceof Error) return `(error) ${reply.message}`;
  if (reply instanceof Bytes) return `"${reply.text === null ? reply.toString() : JSON.stringify(reply.text).slice(1, -1)}"`;
  if (Array.isArray(reply)) {
    if (reply.length === 0) return "(empty array)";
    const width = String(reply.length).length;
    const line = (part, index) => {
      const head = `${String(index + 1).padStart(width)}) `;
      return head + printed(part, indent + " ".repeat(head.length));
    };
    return reply.map(line).join(`\n${indent}`);
  }
  return String(reply);
}
