/** Shares by class over time with their intervals, and the number of messages beneath: of all that is stored, or of a chosen time. */

import { ask, queryOf } from "./api.js";
import { inOrder, leading, look, mark, nameOf } from "./classes.js";
import { bandOf, ink, makeChart, within } from "./chart.js";
import { $, attr, coalesced, el, keyed, on, say, svg, text } from "./dom.js";
import { clock, count, moment, percent, short, span, withError } from "./format.js";
import { names } from "./names.js";
import { asked } from "./route.js";

const DASHES = { solid: [], lines: [8, 3], dots: [2, 3], rails: [10, 3, 2, 3] };
const SPANS_MS = { "15m": 900_000, "6h": 21_600_000, "7d": 604_800_000 };
const SPAN_MS_MIN = 10_000; // of a chart that was zoomed
const ZOOM = 3;
const STEPS_MAX = 60;
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720];
const STEPS_S = [...MINUTES.map((n) => 60 * n), ...[1, 2, 7, 14, 30, 90, 365, 3650].map((n) => 86_400 * n)];
// How often a chosen time is asked for again: as often as its picture changes.
const refreshMs = (spanMs) => Math.min(Math.max(spanMs / 300, 2_000), 60_000);

const total = (point) => Object.values(point.counts).reduce((sum, n) => sum + n, 0);

function inWords(point) {
  const lead = leading(point.counts);
  return `${clock(point.time_ms)}: ${percent(point.counts[lead] / total(point))} ${nameOf(lead)} of ${count(total(point))}`;
}

/** Return the same counts by fewer steps, if there are more than can be told apart. */
function coarser({ step_s: stepS, points }, spanMs) {
  const wideS = STEPS_S.find((one) => one >= stepS && spanMs / 1000 / one < STEPS_MAX) ?? stepS;
  const grouped = new Map();
  for (const { time_ms: timeMs, counts } of points) {
    const beginMs = Math.floor(timeMs / 1000 / wideS) * wideS * 1000;
    const sums = grouped.get(beginMs) ?? {};
    for (const [label, n] of Object.entries(counts)) sums[label] = (sums[label] ?? 0) + n;
    grouped.set(beginMs, sums);
  }
  return { step_s: wideS, points: [...grouped].map(([time_ms, counts]) => ({ time_ms, counts })) };
}

/** Return from when to when a chosen time goes, null for all there is. */
function spanOf(range, nowMs) {
  if (range === "all") return { from: null, to: nowMs };
  const [from, to] = range.split("-").map(Number);
  return SPANS_MS[range] ? { from: nowMs - SPANS_MS[range], to: nowMs } : { from, to };
}

/** Return the counts of all messages of a time, null if they are not known. */
async function countsOf({ from, to }) {
  const between = (begin) => ask(`/v1/history${queryOf({ from: String(begin), to: String(to) })}`);
  try {
    if (from !== null) return await between(Math.floor(from));
    const [first] = (await between(0)).series.points; // by days; what they hold is asked for by finer steps
    return first ? await between(first.time_ms) : null;
  } catch (error) {
    if (error.status === 404) return null; // history is off
    throw error;
  }
}

const firstOf = ({ points }) => points.find(total)?.time_ms ?? Infinity;

/** Return what a chart of a chosen time shows: the stored messages, or where they do not reach back, the history. */
async function readSpan(query, stored, isEverything, range) {
  const { from, to } = spanOf(range, Date.now());
  const bounds = { ...asked(query), from: String(Math.floor(from ?? 0)), to: String(Math.ceil(to)) };
  const own = from === null ? stored : (await ask(`/v1/summary${queryOf(bounds)}`)).series;
  const fromStore = { series: own, from, to };
  if (from !== null && firstOf(stored) <= from && firstOf(own) < Infinity) return fromStore;
  const reach = firstOf(stored) < Infinity ? `Stored matches go back to ${moment(firstOf(stored))}.` : null;
  const all = isEverything ? await countsOf({ from, to }) : null;
  if (!all?.n || firstOf(all.series) + 1000 * all.series.step_s > firstOf(own)) return { ...fromStore, note: reach };
  const series = coarser(all.series, to - (from ?? firstOf(all.series)));
  return { series, from, to, note: `All ${names.messages} are counted, by when they came.` };
}

