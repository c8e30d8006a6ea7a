// Elements, made without ever reading text as markup, and updates that keep focus and selection.

const HANDLERS = Symbol("handlers");

/** Creates an element from its name with classes ("td.number"), attributes, and children. `key` identifies it in `patch`. */
export function h(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length > 0) element.classList.add(...classes);
  set(element, attributes);
  element.append(...present(children));
  return element;
}

function present(children) {
  return children.flat(3).filter((child) => child !== null && child !== undefined);
}

function set(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) listen(element, key.slice(2), value);
    else if (key === "key") element.dataset.key = value;
    else if (key in element && key !== "list" && key !== "role") element[key] = value;
    else element.setAttribute(key, value);
  }
}

/** The listener looks up its handler at each event, so that `patch` can replace the handler of an element. */
function listen(element, event, handler) {
  element[HANDLERS] ??= {};
  if (!(event in element[HANDLERS])) element.addEventListener(event, (found) => element[HANDLERS][event]?.call(element, found));
  element[HANDLERS][event] = handler;
}

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element of a picture. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...present(children));
  return element;
}

/** Creates a table. A column has a title, a function `of` for a row's content, and `number`, `long`, `mono` for its look. */
export function table(columns, rows, caption, keyOf = null) {
  const cell = (kind, column, content) => h(`${kind}${column.number ? ".number" : ""}${column.long ? ".long" : ""}${column.mono ? ".mono" : ""}`, {}, content);
  return h("div.scroll", { tabIndex: 0, role: "region", ariaLabel: caption }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((column) => cell("th", { ...column, mono: false }, column.title)))),
    h("tbody", {}, rows.map((row) => h("tr", keyOf === null ? {} : { key: keyOf(row) }, columns.map((column) => cell("td", column, column.of(row))))))));
}

/** Makes the children of `place` equal to these. Elements that exist already stay, with focus, selection and scrolling. */
export function patch(place, ...children) {
  reconcile(place, present(children).map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
}

function reconcile(place, wanted) {
  const own = new Set(wanted.filter((node) => node.parentNode === place));
  const keys = new Set(wanted.map(keyOf).filter((key) => key !== undefined));
  const keyed = new Map();
  for (const node of [...place.childNodes]) {
    const key = keyOf(node);
    if (key === undefined || own.has(node)) continue;
    if (keys.has(key)) keyed.set(key, node);
    else node.remove();
  }
  let at = place.firstChild;
  for (const node of wanted) {
    const found = own.has(node) ? node : (keyed.get(keyOf(node)) ?? alike(at, node, own));
    if (!found) {
      place.insertBefore(node, at);
      continue;
    }
    if (found !== at) place.insertBefore(found, at);
    if (found !== node) update(found, node);
    at = found.nextSibling;
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const keyOf = (node) => node.dataset?.key;

/** Finds the next child that `node` can be copied to. */
function alike(at, node, own) {
  if (keyOf(node) !== undefined) return null;
  for (let old = at; old !== null; old = old.nextSibling) {
    if (old.nodeName === node.nodeName && keyOf(old) === undefined && !own.has(old)) return old;
  }
  return null;
}

function update(old, node) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== node.data && !isSelected(old)) old.data = node.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const [event, handler] of Object.entries(node[HANDLERS] ?? {})) listen(old, event, handler);
  // A list of choices keeps the user's choice; its options are few and rebuilt with the view.
  if (old.nodeName !== "SELECT" && old.nodeName !== "TEXTAREA") reconcile(old, [...node.childNodes]);
}

/** Text that the user has selected isn't replaced. */
function isSelected(node) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(node, true);
}
