/** Shares by class, as bars and as a ring, with error bars where there are such. */

import { bar, look, named } from "./classes.js";
import { attr, el, keyed, say, svg, text } from "./dom.js";

const OUTER = 46;
const INNER = 31;
const WHISKER = 49.2;

/** Return rows of bars, one a class; `row`, `figure` and `raw` are hooks for tests. */
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

function point(radius, turn) {
  const angle = 2 * Math.PI * turn;
  return `${(50 + radius * Math.sin(angle)).toFixed(2)} ${(50 - radius * Math.cos(angle)).toFixed(2)}`;
}

const arc = (radius, from, to) =>
  `A${radius} ${radius} 0 ${+(Math.abs(to - from) > 0.5)} ${+(to > from)} ${point(radius, to)}`;

function piece(from, to) {
  // A whole turn would end where it begins, and nothing be drawn.
  const end = Math.min(to, from + 0.9999);
  return `M${point(OUTER, from)}${arc(OUTER, from, end)}L${point(INNER, end)}${arc(INNER, end, from)}Z`;
}

function whisker(low, high) {
  const tick = (turn) => `M${point(INNER - 2, turn)}L${point(WHISKER, turn)}`;
  return `${tick(low)}${tick(high)}M${point(WHISKER, low)}${arc(WHISKER, low, high)}`;
}

export function makeRing() {
  const pieces = svg("g");
  const errors = svg("path.ring-whisker");
  const node = svg("svg.ring", { viewBox: "0 0 100 100", role: "img" }, pieces, errors);

  /** Draw shares, `{share, low, high}` by class; `words` say the same. */
  node.update = (labels, shares, words) => {
    attr(node, "aria-label", words);
    let from = 0;
    const paths = keyed(pieces, labels, String, (label) => svg("path", { fill: look(label).fill }));
    labels.forEach((label, i) => {
      const share = shares[label]?.share ?? 0;
      attr(paths[i], "d", share > 0.0005 ? piece(from, from + share) : "");
      from += share;
    });
    const { low, high } = shares[labels[0]] ?? {};
    attr(errors, "d", labels.length === 2 && high > low ? whisker(low, high) : "");
  };
  return node;
}
