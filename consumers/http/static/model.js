/** The view of the model. It asks only while somebody looks. */

import { ask } from "./api.js";
import { bandOf, ink, linesOf, makeChart, within } from "./chart.js";
import { bar, inOrder, look, named, nameOf, setClasses } from "./classes.js";
import { $, attr, el, on, part, say, svg, text } from "./dom.js";
import { clock, count, decimal, fine, moment, percent, short, signed } from "./format.js";
import * as format from "./format.js";

const charts = new Map();

const endsOf = ({ accuracy, n }) => within(accuracy * n, n);

function makeLine(place, name, format) {
  const [node, note] = [part(place, "plot"), part(place, "note")];
  node.hidden = false;
  const intervalOf = (point) => (name === "accuracy" && point.n ? endsOf(point) : { high: null, low: null });
  let points = [];
  let range = "";

  function read(at) {
    const point = points[at] ?? points.at(-1);
    const { low, high } = intervalOf(point);
    const words = `${moment(point.time_ms)}: ${format(point[name])}${low < high ? ` (${fine(low)}–${fine(high)})` : ""}${point.isAlarm ? ", drift" : ""}`;
    attr(node, "aria-valuenow", at ?? points.length - 1);
    attr(node, "aria-valuetext", words);
    text(note, at === null ? range : words);
  }

  const drawn = makeChart(node, {
    series: linesOf(part(place, "name").textContent, "var(--ink)", { width: 1.6 }),
    bands: [bandOf(2, "var(--ink)")],
    scales: {},
    axes: [{ scale: "y", size: 50, space: 28, values: (chart, ticks) => ticks.map((tick) => format(tick)) }],
    onPoint: (at) => points.length && read(at),
    onDraw({ ctx, bbox, valToPos }) {
      ctx.fillStyle = ink("var(--negative)");
      for (const { time_ms: timeMs, isAlarm } of points) if (isAlarm) ctx.fillRect(valToPos(timeMs, "x", true), bbox.top, 2, bbox.height);
    },
  });

  return (next) => {
    points = next;
    const values = points.map((point) => point[name]);
    range = `${format(Math.min(...values))} to ${format(Math.max(...values))} since ${clock(points[0].time_ms)}`;
    const ends = points.map(intervalOf);
    drawn.update([points.map((point) => point.time_ms), values, ends.map(({ high }) => high), ends.map(({ low }) => low)]);
    attr(node, "aria-label", `${part(place, "name").textContent}: ${range}`);
    text(part(place, "big"), format(values.at(-1)));
    read(drawn.chart.cursor.left < 0 ? null : drawn.chart.cursor.idx);
  };
}

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
  const whiskers = filled.map((bin) => {
    const { low, high } = endsOf(bin);
    return `M${x(bin.mean_probability)} ${y(low)}V${y(high)}`;
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

const REFRESH_MS = 2_000;

const valueAt = (model, path) => path.split(".").reduce((value, name) => value?.[name], model);

function draw(model) {
  const view = $("model");
  const put = (id, parts) => $(id).replaceChildren(...parts);
  // Which figure stands where, and how it is written, is said in the page itself.
  for (const node of view.querySelectorAll("[data-value]")) {
    const value = valueAt(model, node.dataset.value);
    text(node, node.dataset.as ? format[node.dataset.as](value) : (value ?? "–"));
  }
  const history = model.history.map((point, i, all) => ({ ...point, isAlarm: point.n_alarms > (all[i - 1]?.n_alarms ?? point.n_alarms) }));
  for (const node of view.querySelectorAll("[data-line]")) drawLine(node, history, format[node.dataset.as]);
  $("drift").hidden = !model.drift?.n_alarms;
  text($("drift-words"), model.drift?.words.map(({ word: said, label }) => `${said} (${nameOf(label)})`).join(", ") || "–");
  drawCalibration($("calibration"), model.calibration);
  setClasses(model.classes.map(({ label }) => label));
  put("confusion", confusionRows(model.confusion));
  const rows = Object.fromEntries(model.classes.map((row) => [row.label, row]));
  put("class-rows", classRows(inOrder(model.classes.map(({ label }) => label)).map((label) => rows[label])));
  put("telling", inOrder(Object.keys(model.telling)).map((label) => tellingWords(label, model.telling[label])));
  $("trend-note").hidden = !(model.trend_s >= 1);
  put("rising", movingWords(model.rising.toSorted((a, b) => b.ratio - a.ratio), "▲"));
  put("falling", movingWords(model.falling.toSorted((a, b) => a.ratio - b.ratio), "▼"));
  view.hidden = false;
  $("model-waiting").hidden = true;
  say($("model-problem"), model.trouble);
}

/** Return what begins (true) and ends (false) to ask. */
export function makeModel() {
  let timer = 0;
  let turns = 0;
  let isShown = false;

  async function refresh() {
    if (!isShown || document.hidden) return;
    try {
      const model = await ask("/v1/model");
      if (turns++ % 5 === 0 && !$("fields").matches(":focus-within")) {
        const said = await fetch("/page/fields");
        $("fields").innerHTML = said.ok ? await said.text() : "";
      }
      // What the reader has selected would be lost with the elements it is in.
      const selection = getSelection();
      if (selection.isCollapsed || !$("model").contains(selection.anchorNode)) draw(model);
    } catch (error) {
      say($("model-problem"), error.message);
    }
    clearTimeout(timer); // of another refresh meanwhile
    timer = setTimeout(refresh, REFRESH_MS);
  }

  on(document, "visibilitychange", refresh);
  return (shown) => {
    isShown = shown;
    refresh();
  };
}
