/** Shares over time with their intervals, of a search and of what is compared. */

import { $, address, ask, asked, attr, bandOf, capital, classNames, coalesced, copy, count, DASHES, debounced, el, ink, inOrder, keyed, leading, linesOf, look, makeChart, moment, nameOf, names, on, onClasses, part, percent, queryOf, say, short, signed, span, swatch, text, withError, within, Z } from "./base.js";

const SPANS_MS = { "15m": 900_000, "6h": 21_600_000, "7d": 604_800_000 };
const SPAN_MS_MIN = 10_000; // of a chart that was zoomed
const ZOOM = 3;
const STEPS_MAX = 60;
const LOW_PX = 180; // a chart below has fewer words
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720];
const STEPS_S = [...MINUTES.map((n) => 60 * n), ...[1, 2, 7, 14, 30, 90, 365, 3650].map((n) => 86_400 * n)];
const PAUSE_MS_MAX = 60_000;
// A chosen time is asked for again as often as its picture changes.
const refreshMs = (spanMs) => Math.max(spanMs / 300, 2_000);
/** Return when to ask again: what failed may be too much for the daemon. */
const pauseBehind = (problem, lastMs, usualMs) => Math.min(problem ? 2 * lastMs : usualMs, PAUSE_MS_MAX);
const endsOf = (times) => times.split(/\b-/).map(Number);

const total = ({ counts }) => Object.values(counts).reduce((sum, n) => sum + n, 0);
/** Return a class's value: a class may be "constructor". */
const own = (values, label) => (values && Object.hasOwn(values, label) ? values[label] : undefined);
const came = (point) => point.n ?? total(point);
const shareIn = (point, label) => within(own(point.counts, label) ?? 0, total(point));

/** Return a class's share: corrected, or as predicted with its interval. */
export const estimate = ({ corrected, raw, n, n_even: size = n }, label) => own(corrected, label) ?? within((own(raw, label) ?? 0) * size, size);

function inWords(point, stepMs) {
  const lead = leading(point.counts);
  return `${moment(point.time_ms, stepMs)}: ${percent(point.counts[lead] / total(point))} ${nameOf(lead)} of ${count(came(point))}`;
}

function coarser({ step_s: stepS, points }, spanMs) {
  const wideS = STEPS_S.find((one) => one >= stepS && spanMs / 1000 / one < STEPS_MAX) ?? stepS;
  const grouped = new Map();
  for (const { time_ms: timeMs, counts } of points) {
    const beginMs = Math.floor(timeMs / 1000 / wideS) * wideS * 1000;
    const sums = grouped.get(beginMs) ?? { __proto__: null };
    for (const [label, n] of Object.entries(counts)) sums[label] = (sums[label] ?? 0) + n;
    grouped.set(beginMs, sums);
  }
  return { step_s: wideS, points: [...grouped].map(([time_ms, counts]) => ({ time_ms, counts })) };
}

const FIRST_MS = -62_135_596_800_000; // the year 1; the API begins a day ago

function spanOf(range, nowMs) {
  if (range === "all") return { from: null, to: nowMs };
  const [from, to] = endsOf(range);
  return SPANS_MS[range] ? { from: nowMs - SPANS_MS[range], to: nowMs } : { from, to };
}

export function timesOf(range, nowMs) {
  const { from, to } = spanOf(range, nowMs);
  return range && { from: String(Math.floor(from ?? FIRST_MS)), to: String(Math.ceil(to)) };
}

async function countsOf(bounds, range) {
  const between = (from) => ask(`/v1/history${queryOf({ ...bounds, from })}`);
  const found = await between(range === "all" ? "0" : bounds.from); // by when they came
  if (range !== "all") return found;
  const [first] = found.series.points; // by days
  return first && between(String(first.time_ms));
}

export const isSampled = ({ share }) => share < 0.995;

const busy = (node, isBusy) => attr(node.closest(".figure"), "aria-busy", isBusy);

const firstOf = ({ points }) => points.find(total)?.time_ms ?? Infinity;

