/** Asking the daemon, correcting it, its stream of events, and the addresses of views. */

import { $, attr, on, text } from "./dom.js";

const ANSWER_MAX_MS = 15_000;

/** Return what went wrong: `status` is HTTP's, or 0 where nobody answered. */
const problem = (status, sentence) => Object.assign(new Error(sentence), { status });

/** Return the whole answer as "text" or "json", or throw a problem. */
export async function load(path, kind, { until, ...options } = {}) {
  const signal = AbortSignal.any([AbortSignal.timeout(ANSWER_MAX_MS), until].filter(Boolean));
  try {
    const response = await fetch(path, { ...options, signal });
    if (response.ok) return await response[kind]();
    // A proxy in between may answer with anything.
    const said = await response.json().catch(() => ({}));
    throw problem(response.status, said.detail ?? said.title ?? `The daemon answered with status ${response.status}.`);
  } catch (error) {
    throw error.status ? error : problem(0, "The daemon does not answer. Try again.");
  }
}

export function ask(path, { method, body, token, until } = {}) {
  const headers = { Accept: "application/json" };
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
  await new Promise((closed) => dialog.addEventListener("close", closed, { once: true }));
  const given = dialog.returnValue && $("token").value.trim();
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
  const range = /^(15m|6h|7d|all|\d{1,15}-\d{1,15})$/.test(text("range")) ? text("range") : "";
  const vs = said.getAll("vs").map((q) => q.trim()).filter(Boolean).slice(0, 3);
  const change = /^\d{1,15}(-\d{1,15}){2}$/.test(text("change")) ? text("change") : "";
  return { view, q: text("q").trim(), lang: text("lang"), range, vs, change, text: text("text") };
}

export function address({ view, q, lang, range, vs, change, text }) {
  if (view === "search") return `/${queryOf({ q, lang, range, vs, change })}`;
  return `/${queryOf({ view, text })}`;
}

/** Write a route into the address. What is typed is one entry of the history. */
export function write(route, isTyping) {
  const url = address(route);
  const isOver = history.state?.isTyping || url === location.pathname + location.search;
  history[isOver ? "replaceState" : "pushState"]({ isTyping }, "", url);
}

// Of more, all that is asked with it is refused; of so many, this question alone.
export const QUERY_MAX = 499;

/** Return a query as the daemon is asked: without the blank its last word would be a beginning. */
export const asked = ({ q, lang }) => ({ q: q && `${[...q].slice(0, QUERY_MAX).join("")} `, lang });

const KINDS = ["summary", "messages", "status", "change", "problem"];
const RETRY_MS = 2_000;
const SILENCE_MAX_MS = 30_000; // the daemon tells its state far more often
const UNSEEN_MAX_MS = 60_000; // connections to a host are few: hidden pages give theirs up

/** Return one stream of events for all queries; it comes back by itself, and rests unseen. `onState` hears "live", or "offline" and the error. */
export function makeStream(onEvent, onState) {
  let path = null;
  let source = null;
  let timer = 0; // until the next try, or until silence says that nobody is there
  let unseenTimer = 0;

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function lost() {
    close();
    onState("offline");
    timer = setTimeout(open, RETRY_MS);
  }

  function heard() {
    clearTimeout(timer);
    timer = setTimeout(lost, SILENCE_MAX_MS);
  }

  function open() {
    close();
    if (!path || document.hidden) return;
    source = new EventSource(path);
    heard();
    on(source, "open", () => onState("live"));
    on(source, "error", async ({ target }) => {
      const isRefused = target.readyState === EventSource.CLOSED;
      lost();
      // It does not tell why; the same asked in the plain way is told.
      const error = isRefused ? await ask(path).catch((problem) => problem) : null;
      if (!source) onState("offline", error);
    });
    for (const kind of KINDS) {
      on(source, kind, (event) => {
        heard();
        onEvent(kind, JSON.parse(event.data));
      });
    }
  }

  on(document, "visibilitychange", () => {
    clearTimeout(unseenTimer);
    if (document.hidden) unseenTimer = setTimeout(close, UNSEEN_MAX_MS);
    else if (!source) open();
  });
  on(window, "pagehide", close);

  return {
    watch(queries) {
      const pairs = queries.flatMap((query) => Object.entries(asked(query)));
      const wanted = `/v1/events?${new URLSearchParams(pairs)}`;
      if (wanted === path) return;
      path = wanted;
      open();
    },
    retry: open,
  };
}
