/** The view of a search: its box, figures and messages, newest first; and saved searches. */

import { $, address, ago, announce, ask, asked, attr, capital, classNames, coalesced, copy, correctionsOn, count, debounced, el, fine, fullTime, inOrder, keyed, language, leading, look, makeBars, makeRing, mark, meant, messagePath, moment, named, nameOf, names, on, onClasses, part, percent, probability, QUERY_MAX, queryOf, say, send, tell, text, withError, withinWords } from "./base.js";
import { colouring, explanationTable } from "./model.js";
import { estimate, inMoved, isSampled, makeComparison, makeSeries, timesOf } from "./series.js";

const TYPING_MS = 250;
const PAGE = 50;
const TOLD_MS = 10_000; // so long what failed is told

/** Return what is searched while one types: the last word may go on. */
function asYouType(typed) {
  const last = /(?:^|[\s_])[-#@]*([\p{L}\p{N}]+)$/u.exec(typed);
  if (!last || typed.split('"').length % 2 === 0) return typed.trim();
  return [...last[1]].length === 1 ? typed.slice(0, last.index).trim() : `${typed.trim()}*`;
}

/** Return the view; `onRoute` hears what is not of the query. */
export function makeSearch(onQuery, onRoute, hasHistory, conditions) {
  const box = $("q");
  const lang = $("lang");
  const figures = makeFigures(onRoute, hasHistory);
  const comparison = makeComparison(onRoute);
  const list = makeList((id) => {
    announce(`The ${names.message} is deleted.`);
    change({ id, removed: true });
    $("follow").focus();
  });
  onClasses(list.refresh);
  let query = {};
  let range = "";
  let times; // chosen in the chart; its messages are listed
  let before = null; // the key below which the next older page begins
  let failedMs = 0; // when that page could last not be had
  let summary = null;
  let isFresh = true; // no message has come for it yet
  let isStale = false; // events may have been missed
  let alerted; // the newest alert

  const draw = coalesced(() => {
    if (!summary) return;
    figures.draw(summary);
    attr($("stream"), "aria-busy", false);
  });
  const typed = debounced(
    () => box.checkVisibility() && onQuery({ q: asYouType(box.value), lang: lang.value }, true),
    TYPING_MS,
  );

  function commit(event) {
    event.preventDefault();
    typed.stop();
    onQuery({ q: box.value.trim(), lang: lang.value }, event.type === "submit" ? false : undefined);
  }

  on(box, "input", typed);
  on(lang, "change", commit);
  on($("search-form"), "submit", commit);

  /** Return the matches below a key, or the newest; an empty page may have more behind it. */
  async function pageBelow(below) {
    const page = await ask(`/v1/search${queryOf({ ...asked(query), ...times, limit: PAGE, before: below })}`);
    return page.more && !page.messages.length ? pageBelow(page.before) : page;
  }

  async function turn(below, isAsked = true) {
    const asking = (query = { ...query }); // a later one ends this
    try {
      const page = await pageBelow(below);
      if (asking !== query) return;
      before = page.before;
      $("columns").hidden || say($("search-problem"));
      list.replace(page.messages, !below && !times);
      $("older").hidden = !page.more;
      showEmpty();
      if (!isAsked) return;
      $("stream").scrollIntoView();
      $("follow").focus();
    } catch (error) {
      if (asking === query) say($("search-problem"), error.message);
      failedMs = Date.now();
    }
  }

  /** Ask again: some may be deleted. */
  async function askAgain() {
    const asking = query;
    const top = list.newestKey() + 1;
    isStale = false;
    const page = await pageBelow(top).catch(() => null);
    if (asking !== query) return;
    isStale = !page;
    if (isStale) return;
    before = page.before;
    list.renew(page.messages, top);
  }

  on($("older"), "click", () => turn(list.isLive() ? list.oldestKey() : before));
  on($("newest"), "click", () => (times ? onRoute({ range: "" }) : turn()));
  on($("follow"), "click", () => list.isLive() || $("newest").click());

  function sayResult() {
    const shares = summary.enough ? inWords(sharesOf(summary)) : `too few ${names.messages} for a share`;
    announce(`${count(summary.n)} for ${query.q || "everything"}: ${shares}.`);
  }

  function showEmpty() {
    const about = query.q && ` with ${query.q}`;
    const hint = /[:<>=]/.test(query.q) ? ` Conditions begin with ${conditions.join(":, ")}:.` : "";
    const news = times ? "are stored of this time." : "yet. New ones appear here as they come.";
    say($("messages-empty"), list.size() ? null : `No ${names.messages}${about} ${news}${hint}`);
  }

  function showMessages(messages) {
    if (isFresh && !times) list.replace(messages);
    else list.receive(messages);
    isFresh = false;
    times || showEmpty();
  }

  function showExports(nowMs) {
    for (const format of ["csv", "jsonl"]) attr($(`export-${format}`), "href", `/v1/export${queryOf({ ...asked(query), ...timesOf(range, nowMs), format })}`);
    text($("export-what"), range ? "Download the time of the chart:" : "Download:");
  }

  function offer(codes) {
    const news = codes.filter((code) => ![...lang.options].some(({ value }) => value === code));
    lang.append(...news.map((code) => el("option", { value: code }, language(code))));
    lang.hidden = lang.length < 2;
  }

  function change(data) {
    list.change(data);
    showEmpty();
  }

  return {
    change,
    rebuild: list.rebuild,
    tick(nowMs) {
      list.tick(nowMs);
      showExports(nowMs);
    },
    offer,
    show(route, isTyping) {
      const next = { q: route.q, lang: route.lang };
      if (!isTyping) {
        typed.stop();
        if (box.value.trim() !== next.q) box.value = next.q;
      }
      offer([next.lang]);
      lang.value = next.lang;
      figures.show(next, route.range);
      comparison.show(route);
      const isSame = query.q === next.q && query.lang === next.lang;
      const isTurned = (times || route.range.includes("-")) && (!isSame || range !== route.range);
      range = route.range;
      times = range.includes("-") && timesOf(range);
      if (!isSame) query = next;
      showExports(Date.now());
      if (isTurned && !isSame) list.replace([], false);
      if (isTurned) turn(null, document.activeElement === $("newest"));
      if (isSame) return;
      isFresh = true;
      summary = null;
      text($("search-query"), next.q || "everything");
      text($("messages-heading"), next.q ? `${capital(names.messages)} with ${next.q}` : `All ${names.messages}`);
      say($("search-problem"), null);
      attr($("stream"), "aria-busy", true);
      $("columns").hidden = false;
    },
    summary(data) {
      const isFirst = !summary;
      summary = data;
      if ($("columns").hidden || Date.now() > failedMs + TOLD_MS) say($("search-problem"));
      $("columns").hidden = false; // a problem may have hidden them
      draw();
      comparison.refresh();
      if (isFirst && !times && box.checkVisibility()) sayResult();
      if (isStale && list.size()) askAgain();
      if (data.n === 0) showMessages([]); // without messages there may be no event of them
    },
    messages: ({ messages }) => showMessages(messages),
    reconnected() {
      isStale = !isFresh;
      $("columns").hidden || say($("search-problem")); // else the query itself was refused
    },
    alerts(all) {
      const newest = JSON.stringify(all.at(-1));
      if (newest !== alerted) $("alerts-box").open = Boolean((alerted = newest)); // though it was closed
      keyed($("alerts"), all.toReversed(), JSON.stringify, ({ query: q, from_ms: from, split_ms: split, to_ms: to, moved }) =>
        el("li", el("a", { href: address({ view: "search", q, change: `${from}-${split}-${to}` }), "data-view": "search" }, `${moment(to)}, ${q || "everything"}`), `: ${inMoved(moved)}`));
    },
    problem({ detail }) {
      const { length } = [...query.q];
      say($("search-problem"), length > QUERY_MAX ? `The query has ${count(length)} characters. Shorten it.` : detail);
      $("columns").hidden = true; // it is not the answer
    },
  };
}

const sharesOf = (summary) =>
  Object.fromEntries(summary.classes.map((label) => [label, estimate(summary, label)]));

const inWords = (shares) =>
  Object.entries(shares).map(([label, share]) => `${nameOf(label)} ${withError(share)}`).join(", ");

const KEY = "streamnb.saved";
const SAVED_MAX = 8;
const CLASSES_MAX = 3;

const queryKey = ({ q, lang }) => `${lang} ${q}`;

/** Return the saved searches; `onChange` hears when one comes or goes. */
export function makeSaved(onChange) {
  let all = [];

  const draw = () => {
    $("saved").hidden = all.length === 0;
    keyed($("saved-cards"), all, queryKey, (search) => makeCard(search, toggle));
  };

  function toggle({ q, lang }) {
    const others = all.filter((one) => queryKey(one) !== queryKey({ q, lang }));
    all = others.length < all.length ? others : [...all, { q, lang }];
    try {
      localStorage.setItem(KEY, JSON.stringify(all));
    } catch {
      // Storage is forbidden.
    }
    draw();
    onChange();
  }

  return {
    all: () => all,
    toggle,
    load() {
      try {
        const read = JSON.parse(localStorage.getItem(KEY)).map(({ q = "", lang = "" }) => ({ q: `${q}`, lang: `${lang}` }));
        all = [...new Map(read.map((one) => [queryKey(one), one])).values()].slice(0, SAVED_MAX);
      } catch {
        // Storage is forbidden.
      }
      draw();
    },
    show(route) {
      const button = $("save-search");
      const isSaved = all.some((one) => queryKey(one) === queryKey(route));
      attr(button, "aria-pressed", isSaved);
      const isFull = all.length >= SAVED_MAX;
      text(button, isSaved ? "Saved" : isFull ? `${SAVED_MAX} searches saved (the most)` : "Save this search");
      button.disabled = isFull && !isSaved;
    },
  };
}

function makeCard(search, onRemove) {
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
    onRemove(search);
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

function percentNote(summary) {
  if (!summary.enough) {
    return `At least ${count(summary.messages_min)} ${names.messages} needed for a share; ${count(summary.n)} found.`;
  }
  if (summary.corrected) return "Corrected for the model’s errors, with 95% intervals.";
  return `Shares of predictions with 95% intervals, not corrected. ${summary.corrected_reason}`;
}

function countNote({ n, is_everything: isAll, newest_only: isCut, n_unsure: unsure, sample }) {
  const [one, several] = isAll ? [names.message, names.messages] : ["match", "matches"];
  const which = `${isCut ? "Latest " : ""}${count(n)} ${isSampled(sample) ? "stored " : ""}${n === 1 ? one : several}.`;
  return unsure ? `${which} ${count(unsure)} unsure (${unsure < n ? probability(unsure / n) : percent(1)}).` : which;
}

function sampleNote(sample) {
  if (!isSampled(sample)) return null;
  const { share, stored_per_s: stored, offered_per_s: offered } = sample;
  const kept = (part) => percent(part, +(part < 0.095));
  const rates = stored / offered < 0.995 ? `; in the last minute ${kept(stored / offered)}, ${count(stored)} of ${count(offered)} ${names.messages} per second` : "";
  return `A sample: ${kept(share)} of the stream is stored${rates}. Shares and their chart allow for it; counts by class do not.`;
}

function makeFigures(onRoute, hasHistory) {
  const ring = makeRing();
  ring.dataset.testid = "ring";
  const shareBars = makeBars("share-row", "share", "raw-share");
  const countBars = makeBars("count-row", "count");
  const series = makeSeries(onRoute, drawFigures, hasHistory);
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
  function drawFigures(summary) {
    attr($("figures"), "aria-busy", !summary);
    if (!summary) return;
    last = summary;
    drawPercent();
    const { counts } = summary;
    const labels = inOrder(summary.classes);
    const most = Math.max(1, ...Object.values(counts));
    if (!countBars.isConnected) $("counts").replaceChildren(countBars);
    countBars.update(labels, (label) => ({ share: counts[label] / most, words: count(counts[label]) }));
    text($("count-note"), countNote(summary));
    say($("sample-note"), sampleNote(summary.sample));
  }

  return series;
}

function makeTeaching(row, message) {
  const state = part(row, "teach-state");
  const select = part(row, "teach-select");
  const buttons = [...row.querySelectorAll(".thumb")];
  let current = message;
  let isSending = false;
  let wanted = null; // chosen meanwhile

  function show() {
    const labels = classNames();
    const isThumbs = [labels, labels.map(nameOf)].every((all) => all.toSorted().join() === "negative,positive");
    // The first option is none; classes only join, behind the others.
    const news = isThumbs ? [] : labels.slice(select.length - 1);
    select.append(...inOrder(news).map((label) => el("option", { value: label }, nameOf(label))));
    select.hidden = isThumbs;
    const hadFocus = buttons.includes(document.activeElement);
    for (const button of buttons) {
      button.hidden = !isThumbs;
      attr(button, "aria-pressed", button.dataset.label === current.corrected);
    }
    if (hadFocus && !isThumbs) select.focus();
    select.value = current.corrected ?? "";
  }

  async function teach(label) {
    if (isSending) wanted = label;
    if (isSending || !label || label === current.corrected) return;
    isSending = true;
    const isSafe = await send(state, "/v1/labels", { method: "POST", body: { id: current.id, label } });
    // The change may come before the answer to what asked for it.
    if (isSafe && current.corrected !== label) tell(state, "accepted", `sent: ${nameOf(label)}; being learned…`);
    isSending = false;
    show();
    [label, wanted] = [wanted, null];
    teach(label);
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

const AGAIN_MS = 1_000;
const TIMES_MAX = 10;
const TINT_MAX = 24; // per cent: text stays readable on it
const plain = (words) => [words];

function tint(p) {
  const least = 1 / classNames().length;
  return TINT_MAX * Math.max(0, (p - least) / (1 - least));
}

function detail({ id, label, explanation, interval, now, truth }, onGone, isOpen) {
  const then = now.label === label ? "." : `; on arrival: ${nameOf(label)}.`;
  const sure = `, ${probability(now.probabilities[now.label])}${then}`;
  const facts = [
    el("li@judged-now", "Prediction now: ", named(now.label), sure),
    now.prediction_set && el("li", meant(now.prediction_set)),
    interval && el("li@credible-interval", withinWords(interval), "."),
    truth && el("li@stream-label", "Label in the stream: ", named(truth), "."),
  ];
  const why = explanation && explanationTable(explanation, isOpen);
  return [el("ul.facts", facts), why, correctionsOn() && makeDeleting(id, onGone)].filter(Boolean);
}

function makeRow(message, onToggle, onGone) {
  const node = copy("row");
  const why = part(node, "why");
  const time = part(node, "time");
  const words = part(node, "text");
  const teaching = correctionsOn() && makeTeaching(node, message);
  let current = null;

  let colour = plain; // of the words, while the reasons are open

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
    node.append(copy("detail"));
    explain();
  }

  /** Ask for the reasons, again until the next snapshot answers. */
  async function explain(times = 0, known = null) {
    const place = part(node, "detail");
    // What the reader is at stays, and what is deleted is not asked for.
    if (!place?.isConnected || (times && place.matches(":focus-within"))) return;
    try {
      const answer = await ask(messagePath(message.id));
      const version = answer.snapshot_version;
      if (times && version === (known ?? version)) setTimeout(explain, AGAIN_MS, times - 1, version);
      const isOpen = part(place, "numbers")?.open;
      place.replaceChildren(...detail(answer, onGone, isOpen));
      if (!answer.explanation || !place.isConnected) return;
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
    if (current && current.corrected !== next.corrected) explain(TIMES_MAX);
    current = next;
    if (isOther) writeText();
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
  text(part(node, "user"), (message.user ?? "").replace(/^\S+$/, `${names.user_prefix}$&`));
  time.dateTime = new Date(message.time_ms).toISOString();
  time.title = fullTime(message.time_ms);
  if (language(message.lang) !== message.lang) words.lang = message.lang; // one that there is
  node.update(message);
  node.tick(Date.now());
  return node;
}

const ROWS_MAX = 50;
const ROWS_AT_A_TIME_MAX = 8;
const ROW_PX_MIN = 76;

const keyOf = ({ key, id }) => `${key} ${id}`;

/** Return the list; `onGone(id)` hears of a deletion made in it. */
function makeList(onGone) {
  const list = $("messages");
  const reasons = new Set(); // why it keeps still for now, although the reader follows
  let shown = [];
  let waiting = []; // newer than all that is shown
  let isLive = true; // false on a page of older ones
  let isFollowing = false;
  let most = ROWS_MAX; // to be drawn in the next frame
  let isComing = false; // they push others down

  const isStill = () => !isFollowing || reasons.size > 0;
  const onToggle = () => hold("open", list.querySelector("[aria-expanded=true]"));
  const draw = coalesced(() => {
    const first = list.firstElementChild;
    const top = first?.offsetTop;
    const rows = keyed(list, shown.slice(0, most), keyOf, (message) => makeRow(message, onToggle, onGone));
    rows.forEach((row, i) => row.update(shown[i]));
    onToggle();
    const down = top - first?.offsetTop;
    // Else they would jump.
    if (isComing && down < 0) {
      list.style.cssText = `transition: none; translate: 0 ${down}px`;
      requestAnimationFrame(() => attr(list, "style"));
    }
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
    $("follow").focus();
    if ($("stream").getBoundingClientRect().top < 0) $("stream").scrollIntoView();
  });
  $("follow").disabled = false;
  on($("follow"), "click", ({ currentTarget: button }) => {
    isFollowing = !isFollowing;
    attr(button, "aria-pressed", isFollowing);
    catchUp();
  });

  return {
    /** Show others, `live` if newer ones may follow. */
    replace(messages, live = true) {
      isLive = live;
      most = Math.ceil(innerHeight / ROW_PX_MIN);
      take(messages, []);
    },
    /** Count the new ones, or show them to a reader who follows. */
    receive(messages) {
      if (!isLive) return;
      // What had the focus may have gone without a word.
      if (!list.contains(document.activeElement)) reasons.delete("focus");
      const newestKey = shown[0]?.key ?? -1;
      // Keys only grow: else messages have left, or the store is new.
      if (!(messages[0]?.key >= newestKey)) return take(messages, []);
      const byKey = new Map(messages.map((message) => [message.key, message]));
      const floor = messages[ROWS_MAX - 1]?.key ?? 0; // what is above and not there has left
      shown = shown.flatMap((message) => byKey.get(message.key) ?? (message.key < floor ? message : []));
      // After a deletion the list fills up from below.
      const oldestKey = shown.at(-1)?.key ?? -1;
      shown = [...shown, ...messages.filter(({ key }) => key < oldestKey)].slice(0, ROWS_MAX);
      const newer = messages.filter(({ key }) => key > newestKey);
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
    rebuild() {
      keyed(list, [], keyOf);
      draw();
    },
    refresh: () => list.childNodes.forEach((row) => row.refresh?.()),
    tick: (nowMs) => list.childNodes.forEach((row) => row.tick?.(nowMs)),
    isLive: () => isLive,
    size: () => shown.length,
    oldestKey: () => shown.at(-1)?.key,
    newestKey: () => shown[0].key,
    /** Take these for all that matches below a key. */
    renew(messages, top) {
      shown = [...shown.filter(({ key }) => key >= top), ...messages].slice(0, ROWS_MAX);
      draw();
      tell();
    },
  };
}
