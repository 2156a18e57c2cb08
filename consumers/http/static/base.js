/** What all parts of the page need. */

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

/** Return an element: `el("p.class@testid", {attributes, --variables}, …children)`. */
export const el = (spec, ...parts) => make((name) => document.createElement(name), spec, parts);

const svg = (spec, ...parts) => make((name) => document.createElementNS("http://www.w3.org/2000/svg", name), spec, parts);

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

export const hasModifier = ({ ctrlKey, metaKey, altKey }) => ctrlKey || metaKey || altKey;

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

/** Return the whole answer as "text" or "json"; an error has HTTP's `status`, if any. */
export async function load(path, kind, { until, ...options } = {}) {
  const signal = AbortSignal.any([AbortSignal.timeout(ANSWER_MAX_MS), until].filter(Boolean));
  try {
    const response = await fetch(path, { ...options, signal });
    if (response.ok) return await (kind ? response[kind]() : response.body?.cancel());
    // A proxy in between may answer with anything.
    const said = await response.json().catch(() => ({}));
    const { status } = response;
    throw Object.assign(new Error(said.detail ?? said.title ?? `The daemon answered with status ${status}.`), { status });
  } catch (error) {
    throw error.status ? error : new Error("The daemon does not answer. Try again.");
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

/** Send a correction and tell how it fares; return the receipt. */
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

export function queryOf(values) {
  const text = new URLSearchParams(Object.entries(values).flatMap(([name, value]) => (value ? [value].flat().map((one) => [name, one]) : []))).toString();
  return text && `?${text}`;
}

export const messagePath = (id) => `/v1/messages/${encodeURIComponent(id)}`;

export function address({ view, q, lang, range, vs, change, text }) {
  if (view === "search") return `/${queryOf({ q, lang, range, vs, change })}`;
  return `/${queryOf({ view, text })}`;
}

// Of more, all that is asked with it is refused.
export const QUERY_MAX = 499;
const LANG_MAX = 35;
const cut = (said, most) => [...said.replaceAll("\0", "")].slice(0, most).join("");

/** Return a query as the daemon is asked: without the blank its last word would be a beginning. */
export const asked = ({ q, lang = "" }) => ({ q: q && `${cut(q, QUERY_MAX)} `, lang: cut(lang, LANG_MAX) });

export const names = { title: "streamnb", message: "message", messages: "messages", classes: [] };

export const capital = (words) => words.charAt(0).toLocaleUpperCase() + words.slice(1);

export function setNames(given) {
  Object.assign(names, given);
  text($("brand"), names.title);
  text($("question"), names.question);
  text($("count-heading"), `${capital(names.messages)} by class`);
  attr($("q"), "placeholder", names.placeholder);
}

const drawn = (id) => [...($(id)?.children ?? [])].map((path) => [path.dataset.name, path.getAttribute("d")]);
const MARKS = new Map(drawn("marks"));
const PATTERNS = new Map(drawn("patterns"));

const KNOWN = {
  __proto__: null, // a class may be called "constructor"
  negative: ["negative", "down", "lines"],
  neutral: ["neutral", "diamond", "dots"],
  positive: ["positive", "up", "solid"],
};
const COLOURS = 8;
export const DASHES = [[], [8, 3], [2, 3], [10, 3, 2, 3]]; // one a pattern

const looks = new Map();
const listeners = [];
const turn = (names, i) => [...names.keys()][i % names.size];

export const onClasses = (listener) => listeners.push(listener);

/** Learn which classes there are, in the model's order: those that joined come last. */
export function setClasses(labels) {
  const news = labels.filter((label) => !looks.has(label));
  const tiles = news.map((label) => {
    const i = looks.size;
    const others = [`k${i % COLOURS}`, turn(MARKS, i), turn(PATTERNS, i)];
    const [name, mark, pattern] = KNOWN[label.toLowerCase()] ?? others;
    const own = names.classes.find((one) => one.label === label);
    const colour = `var(--${own?.colour ?? name})`;
    looks.set(label, { name: own?.name ?? label, colour, mark: MARKS.get(mark), pattern, dash: DASHES[[...PATTERNS.keys()].indexOf(pattern)], fill: `url(#pattern-${i})` });
    return svg(
      "pattern",
      { id: `pattern-${i}`, width: 8, height: 8, patternUnits: "userSpaceOnUse", "--class": colour },
      svg("rect", { width: 8, height: 8 }),
      svg("path", { d: PATTERNS.get(pattern) }),
    );
  });
  $("patterns").append(...tiles);
  if (news.length) for (const listener of listeners) listener();
}

export const classNames = () => [...looks.keys()];

/** Return whether these may be the classes of the same model, earlier or later. */
export const goOn = (labels) => classNames().every((label, i) => i >= labels.length || label === labels[i]);

export const look = (label) => looks.get(label) ?? looks.values().next().value;

export function mark(label) {
  const node = copy("mark");
  node.style.setProperty("--class", look(label).colour);
  attr(node.firstElementChild, "d", look(label).mark);
  return node;
}

export const nameOf = (label) => looks.get(label)?.name ?? label;

export function inOrder(labels) {
  const first = names.classes.map(({ label }) => label).filter((label) => labels.includes(label));
  return [...first, ...labels.filter((label) => !first.includes(label))];
}

export const meant = (set) =>
  set && el("span@prediction-set", `Can be meant: ${inOrder(set).map(nameOf).join(", ")}.`);

export const named = (label) => el("span.named", mark(label), nameOf(label));

export function bar(label, share, from = 0) {
  const { colour, pattern } = look(label);
  return el(`span.bar.${pattern}`, { "--class": colour, "--from": from, "--share": share });
}

export const leading = (values) =>
  Object.keys(values).reduce((best, label) => (values[label] > values[best] ? label : best));

const LINE = 0.005; // of a turn: the gap between two pieces, and the end of a whisker

export function makeBars(row, figure, raw = "raw") {
  function makeBar(label) {
    const own = { "data-class": label };
    const stripe = bar(label, 0);
    const whisker = el("span.whisker");
    const words = el(`span.bar-figure@${figure}`, own);
    const plain = el(`span.bar-raw@${raw}`, own);
    const node = el(`li@${row}`, own, named(label), el("span.bar-words", words, plain), el("span.track", stripe, whisker));
    node.update = (value) => {
      stripe.style.setProperty("--share", value.share);
      whisker.hidden = !(value.high > value.low);
      whisker.style.setProperty("--from", value.low);
      whisker.style.setProperty("--share", value.high - value.low);
      text(words, value.words);
      say(plain, value.raw);
    };
    return node;
  }
  const list = el("ul.bars");

  /** Draw what `valueOf(label)` returns: `{share, low, high, words, raw}`, shares of the track. */
  list.update = (labels, valueOf) =>
    keyed(list, labels, String, makeBar).forEach((node, i) => node.update(valueOf(labels[i])));
  return list;
}

function dash(path, from, ...lengths) {
  attr(path, "stroke-dasharray", [...lengths, 1].join(" "));
  attr(path, "stroke-dashoffset", -from);
}

export function makeRing() {
  const node = copy("ring");
  const [pieces, whisker, ends] = node.children;
  const piece = pieces.firstElementChild;
  node.update = (labels, shares, words) => {
    attr(node, "aria-label", words);
    let from = 0;
    const paths = keyed(pieces, labels, String, (label) => {
      const path = piece.cloneNode();
      attr(path, "stroke", look(label).fill);
      return path;
    });
    labels.forEach((label, i) => {
      const share = shares[label]?.share ?? 0;
      dash(paths[i], from + LINE / 2, Math.max(0, share - LINE));
      from += share;
    });
    const { low = 0, high = 0 } = (labels.length === 2 && shares[labels[0]]) || {};
    const end = Math.min(LINE, high - low);
    dash(whisker, low, high - low);
    dash(ends, low, end, high - low - end, end);
  };
  return node;
}

// Numbers, shares, times and languages as the reader writes them.

const locales = navigator.languages;
const NONE = "–";
const formats = new Map();

// Formats cost most.
function write(value, options) {
  if (!Number.isFinite(value)) return NONE;
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(locales, options));
  return formats.get(key).format(value);
}

const exactly = (digits) => ({ minimumFractionDigits: digits, maximumFractionDigits: digits });

export const count = (n, digits = 0) => write(n, { maximumFractionDigits: digits });
export const short = (n) => write(n, { notation: "compact", maximumFractionDigits: 1 });
export const decimal = (x, digits = 3) => write(x, exactly(digits));
export const percent = (x, digits = 0) => write(x, { style: "percent", ...exactly(digits) });
export const fine = (x, digits = 3) => percent(x, digits - 2);
export const digits = (x, n = 2) => write(x, { maximumFractionDigits: 0, maximumSignificantDigits: n, roundingPriority: "morePrecision" });

export const signed = (x, digits = 2) => (Number.isFinite(x) ? (x < 0 ? "−" : "+") + decimal(Math.abs(x), digits) : NONE);

export function probability(p, digits = 0) {
  if (p < 0.0001) return `< ${percent(0.0001, 2)}`;
  if (p > 0.9999) return `> ${percent(0.9999, 2)}`;
  return percent(p, p > 0.995 || p < 0.005 ? 2 : digits);
}

/** Return "62% ± 4", or both ends where the share is not in their middle. */
export function withError({ share, low, high }) {
  if (!(high > low)) return percent(share);
  const half = (high - low) / 2;
  if (Math.abs((high + low) / 2 - share) > 0.006) {
    return `${percent(share)} (${count(100 * low)}–${count(100 * high)})`;
  }
  const digits = [0.0095, 0.00095, 0.000095].filter((one) => half < one).length;
  return `${percent(share, share % 1 && digits)} ± ${decimal(100 * half, digits)}`;
}

export function withinWords({ low, high, level }) {
  const [from, to] = [probability(low, 1), probability(high, 1)];
  return `${percent(level)} credible interval: ${from === to ? from : `${from} to ${to}`}`;
}

const time = (options) => new Intl.DateTimeFormat(locales, options).format;
export const clock = time({ timeStyle: "medium" });
export const fullTime = time({ dateStyle: "full", timeStyle: "medium" });
const date = time({ dateStyle: "medium", timeStyle: "short" });
const exact = time({ dateStyle: "medium", timeStyle: "medium" });
const day = time({ dateStyle: "medium" });
const utcDay = time({ dateStyle: "medium", timeZone: "UTC" });
export const hourAndMinute = time({ timeStyle: "short" });
export const dayAndMonth = time({ day: "numeric", month: "short" });

/** Return when a step of a length begins. */
export function moment(timeMs, stepMs = 0) {
  if (stepMs >= 1000 * DAY_S) return utcDay(timeMs);
  return (day(timeMs) === day(Date.now()) ? clock : stepMs % 60_000 ? exact : date)(timeMs);
}

const agoFormat = new Intl.RelativeTimeFormat(locales, { numeric: "auto", style: "short" });
const DAY_S = 86_400;
const UNITS = [["day", DAY_S], ["hour", 3600], ["minute", 60]];
const unitOf = (seconds, least) => UNITS.find(([, size]) => seconds >= least * size) ?? ["second", 1];

export function ago(timeMs, nowMs) {
  const elapsed = Math.max(0, (nowMs - timeMs) / 1000);
  const [unit, size] = unitOf(elapsed, 1);
  return elapsed < 7 * DAY_S ? agoFormat.format(-Math.floor(elapsed / size), unit) : date(timeMs);
}

export function span(seconds) {
  const [unit, size] = unitOf(seconds, 1.5);
  return write(seconds / size, { style: "unit", unit, maximumFractionDigits: seconds / size < 10 ? 1 : 0 });
}

const languages = new Intl.DisplayNames(locales, { type: "language" });

export function language(code) {
  try {
    const name = languages.of(code);
    return name === code ? code : `${name} (${code})`;
  } catch {
    return code; // a stream may call a language what it likes
  }
}

// Charts by uPlot, with a crosshair that keys move too.

const { uPlot } = globalThis; // vendor/uPlot.iife.min.js runs before any module
const DAY_MS = 86_400_000;
const DRAG_PX_MIN = 6; // less is a click

export function swatch(dash) {
  const node = copy("swatch");
  attr(node.firstElementChild, "stroke-dasharray", dash.join(" "));
  return node;
}

export const Z = 1.96; // of 95%

/** Return Wilson's interval of a share, k of n. */
export function within(k, n) {
  const [middle, half] = [(k + (Z * Z) / 2) / (n + Z * Z), (Z * Math.sqrt((k * (n - k)) / n + (Z * Z) / 4)) / (n + Z * Z)];
  return { share: k / n, low: middle - half, high: middle + half };
}

const charts = new Set();
const probe = document.body.appendChild(el("i", { hidden: "" }));
const inks = new Map();

/** Return a colour of the theme as a canvas takes it, which knows no variables. */
export function ink(colour, opacity = 1) {
  if (!inks.has(colour)) {
    probe.style.color = colour;
    inks.set(colour, getComputedStyle(probe).color);
  }
  return inks.get(colour).replace(")", `, ${opacity})`);
}

export const bandOf = (column, colour) => ({ series: [column, column + 1], fill: () => ink(colour, 0.2) });

export function linesOf(colour, own) {
  const line = { width: 2, scale: "y", points: { show: false }, ...own };
  const end = { ...line, width: 0 };
  return [{ ...line, stroke: () => ink(colour) }, end, end];
}

function repaint() {
  inks.clear();
  for (const chart of charts) chart.redraw(false);
}

const HEAD_PX = 28;
const EDGE_PX = 12;
const NO_XML = /[\0-\b\v\f\x0e-\x1f\ufffe\uffff\p{Cs}]/gu;

/** Return a picture of a figure as it stands there, without its controls. */
async function pictureOf(place) {
  const { x, y, width, height } = place.getBoundingClientRect();
  const unit = devicePixelRatio;
  const size = { width: innerWidth, height: height + HEAD_PX + EDGE_PX };
  const paper = el("canvas", { width: (width + 2 * EDGE_PX) * unit, height: size.height * unit });
  const pen = paper.getContext("2d");
  pen.scale(unit, unit);
  pen.fillStyle = ink("var(--surface)");
  pen.fillRect(0, 0, paper.width, paper.height);
  pen.fillStyle = ink("var(--ink)");
  pen.font = `13px ${getComputedStyle(place).fontFamily}`;
  pen.fillText([document.title, part(place, "plot")?.ariaLabel.split(/[.:]/)[0]].filter(Boolean).join(" · "), EDGE_PX, 18, width);
  for (const canvas of place.querySelectorAll("canvas")) {
    const box = canvas.getBoundingClientRect();
    pen.drawImage(canvas, box.x - x + EDGE_PX, box.y - y + HEAD_PX, box.width, box.height);
  }
  let copied = place.cloneNode(true);
  copied.style = `position: fixed; inset: ${HEAD_PX}px auto auto ${EDGE_PX}px; width: ${width}px`;
  // Its style depends on what it stands in.
  for (let outer; (place = place.parentElement); copied = outer) (outer = place.cloneNode()).append(copied);
  const css = [...document.styleSheets].flatMap(({ cssRules }) => [...cssRules]).map(({ cssText }) => cssText);
  const all = svg("svg", { ...size, "data-theme": document.documentElement.dataset.theme }, svg("style", css), $("patterns").parentNode.cloneNode(true), svg("foreignObject", size, copied));
  const image = el("img", { src: `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(all).replace(NO_XML, ""))}` });
  await image.decode();
  pen.drawImage(image, 0, 0);
  return paper.toDataURL();
}

const FORMULA = /^[-=+@\t\r\n＝＋－＠']/; // as in the export
const quoted = (said) => `"${said.replace(FORMULA, "'$&").replaceAll('"', '""')}"`;

const csvOf = ({ rows }) => [...rows].map(({ cells }) => [...cells].map(({ textContent: said }) => quoted(said)).join()).join("\r\n");

on(document, "click", async ({ target, detail }) => {
  const { save } = target.dataset;
  if (!save) return;
  const place = target.closest(".chart-top, details").parentNode;
  if (detail) target.blur(); // what has the focus is not drawn again
  const href = save === "csv" ? `data:text/csv;charset=utf-8,${encodeURIComponent(csvOf(part(place, "scroll table")))}` : await pictureOf(place);
  el("a", { href, download: `${document.title}.${save}` }).click();
});

new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
on(matchMedia("(forced-colors: active)"), "change", repaint);

function timeTicks(chart, ticks, axis, space, stepMs) {
  if (stepMs >= DAY_MS) return ticks.map(dayAndMonth);
  const write = stepMs < 60_000 ? clock : hourAndMinute;
  const { min, max } = chart.scales.x;
  if (dayAndMonth(min) === dayAndMonth(max)) return ticks.map(write);
  const isNewDay = (tick, i) => i === 0 || dayAndMonth(tick) !== dayAndMonth(ticks[i - 1]);
  return ticks.map((tick, i) => write(tick) + (isNewDay(tick, i) ? `\n${dayAndMonth(tick)}` : ""));
}

const lines = () => ink("var(--rule)");

const axis = (own) => ({
  stroke: () => ink("var(--muted)"),
  grid: { stroke: lines, width: 1 },
  ticks: { show: false },
  gap: 6,
  ...own,
});

const timeAxis = () =>
  axis({
    space: 72,
    size: (chart, ticks) => (ticks?.some((tick) => tick.includes("\n")) ? 40 : 24),
    grid: { show: false },
    ticks: { stroke: lines, size: 4 },
    values: timeTicks,
  });

/**
 * Return a chart that fills `node`.
 *
 * `onPoint(index)` hears which column of the data the crosshair is at, or null; `onSpan(from, to)` which time
 * was dragged over, and `onSpan()` a double click. With `isStepped` a value holds until the next one.
 */
export function makeChart(node, { series, bands, scales, axes, isStepped, onPoint, onSpan, onDraw }) {
  let at = null;

  function pointed(chart) {
    const { left, idx } = chart.cursor;
    at = left < 0 || idx === null || idx === undefined ? null : idx;
    if (at !== null && isStepped) {
      if (chart.data[0][at] > chart.posToVal(left, "x")) at -= 1;
      at = Math.min(Math.max(at, 0), chart.data[0].length - 2); // the last one ends the last step
    }
    onPoint(at);
  }

  function selected(chart) {
    const { left, width } = chart.select;
    if (!onSpan || width < DRAG_PX_MIN) return;
    chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    onSpan(chart.posToVal(left, "x"), chart.posToVal(left + width, "x"));
  }

  const font = `11px ${getComputedStyle(node).fontFamily}`;
  const chart = new uPlot(
    {
      width: node.clientWidth || 300,
      height: node.clientHeight || 100,
      ms: 1,
      legend: { show: false },
      padding: [6, null, 0, null],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: Boolean(onSpan), y: false, setScale: false, dist: DRAG_PX_MIN },
        bind: { dblclick: () => () => onSpan?.() },
      },
      scales,
      series: [{}, ...series],
      bands,
      axes: [timeAxis(), ...axes.map(axis)].map((own) => ({ font, labelFont: font, ...own })),
      hooks: { setCursor: [pointed], setSelect: [selected], draw: [onDraw] },
    },
    null,
    node,
  );
  charts.add(chart);
  const size = new ResizeObserver(() => {
    const { clientWidth: width, clientHeight: height } = node;
    // What is only shown again is drawn already.
    if (width && (width !== chart.width || height !== chart.height)) chart.setSize({ width, height });
  });
  size.observe(node);

  const place = (index) => {
    const [xs] = chart.data;
    const middle = isStepped ? (xs[index] + xs[index + 1]) / 2 : xs[index];
    chart.setCursor({ left: chart.valToPos(middle, "x"), top: 0 });
  };

  node.onkeydown = (event) => {
    const last = chart.data[0].length - (isStepped ? 2 : 1);
    const next = { ArrowLeft: (at ?? last + 1) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") chart.setCursor({ left: -10, top: -10 });
    if (next === undefined || last < 0) return;
    event.preventDefault();
    place(Math.min(Math.max(next, 0), last));
  };

  return {
    chart,
    destroy() {
      size.disconnect();
      charts.delete(chart);
      chart.destroy();
    },
    /** Draw columns, unless somebody drags over them. */
    update(data) {
      if (chart.select.width > 0) return;
      chart.setData(data);
      attr(node, "aria-valuemax", Math.max(0, data[0].length - (isStepped ? 2 : 1)));
    },
  };
}
