/** The view of the model. It asks only while somebody looks. */

import { ask } from "./api.js";
import { inOrder, setClasses } from "./classes.js";
import { $, on, say, text } from "./dom.js";
import * as format from "./format.js";
import { classRows, confusionRows, drawCalibration, drawLine, movingWords, tellingWords } from "./quality.js";

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
  for (const node of view.querySelectorAll("[data-line]")) drawLine(node, model.history, format[node.dataset.as]);
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
  let isShown = false;

  async function refresh() {
    if (!isShown || document.hidden) return;
    try {
      const model = await ask("/v1/model");
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
