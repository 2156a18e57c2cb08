/** What things are called here: the daemon's configuration says. */

import { $, attr, text } from "./dom.js";

export const names = { title: "streamnb", message: "message", messages: "messages", classes: [] };

export const capital = (words) => words.charAt(0).toLocaleUpperCase() + words.slice(1);

export function setNames(given) {
  Object.assign(names, given);
  text($("brand"), names.title);
  text($("question"), names.question);
  text($("count-heading"), `${capital(names.messages)} by class`);
  attr($("q"), "placeholder", names.placeholder);
}
