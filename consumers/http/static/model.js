/** The view of the model. It asks only while somebody looks. */

import { ask } from "./api.js";
import { bandOf, ink, linesOf, makeChart, within } from "./chart.js";
import { bar, inOrder, named, nameOf, setClasses } from "./classes.js";
import { $, announce, attr, el, on, part, say, text } from "./dom.js";
import { clock, fine, moment, signed } from "./format.js";
import * as format from "./format.js";
import { send, tell } from "./list.js";

const charts = new Map();

const endsOf = ({ accuracy, n }) => within(accuracy * n, n);

export const apart = (ticks, write) => ticks.map((tick) => write(tick, Math.max(3, Math.ceil(-Math.log10(ticks[1] - ticks[0])) || 0)));

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
    axes: [{ scale: "y", size: 50, space: 28, values: (chart, ticks) => apart(ticks, format) }],
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

function drawLine(place, history, format) {
  const name = place.dataset.line;
  const points = history.filter((point) => Number.isFinite(point[name]));
  if (points.length < 2) return;
  if (!charts.has(place)) charts.set(place, makeLine(place, name, format));
  charts.get(place)(points);
}

const WORDS_MAX = 12;

const word = (said) => el("span.word", { dir: "auto" }, said);

function tellingWords(label, words) {
  const most = Math.max(...words.map(({ score }) => Math.abs(score))) || 1;
  const rows = words.slice(0, WORDS_MAX).map(({ feature, score }) =>
    el("li", word(feature.split(/(?<=[≈=])/).flatMap((piece, i) => (i ? [el("wbr"), piece] : [piece]))), el("span.track", bar(label, Math.abs(score) / most)), el("span.number", signed(score, 3))),
  );
  return el("div@telling", { "data-class": label }, el("h3", named(label)), el("ol.words", rows));
}

const REFRESH_MS = 2_000;

const valueAt = (model, path) => path.split(".").reduce((value, name) => value?.[name], model);

function draw(model) {
  const view = $("model");
  // Which figure stands where, and how it is written, is said in the page itself.
  for (const node of view.querySelectorAll("[data-value]")) {
    const value = valueAt(model, node.dataset.value);
    text(node, node.dataset.as ? format[node.dataset.as](value) : (value ?? "–"));
  }
  const history = model.history.map((point, i, all) => ({ ...point, isAlarm: point.n_alarms > (all[i - 1]?.n_alarms ?? point.n_alarms) }));
  for (const node of view.querySelectorAll("[data-line]")) drawLine(node, history, format[node.dataset.as]);
  for (const node of view.querySelectorAll("[data-lag]")) node.hidden = history.every(({ lag }) => lag === null) && model.lag === null;
  $("drift").hidden = !model.drift?.n_alarms;
  text($("drift-words"), model.drift?.words.map(({ word: said, label }) => `${said} (${nameOf(label)})`).join(", ") || "–");
  setClasses(model.classes.map(({ label }) => label));
  $("telling").replaceChildren(...inOrder(Object.keys(model.telling)).map((label) => tellingWords(label, model.telling[label])));
  view.hidden = false;
  $("model-waiting").hidden = true;
  say($("model-problem"), model.trouble);
}

async function load(node) {
  const said = await fetch(`/page/${node.dataset.part}`);
  const html = await said.text();
  const { open } = part(node, "fold") ?? {};
  if (said.ok) node.innerHTML = html;
  if (open) part(node, "fold").open = true;
}

/** Let messages be labelled one after the other, and the last one be taken back. */
function makeQueue() {
  const queue = $("queue");
  const state = $("queue-state");
  const past = []; // messages, and what each taught before; undefined if it was skipped
  const first = () => queue.querySelector("li");
  let isBusy = false;

  async function act({ act, label }) {
    const [item, was] = act === "undo" ? (past.at(-1) ?? []) : [first(), label];
    if (isBusy || !item) return;
    isBusy = true;
    const { id } = item.dataset;
    const receipt = was === undefined || (await send(state, "/v1/labels", { method: "POST", body: { id, label: was } }));
    if (receipt && act === "undo") {
      past.pop();
      for (const one of queue.querySelectorAll("li")) if (one.dataset.id === id) one.remove();
      queue.firstChild.prepend(item);
    } else if (receipt) {
      past.push([item, receipt.was]);
      item.remove();
    }
    if (!first()) {
      await load(queue);
      queue.focus();
    }
    if (receipt) {
      tell(state, "changed", label ? `Labelled ${nameOf(label)}.` : act === "undo" ? "Taken back." : "Skipped.");
      announce(`${state.textContent} ${first()?.textContent ?? ""}`);
    }
    isBusy = false;
  }

  on(queue, "click", ({ target }) => {
    const button = target.closest("button");
    if (button) act(button.dataset);
  });
  on(queue, "keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const buttons = [...queue.querySelectorAll("button")];
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const pressed = queue.querySelector(`[data-keys~="${CSS.escape(event.key.toLowerCase())}"]`);
    if (step) buttons[buttons.indexOf(document.activeElement) + step]?.focus();
    else if (pressed) act(pressed.dataset);
    else return;
    event.preventDefault();
  });
}

/** Return what begins (true) and ends (false) to ask. */
export function makeModel() {
  makeQueue();
  let timer = 0;
  let turns = 0;
  let isShown = false;

  async function refresh() {
    if (!isShown || document.hidden) return;
    try {
      const model = await ask("/v1/model");
      // What the reader has selected would be lost with the elements it is in.
      const selection = getSelection();
      if (selection.isCollapsed || !$("model").contains(selection.anchorNode)) {
        draw(model);
        const parts = $("model").querySelectorAll("[data-part]:not(:focus-within)");
        if (turns++ % 5 === 0) await Promise.all(Array.from(parts, load));
      }
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
