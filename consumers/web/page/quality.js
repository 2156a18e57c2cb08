/** The tables and lists of the model's view: classes, confusion, words. */

import { bar, look, named } from "./classes.js";
import { el } from "./dom.js";
import { count, decimal, fine, short, signed } from "./format.js";

const WORDS_MAX = 12;

const head = (...parts) => el("th", { scope: "row" }, parts);
const word = (said) => el("span.word", { dir: "auto" }, said);

export const classRows = (classes) =>
  classes.map(({ label, count: n, prior }) =>
    el("tr", head(named(label)), el("td.number", count(n)), el("td.number", fine(prior))),
  );

/** Return what was judged as what: rows are the truth. */
export function confusionRows({ classes, counts }) {
  const rows = counts.map((row, i) => {
    const total = row.reduce((sum, n) => sum + n, 0) || 1;
    const cells = row.map((n, j) => {
      const props = { "--tint": `${((26 * n) / total).toFixed(0)}%`, "--class": look(classes[j]).colour };
      return el(`td.number.cell${i === j ? ".right" : ""}`, props, fine(n / total), el("small", count(n)));
    });
    return el("tr", head("is ", named(classes[i])), cells);
  });
  const columns = classes.map((label) => el("th.number", { scope: "col" }, "judged ", named(label)));
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
  if (!words?.length) return [el("li.note", "None yet.")];
  return words.slice(0, WORDS_MAX).map(({ word: said, before, now, ratio }) => {
    const times = Number.isFinite(ratio) ? `× ${decimal(ratio, ratio < 10 ? 2 : 0)}` : "new";
    return el("li", { title: `${short(before)} before, ${short(now)} now` }, word(said), el("span.number", `${sign} ${times}`));
  });
}
