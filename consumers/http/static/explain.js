/** Why a text was judged so: what each word pushed, and what was learned about it. */

import { bar, classNames, named } from "./classes.js";
import { copy, el, part } from "./dom.js";
import { count, likelihood, signed } from "./format.js";

const CLASSES_MAX = 3; // of more, the two that are weighed against each other

function learned({ counts, likelihoods }, label) {
  const theta = likelihoods?.[label];
  const small = Number.isFinite(theta) && el("small", ` θ ${likelihood(theta)}`);
  return el("td.number", label in (counts ?? {}) && count(counts[label]), small);
}

export function explanationTable({ label, other, intercept, features }) {
  const labels = classNames();
  const shown = labels.length <= CLASSES_MAX ? labels : [label, other];
  const forces = [intercept, ...features.map(({ score }) => score)];
  const most = Math.max(...forces.map(Math.abs)) || 1;
  const hasGroups = new Set(features.map(({ group }) => group)).size > 1;

  /** A row with a bar from the middle: right for the label, left for the other. */
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