/** Return a time's stored messages, or its history. */
async function readSpan(query, summary, hasHistory, range) {
  const stored = summary.series;
  const nowMs = Date.now();
  const { from, to } = spanOf(range, nowMs);
  const bounds = { ...asked(query), ...timesOf(range, nowMs) };
  const whole = from === null ? summary : await ask(`/v1/summary${queryOf(bounds)}`);
  const { series: own } = whole;
  const fromStore = { whole, series: own, from, to };
  if (from !== null && firstOf(stored) <= from && firstOf(own) < Infinity) return fromStore;
  const reach = !summary.newest_only && firstOf(stored) < Infinity ? `Stored matches go back to ${moment(firstOf(stored))}.` : "";
  const { n, series, note, matches } = (hasHistory && (await countsOf(bounds, range))) || {};
  const isWord = matches?.is_word !== false; // else all are stored
  if (!n || firstOf(series) + 1000 * series.step_s > firstOf(own)) return { ...fromStore, note: isWord ? reach : `${reach} ${note}` };
  return { ...fromStore, series: coarser(series, to - (from ?? firstOf(series))), isCounted: !matches, hasLeft: isWord, note };
}

function coverLast(veil, chart, isOpen) {
  const [xs] = chart.data;
  veil.hidden = !isOpen || xs.length < 2;
  if (veil.hidden) return;
  const left = chart.valToPos(xs.at(-2), "x");
  veil.style.left = `${left}px`;
  veil.style.width = `${chart.valToPos(xs.at(-1), "x") - left}px`;
}

/** Return a column of what is known at each time. */
function columnOf(xs, points, valueOf) {
  const at = new Map(points.map((point) => [point.time_ms, valueOf(point)]));
  return xs.map((timeMs) => at.get(timeMs) ?? null);
}

function sharesOf(xs, points, label) {
  const shares = columnOf(xs, points, (point) => shareIn(point, label));
  return ["share", "high", "low"].map((name) => shares.map((share) => share?.[name] ?? null));
}

function columnsOf(points, stepMs, labels) {
  const first = points[0].time_ms;
  const n = Math.round((points.at(-1).time_ms - first) / stepMs) + 1;
  const xs = Array.from({ length: n + 1 }, (_, i) => first + i * stepMs);
  // A step is drawn up to where it ends.
  const held = (values) => Object.assign(values, { [n]: values[n - 1] });
  return [xs, columnOf(xs, points, came), ...labels.flatMap((label) => sharesOf(xs, points, label).map(held))];
}

const REST_MS = 300;
const KNOWN_MS = 30_000;

export function inMoved({ label, before, after, corrected, standard_errors: errors, words }) {
  if (errors < Z) return "No share rose further than by chance.";
  const told = words.map(({ word, effect }) => `${word} ${signed(100 * effect, 1)}`).join(", ");
  return `${capital(nameOf(label))} rose from ${percent(before)} to ${percent(after)}, ${corrected ? "" : "not "}corrected. ${told ? `Moved by ${told} points.` : "Nothing stands out."}`;
}

/** Return what asks what moved a share, once a path rests. */
function makeAsking(onAnswer) {
  const known = new Map();
  let path = null;
  let prefix = "";
  let under = null; // the question under way
  const rest = debounced(async () => {
    const asking = path;
    under = new AbortController();
    try {
      const answer = await ask(asking, { until: under.signal });
      known.set(asking, answer.moved && answer.compared.every((side) => side.n_read) ? prefix + inMoved(answer.moved) : `The ${names.messages} of this time are no longer stored.`);
      setTimeout(() => known.delete(asking), KNOWN_MS); // an unfinished step goes on
      if (asking === path) onAnswer(known.get(asking));
    } catch (error) {
      if (asking === path) onAnswer(error.message);
    }
  }, REST_MS);
  return (next, before) => {
    if (next === path) return;
    [path, prefix] = [next, before];
    rest.stop();
    under?.abort();
    onAnswer(known.get(path) ?? "");
    if (path && !known.has(path)) rest();
  };
}

