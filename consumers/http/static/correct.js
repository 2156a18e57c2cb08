/** Teaching a label, and deleting a message. */

import { ask, messagePath } from "./api.js";
import { classNames, inOrder, nameOf } from "./classes.js";
import { attr, $, copy, el, on, part, text } from "./dom.js";

const TOKEN = "streamnb.token"; // kept for this visit only

let corrections = null;

export const setCorrections = (value) => (corrections = value);
export const correctionsOn = () => corrections.enabled;

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

function tell(state, how, words) {
  attr(state, "data-state", how);
  text(state, words);
}

/** Send a correction and tell how it fares; true once it is safe. */
async function send(state, path, options) {
  tell(state, "sending", "sending…");
  try {
    const secret = corrections.needs_token ? await token() : null;
    if (secret === "") return tell(state, null, "");
    await ask(path, { ...options, token: secret });
    return true;
  } catch (error) {
    if (error.status === 401 || error.status === 403) sessionStorage.removeItem(TOKEN);
    return tell(state, "failed", error.message);
  }
}

/** Make a row teach a label; return what keeps that true to its message. */
export function makeTeaching(row, message) {
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

export function makeDeleting(id, onGone) {
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
