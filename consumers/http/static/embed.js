/** Keeps a card new. */

import { el, load, part, text } from "./base.js";

setInterval(async () => {
  const card = document.querySelector("main");
  try {
    const said = await load(location, "text");
    const next = new DOMParser().parseFromString(said, "text/html").querySelector("main");
    if (next && !card.matches(":focus-within")) card.replaceWith(next);
  } catch ({ status, message }) {
    // What was said last stays.
    if (!status) text(part(card, "problem") ?? card.appendChild(el("p.problem")), message);
  }
}, 30_000);
