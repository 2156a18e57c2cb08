/** The view of a search: its box, its heading, its figures and its messages. */

import { ask, asked, queryOf } from "./api.js";
import { capital, names, onClasses } from "./classes.js";
import { announce, attr, $, coalesced, debounced, el, on, say, text } from "./dom.js";
import { inWords, makeFigures, sharesOf, showSaveButton, toggleSaved } from "./figures.js";
import { count, language } from "./format.js";
import { makeList } from "./list.js";
import { makeComparison, timesOf } from "./series.js";

const TYPING_MS = 250;
const PAGE = 50;

/** Return what is searched while somebody types: the last word begins one, but for a single letter. */
function asYouType(typed) {
  const last = /(?:^|\s)[-#@]*([\p{L}\p{N}_]+)$/u.exec(typed);
  if (!last || typed.split('"').length % 2 === 0) return typed.trim();
  return [...last[1]].length === 1 ? typed.slice(0, last.index).trim() : `${typed.trim()}*`;
}

/** Return the view; `onQuery` hears what is asked, `onRoute(part)` what else of the route. */
export function makeSearch(onQuery, onSaved, onRoute, hasHistory, fields) {
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
  const conditions = ["lang", "label", "confidence", ...Object.keys(fields).filter((one) => one !== "text")].map((one) => `${one}:`).join(", ");
  let query = {};
  let range = "";
  let before = null; // the key below which what is older than a page of older ones stands
  let summary = null;
  let isFresh = true; // no message has come for this query yet
  let isSaid = false; // nor has the reader been told what it came to

  function isBusy(busy) {
    for (const id of ["figures", "stream"]) attr($(id), "aria-busy", busy);
  }

  const draw = coalesced(() => {
    figures.draw(summary);
    isBusy(false);
  });
  const typed = debounced(
    () => box.checkVisibility() && onQuery({ q: asYouType(box.value), lang: lang.value }, true),
    TYPING_MS,
  );

  function commit(event) {
    event.preventDefault();
    typed.stop();
    onQuery({ q: box.value.trim(), lang: lang.value }, false);
  }

  on(box, "input", typed);
  on(lang, "change", commit);
  on($("search-form"), "submit", commit);
  on($("save-search"), "click", () => {
    toggleSaved(query);
    onSaved();
  });

  /** Show the matches below a key, or the newest; a page without any may have others behind it. */
  async function turn(below) {
    const asking = query;
    try {
      const page = await ask(`/v1/search${queryOf({ ...asked(query), limit: PAGE, before: below })}`);
      if (asking !== query) return;
      before = page.before;
      if (page.more && !page.messages.length) return await turn(before);
      list.replace(page.messages, !below);
      $("older").hidden = !page.more;
      $("stream").scrollIntoView();
      $("follow").focus();
    } catch (error) {
      say($("search-problem"), error.message);
    }
  }

  on($("older"), "click", () => turn(list.isLive() ? list.oldestKey() : before));
  on($("newest"), "click", () => turn());
  on($("follow"), "click", () => list.isLive() || turn());

  function sayResult() {
    const shares = summary.enough ? inWords(sharesOf(summary)) : `too few ${names.messages} for a share`;
    announce(`${count(summary.n)} for ${query.q || "everything"}: ${shares}.`);
  }

  function showEmpty() {
    const about = query.q && ` with ${query.q}`;
    const hint = /[:<>=]/.test(query.q) ? ` Conditions begin with ${conditions}.` : "";
    say($("messages-empty"), list.size() ? null : `No ${names.messages}${about} yet. New ones appear here as they come.${hint}`);
  }

  function showMessages(messages) {
    if (isFresh) list.replace(messages);
    else list.receive(messages);
    isFresh = false;
    showEmpty();
  }

  function showExports(nowMs) {
    const bounds = timesOf(range, nowMs);
    for (const format of ["csv", "jsonl"]) attr($(`export-${format}`), "href", `/v1/export${queryOf({ ...asked(query), ...bounds, format })}`);
    text($("export-what"), range ? "Download the time of the chart:" : "Download:");
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
    languages: (codes) => lang.append(...codes.map((code) => el("option", { value: code }, language(code)))),
    show(route, isTyping) {
      const next = { q: route.q, lang: route.lang };
      if (!isTyping) {
        typed.stop();
        if (box.value.trim() !== next.q) box.value = next.q;
      }
      lang.value = next.lang;
      if (lang.value !== next.lang) lang.append(el("option", { value: next.lang, selected: "" }, language(next.lang)));
      document.title = next.q ? `${next.q} · ${names.title}` : names.title;
      showSaveButton(next);
      figures.show(next, route.range);
      comparison.show(route);
      lang.hidden = !next.lang && lang.length < 2; // a stream may have no languages
      range = route.range;
      const isSame = query.q === next.q && query.lang === next.lang;
      if (!isSame) query = next;
      showExports(Date.now());
      if (isSame) return;
      isFresh = true;
      isSaid = false;
      text($("search-query"), next.q || "everything");
      text($("messages-heading"), next.q ? `${capital(names.messages)} with ${next.q}` : `All ${names.messages}`);
      say($("search-problem"), null);
      isBusy(true);
      $("columns").hidden = false;
    },
    summary(data) {
      summary = data;
      if ($("columns").hidden) say($("search-problem"), null);
      $("columns").hidden = false; // a problem may have hidden them
      draw();
      comparison.refresh();
      if (!isSaid) sayResult();
      isSaid = true;
      if (data.n === 0) showMessages([]); // without messages there may be no event of them
    },
    messages: ({ messages }) => showMessages(messages),
    problem({ detail }) {
      say($("search-problem"), detail);
      $("columns").hidden = true; // what was found before is not the answer
    },
  };
}
