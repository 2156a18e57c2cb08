/** Try it: the posterior moves as one types. */

import { ask } from "./api.js";
import { inOrder, meant, named, setClasses } from "./classes.js";
import { $, debounced, el, on, part, say } from "./dom.js";
import { explanationTable } from "./explain.js";
import { makeBars } from "./figures.js";
import { probability, withinWords } from "./format.js";

const TYPING_MS = 100;

function messageOf(said) {
  const message = JSON.parse(said);
  if (message?.constructor !== Object) throw new SyntaxError("not an object");
  return message;
}

/** Return whether a feature says anything, or was seen at least. */
const isLearned = ({ score, counts }) => score !== 0 || Object.values(counts).some(Boolean);

const EXAMPLES = { numbers: 1.5, flags: true };

/** Return the view; `onText(words)` hears what stands in the box. */
export function makeTryIt(fields, onText) {
  const sentence = $("try-text");
  const json = $("try-json");
  const isJson = $("try-mode-json");
  const bars = makeBars("try-row", "try-share");
  $("try-bars").append(bars);
  const texts = Object.keys(fields).filter((name) => fields[name] === "words");
  // As the daemon decides which field a sentence is of.
  const readsSentence = texts.length === 1 || texts.includes("text");
  $("try-modes").hidden = !readsSentence;
  isJson.checked = !readsSentence;
  const example = Object.entries(fields).map(([name, kind]) => [name, EXAMPLES[kind] ?? "…"]);
  json.placeholder = JSON.stringify(Object.fromEntries(example.filter(([name]) => !name.includes("."))), null, 1);
  let asked = 0;
  let shown = 0;
  let told = ""; // in the address

  function draw({ classes, n_examples: n, predictions: [{ label, probabilities, interval, prediction_set: set, explanation, answered_by }] }) {
    setClasses(classes);
    const isKnown = !explanation || explanation.features.some(isLearned);
    $("try-bars").hidden = $("try-reasons").hidden = n > 0 && !isKnown;
    if (n && !isKnown) {
      const words = isJson.checked ? "Nothing in this is known to the model." : "None of these words is known to the model.";
      return $("try-label").replaceChildren(words, el("span.note", "It has no reason to prefer a class."));
    }
    const sure = el("strong", probability(probabilities[label]));
    $("try-label").replaceChildren(named(label), sure, el("span.note", n ? [interval && withinWords(interval), meant(set), el("div", answered_by)] : "nothing is learned yet"));
    bars.update(inOrder(classes), (name) => ({ share: probabilities[name], words: probability(probabilities[name]) }));
    const isOpen = part($("try-reasons"), "numbers")?.open ?? true; // as it was left
    $("try-reasons").replaceChildren(...(explanation ? [explanationTable(explanation, isOpen)] : []));
  }

  /** Judge what stands there; an answer after a newer one is dropped. */
  async function judge() {
    const turn = ++asked;
    const said = (isJson.checked ? json : sentence).value.trim();
    $("try-text-part").hidden = isJson.checked;
    $("try-json-part").hidden = !isJson.checked;
    $("try-answer").hidden = !said;
    let problem = null;
    try {
      const what = said && (isJson.checked ? { message: messageOf(said) } : { text: said });
      const answer = said && (await ask("/v1/predict", { method: "POST", body: { ...what, explain: true, interval: 0.95 } }));
      if (turn < shown) return;
      shown = turn;
      if (answer) draw(answer);
    } catch (error) {
      problem = error instanceof SyntaxError ? "Not a JSON object. A message begins with { and ends with }." : error.message;
    }
    if (turn === asked) say($("try-problem"), problem);
  }

  const typed = debounced(() => {
    if (sentence.checkVisibility()) onText((told = sentence.value));
    judge();
  }, TYPING_MS);
  for (const box of [sentence, json]) on(box, "input", typed);
  on($("try-modes"), "change", judge);

  return (said) => {
    if (said !== told) sentence.value = told = said;
    judge();
  };
}
