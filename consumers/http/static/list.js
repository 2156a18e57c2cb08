/** The list of messages, newest first. New ones wait, unless the reader follows. */

import { attr, $, coalesced, keyed, on, text } from "./dom.js";
import { count } from "./format.js";
import { makeRow } from "./row.js";

const ROWS_MAX = 50;
// More at a time could not be read: the newest stand for the rest.
const ROWS_AT_A_TIME_MAX = 8;
const ROW_PX_MIN = 76;

const keyOf = ({ key, id }) => `${key} ${id}`;

/** Return the list; `onGone(id)` hears of a deletion made in it. */
export function makeList(onGone) {
  const list = $("messages");
  const reasons = new Set(); // why it keeps still for now, although the reader follows
  let shown = [];
  let waiting = []; // newer than all that is shown
  let isLive = true; // false on a page of older ones
  let isFollowing = false;
  let most = ROWS_MAX; // to be drawn in the next frame
  let isComing = false; // on top of others: they fade in

  const isStill = () => !isFollowing || reasons.size > 0;
  const onToggle = () => hold("open", list.querySelector("[aria-expanded=true]"));
  const draw = coalesced(() => {
    const rows = keyed(list, shown.slice(0, most), keyOf, (message) => {
      const row = makeRow(message, onToggle, onGone);
      row.classList.toggle("coming", isComing);
      // Else it would fade in again each time that the view is shown.
      on(row, "animationend", () => row.classList.remove("coming"));
      return row;
    });
    rows.forEach((row, i) => row.update(shown[i]));
    onToggle();
    if (most < shown.length) draw();
    most = ROWS_MAX;
  });

  function take(newer, before = shown) {
    isComing = before.length > 0;
    shown = [...newer, ...before].slice(0, ROWS_MAX);
    waiting = [];
    draw();
    tell();
  }

  function tell() {
    const n = waiting.length;
    if (n) text($("show-new"), `Show ${count(n)}${n < ROWS_MAX ? "" : "+"} new`);
    $("show-new").hidden = n === 0;
    $("newest").hidden = $("older-note").hidden = isLive;
    if (isLive) $("older").hidden = shown.length < ROWS_MAX;
  }

  function catchUp() {
    if (!isStill() && waiting.length) take(waiting);
    else tell();
  }

  function hold(reason, isOn) {
    if (isOn) reasons.add(reason);
    else reasons.delete(reason);
    catchUp();
  }

  on(list, "pointerenter", (event) => hold("hover", event.pointerType === "mouse"));
  on(list, "pointerleave", () => hold("hover", false));
  on(list, "focusin", () => hold("focus", true));
  on(list, "focusout", (event) => hold("focus", list.contains(event.relatedTarget)));
  const isAbove = ([entry]) => hold("reading", !entry.isIntersecting && entry.boundingClientRect.top < 0);
  new IntersectionObserver(isAbove).observe($("stream-start"));
  on($("show-new"), "click", () => {
    take(waiting);
    $("follow").focus(); // this button is gone
    if ($("stream").getBoundingClientRect().top < 0) $("stream").scrollIntoView();
  });
  $("follow").disabled = false;
  on($("follow"), "click", ({ currentTarget: button }) => {
    isFollowing = !isFollowing;
    attr(button, "aria-pressed", isFollowing);
    catchUp();
  });

  return {
    /** Show others, `live` if newer ones may follow: what fits on the screen at once, the rest a frame later. */
    replace(messages, live = true) {
      isLive = live;
      most = Math.ceil(innerHeight / ROW_PX_MIN);
      take(messages, []);
    },
    /** Hear which are the newest now: count those that are new, or show them to a reader who follows. */
    receive(messages) {
      if (!isLive) return;
      // What had the focus may have gone without a word.
      if (!list.contains(document.activeElement)) reasons.delete("focus");
      const newestKey = shown[0]?.key ?? -1;
      // Keys only grow: where they do not, messages have left, or the daemon has begun a new store.
      if (!(messages[0]?.key >= newestKey)) return take(messages, []);
      const byKey = new Map(messages.map((message) => [message.key, message]));
      shown = shown.map((message) => byKey.get(message.key) ?? message);
      // After a deletion the list fills up from below.
      const oldestKey = shown.at(-1)?.key ?? -1;
      shown = [...shown, ...messages.filter(({ key }) => key < oldestKey)].slice(0, ROWS_MAX);
      const newer = messages.filter(({ key }) => key > newestKey);
      // In an empty list nothing can move.
      if (!isStill() || shown.length === 0) {
        return take(newer.slice(0, Math.max(ROWS_AT_A_TIME_MAX, ROWS_MAX - shown.length)));
      }
      waiting = newer;
      draw();
      return tell();
    },
    change({ id, corrected, removed }) {
      const edit = (message) => (message.id !== id ? message : !removed && { ...message, corrected });
      shown = shown.map(edit).filter(Boolean);
      waiting = waiting.map(edit).filter(Boolean);
      draw();
      tell();
    },
    refresh: () => [...list.children].forEach((row) => row.refresh?.()),
    tick: (nowMs) => [...list.children].forEach((row) => row.tick?.(nowMs)),
    isLive: () => isLive,
    size: () => shown.length,
    oldestKey: () => shown.at(-1)?.key,
  };
}
