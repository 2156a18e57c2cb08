/** Why a text was judged so: what each word pushed, and what was learned about it. */

import { bar, classNames, look, named, nameOf } from "./classes.js";
import { copy, el, part } from "./dom.js";
import { count, likelihood, signed } from "./format.js";

const MARK_MAX = 42; // per cent of colour behind a word: it stays readable
const MARK_MIN = 3;
const NAMED_MAX = 3;
const CLASSES_MAX = 3; // of more, the two that are weighed against each other

// What the tokenizer reads as one token, nearly.
const LINK = String.raw`https?://\S+|www\.\S+`;
const WORD = String.raw`\p{Script=Han}|[#@]?[\p{L}\p{N}\p{M}_]+(?:['’][\p{L}\p{N}\p{M}_]+)*`;
const IS_WORD = new RegExp(`^(?:${WORD})$`, "u");

function forms(piece) {
  if (piece.startsWith("@")) return [piece.toLowerCase(), "<user>"];
  if (/^(https?:|www\.)/i.test(piece)) return ["<link>"];
  const folded = piece.toLowerCase().replaceAll("’", "'");
  const squeezed = folded.replace(/(.)\1{2,}/gu, "$1$1");
  return [piece, folded, squeezed, squeezed.replace(/^#/, "")];
}

function learned({ counts, likelihoods }, label) {
  const theta = likelihoods?.[label];
  const small = Number.isFinite(theta) && el("small", ` θ ${likelihood(theta)}`);
  return el("td.number", label in (counts ?? {}) && count(counts[label]), small);
}

const isWords = ({ counts }) => Object.keys(counts).length > 0; // no category, flag or number

function plainly(feature) {
  const words = feature.replace(/^\^ | \$$/g, "").replace("<link>", "link").replace("<user>", "@name");
  return words.replace(/^¬/, "not ").replaceAll("¬", "");
}

function sentence(label, other, features) {
  const scores = new Map();
  for (const one of features) {
    const name = isWords(one) ? plainly(one.feature) : one.feature;
    scores.set(name, (scores.get(name) ?? 0) + one.score);
  }
  const order = [...scores].sort(([, a], [, b]) => b - a);
  const quoted = (some) => some.map(([name]) => el("bdi", `“${name}”`));
  const pros = quoted(order.filter(([, score]) => score > 0).slice(0, NAMED_MAX));
  const cons = quoted(order.filter(([, score]) => score < 0).slice(-1));
  if (!pros.length && !cons.length) return ["Nothing in it speaks for one class more than for another."];
  if (!pros.length) return [`Nothing in it speaks for ${nameOf(label)}; `, cons[0], ` speaks most for ${nameOf(other)}.`];
  const list = pros.flatMap((one, i) => (i ? [i < pros.length - 1 ? ", " : " and ", one] : [one]));
  const verb = pros.length > 1 ? "speak" : "speaks";
  return [...list, ` ${verb} most for ${nameOf(label)}`, ...(cons.length ? [", ", cons[0], ` for ${nameOf(other)}.`] : ["."])];
}

/** Return what gives each word of a text the colour of the class that it speaks for, by strength. */
export function colouring({ label, other, features }) {
  // Of a field, "score=high", the text has "score high".
  const scores = new Map(features.filter((one) => !isWords(one)).map(({ feature, score }) => [feature.replace("=", " "), score]));
  for (const { feature, score } of features.filter(isWords)) {
    const parts = feature.split(" ").filter((one) => !/^[\^$…]$/.test(one));
    for (const one of parts.map((said) => said.replace(/^¬/, ""))) {
      scores.set(one, (scores.get(one) ?? 0) + score / parts.length); // words of a pair share what it says
    }
  }
  const most = Math.max(...[...scores.values()].map(Math.abs));
  const signs = [...scores.keys()].filter((one) => !IS_WORD.test(one)).sort((a, b) => b.length - a.length);
  const escaped = signs.map((one) => one.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
  const pieces = new RegExp(`(${[LINK, ...escaped, WORD].join("|")})`, "u");
  return (said) =>
    said.split(pieces).map((piece) => {
      const score = forms(piece).map((form) => scores.get(form)).find(Boolean) ?? 0;
      const strength = Math.round((MARK_MAX * Math.abs(score)) / most);
      if (!(strength >= MARK_MIN)) return piece;
      const [side, one] = score > 0 ? ["for", label] : ["against", other];
      const title = `speaks for ${nameOf(one)}`;
      return el(`mark.${side}@word-effect`, { "--class": look(one).colour, "--strength": `${strength}%`, title }, piece);
    });
}

export function explanationTable({ label, other, intercept, features }, isOpen = false) {
  const labels = classNames();
  const shown = labels.length <= CLASSES_MAX ? labels : [label, other];
  const forces = [intercept, ...features.map(({ score }) => score)];
  const most = Math.max(...forces.map(Math.abs)) || 1;
  const hasGroups = new Set(features.map(({ group }) => group)).size > 1;

  function row(spec, name, score, feature = {}) {
    const length = Math.min(1, Math.abs(score) / most) / 2;
    const push = score < 0 ? bar(other, length, 0.5 - length) : bar(label, length, 0.5);
    return el(
      spec,
      { "data-feature": feature.feature, "data-score": score },
      el("th", { scope: "row", dir: "auto" }, name),
      el("td.push-cell", el("span.track.push", push)),
      el("td.number", signed(score)),
      shown.map((each) => learned(feature, each)),
    );
  }

  const node = copy("explaining");
  part(node, "because").append(...sentence(label, other, features));
  part(node, "numbers").open = isOpen;
  part(node, "for").append(named(label));
  part(node, "against").append(named(other));
  part(node, "columns-of").append(...shown.map((each) => el("th.number", { scope: "col" }, named(each))));
  const rows = features
    .toSorted((a, b) => Math.abs(b.score) - Math.abs(a.score))
    .map((one) => row("tr@push-row", hasGroups ? `${one.group}: ${one.feature}` : one.feature, one.score, one));
  part(node, "rows").append(...rows, row("tr.intercept@intercept-row", "before any of them", intercept));
  part(node, "sum").append(row("tr", "sum", forces.reduce((sum, score) => sum + (score ?? NaN), 0)));
  return node;
}
