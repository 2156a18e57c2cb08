/** Making and updating elements. Text becomes text nodes; updates touch what changed. */

export const $ = (id) => document.getElementById(id);
export const part = (node, name) => node.querySelector(`.${name}`);
export const on = (node, event, listener) => node.addEventListener(event, listener);

export const copy = (id) => $(id).content.firstElementChild.cloneNode(true);

function make(create, spec, parts) {
  const [path, hook] = spec.split("@");
  const [name, ...classes] = path.split(".");
  const node = create(name);
  if (classes.length) attr(node, "class", classes.join(" "));
  if (hook) node.dataset.testid = hook;
  const props = parts[0]?.constructor === Object ? parts.shift() : {};
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("--")) node.style.setProperty(key, value);
    else attr(node, key, value);
  }
  node.append(...parts.flat().filter((one) => one || one === 0));
  return node;
}

/** Return an element: `el("p.class@hook-for-tests", {attributes, --variables}, …children)`. */
export const el = (spec, ...parts) => make((name) => document.createElement(name), spec, parts);

export const svg = (spec, ...parts) =>
  make((name) => document.createElementNS("http://www.w3.org/2000/svg", name), spec, parts);

export function attr(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Set a text where it differs: nobody is told a thing twice. */
export function text(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

export function say(node, words) {
  text(node, words || "");
  node.hidden = !words;
}

export const announce = (words) => text($("announcer"), words);

const nodesOf = new WeakMap();

/** Make `parent` hold one element an item, in order. Those there stay, unmoved. */
export function keyed(parent, items, keyOf, create) {
  if (!nodesOf.has(parent)) parent.replaceChildren();
  const before = nodesOf.get(parent) ?? new Map();
  const after = new Map(items.map((item) => [keyOf(item), before.get(keyOf(item)) ?? create(item)]));
  for (const [key, node] of before) if (!after.has(key)) node.remove();
  let next = parent.firstElementChild;
  for (const node of after.values()) {
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
  }
  nodesOf.set(parent, after);
  return [...after.values()];
}

export function coalesced(work) {
  let frame = 0;
  return () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      work();
    });
  };
}

export function debounced(work, pauseMs) {
  let timer = 0;
  const stop = () => clearTimeout(timer);
  const later = () => {
    stop();
    timer = setTimeout(work, pauseMs);
  };
  return Object.assign(later, { stop });
}
