/**
 * How classes look: a colour, a mark and a pattern each, so that colour is never the only sign.
 * Well-known names keep their meaning; any others take their turn in a cycle.
 */

import { el, svg } from "./dom.js";

// Marks, in a box of 12 by 12.
const MARKS = {
  circle: "M6 1a5 5 0 1 0 0 10A5 5 0 0 0 6 1z",
  square: "M1.5 1.5h9v9h-9z",
  cross: "M3.2 1 6 3.8 8.8 1 11 3.2 8.2 6 11 8.8 8.8 11 6 8.2 3.2 11 1 8.8 3.8 6 1 3.2z",
  bar: "M1 4h10v4H1z",
  hexagon: "M3.2 1.2h5.6L11.6 6l-2.8 4.8H3.2L.4 6z",
  left: "M9.5 1v10L1 6z",
  right: "M2.5 1v10L11 6z",
  diamond: "M6 .8 11.2 6 6 11.2.8 6z",
  up: "M1 9.5h10L6 1z",
  down: "M1 2.5h10L6 11z",
};

// Patterns, in tiles of 8 by 8; style.css has the same for bars.
const PATTERNS = {
  solid: "",
  lines: "M-1 7 7-1M3 11 11 3",
  dots: "M1 2h2M5 6h2",
  rails: "M0 4h8",
};

const KNOWN = {
  negative: ["negative", "down", "lines"],
  neutral: ["neutral", "diamond", "dots"],
  positive: ["positive", "up", "solid"],
};
const COLOURS = 8;

const looks = new Map();
const turn = (names, i) => names[i % names.length];

/** Learn which classes there are, in the model's order, and make their patterns. */
export function setClasses(labels) {
  const tiles = labels.map((label, i) => {
    const others = [`k${i % COLOURS}`, turn(Object.keys(MARKS), i), turn(Object.keys(PATTERNS), i)];
    const [name, mark, pattern] = KNOWN[label.toLowerCase()] ?? others;
    const colour = `var(--${name})`;
    looks.set(label, { colour, mark: MARKS[mark], pattern, fill: `url(#pattern-${i})` });
    return svg(
      "pattern",
      { id: `pattern-${i}`, width: 8, height: 8, patternUnits: "userSpaceOnUse", "--class": colour },
      svg("rect", { width: 8, height: 8 }),
      svg("path", { d: PATTERNS[pattern] }),
    );
  });
  document.body.append(svg("svg.patterns", { "aria-hidden": "true" }, tiles));
}

export const classNames = () => [...looks.keys()];

export const look = (label) => looks.get(label) ?? looks.values().next().value;

/** Return the class's mark; its name is always said beside it. */
export const mark = (label) =>
  svg(
    "svg.mark",
    { viewBox: "0 0 12 12", "aria-hidden": "true", "--class": look(label).colour },
    svg("path", { d: look(label).mark }),
  );

export const named = (label) => el("span.named", mark(label), label);

/** Return a bar that takes a share of its track, from some place on. */
export function bar(label, share, from = 0) {
  const { colour, pattern } = look(label);
  return el(`span.bar.${pattern}`, { "--class": colour, "--from": from, "--share": share });
}

export const leading = (values) =>
  Object.keys(values).reduce((best, label) => (values[label] > values[best] ? label : best));
