/** What is looked at stands in the address: it can be linked to, kept and gone back to. */

import { queryOf } from "./api.js";

export const VIEWS = ["search", "model", "try"];

export function read() {
  const said = new URLSearchParams(location.search);
  const text = (name) => said.get(name) ?? "";
  const view = VIEWS.includes(text("view")) ? text("view") : "search";
  const range = /^(15m|6h|7d|all|\d{1,15}-\d{1,15})$/.test(text("range")) ? text("range") : "";
  return { view, q: text("q").trim(), lang: text("lang"), range, text: text("text") };
}

export function address({ view, q, lang, range, text }) {
  if (view === "search") return `/${queryOf({ q, lang, range })}`;
  return `/${queryOf({ view, text })}`;
}

/** Write a route into the address. What is typed step by step is one entry of the history. */
export function write(route, isTyping) {
  const url = address(route);
  const isOver = history.state?.isTyping || url === location.pathname + location.search;
  history[isOver ? "replaceState" : "pushState"]({ isTyping }, "", url);
}

/** Return a query as the daemon is asked: without the blank its last word would be a beginning. */
export const asked = ({ q, lang }) => ({ q: q && `${q} `, lang });
