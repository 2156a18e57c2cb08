/** The figures of a search: shares by class and counts; and of saved searches, as cards. */

import { address } from "./api.js";
import { bar, inOrder, leading, look, named, nameOf, names } from "./classes.js";
import { $, attr, copy, el, keyed, on, part, say, svg, text } from "./dom.js";
import { count, fine, percent, probability, withError } from "./format.js";
import { makeSeries } from "./series.js";

const OUTER = 46;
const INNER = 31;
const WHISKER = 49.2;

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

export const sharesOf = ({ corrected, raw, classes }) =>
  Object.fromEntries(classes.map((label) => [label, corrected?.[label] ?? { share: raw[label] }]));

export const inWords = (shares) =>
  Object.entries(shares).map(([label, share]) => `${nameOf(label)} ${withError(share)}`).join(", ");

function percentNote(summary) {
  if (!summary.enough) {
    return `At least ${count(summary.messages_min)} ${names.messages} needed for a share; ${count(summary.n)} found.`;
  }
  if (summary.corrected) return "Corrected for the model’s errors, with 95% intervals.";
  return `Share of predictions, not corrected. ${summary.corrected_reason}`;
}

function countNote({ n, newest_only: isCut, n_unsure: unsure }) {
  const which = `${isCut ? "Latest " : ""}${count(n)} ${n === 1 ? "match" : "matches"}.`;
  return unsure ? `${which} ${count(unsure)} unsure (${percent(unsure / n)}).` : which;
}

function sampleNote({ share, stored_per_s: stored, offered_per_s: offered }) {
  if (share >= 0.995) return null;
  const kept = (part) => percent(part, +(part < 0.095));
  const rates = stored / offered < 0.995 ? `; in the last minute ${kept(stored / offered)}, ${count(stored)} of ${count(offered)} ${names.messages} per second` : "";
  return `A sample: ${kept(share)} of the stream is stored${rates}.`;
}

export function makeFigures(onRoute, hasHistory) {
  const ring = makeRing();
  ring.dataset.testid = "ring";
  const shareBars = makeBars("share-row", "share", "raw-share");
  const countBars = makeBars("count-row", "count");
  const series = makeSeries(onRoute, hasHistory);
  $("percent").append(shareBars);
  let last = null;

  function drawPercent() {
    const { enough, corrected, raw } = last;
    const labels = inOrder(last.classes);
    text($("percent-note"), percentNote(last));
    $("raw-label").hidden = !enough || !corrected;
    $("percent").hidden = !enough;
    if (!enough) return ring.remove();
    if (!ring.isConnected) $("ring-around").prepend(ring);
    const shares = sharesOf(last);
    ring.update(labels, shares, inWords(shares));
    const lead = leading(Object.fromEntries(labels.map((label) => [label, shares[label].share])));
    text($("ring-share"), percent(shares[lead].share));
    text($("ring-class"), nameOf(lead));
    const wantsRaw = corrected && $("raw").checked;
    return shareBars.update(labels, (label) => {
      const share = shares[label];
      return { ...share, words: withError(share), raw: wantsRaw && `raw ${fine(raw[label])}` };
    });
  }

  on($("raw"), "change", () => last && drawPercent());
  function draw(summary) {
    last = summary;
    drawPercent();
    const { counts } = summary;
    const labels = inOrder(summary.classes);
    const most = Math.max(1, ...Object.values(counts));
    if (!countBars.isConnected) $("counts").replaceChildren(countBars);
    countBars.update(labels, (label) => ({ share: counts[label] / most, words: count(counts[label]) }));
    text($("count-note"), countNote(summary));
    series.draw(summary);
    say($("sample-note"), sampleNote(summary.sample));
  }

  return { draw, show: series.show };
}

const KEY = "streamnb.saved";
const SAVED_MAX = 8;
const CLASSES_MAX = 3;

const keyOf = ({ q, lang }) => `${lang} ${q}`;

let kept = [];

export function loadSaved() {
  try {
    const all = JSON.parse(localStorage.getItem(KEY)).map(({ q = "", lang = "" }) => ({ q: `${q}`, lang: `${lang}` }));
    kept = [...new Map(all.map((one) => [keyOf(one), one])).values()].slice(0, SAVED_MAX);
  } catch {
    // Storage is forbidden.
  }
}

export const savedSearches = () => kept;

export function toggleSaved({ q, lang }) {
  const others = kept.filter((one) => keyOf(one) !== keyOf({ q, lang }));
  kept = others.length < kept.length ? others : [...kept, { q, lang }];
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {}
}

export function showSaveButton(search) {
  const button = $("save-search");
  const isSaved = kept.some((one) => keyOf(one) === keyOf(search));
  attr(button, "aria-pressed", isSaved);
  const isFull = kept.length >= SAVED_MAX;
  text(button, isSaved ? "Saved" : isFull ? `${SAVED_MAX} searches saved (the most)` : "Save this search");
  button.disabled = isFull && !isSaved;
}

function makeCard(search, onChange) {
  const name = (search.q || "everything") + (search.lang && ` (${search.lang})`);
  const ring = makeRing();
  const node = copy("card");
  const newest = part(node, "card-newest");
  const open = part(node, "open");
  const remove = part(node, "remove");
  attr(node, "data-q", search.q);
  attr(open, "href", address({ view: "search", ...search }));
  text(open, name);
  attr(remove, "aria-label", `Remove the saved search ${name}`);
  on(remove, "click", () => {
    toggleSaved(search);
    onChange();
    $("save-search").focus();
  });
  part(node, "card-top").after(ring);

  node.summary = (summary) => {
    const { enough, n, counts } = summary;
    const classes = inOrder(summary.classes);
    const shares = sharesOf(summary);
    ring.classList.toggle("faint", !enough);
    ring.update(classes, enough ? shares : {}, enough ? inWords(shares) : "too few for a share");
    const figure = (label) => el("li", named(label), el("span", enough ? withError(shares[label]) : count(counts[label])));
    part(node, "card-figures").replaceChildren(...classes.slice(0, CLASSES_MAX).map(figure));
    text(part(node, "note"), enough ? `of ${count(n)}${summary.newest_only ? "+" : ""}` : `${count(n)} found`);
  };
  node.messages = ({ messages: [first] }) =>
    text(newest, first ? `${probability(first.probability)} ${nameOf(first.label)}: ${first.text}` : "");
  node.problem = ({ detail }) => text(newest, detail);
  return node;
}

export function showSaved(onChange) {
  $("saved").hidden = kept.length === 0;
  keyed($("saved-cards"), kept, keyOf, (search) => makeCard(search, onChange));
}

export const savedEvent = (kind, index, data) => $("saved-cards").children[index]?.[kind]?.(data);