/** Return the chart; `onRoute(part)` hears of a time, or what changed in it, `onSummary` of figures. */
export function makeSeries(onRoute, onSummary, hasHistory) {
  const onRange = (range) => onRoute({ range });
  const node = $("series-chart");
  const choice = $("series-range");
  const veil = el("div.unfinished@series-unfinished");
  let drawn = null;
  let shown = null; // {points, stepMs, isOpen, labels, from, to}
  let at = null; // the step at the crosshair
  let splitMs = 0;
  let summary = null;
  let query = null;
  let range = "";
  let chosen = null;
  let askedMs = 0;
  let pauseMs = 0; // until it is asked for again
  let isAsking = false;
  let moved = ""; // by which words, at the crosshair
  let ending = 0; // timer of the last step's end
  const askMoved = makeAsking((words) => {
    moved = words;
    read();
  });

  const isLow = () => node.clientHeight < LOW_PX;
  const pointAt = (index) => shown.points.find(({ time_ms: timeMs }) => timeMs === shown.points[0].time_ms + index * shown.stepMs);
  const shareOf = (point, label) => withError(shareIn(point, label));
  const when = (timeMs) => {
    const isLast = shown.isOpen && timeMs === shown.points.at(-1).time_ms;
    return moment(timeMs, shown.stepMs) + (isLast ? ", unfinished" : "");
  };

  function makeReading(label) {
    const { colour, dash } = look(label);
    const own = { "data-class": label, "--class": colour };
    return el("li", own, swatch(dash), el("span.named", nameOf(label)), el("span.bar-figure@series-value", own));
  }

  function read() {
    const { points, labels, stepMs } = shown;
    const beginMs = at === null ? points.at(-1).time_ms : points[0].time_ms + at * stepMs;
    const point = at === null ? points.at(-1) : pointAt(at);
    const n = point ? came(point) : 0;
    const about = point?.n ? "about " : "";
    const sampled = !about && shown.isOfSample ? "sampled " : "";
    const step = sampled || isLow() ? "" : ` in ${span(stepMs / 1000)}`;
    const head = `${when(beginMs)}: ${about}${count(n)} ${sampled}${n === 1 ? names.message : names.messages}${step}`;
    const figures = labels.map((label) => (point ? shareOf(point, label) : "–"));
    text($("series-when"), head);
    keyed($("series-values"), labels, String, makeReading).forEach((row, i) => text(part(row, "bar-figure"), figures[i]));
    const values = labels.map((label, i) => `${nameOf(label)} ${figures[i]}`);
    attr(node, "aria-valuenow", Math.round((beginMs - points[0].time_ms) / stepMs));
    say($("series-moved"), moved);
    $("series-key").hidden = Boolean(moved);
    attr(node, "aria-valuetext", `${head}. ${values.join(", ")}. ${moved}`.trim());
  }

  /** Return what asks for the words of the step at the crosshair. */
  function movedPath() {
    const { points, stepMs, from } = shown;
    const beginMs = points[0].time_ms + at * stepMs;
    if (!(at > 0) || !pointAt(at)) return null;
    // In whole steps: else each answer asks again.
    const fromMs = beginMs - Math.ceil((beginMs - from) / stepMs) * stepMs;
    return comparisonOf({ ...query, change: [fromMs, beginMs, beginMs + stepMs].join("-") });
  }

  function build(labels) {
    drawn?.destroy();
    const { stepped, bars } = uPlot.paths;
    const paths = stepped({ align: 1, alignGaps: 1 });
    const shares = labels.flatMap((label) => linesOf(look(label).colour, { scale: "share", paths, dash: look(label).dash }));
    const volume = {
      scale: "n",
      points: { show: false },
      paths: bars({ size: [1, Infinity, 1], align: 1, gap: 1 }),
      width: 0,
      fill: () => ink("var(--muted)", 0.55),
    };
    drawn = makeChart(node, {
      isStepped: true,
      series: [volume, ...shares],
      bands: labels.map((label, k) => bandOf(3 * k + 3, look(label).colour)),
      scales: {
        x: { range: () => [shown.from, shown.to] },
        share: { range: [-0.42, 1] },
        n: { range: (chart, low, high) => [0, 4.2 * (high || 1)] },
      },
      axes: [
        {
          scale: "share",
          size: 42,
          splits: () => (isLow() ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]),
          values: (chart, ticks) => ticks.map((tick) => percent(tick)),
        },
        {
          scale: "n",
          side: 1,
          size: 44, // of "999.9k"
          label: () => `${isLow() ? "" : `${names.messages} `}per ${span(shown.stepMs / 1000)}`,
          labelSize: 18,
          grid: { show: false },
          splits: (chart) => [0, Math.max(...chart.data[1])],
          values: (chart, ticks) => ticks.map(short),
        },
      ],
      onPoint(index) {
        at = index;
        if (!shown) return;
        askMoved(movedPath(), range && chosen?.hasLeft ? "Of those still stored: " : "");
        read();
      },
      onSpan: (from, to) => onRange(from === undefined ? "" : zoomed(from, to)),
      onDraw: (chart) => coverLast(veil, chart, shown?.isOpen),
    });
    drawn.chart.over.append(veil);
  }

  function fillTable() {
    if (!shown || !$("series-fold").open) return;
    const { points, labels } = shown;
    const heads = ["Time", names.messages, ...labels.map(nameOf)].map((head, i) => el(i ? "th.number" : "th", { scope: "col" }, head));
    const rows = points.map((point) => {
      const cells = labels.map((label) => el("td.number", shareOf(point, label)));
      return el("tr", el("th", { scope: "row" }, when(point.time_ms)), el("td.number", count(came(point))), cells);
    });
    $("series-heads").replaceChildren(...heads);
    $("series-rows").replaceChildren(...rows);
  }

  const current = () => (range ? chosen : summary)?.series;

  // In the frame after the figures.
  const plot = coalesced(() => {
    const series = current();
    const points = series?.points.filter(total) ?? [];
    if (!points.length) return;
    const labels = inOrder(summary.classes);
    const stepMs = 1000 * series.step_s;
    const endMs = points.at(-1).time_ms + stepMs;
    const restMs = endMs - Date.now();
    const from = Math.min(range ? (chosen.from ?? Infinity) : Infinity, points[0].time_ms);
    const to = range ? Math.max(chosen.to, endMs) : endMs;
    const isOfSample = !(range && chosen.isCounted) && isSampled(summary.sample);
    shown = { points, stepMs, labels, from, to, isOfSample, isOpen: restMs > 0 };
    clearTimeout(ending);
    if (shown.isOpen) ending = setTimeout(plot, Math.min(restMs, PAUSE_MS_MAX));
    const key = labels.join("\n");
    if (drawn?.key !== key) build(labels);
    drawn.key = key;
    drawn.update(columnsOf(points, stepMs, labels));
    const end = shown.isOpen ? ", which is unfinished" : "";
    attr(node, "aria-label", `Share over time. From ${inWords(points[0], stepMs)}, to ${inWords(points.at(-1), stepMs)}${end}.`);
    read();
    fillTable();
  });

  function draw(problem) {
    const series = current();
    if (!series && !problem) return;
    busy(node, false);
    const points = series?.points.filter(total) ?? [];
    const isDrawn = summary.enough && points.length > 0;
    $("series-drawn").hidden = !isDrawn;
    const nothing = points.length || !summary.enough ? `Not enough ${names.messages} for a chart yet.` : `No ${names.messages} in this time.`;
    say($("series-few"), !isDrawn && !problem && nothing);
    say($("series-source"), problem ?? (range && chosen.note));
    if (isDrawn) plot();
  }

  const again = debounced(refresh, 1_000);

  async function refresh() {
    if (!range || !summary || !choice.checkVisibility()) return;
    // No other news may follow.
    if (isAsking || Date.now() - askedMs < pauseMs) return again();
    const asking = query; // another object for each time
    isAsking = true;
    const found = await readSpan(query, summary, hasHistory, range).catch(({ message: problem }) => ({ problem }));
    isAsking = false;
    if (asking !== query) return refresh();
    askedMs = Date.now();
    const { problem, from, to } = found;
    if (problem) again();
    else chosen = found;
    showFigures();
    pauseMs = pauseBehind(problem, pauseMs, refreshMs(to - (from ?? 0)));
    draw(problem);
  }

  const showFigures = () => onSummary(range.includes("-") ? chosen?.whole : summary);

  function renew() {
    showFigures();
    if (range) refresh();
    else draw();
  }

  function zoomed(from, to) {
    const more = Math.max(0, SPAN_MS_MIN - (to - from)) / 2;
    return `${Math.floor(from - more)}-${Math.ceil(to + more)}`;
  }

  function zoom(times) {
    if (!shown) return;
    const { from, to, points, stepMs } = shown;
    const middle = at === null ? (from + to) / 2 : points[0].time_ms + (at + 0.5) * stepMs;
    const half = ((to - from) * times) / 2;
    const end = Math.min(middle + half, times > 1 ? Math.max(to, Date.now()) : to);
    onRange(zoomed(Math.max(-6e13, end - 2 * half), end));
  }

  function split() {
    splitMs = at > 0 ? shown.points[0].time_ms + at * shown.stepMs : 0;
    say($("series-split"), splitMs && `What changed at ${moment(splitMs, shown.stepMs)}?`);
  }

  on(node, "click", split);
  on(node, "keydown", ({ key }) => key === "Enter" && split());
  on($("series-split"), "click", () => {
    onRoute({ vs: [], change: [Math.floor(shown.from), splitMs, Math.ceil(shown.to)].join("-") });
    $("comparison").scrollIntoView();
    $("comparison-heading").focus();
  });
  on(choice, "change", () => onRange(choice.value));
  on($("series-in"), "click", () => zoom(1 / ZOOM));
  on($("series-out"), "click", () => zoom(ZOOM));
  on($("series-fold"), "toggle", fillTable);

  return {
    draw(next) {
      summary = next;
      renew();
    },
    show(nextQuery, nextRange) {
      const isNew = query?.q !== nextQuery.q || query?.lang !== nextQuery.lang;
      if (!isNew && range === nextRange) return refresh(); // it may have rested unseen
      if (isNew) summary = null;
      [query, range, chosen, askedMs, pauseMs] = [nextQuery, nextRange, null, 0, 1_000];
      busy(node, true);
      say($("series-split"));
      choice.value = range.includes("-") ? "chosen" : range;
      renew();
    },
  };
}

