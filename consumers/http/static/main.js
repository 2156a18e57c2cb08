/** Begins the page, shows the view of the address and keeps it live. */

import { $, address, announce, ask, asked, attr, classNames, correctionsOn, count, goOn, hasModifier, inOrder, load, nameOf, names, on, onClasses, queryOf, say, setClasses, setCorrections, setNames, text } from "./base.js";
import { makeModel, makeTryIt, tried } from "./model.js";
import { makeSaved, makeSearch } from "./search.js";
import { comparisonOf, timesOf } from "./series.js";

const VIEWS = ["search", "model", "try"];

function read() {
  const said = new URLSearchParams(location.search);
  const text = (name) => said.get(name) ?? "";
  const view = VIEWS.includes(text("view")) ? text("view") : "search";
  const range = /^(15m|6h|7d|all|-?\d{1,15}--?\d{1,15})$/.test(text("range")) ? text("range") : "";
  const vs = said.getAll("vs").map((q) => q.trim()).filter(Boolean).slice(0, 3);
  const change = /^-?\d{1,15}(--?\d{1,15}){2}$/.test(text("change")) ? text("change") : "";
  return { view, q: text("q").trim(), lang: text("lang"), range, vs, change, text: text("text") };
}

/** Write a route into the address: what is typed, and sent off, once. */
function write(route, isTyping) {
  const url = address(route);
  const isSame = url === address(read());
  if (isTyping && isSame) return;
  const isOver = (isTyping !== undefined && history.state?.isTyping) || isSame;
  history[isOver ? "replaceState" : "pushState"]({ isTyping }, "", url);
}

const TICK_MS = 1_000;
const PAUSE_MAX_MS = 60_000;

let search = null;
let showModel = null;
let showTryIt = null;
let state = "connecting";
let rate = "";
let note = null; // what the daemon's start is at
let hasRecent = true;
let searched = null; // the route of the search, kept in other views
let daemon = null; // what it said of itself last
let learnTimer = 0;
const silence = $("offline-why").textContent;

function showConnection() {
  attr($("connection"), "data-state", state);
  text($("connection-text"), state === "live" ? (note ?? `live${rate}`) : state === "offline" ? "disconnected" : state);
  $("offline").hidden = state !== "offline";
}

function onState(next, error) {
  const isNews = next !== state || error !== undefined;
  if (isNews) text($("offline-why"), error?.status ? `The daemon refused the request: ${error.message}` : silence);
  if (state === "offline" && next === "live") announce("Connected again.");
  if (state === "live" && next === "offline") announce("Disconnected.");
  if (next === "live") search.reconnected();
  if (next === "live" && state !== "connecting") learnAgain(); // it may be another one
  state = next;
  showConnection();
}

function onEvent(kind, data) {
  if (kind === "summary") {
    // Else this page was made for a daemon of other classes.
    if (!goOn(data.classes)) return location.reload();
    setClasses(data.classes);
  }
  if (kind === "status") {
    rate = Number.isFinite(data.rate_per_s) ? `, ${count(data.rate_per_s)}/s` : "";
    note = data.note;
    showConnection();
    search.alerts(data.alerts);
  } else if (data.index > 0) $("saved-cards").children[data.index - 1]?.[kind]?.(data);
  else search[kind](data);
}

const RETRY_MS = 2_000;
const SILENCE_MAX_MS = 30_000; // the daemon tells its state far more often
const UNSEEN_MAX_MS = 60_000; // connections to a host are few

