/** Saved searches as cards. They are kept in this browser alone. */

import { address } from "./api.js";
import { inOrder, named, nameOf } from "./classes.js";
import { attr, $, copy, el, keyed, on, part, text } from "./dom.js";
import { inWords, makeRing, sharesOf } from "./figures.js";
import { count, probability, withError } from "./format.js";

const KEY = "streamnb.saved";
const SAVED_MAX = 8;
const CLASSES_MAX = 3; // on a card

const keyOf = ({ q, lang }) => `${lang} ${q}`;

let kept = [];

export function loadSaved() {
  try {
    const all = JSON.parse(localStorage.getItem(KEY)).map(({ q = "", lang = "" }) => ({ q: `${q}`, lang: `${lang}` }));
    kept = [...new Map(all.map((one) => [keyOf(one), one])).values()].slice(0, SAVED_MAX);
  } catch {
    // Nothing is kept, or storage forbidden.
  }
}

export const savedSearches = () => kept;

export function toggleSaved({ q, lang }) {
  const others = kept.filter((one) => keyOf(one) !== keyOf({ q, lang }));
  kept = others.length < kept.length ? others : [...kept, { q, lang }];
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
  }
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
    $("save-search").focus(); // what had the focus is gone
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

/** Draw the cards; `onChange` hears when one was taken away. */
export function showSaved(onChange) {
  $("saved").hidden = kept.length === 0;
  keyed($("saved-cards"), kept, keyOf, (search) => makeCard(search, onChange));
}

export const savedEvent = (kind, index, data) => $("saved-cards").children[index]?.[kind]?.(data);
