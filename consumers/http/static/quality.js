/** What the model's view draws: lines over time, calibration, classes, confusion, words. */

import { bar, look, named } from "./classes.js";
import { attr, el, part, svg, text } from "./dom.js";
import { clock, count, decimal, fine, percent, short, signed } from "./format.js";

// As in the viewBox of the charts, in index.html.
const WIDTH = 240;
const HEIGHT = 60;

export function drawLine(place, history, format) {
  const points = history.map((point) => [point.time_ms, point[place.dataset.line]]).filter(([, value]) => Number.isFinite(value));
  if (points.length < 2) return;
  const values = points.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const at = ([timeMs, value]) => {
    const y = high > low ? (value - low) / (high - low) : 0.5;
    return `${(((timeMs - first) / (last - first || 1)) * WIDTH).toFixed(1)} ${(HEIGHT - 4 - y * (HEIGHT - 8)).toFixed(1)}`;
  };
  const range = `${format(low)} to ${format(high)} since ${clock(first)}`;
  text(part(place, "big"), format(values.at(-1)));
  attr(part(place, "stroke"), "d", `M${points.map(at).join("L")}`);
  attr(place.querySelector("svg"), "aria-label", range);
  text(part(place, "note"), range);
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
  const corners = filled.map((bin) => `${x(bin.mean_probability)} ${y(bin.accuracy)}`);
  const words = filled.map((bin) => `predicted ${percent(bin.mean_probability)}, right ${percent(bin.accuracy)}`);
  attr(part(chart, "stroke"), "d", corners.length ? `M${corners.join("L")}` : "");
  part(chart, "dots").replaceChildren(...dots);
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
