/** One message: who, when, what, how it was judged, and on a click why. */

import { ask, messagePath } from "./api.js";
import { classNames, look, mark, named, nameOf } from "./classes.js";
import { correctionsOn, makeDeleting, makeTeaching } from "./correct.js";
import { announce, attr, copy, el, on, part, text } from "./dom.js";
import { colouring, explanationTable } from "./explain.js";
import { ago, fullTime, language, probability, withinWords } from "./format.js";

const TINT_MAX = 24; // per cent: text stays readable on it
const plain = (words) => [words];

/** Return how strong a tint is: none where all classes are as probable. */
function tint(p) {
  const least = 1 / classNames().length;
  return TINT_MAX * Math.max(0, (p - least) / (1 - least));
}

function detail({ id, label, explanation, interval, now, truth }, onGone) {
  const then = now.label === label ? "." : `; on arrival: ${nameOf(label)}.`;
  const sure = `, ${probability(now.probabilities[now.label])}${then}`;
  const facts = [
    el("li@judged-now", "Prediction now: ", named(now.label), sure),
    interval && el("li@credible-interval", withinWords(interval), "."),
    truth && el("li@stream-label", "Label in the stream: ", named(truth), "."),
  ];
  const why = explanation && explanationTable(explanation);
  return [el("ul.facts", facts), why, correctionsOn() && makeDeleting(id, onGone)].filter(Boolean);
}

/** Return a message's element, with `update(message)` and `tick(nowMs)`. */
export function makeRow(message, onToggle, onGone) {
  const node = copy("row");
  const why = part(node, "why");
  const time = part(node, "time");
  const words = part(node, "text");
  const teaching = correctionsOn() && makeTeaching(node, message);
  let current = null;

  let colour = plain; // of the words, while the reasons are open

  /** Write the text; every second piece is a word of the query. */
  function writeText() {
    words.replaceChildren(...current.marked.flatMap((piece, i) => (i % 2 ? [el("b", colour(piece))] : colour(piece))));
  }

  async function toggle() {
    const isOpen = why.matches("[aria-expanded=true]");
    attr(why, "aria-expanded", !isOpen);
    if (isOpen) {
      part(node, "detail").remove();
      colour = plain;
      writeText();
    }
    onToggle();
    if (isOpen) return;
    const place = el("div.detail@message-detail", el("p.note", "asking the model…"));
    node.append(place);
    try {
      const answer = await ask(messagePath(message.id));
      place.replaceChildren(...detail(answer, onGone));
      if (!answer.explanation || !place.isConnected) return; // closed meanwhile
      colour = colouring(answer.explanation);
      writeText();
      announce(part(place, "because").textContent);
    } catch (error) {
      place.replaceChildren(el("p.problem@detail-problem", error.message));
    }
  }

  on(node, "click", ({ target }) => {
    const isElsewhere = target.closest("button, select, .detail") || String(getSelection());
    if (target === why || !isElsewhere) toggle();
  });
  node.tick = (nowMs) => text(time, ago(message.time_ms, nowMs));
  node.update = (next) => {
    if (next === current) return;
    const isOther = String(next.marked) !== String(current?.marked);
    current = next;
    if (isOther) writeText(); // the query may be another one
    const { label, unsure, corrected } = next;
    Object.assign(node.dataset, { label, unsure });
    attr(node, "data-corrected", corrected);
    node.style.setProperty("--class", look(label).colour);
    node.style.setProperty("--tint", `${unsure ? 0 : tint(next.probability).toFixed(1)}%`);
    text(part(node, "chance"), probability(next.probability));
    text(part(node, "judged-label"), unsure ? "unsure" : nameOf(label));
    part(node, "mark")?.remove();
    part(node, "judged").prepend(mark(label));
    part(node, "badges").replaceChildren(...(corrected ? [mark(corrected), `corrected: ${nameOf(corrected)}`] : []));
    if (teaching) teaching(next);
  };
  /** Show what depends on which classes there are. */
  node.refresh = () => {
    const same = current;
    current = null;
    node.update(same);
  };

  Object.assign(node.dataset, { key: message.key, id: message.id });
  text(part(node, "user"), message.user ? `@${message.user}` : "");
  time.dateTime = new Date(message.time_ms).toISOString();
  time.title = fullTime(message.time_ms);
  if (language(message.lang) !== message.lang) words.lang = message.lang; // one that there is
  node.update(message);
  node.tick(Date.now());
  return node;
}