const COLOURS = ["var(--k5)", "var(--k0)", "var(--k2)", "var(--k3)"];
const REFRESH_MS = 10_000;

export function comparisonOf({ q, lang, vs, change, range = "" }, nowMs) {
  const [from, middle, to] = endsOf(change);
  const queries = (change ? [q] : [q, ...vs]).map((one) => asked({ q: one }).q);
  // Of "all" the newest matches are compared, as without a time.
  const times = change ? { from: [from, middle], to: [middle, to] } : range !== "all" && timesOf(range, nowMs);
  return `/v1/compare${queryOf({ q: queries, lang, ...times })}`;
}

/** Return the comparison; `onRoute(part)` hears what the reader compares. */
export function makeComparison(onRoute) {
  const node = $("compare-chart");
  const choice = $("compare-class");
  const box = $("compare-q");
  let route = {};
  let path = ""; // what is compared
  let sides = null; // the last answer's
  let isDrawn = false; // not of another question
  let moved = null;
  let drawn = null;
  let columns = [[]];
  let askedMs = 0;
  let pauseMs = 0; // until it is asked again
  let stepMs = 0;
  let isOpen = false; // the last step is unfinished
  const veil = el("div.unfinished@compare-unfinished");

  const shareOf = (point) => shareIn(point, choice.value);
  const nameAt = (i) =>
    sides[0].from_ms !== sides[1].from_ms ? [sides[i].from_ms, sides[i].to_ms].map((timeMs) => moment(timeMs, stepMs % 60_000)).join(" – ") : sides[i].query || "everything";
  const isAny = () => route.change || route.vs?.length > 0;

  function build() {
    drawn?.destroy();
    drawn = makeChart(node, {
      series: sides.flatMap((_, i) => linesOf(COLOURS[i], { spanGaps: true, dash: DASHES[i] })),
      bands: sides.map((_, i) => bandOf(3 * i + 2, COLOURS[i])),
      scales: { y: { range: [0, 1] } },
      axes: [{ scale: "y", size: 42, values: (chart, ticks) => ticks.map((tick) => percent(tick)) }],
      onPoint: read,
      onDraw: (chart) => coverLast(veil, chart, isOpen),
    });
    drawn.chart.over.append(veil);
  }

  function read(index) {
    const at = index ?? columns[0].length - 1;
    if (at < 0) return text($("compare-when"), "");
    const told = sides.flatMap((_, i) => {
      const [share, high, low] = columns.slice(3 * i + 1).map((column) => column[at]);
      return share === null ? [] : `${nameAt(i)} ${withError({ share, low, high })}`;
    });
    const end = isOpen && at === columns[0].length - 1 ? ", unfinished" : "";
    const words = `${moment(columns[0][at], stepMs)}${end}: ${told.join(", ")}`;
    text($("compare-when"), words);
    attr(node, "aria-valuenow", at);
    attr(node, "aria-valuetext", words);
  }

  const head = (i) => [el("span", { "--class": COLOURS[i] }, swatch(DASHES[i])), el("bdi", nameAt(i))];

  function row(side, i) {
    const node = copy("compare-row");
    const remove = part(node, "plain");
    part(node, "named").append(...head(i));
    text(part(node, "found"), count(side.n) + (side.newest_only ? "+" : ""));
    text(part(node, "share"), side.enough ? withError(estimate(side, choice.value)) : "too few");
    attr(remove, "aria-label", `Compare no more with ${nameAt(i)}`);
    remove.hidden = !i || route.change;
    on(remove, "click", () => {
      onRoute({ vs: route.vs.filter((_, k) => k !== i - 1) });
      $("compare").focus();
    });
    return node;
  }

  function words(side, i) {
    const rows = side.words.map((one) => {
      const href = address({ view: "search", q: `${side.query} ${one.word}`, lang: route.lang });
      const told = `${percent(total(one) / side.n_read)}, ${percent(shareOf(one).share)} ${nameOf(choice.value)}`;
      return el("li", el("a.word", { href, "data-view": "search", dir: "auto" }, one.word), el("span.number", told));
    });
    if (!rows.length) rows.push(el("li.note", "Nothing stands out."));
    return el("div@compare-words", el("h3.named", head(i)), el("ol.words.moving", rows));
  }

  function draw() {
    if (!sides) return;
    stepMs = 1000 * Math.max(...sides.map(({ series }) => series.step_s));
    const key = sides.map((_, i) => nameAt(i)).join("\n");
    if (drawn?.key !== key) build();
    drawn.key = key;
    const xs = [...new Set(sides.flatMap(({ series }) => series.points.map((point) => point.time_ms)))].sort((a, b) => a - b);
    columns = [xs, ...sides.flatMap(({ series }) => sharesOf(xs, series.points, choice.value))];
    isOpen = xs.at(-1) + stepMs > (route.change ? endsOf(route.change)[2] : Date.now());
    drawn.update(columns);
    attr(node, "aria-label", `Share of ${nameOf(choice.value)} over time`);
    read(null);
    $("compare-rows").replaceChildren(...sides.map(row));
    $("compare-words").replaceChildren(...sides.map(words));
    say($("compare-moved"), moved && inMoved(moved));
  }

  const again = debounced(refresh, 1_000);

  async function refresh() {
    if (!isAny() || !choice.checkVisibility()) return;
    // No other news may follow.
    if (Date.now() - askedMs < pauseMs) return again();
    askedMs = Infinity; // until it is answered
    const asking = path;
    const url = comparisonOf(route, Date.now());
    for (const format of ["csv", "jsonl"]) attr($(`compare-${format}`), "href", `${url}&format=${format}`);
    const { problem, ...answer } = await ask(url).catch(({ message }) => ({ problem: message }));
    if (asking !== path) return;
    askedMs = Date.now();
    pauseMs = pauseBehind(problem, pauseMs, REFRESH_MS);
    busy(node, false);
    say($("compare-problem"), problem);
    if (problem) again();
    else ({ compared: sides, moved } = answer);
    $("compare-drawn").hidden = Boolean(problem) && !isDrawn;
    // The focus or a selection would be lost.
    const isUsed = isDrawn && ($("compare-drawn").matches(":focus-within") || !getSelection().isCollapsed);
    if (problem || isUsed) return;
    draw();
    isDrawn = true;
  }

  const choose = () => keyed(choice, inOrder(classNames()), String, (label) => el("option", { value: label }, nameOf(label)));
  choose();
  onClasses(choose);
  on(choice, "change", draw);
  on($("compare"), "click", () => {
    $("comparison").hidden = false;
    box.focus();
  });
  on($("compare-end"), "click", () => {
    $("comparison").hidden = true;
    onRoute({ vs: [], change: "" });
    $("compare").focus();
  });
  on($("compare-form"), "submit", (event) => {
    event.preventDefault();
    const q = box.value.trim();
    if (q) onRoute({ vs: [...route.vs, q], change: "" });
    box.value = "";
  });

  return {
    refresh,
    show(next) {
      route = next;
      const nextPath = comparisonOf(next, 0); // the same while a range moves on
      if (path === nextPath) return refresh(); // it may have rested unseen
      [path, isDrawn, askedMs, pauseMs] = [nextPath, false, 0, 1_000];
      $("comparison").hidden = !isAny();
      $("compare-drawn").hidden ||= !isAny();
      say($("compare-problem"));
      busy(node, isAny());
      $("compare-form").hidden = next.vs.length > 2;
      refresh();
    },
  };
}
