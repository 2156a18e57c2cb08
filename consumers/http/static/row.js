/** One message: how it was judged, on a click why; here it is taught and deleted. */

import { ask, messagePath } from "./api.js";
import { classNames, inOrder, look, mark, named, nameOf } from "./classes.js";
import { announce, attr, $, copy, el, on, part, text } from "./dom.js";
import { colouring, explanationTable } from "./explain.js";
import { ago, fullTime, language, probability, withinWords } from "./format.js";

const TOKEN = "streamnb.token"; // kept for this visit only

let corrections = null;

export const setCorrections = (value) => (corrections = value);
const correctionsOn = () => corrections.enabled;

/** Return the token, which is asked for once; empty where the reader does not say. */
async function token() {
  const known = sessionStorage.getItem(TOKEN);
  if (known) return known;
  const dialog = $("token-dialog");
  $("token").value = dialog.returnValue = "";
  dialog.showModal();
  await new Promise((closed) => dialog.addEventListener("close", closed, { once: true }));
  const given = dialog.returnValue && $("token").value.trim();
  sessionStorage.setItem(TOKEN, given);
  return given;
}

export function tell(state, how, words) {
  attr(state, "data-state", how);
  text(state, words);
}

/** Send a correction and tell how it fares; return the receipt once it is safe. */
export async function send(state, path, options) {
  tell(state, "sending", "sending…");
  try {
    const secret = corrections.needs_token ? await token() : null;
    if (secret === "") return tell(state, null, "");
    return await ask(path, { ...options, token: secret });
  } catch (error) {
    if (error.status === 401 || error.status === 403) sessionStorage.removeItem(TOKEN);
    return tell(state, "failed", error.message);
  }
}

function makeTeaching(row, message) {
  const state = part(row, "teach-state");
  const select = part(row, "teach-select");
  const buttons = [...row.querySelectorAll(".thumb")];
  let current = message;
  let isSending = false;

  function show() {
    const labels = classNames();
    // Of these two classes thumbs say it all.
    const isThumbs = labels.toSorted().join() === "negative,positive";
    // The first option is none; classes only join, behind the others.
    const news = isThumbs ? [] : labels.slice(select.length - 1);
    select.append(...inOrder(news).map((label) => el("option", { value: label }, nameOf(label))));
    select.hidden = isThumbs;
    const hadFocus = buttons.includes(document.activeElement);
    for (const button of buttons) button.hidden = !isThumbs;
    if (hadFocus && !isThumbs) select.focus();
    for (const button of buttons) attr(button, "aria-pressed", button.dataset.label === current.corrected);
    select.value = current.corrected ?? "";
  }

  async function teach(label) {
    if (isSending || !label || label === current.corrected) return;
    isSending = true;
    const isSafe = await send(state, "/v1/labels", { method: "POST", body: { id: current.id, label } });
    // The change may come before the answer to what asked for it.
    if (isSafe && current.corrected !== label) tell(state, "accepted", `sent: ${nameOf(label)}; being learned…`);
    isSending = false;
    show();
  }

  on(select, "change", () => teach(select.value));
  for (const button of buttons) on(button, "click", () => teach(button.dataset.label));
  part(row, "teach").hidden = false;
  show();
  return (next) => {
    const isNews = next.corrected && next.corrected !== current.corrected;
    current = next;
    if (isNews) tell(state, "changed", `learned: ${nameOf(next.corrected)}`);
    show();
  };
}

function makeDeleting(id, onGone) {
  const node = copy("deleting");
  const [first, confirm, cancel] = node.querySelectorAll("button");

  function show(isAsked) {
    first.hidden = isAsked;
    confirm.hidden = cancel.hidden = !isAsked;
    (isAsked ? cancel : first).focus();
  }

  on(first, "click", () => show(true));
  on(cancel, "click", () => show(false));
  on(confirm, "click", async () => {
    confirm.disabled = true;
    if (await send(part(node, "teach-state"), messagePath(id), { method: "DELETE" })) onGone(id);
    confirm.disabled = false;
  });
  return node;
}

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