/** Return one stream of events for all queries. */
function makeStream(onEvent, onState) {
  let path = null;
  let source = null;
  let timer = 0; // until the next try, or the end of patience
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
      // It does not tell why; a plain request is told.
      const error = isRefused && (await load(path).catch((problem) => problem));
      if (!source) onState("offline", error || null);
    });
    for (const kind of ["summary", "messages", "status", "change", "problem"]) {
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

const stream = makeStream(onEvent, onState);

function watch({ q, lang }) {
  if (hasRecent) stream.watch([{ q, lang }, ...saved.all()]);
}

function showView(shown) {
  for (const view of VIEWS) {
    $(`view-${view}`).hidden = view !== shown;
    attr($(`tab-${view}`), "aria-current", view === shown ? "page" : null);
  }
}

function show(isTyping = false) {
  const route = read();
  const { view } = route;
  const isSearch = view === "search";
  if (isSearch || !searched) searched = route;
  watch(searched);
  showView(view);
  attr($("tab-search"), "href", isSearch ? "/" : address({ ...searched, view: "search" }));
  saved.show(route);
  search.show(searched, isTyping);
  document.title = [isSearch ? route.q : $(`tab-${view}`).textContent, names.title].filter(Boolean).join(" · ");
  showModel(view === "model");
  if (view === "try") showTryIt(route.text);
}

function follow(event) {
  const link = event.target.closest("a[data-view]");
  if (!link || event.shiftKey || hasModifier(event)) return;
  event.preventDefault();
  history.pushState({}, "", link.href);
  show();
  scrollTo(0, 0);
}

const saved = makeSaved(() => show(true)); // what stands in the box stays

function showFoot() {
  text($("foot"), `streamnb ${daemon.version}, learning from ${daemon.source}. Classes: ${inOrder(classNames()).map(nameOf).join(", ")}.`);
}

function showDaemon(page, pauseMs = TICK_MS) {
  daemon = page;
  const { corrections, languages } = daemon;
  const isOther = corrections.enabled !== correctionsOn();
  setCorrections(corrections);
  if (isOther) search.rebuild();
  say($("corrections-off"), corrections.enabled ? null : corrections.reason);
  search.offer(languages);
  showFoot();
  clearTimeout(learnTimer);
  // Either may come yet.
  if (!corrections.enabled || (hasRecent && !languages.length)) learnTimer = setTimeout(learnAgain, pauseMs, Math.min(2 * pauseMs, PAUSE_MAX_MS));
}

async function learnAgain(pauseMs) {
  showDaemon(await ask("/v1/page").catch(() => daemon), pauseMs);
}

function build(page) {
  const { names: given, classes, sample, has_history: hasHistory, fields, conditions } = page;
  setNames(given);
  setClasses(classes);
  setCorrections(page.corrections);
  const onQuery = (query, isTyping) => {
    watch(query);
    write({ ...read(), ...query }, isTyping);
    show(isTyping);
  };
  const onRoute = (part) => {
    write({ ...read(), ...part });
    show(true); // what stands in the box stays
  };
  search = makeSearch(onQuery, onRoute, hasHistory, conditions);
  showModel = makeModel();
  showTryIt = makeTryIt(fields, (words) => write({ view: "try", text: words }, true));
  hasRecent = sample !== null;
  showDaemon(page);
  onClasses(showFoot);
  document.body.dataset.recent = hasRecent;
  document.body.dataset.words = Object.values(fields).includes("words");
}

function goToSearch(event) {
  const isTyping = event.target.closest("input, textarea, select, dialog");
  if (event.key !== "/" || hasModifier(event) || isTyping || !hasRecent) return;
  event.preventDefault();
  if (read().view !== "search") $("tab-search").click();
  $("q").focus();
  $("q").select();
}

// A terminal takes some for keys, as DEL; JSON escapes those below.
const UNSAFE = /['\x7f-\x9f]/g;

function commands({ view, q, lang, range, vs, change }) {
  const command = (path) => `curl '${location.origin}${path}'`;
  if (view === "model") return command("/v1/model");
  if (view === "try") return tried && `${command("/v1/predict")} --json '${JSON.stringify(tried).replace(UNSAFE, (one) => `\\u00${one.charCodeAt().toString(16)}`)}'`;
  const times = timesOf(range, Date.now());
  const query = queryOf({ ...asked({ q, lang }), ...times });
  const paths = [`/v1/summary${query}`, `/v1/search${query}`];
  if (change || vs.length) paths.push(comparisonOf({ q, lang, vs, change, range }, Date.now()));
  return paths.map(command).join("\n");
}

function copyCommands() {
  const place = $("curl-commands");
  say(place, commands(read()));
  if (place.hidden) return;
  navigator.clipboard?.writeText(place.textContent).then(() => announce("Copied."), () => {});
}

async function learnOfDaemon() {
  for (;;) {
    try {
      return await ask("/v1/page");
    } catch (error) {
      onState("offline", error);
      await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    }
  }
}

async function begin() {
  $("q").value = read().q;
  showView(read().view);
  build(await learnOfDaemon());
  saved.load();
  const isEarly = $("q").value !== read().q; // typed before the daemon answered
  show(isEarly);
  if (isEarly) $("q").dispatchEvent(new Event("input"));
  on($("retry"), "click", stream.retry);
  on($("save-search"), "click", () => saved.toggle(read()));
  on(document, "click", follow);
  on($("curl"), "click", copyCommands);
  on(document, "keydown", goToSearch);
  // What is hidden takes the focus along.
  on(document, "focusout", ({ target, relatedTarget }) => relatedTarget || target.checkVisibility() || $("main").focus({ preventScroll: true }));
  on(window, "popstate", () => show());
  on(window, "storage", () => {
    saved.load(); // another tab may have saved one
    show(true);
  });
  setInterval(() => search.tick(Date.now()), TICK_MS);
}

begin();
