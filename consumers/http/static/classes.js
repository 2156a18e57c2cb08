/** What things are called, and how classes look: by colour, mark and pattern. */

import { $, attr, el, svg, text } from "./dom.js";

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
// As the configuration calls them; the same shades as style.css has.
const NAMED = { blue: "positive", red: "negative", grey: "neutral", orange: "k0", purple: "k1", green: "k2", pink: "k3", gold: "k4", indigo: "k5", brown: "k6", olive: "k7" };

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
    const colour = `var(--${NAMED[own?.colour] ?? name})`;
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