/** Return steps side by side, those without messages as null, and where the last one ends. */
function columnsOf(points, stepMs, labels) {
  const first = points[0].time_ms;
  const n = Math.round((points.at(-1).time_ms - first) / stepMs) + 1;
  const xs = Array.from({ length: n + 1 }, (_, i) => first + i * stepMs);
  const at = points.map((point) => Math.round((point.time_ms - first) / stepMs));
  const column = (valueOf) => {
    const values = new Array(n + 1).fill(null);
    points.forEach((point, k) => (values[at[k]] = valueOf(point)));
    return values;
  };
  // A step is drawn up to where it ends.
  const held = (values) => Object.assign(values, { [n]: values[n - 1] });
  const shares = labels.flatMap((label) => {
    const ends = (name) => held(column((point) => within(point.counts[label] ?? 0, total(point))[name]));
    return [ends("share"), ends("high"), ends("low")];
  });
  return [xs, column(total), ...shares];
}

export function makeSeries(onRange) {
  const node = $("series-chart");
  const choice = $("series-range");
  const veil = el("div.unfinished@series-unfinished");
  let drawn = null;
  let drawnLabels = "";
  let shown = null; // {points, stepMs, isOpen, labels, from, to}
  let at = null; // the step at the crosshair
  let summary = null;
  let query = null;
  let range = "";
  let chosen = null; // what came of the chosen time
  let askedMs = 0;
  let isAsking = false;

  const pointAt = (index) => shown.points.find(({ time_ms: timeMs }) => timeMs === shown.points[0].time_ms + index * shown.stepMs);
  const sharesOf = (point, label) => withError(within(point.counts[label] ?? 0, total(point)));
  const when = (timeMs) => {
    const isLast = shown.isOpen && timeMs === shown.points.at(-1).time_ms;
    return moment(timeMs, shown.stepMs) + (isLast ? ", unfinished" : "");
  };

  function makeReading(label) {
    const dash = svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, "stroke-dasharray": DASHES[look(label).pattern].join(" ") });
    const own = { "data-class": label, "--class": look(label).colour };
    const figure = el("span.bar-figure@series-value", own);
    const swatch = svg("svg.swatch", { viewBox: "0 0 22 8", "aria-hidden": "true" }, dash);
    const node = el("li", own, swatch, el("span.named", mark(label), nameOf(label)), figure);
    node.figure = figure;
    return node;
  }

  /** Show the values of the step at the crosshair, or of the newest. */
  function read() {
    const { points, labels, stepMs } = shown;
    const beginMs = at === null ? points.at(-1).time_ms : points[0].time_ms + at * stepMs;
    const point = at === null ? points.at(-1) : pointAt(at);
    const n = point ? total(point) : 0;
    const head = `${when(beginMs)}: ${count(n)} ${n === 1 ? names.message : names.messages} in ${span(stepMs / 1000)}`;
    text($("series-when"), head);
    keyed($("series-values"), labels, String, makeReading).forEach((row, i) => text(row.figure, point ? sharesOf(point, labels[i]) : "–"));
    const values = labels.map((label) => `${nameOf(label)} ${point ? sharesOf(point, label) : "–"}`);
    attr(node, "aria-valuenow", Math.round((beginMs - points[0].time_ms) / stepMs));
    attr(node, "aria-valuetext", `${head}. ${values.join(", ")}.`);
  }

  function showVeil(chart) {
    const [xs] = chart.data;
    veil.hidden = !shown?.isOpen;
    if (veil.hidden) return;
    const left = chart.valToPos(xs.at(-2), "x");
    veil.style.left = `${left}px`;
    veil.style.width = `${chart.valToPos(xs.at(-1), "x") - left}px`;
  }

  /** Return a chart for these classes: of each its share, and the ends of the interval. */
  function build(labels) {
    drawn?.destroy();
    const { stepped, bars } = uPlot.paths;
    const paths = stepped({ align: 1, alignGaps: 1 });
    const own = { scale: "share", points: { show: false }, paths };
    const shares = labels.flatMap((label) => {
      const { colour, pattern } = look(label);
      const end = { ...own, width: 0 };
      return [{ ...own, width: 2, stroke: () => ink(colour), dash: DASHES[pattern] }, end, end];
    });
    const volume = {
      scale: "n",
      points: { show: false },
      paths: bars({ size: [1, Infinity, 1], align: 1, gap: 1 }),
      width: 0,
      fill: () => ink("var(--muted)", 0.55),
    };
    const isLow = () => node.clientHeight < 180;
    const most = (chart) => Math.max(...chart.data[1]);
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
          size: 36,
          label: () => `${isLow() ? "" : `${names.messages} `}per ${span(shown.stepMs / 1000)}`,
          labelSize: 18,
          grid: { show: false },
          splits: (chart) => [0, most(chart)],
          values: (chart, ticks) => ticks.map(short),
        },
      ],
      onPoint(index) {
        at = index;
        if (shown) read();
      },
      onSpan: (from, to) => onRange(from === undefined ? "" : zoomed(from, to)),
      onDraw: showVeil,
    });
    drawn.chart.over.append(veil);
  }

  function fillTable() {
    if (!shown || !$("series-fold").open) return;
    const { points, labels } = shown;
    const heads = ["Time", names.messages, ...labels.map(nameOf)].map((head, i) => el(i ? "th.number" : "th", { scope: "col" }, head));
    const rows = points.map((point) => {
      const cells = labels.map((label) => el("td.number", sharesOf(point, label)));
      return el("tr", el("th", { scope: "row" }, when(point.time_ms)), el("td.number", count(total(point))), cells);
    });
    $("series-table").replaceChildren(el("caption", "Shares with 95% intervals."), el("thead", el("tr", heads)), el("tbody", rows));
  }

  // In the frame after that of the messages and figures, which people wait for.
  const plot = coalesced(() => {
    const series = range ? chosen?.series : summary?.series;
    const points = series?.points.filter(total) ?? [];
    if (!points.length) return; // another query has come meanwhile
    const labels = inOrder(summary.classes);
    const stepMs = 1000 * series.step_s;
    const endMs = points.at(-1).time_ms + stepMs;
    const from = Math.min(range ? (chosen.from ?? Infinity) : Infinity, points[0].time_ms);
    const to = Math.max(range ? chosen.to : 0, endMs);
    shown = { points, stepMs, labels, from, to, isOpen: !range || endMs > Date.now() };
    if (drawnLabels !== labels.join("\n")) build(labels);
    drawnLabels = labels.join("\n");
    drawn.update(columnsOf(points, stepMs, labels));
    const end = shown.isOpen ? ", which is unfinished" : "";
    attr(node, "aria-label", `Share over time. From ${inWords(points[0])}, to ${inWords(points.at(-1))}${end}.`);
    read();
    fillTable();
  });

  function draw() {
    const series = range ? chosen?.series : summary?.series;
    if (!series || !summary) return;
    const points = series.points.filter(total);
    const isDrawn = summary.enough && points.length > 0;
    $("series-drawn").hidden = !isDrawn;
    const nothing = points.length || !summary.enough ? `Not enough ${names.messages} for a chart yet.` : `No ${names.messages} in this time.`;
    say($("series-few"), isDrawn ? null : nothing);
    say($("series-source"), range ? chosen.note : null);
    if (isDrawn) plot();
  }

  /** Ask for the chosen time, unless that is still fresh. */
  async function refresh() {
    if (!range || !summary || isAsking) return;
    const { from, to } = spanOf(range, Date.now());
    if (chosen && Date.now() - askedMs < refreshMs(to - (from ?? 0))) return;
    const asking = [query, range];
    isAsking = true;
    try {
      const found = await readSpan(query, summary.series, summary.is_everything && !summary.lang, range);
      if (asking[0] === query && asking[1] === range) [chosen, askedMs] = [found, Date.now()];
    } catch (error) {
      if (asking[0] === query && asking[1] === range) say($("series-source"), error.message);
      askedMs = Date.now();
      return;
    } finally {
      isAsking = false;
    }
    if (asking[0] === query && asking[1] === range) draw();
    else refresh();
  }

  /** Return a time as the address holds it, not too short. */
  function zoomed(from, to) {
    const more = Math.max(0, SPAN_MS_MIN - (to - from)) / 2;
    return `${Math.floor(from - more)}-${Math.ceil(to + more)}`;
  }

  /** Show a time so many times as long, around the crosshair or else the middle. */
  function zoom(times) {
    if (!shown) return;
    const { from, to, points, stepMs } = shown;
    const middle = at === null ? (from + to) / 2 : points[0].time_ms + (at + 0.5) * stepMs;
    const half = ((to - from) * times) / 2;
    const end = times > 1 ? Math.min(middle + half, Math.max(to, Date.now())) : Math.min(middle + half, to);
    onRange(zoomed(Math.max(0, end - 2 * half), end));
  }

  on(choice, "change", () => onRange(choice.value));
  on($("series-in"), "click", () => zoom(1 / ZOOM));
  on($("series-out"), "click", () => zoom(ZOOM));
  on($("series-fold"), "toggle", fillTable);

  return {
    draw(next) {
      summary = next;
      if (range) refresh();
      else draw();
    },
    /** Show this time of this query from now on. */
    show(nextQuery, nextRange) {
      const isNew = query?.q !== nextQuery.q || query?.lang !== nextQuery.lang;
      if (!isNew && range === nextRange) return;
      if (isNew) summary = null;
      [query, range, chosen] = [nextQuery, nextRange, null];
      choice.value = range.includes("-") ? "chosen" : range;
      if (range) refresh();
      else draw();
    },
  };
}
