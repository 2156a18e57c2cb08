/** Horizontal bars by class, with their figures in words and, where there are such, error bars. */

import { bar, named } from "./classes.js";
import { el, say, text } from "./dom.js";

/** Return rows of bars, one a class; `row`, `figure` and `raw` are hooks for tests. */
export function makeBars(labels, row, figure, raw = "raw") {
  const updates = [];
  const rows = labels.map((label) => {
    const own = { "data-class": label };
    const stripe = bar(label, 0);
    const whisker = el("span.whisker");
    const words = el(`span.bar-figure@${figure}`, own);
    const plain = el(`span.bar-raw@${raw}`, own);
    updates.push((value) => {
      stripe.style.setProperty("--share", value.share);
      whisker.hidden = !(value.high > value.low);
      whisker.style.setProperty("--from", value.low);
      whisker.style.setProperty("--share", value.high - value.low);
      text(words, value.words);
      say(plain, value.raw);
    });
    return el(`li@${row}`, own, named(label), el("span.bar-words", words, plain), el("span.track", stripe, whisker));
  });
  const list = el("ul.bars", rows);

  /** Draw what `valueOf(label)` returns: `{share, low, high, words, raw}`, shares of the track. */
  list.update = (valueOf) => labels.forEach((label, i) => updates[i](valueOf(label)));
  return list;
}
