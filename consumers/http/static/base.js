/** What all parts of the page need: elements, and asking the daemon. */

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

export const svg = (spec, ...parts) => make((name) => document.createElementNS("http://www.w3.org/2000/svg", name), spec, parts);

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

/** Make `parent` hold one element an item, in order; those there stay. */
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

const ANSWER_MAX_MS = 15_000;

/** Return what went wrong: `status` is HTTP's, or 0 where nobody answered. */
const problem = (status, sentence) => Object.assign(new Error(sentence), { status });

/** Return the whole answer as "text" or "json", or throw a problem. */
export async function load(path, kind, { until, ...options } = {}) {
  const signal = AbortSignal.any([AbortSignal.timeout(ANSWER_MAX_MS), until].filter(Boolean));
  try {
    const response = await fetch(path, { ...options, signal });
    if (response.ok) return await (kind ? response[kind]() : response.body?.cancel());
    // A proxy in between may answer with anything.
    const said = await response.json().catch(() => ({}));
    throw problem(response.status, said.detail ?? said.title ?? `The daemon answered with status ${response.status}.`);
  } catch (error) {
    throw error.status ? error : problem(0, "The daemon does not answer. Try again.");
  }
}

export function ask(path, { method, body, token, until } = {}) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  return load(path, "json", { method, headers, body: body && JSON.stringify(body), until });
}

const TOKEN = "streamnb.token"; // kept for this visit only

let corrections = null;

export const setCorrections = (value) => (corrections = value);
export const correctionsOn = () => corrections.enabled;

async function token() {
  const known = sessionStorage.getItem(TOKEN);
  if (known) return known;
  const dialog = $("token-dialog");
  $("token").value = dialog.returnValue = "";
  dialog.showModal();
  await new Promise((closed) => (dialog.onclose = closed));
  const given = dialog.returnValue && $("token").value.replace(/[^ -~]/g, "").trim(); // a header takes no other
  sessionStorage.setItem(TOKEN, given);
  return given;
}

export function tell(state, how, words) {
  attr(state, "data-state", how);
  text(state, words);
}

/** Send a correction and tell how it fares; return the receipt once it is safe. */
export async function send(state, path, options) {
  tell(state, "sending", "sending…");
  try {
    const secret = corrections.needs_token ? await token() : null;
    if (secret === "") return tell(state, null, "");
    return await ask(path, { ...options, token: secret });
  } catch (error) {
    const isRefused = error.status === 401 || error.status === 403;
    if (isRefused) sessionStorage.removeItem(TOKEN);
    return tell(state, "failed", isRefused && corrections.needs_token ? "The token was refused; send again for another one." : error.message);
  }
}

/** Return the query string of those values that say something, and of all in a list. */
export function queryOf(values) {
  const text = new URLSearchParams(Object.entries(values).flatMap(([name, value]) => (value ? [value].flat().map((one) => [name, one]) : []))).toString();
  return text && `?${text}`;
}

export const messagePath = (id) => `/v1/messages/${encodeURIComponent(id)}`;

export const VIEWS = ["search", "model", "try"];

export function read() {
  const said = new URLSearchParams(location.search);
  const text = (name) => said.get(name) ?? "";
  const view = VIEWS.includes(text("view")) ? text("view") : "search";
  const range = /^(15m|6h|7d|all|-?\d{1,15}--?\d{1,15})$/.test(text("range")) ? text("range") : "";
  const vs = said.getAll("vs").map((q) => q.trim()).filter(Boolean).slice(0, 3);
  const change = /^-?\d{1,15}(--?\d{1,15}){2}$/.test(text("change")) ? text("change") : "";
  return { view, q: text("q").trim(), lang: text("lang"), range, vs, change, text: text("text") };
}

export function address({ view, q, lang, range, vs, change, text }) {
  if (view === "search") return `/${queryOf({ q, lang, range, vs, change })}`;
  return `/${queryOf({ view, text })}`;
}

/** Write a route into the address. What is typed, and sent off, is one entry of the history. */
export function write(route, isTyping) {
  const url = address(route);
  const isSame = url === address(read());
  if (isTyping && isSame) return;
  const isOver = (isTyping !== undefined && history.state?.isTyping) || isSame;
  history[isOver ? "replaceState" : "pushState"]({ isTyping }, "", url);
}

// Of more, all that is asked with it is refused.
export const QUERY_MAX = 499;
const LANG_MAX = 35;
const cut = (said, most) => [...said.replaceAll("\0", "")].slice(0, most).join("");

/** Return a query as the daemon is asked: without the blank its last word would be a beginning. */
export const asked = ({ q, lang = "" }) => ({ q: q && `${cut(q, QUERY_MAX)} `, lang: cut(lang, LANG_MAX) });
