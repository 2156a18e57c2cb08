/** What the model's view draws: lines over time, calibration, classes, confusion, words. */

import { bar, look, named } from "./classes.js";
import { bandOf, ink, makeChart, within } from "./chart.js";
import { attr, el, part, svg, text } from "./dom.js";
import { clock, count, decimal, fine, moment, percent, short, signed } from "./format.js";

const charts = new Map();

function makeLine(place, name, format) {
  const [node, note] = [part(place, "plot"), part(place, "note")];
  node.hidden = false;
  const own = { scale: "y", points: { show: false } };
  const end = { ...own, width: 0 };
  let points = [];
  let range = "";

  function read(at) {
    const point = points[at] ?? points.at(-1);
    const ends = name === "accuracy" && point.n ? within(point.accuracy * point.n, point.n) : null;
    const words = `${moment(point.time_ms)}: ${format(point[name])}${ends ? ` (${percent(ends.low, 1)}–${percent(ends.high, 1)})` : ""}`;
    attr(node, "aria-valuenow", at ?? points.length - 1);
    attr(node, "aria-valuetext", words);
    text(note, at === null ? range : words);
  }

  const drawn = makeChart(node, {
    series: [{ ...own, width: 1.6, stroke: () => ink("var(--ink)") }, end, end],
    bands: [bandOf(2, "var(--ink)")],
    scales: {},
    axes: [{ scale: "y", size: 50, space: 28, values: (chart, ticks) => ticks.map((tick) => format(tick)) }],
    onPoint: (at) => points.length && read(at),
  });

  return (next) => {
    points = next;
    const values = points.map((point) => point[name]);
    range = `${format(Math.min(...values))} to ${format(Math.max(...values))} since ${clock(points[0].time_ms)}`;
    const ends = points.map(({ accuracy, n }) => (name === "accuracy" && n ? within(accuracy * n, n) : { high: null, low: null }));
    drawn.update([points.map((point) => point.time_ms), values, ends.map(({ high }) => high), ends.map(({ low }) => low)]);
    attr(node, "aria-label", `${part(place, "name").textContent}: ${range}`);
    text(part(place, "big"), format(values.at(-1)));
    read(drawn.chart.cursor.left < 0 ? null : drawn.chart.cursor.idx);
  };
}

/** Draw a figure over time; the share of right predictions with its interval. */
export function drawLine(place, history, format) {
  const name = place.dataset.line;
  const points = history.filter((point) => Number.isFinite(point[name]));
  if (points.length < 2) return;
  if (!charts.has(place)) charts.set(place, makeLine(place, name, format));
  charts.get(place)(points);
}

export function drawCalibration(chart, bins) {
  const filled = bins.filter((bin) => bin.n > 0);
  const most = Math.max(...filled.map((bin) => bin.n));
  const x = (value) => 6 + 88 * value;
  const y = (value) => 100 - x(value);
  const dots = filled.map(({ n, mean_probability: said, accuracy }) =>
    svg(
      "circle.dot",
      { cx: x(said), cy: y(accuracy), r: 1.2 + 2.4 * Math.sqrt(n / most) },
      svg("title", `predicted ${fine(said)}, right ${fine(accuracy)} of ${count(n)}`),
    ),
  );
  const whiskers = filled.map(({ n, mean_probability: said, accuracy }) => {
    const { low, high } = within(accuracy * n, n);
    return `M${x(said)} ${y(low)}V${y(high)}`;
  });
  const corners = filled.map((bin) => `${x(bin.mean_probability)} ${y(bin.accuracy)}`);
  const words = filled.map((bin) => `predicted ${percent(bin.mean_probability)}, right ${percent(bin.accuracy)}`);
  attr(part(chart, "stroke"), "d", corners.length ? `M${corners.join("L")}` : "");
  part(chart, "dots").replaceChildren(...dots);
  attr(part(chart, "whiskers"), "d", whiskers.join(""));
  attr(chart, "aria-label", `Calibration: ${words.join("; ") || "no labelled messages yet"}.`);
}

const WORDS_MAX = 12;

const head = (...parts) => el("th", { scope: "row" }, parts);
const word = (said) => el("span.word", { dir: "auto" }, said);

export const classRows = (classes) =>
  classes.map(({ label, count: n, prior }) =>
    el("tr", head(named(label)), el("td.number", count(n)), el("td.number", fine(prior))),
  );

/** What was judged as what: rows are the truth. */
export function confusionRows({ classes, counts }) {
  if (!counts.flat().some(Boolean)) return [el("caption", "No labelled messages yet.")];
  const rows = counts.map((row, i) => {
    const total = row.reduce((sum, n) => sum + n, 0) || 1;
    const cells = row.map((n, j) => {
      const props = { "--tint": `${((26 * n) / total).toFixed(0)}%`, "--class": look(classes[j]).colour };
      return el(`td.number.cell${i === j ? ".right" : ""}`, props, fine(n / total), el("small", count(n)));
    });
    return el("tr", head("true ", named(classes[i])), cells);
  });
  const columns = classes.map((label) => el("th.number", { scope: "col" }, "predicted ", named(label)));
  return [el("thead", el("tr", el("td"), columns)), el("tbody", rows)];
}

export function tellingWords(label, words) {
  const most = Math.max(...words.map(({ score }) => Math.abs(score))) || 1;
  const rows = words.slice(0, WORDS_MAX).map(({ feature, score }) =>
    el("li", word(feature), el("span.track", bar(label, Math.abs(score) / most)), el("span.number", signed(score, 3))),
  );
  return el("div@telling", { "data-class": label }, el("h3", named(label)), el("ol.words", rows));
}

export function movingWords(words, sign) {
  if (!words?.length) return [el("li.note", "No word has changed enough yet.")];
  return words.slice(0, WORDS_MAX).map(({ word: said, before, now, ratio }) => {
    const times = Number.isFinite(ratio) ? `× ${decimal(ratio, ratio < 10 ? 2 : 0)}` : "new";
    return el("li", { title: `${short(before)} before, ${short(now)} now` }, word(said), el("span.number", `${sign} ${times}`));
  });
}
