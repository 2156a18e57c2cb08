/** What things are called, and how classes look: by colour, mark and pattern, in bars and rings. */

import { $, attr, el, keyed, say, svg, text } from "./base.js";

export const names = { title: "streamnb", message: "message", messages: "messages", classes: [] };

export const capital = (words) => words.charAt(0).toLocaleUpperCase() + words.slice(1);

export function setNames(given) {
  Object.assign(names, given);
  text($("brand"), names.title);
  text($("question"), names.question);
  text($("count-heading"), `${capital(names.messages)} by class`);
  attr($("q"), "placeholder", names.placeholder);
}

// Drawn in the page itself.
const drawn = (id) => [...$(id).children].map((path) => [path.dataset.name, path.getAttribute("d")]);
const MARKS = new Map(drawn("marks"));
const PATTERNS = new Map(drawn("patterns"));

const KNOWN = {
  __proto__: null, // a class may be called "constructor"
  negative: ["negative", "down", "lines"],
  neutral: ["neutral", "diamond", "dots"],
  positive: ["positive", "up", "solid"],
};
const COLOURS = 8;

const looks = new Map();
const listeners = [];
const turn = (names, i) => [...names.keys()][i % names.size];

export const onClasses = (listener) => listeners.push(listener);

/** Learn which classes there are, in the model's order: those that joined come last. */
export function setClasses(labels) {
  const news = labels.filter((label) => !looks.has(label));
  const tiles = news.map((label) => {
    const i = looks.size;
    const others = [`k${i % COLOURS}`, turn(MARKS, i), turn(PATTERNS, i)];
    const [name, mark, pattern] = KNOWN[label.toLowerCase()] ?? others;
    const own = names.classes.find((one) => one.label === label);
    const colour = `var(--${own?.colour ?? name})`;
    looks.set(label, { name: own?.name ?? label, colour, mark: MARKS.get(mark), pattern, fill: `url(#pattern-${i})` });
    return svg(
      "pattern",
      { id: `pattern-${i}`, width: 8, height: 8, patternUnits: "userSpaceOnUse", "--class": colour },
      svg("rect", { width: 8, height: 8 }),
      svg("path", { d: PATTERNS.get(pattern) }),
    );
  });
  $("patterns").append(...tiles);
  if (news.length) for (const listener of listeners) listener();
}

export const classNames = () => [...looks.keys()];

/** Return whether these may be the classes of the same model, earlier or later. */
export const goOn = (labels) => classNames().every((label, i) => i >= labels.length || label === labels[i]);

export const look = (label) => looks.get(label) ?? looks.values().next().value;

export const mark = (label) =>
  svg(
    "svg.mark",
    { viewBox: "0 0 12 12", "aria-hidden": "true", "--class": look(label).colour },
    svg("path", { d: look(label).mark }),
  );

export const nameOf = (label) => looks.get(label)?.name ?? label;

export function inOrder(labels) {
  const first = names.classes.map(({ label }) => label).filter((label) => labels.includes(label));
  return [...first, ...labels.filter((label) => !first.includes(label))];
}

export const meant = (set) =>
  set && el("span@prediction-set", `Can be meant: ${inOrder(set).map(nameOf).join(", ")}.`);

export const named = (label) => el("span.named", mark(label), nameOf(label));

export function bar(label, share, from = 0) {
  const { colour, pattern } = look(label);
  return el(`span.bar.${pattern}`, { "--class": colour, "--from": from, "--share": share });
}

export const leading = (values) =>
  Object.keys(values).reduce((best, label) => (values[label] > values[best] ? label : best));

const LINE = 0.005; // of a turn: the gap between two pieces, and the end of a whisker

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

/** Return a circle that begins at the top; `dash` draws parts of it. */
const circle = (name, radius, stroke) =>
  svg(`path.${name}`, { d: `M50 ${50 - radius}a${radius} ${radius} 0 1 1-.001 0z`, pathLength: 1, stroke });

function dash(path, from, ...lengths) {
  attr(path, "stroke-dasharray", [...lengths, 1].join(" "));
  attr(path, "stroke-dashoffset", -from);
}

export function makeRing() {
  const pieces = svg("g");
  const whisker = circle("ring-whisker", 49.2);
  const ends = circle("ring-ends", 39);
  const node = svg("svg.ring", { viewBox: "0 0 100 100", role: "img" }, pieces, whisker, ends);

  node.update = (labels, shares, words) => {
    attr(node, "aria-label", words);
    let from = 0;
    const paths = keyed(pieces, labels, String, (label) => circle("piece", 38.5, look(label).fill));
    labels.forEach((label, i) => {
      const share = shares[label]?.share ?? 0;
      dash(paths[i], from + LINE / 2, Math.max(0, share - LINE));
      from += share;
    });
    const { low = 0, high = 0 } = (labels.length === 2 && shares[labels[0]]) || {};
    const end = Math.min(LINE, high - low);
    dash(whisker, low, high - low);
    dash(ends, low, end, high - low - end, end);
  };
  return node;
}
