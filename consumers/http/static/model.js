/** What the model says, of itself and of texts. */

import { $, announce, ask, attr, bandOf, bar, classNames, copy, count, DASHES, debounced, decimal, digits, el, fine, hasModifier, ink, inOrder, linesOf, load, look, makeBars, makeChart, meant, moment, named, nameOf, on, part, probability, say, send, setClasses, signed, tell, text, within, withinWords } from "./base.js";
import * as format from "./base.js";

const charts = new Map();

/** Write ticks with as many digits as their step has. */
export function apart(ticks, write) {
  const step = ticks[1] - ticks[0];
  let digits = 3;
  while (digits < 12 && Math.abs(step - step.toFixed(digits)) > step / 100) digits += 1;
  return ticks.map((tick) => write(tick, digits));
}

function makeLine(place, name, format) {
  const [node, note] = [part(place, "plot"), part(place, "note")];
  node.hidden = false;
  const intervalOf = (point) => (name === "accuracy" && point.n ? within(point.accuracy * point.n, point.n) : { high: point[`${name}_high`], low: point[`${name}_low`] });
  let points = [];
  let range = "";

  function read(at) {
    const point = points[at] ?? points.at(-1);
    const { low, high } = intervalOf(point);
    const size = name === "covered" ? ` (${decimal(point.set_size, 2)} classes a set)` : "";
    const words = `${moment(point.time_ms)}: ${format(point[name])}${size}${low < high ? ` (${fine(low)}–${fine(high)})` : ""}${["", ...point.events].join(", ")}`;
    attr(node, "aria-valuenow", at ?? points.length - 1);
    attr(node, "aria-valuetext", words);
    text(note, at === null ? range : words);
  }

  const xOf = ({ time_ms: timeMs }) => drawn.chart.valToPos(timeMs, "x", true);
  // Nothing is known of the time between two runs.
  const gaps = () => points.flatMap((point, i) => (i && point.events.includes("restart") ? [[xOf(points[i - 1]), xOf(point)]] : []));

  const drawn = makeChart(node, {
    series: [...linesOf("var(--ink)", { width: 1.6, gaps }), { scale: "y", stroke: () => ink("var(--muted)"), dash: DASHES[1], points: { show: false } }],
    bands: [bandOf(2, "var(--ink)")],
    scales: {},
    axes: [{ scale: "y", size: 50, space: 28, values: (chart, ticks) => apart(ticks, format) }],
    onPoint: (at) => points.length && read(at),
    onDraw({ ctx, bbox }) {
      for (const point of points) {
        ctx.fillStyle = ink(point.events.includes("drift") ? "var(--negative)" : "var(--muted)");
        if (point.events.length) ctx.fillRect(xOf(point), bbox.top, 2, bbox.height);
      }
    },
  });

  return (next, target) => {
    points = next;
    const values = points.map((point) => point[name]);
    range = `${format(Math.min(...values))} to ${format(Math.max(...values))} since ${moment(points[0].time_ms)}`;
    const ends = points.map(intervalOf);
    if (target) range += `, ${format(target)} wanted`;
    drawn.update([points.map((point) => point.time_ms), values, ends.map(({ high }) => high), ends.map(({ low }) => low), points.map(() => target)]);
    attr(node, "aria-label", `${part(place, "name").textContent}: ${range}`);
    text(part(place, "big"), format(values.at(-1)));
    read(drawn.chart.cursor.left < 0 ? null : drawn.chart.cursor.idx);
  };
}

function drawLine(place, { history, coverage }, format) {
  const name = place.dataset.line;
  const target = name === "covered" ? coverage : null;
  const points = [];
  let events = []; // of points without a value too: the next one tells them
  for (const point of history) {
    events = events.concat(point.events);
    if (Number.isFinite(point[name])) {
      points.push({ ...point, events });
      events = [];
    }
  }
  if (points.length < 2) return target && text(part(place, "note"), "No history yet.");
  if (!charts.has(place)) charts.set(place, makeLine(place, name, format));
  charts.get(place)(points, target);
}

const WORDS_MAX = 12;

/** Return a feature that may be broken behind "=" and "_". */
const spelled = (name) => el("span.word", { dir: "auto" }, name.split(/(?<=[≈=_])/).flatMap((piece) => [piece, el("wbr")]));

function tellingWords(label, words) {
  const most = Math.max(...words.map(({ score }) => Math.abs(score))) || 1;
  const rows = words.slice(0, WORDS_MAX).map(({ feature, score }) =>
    el("li", spelled(feature), el("span.track", bar(label, Math.abs(score) / most)), el("span.number", signed(score, 3))),
  );
  return el("div@telling", { "data-class": label }, el("h3", named(label)), el("ol.words", rows));
}

const REFRESH_MS = 2_000;

function draw(model) {
  const view = $("model");
  for (const node of view.querySelectorAll("[data-value]")) {
    const value = node.dataset.value.split(".").reduce((whole, name) => whole?.[name], model);
    text(node, node.dataset.as ? format[node.dataset.as](value) : (value ?? "–"));
  }
  const { history } = model;
  for (const node of view.querySelectorAll("[data-line]")) drawLine(node, model, format[node.dataset.as]);
  for (const node of view.querySelectorAll("[data-lag]")) node.hidden = history.every(({ lag }) => lag === null) && model.lag === null;
  $("events").hidden = history.every(({ events }) => !events.length);
  $("drift").hidden = !model.drift?.n_alarms;
  text($("drift-words"), model.drift?.words.map(({ word: said, label }) => `${said} (${nameOf(label)})`).join(", ") || "–");
  setClasses(model.classes.map(({ label }) => label));
  $("telling").replaceChildren(...inOrder(Object.keys(model.telling)).map((label) => tellingWords(label, model.telling[label])));
  view.hidden = false;
  $("model-waiting").hidden = true;
}

async function renew(node) {
  const html = await load(`/page/${node.dataset.part}`, "text");
  // The focus would be lost, and what is to be labelled.
  if (node.matches(":focus-within:has(li, :focus)")) return;
  const { open } = part(node, "fold") ?? {};
  const tables = () => [...node.querySelectorAll(".scroll")];
  const lefts = tables().map(({ scrollLeft }) => scrollLeft);
  node.innerHTML = html;
  if (open) part(node, "fold").open = true;
  tables().forEach((table, i) => (table.scrollLeft = lefts[i]));
}

function makeQueue() {
  const queue = $("queue");
  const state = $("queue-state");
  const past = []; // messages, and what each taught before; undefined if it was skipped
  const first = () => queue.querySelector("li");
  let isBusy = false;

  async function act({ act, label }) {
    const [item, was] = act === "undo" ? (past.at(-1) ?? []) : [first(), label];
    if (isBusy || !item) return;
    isBusy = true;
    const { id } = item.dataset;
    const receipt = was === undefined || (await send(state, "/v1/labels", { method: "POST", body: { id, label: was } }));
    if (receipt && act === "undo") {
      past.pop();
      for (const one of queue.querySelectorAll("li")) if (one.dataset.id === id) one.remove();
      queue.firstChild.prepend(item);
    } else if (receipt) {
      past.push([item, receipt.was]);
      item.remove();
    }
    if (!first()) {
      await renew(queue).catch(() => {}); // it is asked for again with the view
      queue.focus();
    }
    if (receipt) {
      tell(state, "changed", label ? `Labelled ${nameOf(label)}.` : act === "undo" ? "Taken back." : "Skipped.");
      announce(`${state.textContent} ${first()?.textContent ?? ""}`);
    }
    isBusy = false;
  }

  on(queue, "click", ({ target }) => {
    const button = target.closest("button");
    if (button) act(button.dataset);
  });
  on(queue, "keydown", (event) => {
    if (event.repeat || hasModifier(event)) return;
    const buttons = [...queue.querySelectorAll("button")];
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const pressed = queue.querySelector(`[data-keys~="${CSS.escape(event.key.toLowerCase())}"]`);
    if (step) buttons[buttons.indexOf(document.activeElement) + step]?.focus();
    else if (pressed) act(pressed.dataset);
    else return;
    event.preventDefault();
  });
}

/** Return what begins (true) and ends (false) to ask. */
export function makeModel() {
  makeQueue();
  let timer = 0;
  let turns = 0;
  let isShown = false;

  async function refresh() {
    if (!isShown || document.hidden) return;
    try {
      const model = await ask("/v1/model");
      // What is selected would be lost with its elements.
      const selection = getSelection();
      if (selection.isCollapsed || !$("model").contains(selection.anchorNode)) {
        draw(model);
        const parts = $("model").querySelectorAll("[data-part]:not(:focus-within), #queue:focus:not(:has(li))");
        if (turns % 5 === 0) await Promise.all(Array.from(parts, renew));
        turns += 1; // those that failed are asked for again at once
      }
      say($("model-problem"), model.trouble);
    } catch (error) {
      say($("model-problem"), error.message);
    }
    clearTimeout(timer); // of another refresh meanwhile
    timer = setTimeout(refresh, REFRESH_MS);
  }

  on(document, "visibilitychange", refresh);
  return (shown) => {
    isShown = shown;
    refresh();
  };
}

const MARK_MAX = 42; // per cent of colour behind a word: it stays readable
const MARK_MIN = 3;
const NAMED_MAX = 3;
const CLASSES_MAX = 3; // of more, the two that are weighed against each other

// The tokenizer's, nearly.
const LINK = String.raw`https?://\S+|www\.\S+`;
const WORD = String.raw`\p{Script=Han}|[#@]?[\p{L}\p{N}\p{M}_]+(?:['’][\p{L}\p{N}\p{M}_]+)*`;
const IS_WORD = new RegExp(`^(?:${WORD})$`, "u");

function forms(piece) {
  if (piece.startsWith("@")) return [piece.toLowerCase(), "<user>"];
  if (/^(https?:|www\.)/i.test(piece)) return ["<link>"];
  const folded = piece.toLowerCase().replaceAll("’", "'");
  const squeezed = folded.replace(/(.)\1{2,}/gu, "$1$1");
  return [piece, folded, squeezed, squeezed.replace(/^#/, "")];
}

function learned({ counts, likelihoods, means, deviations }, label) {
  const theta = likelihoods?.[label];
  if (Number.isFinite(means?.[label])) return el("td.number", `${digits(means[label], 4)} `, el("small", `± ${digits(deviations[label], 3)}`));
  return el("td.number", counts?.[label] >= 0 && `${count(counts[label])} `, Number.isFinite(theta) && el("small", `θ ${digits(theta)}`));
}

const isWords = ({ kind }) => kind === "word";
const isSeen = ({ unseen }) => !unseen; // else its score is of the classes' sizes alone

function plainly(feature) {
  const words = feature.replace(/^\^ | \$$/g, "").replace("<link>", "link").replace("<user>", "@name");
  return words.replace(/^¬/, "not ").replaceAll("¬", "");
}

function sentence(label, other, features) {
  const scores = new Map();
  for (const one of features.filter(isSeen)) {
    const name = isWords(one) ? plainly(one.feature) : one.feature;
    scores.set(name, (scores.get(name) ?? 0) + one.score);
  }
  const order = [...scores].sort(([, a], [, b]) => b - a);
  const quoted = (some) => some.map(([name]) => el("bdi", `“${name}”`));
  const pros = quoted(order.filter(([, score]) => score > 0).slice(0, NAMED_MAX));
  const cons = quoted(order.filter(([, score]) => score < 0).slice(-1));
  if (!pros.length && !cons.length) return ["Nothing in it speaks for one class more than for another."];
  if (!pros.length) return [`Nothing in it speaks for ${nameOf(label)}; `, cons[0], ` speaks most for ${nameOf(other)}.`];
  const list = pros.flatMap((one, i) => (i ? [i < pros.length - 1 ? ", " : " and ", one] : [one]));
  const verb = pros.length > 1 ? "speak" : "speaks";
  return [...list, ` ${verb} most for ${nameOf(label)}`, ...(cons.length ? [", ", cons[0], ` for ${nameOf(other)}.`] : ["."])];
}

/** Return what colours each word of a text by the class that it speaks for. */
export function colouring({ label, other, features }) {
  features = features.filter(isSeen);
  // Of a field, "score=high", the text has "score high".
  const scores = new Map(features.filter((one) => !isWords(one)).map(({ feature, score }) => [feature.replace("=", " "), score]));
  for (const { feature, score } of features.filter(isWords)) {
    const parts = feature.split(" ").filter((one) => !/^[\^$…]$/.test(one));
    for (const one of parts.map((said) => said.replace(/^¬/, ""))) {
      scores.set(one, (scores.get(one) ?? 0) + score / parts.length); // words of a pair share what it says
    }
  }
  const most = Math.max(...[...scores.values()].map(Math.abs));
  const signs = [...scores.keys()].filter((one) => !IS_WORD.test(one)).sort((a, b) => b.length - a.length);
  const escaped = signs.map((one) => one.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
  const pieces = new RegExp(`(${[LINK, ...escaped, WORD].join("|")})`, "u");
  return (said) =>
    said.split(pieces).map((piece) => {
      const score = forms(piece).map((form) => scores.get(form)).find(Boolean) ?? 0;
      const strength = Math.round((MARK_MAX * Math.abs(score)) / most);
      if (!(strength >= MARK_MIN)) return piece;
      const [side, one] = score > 0 ? ["for", label] : ["against", other];
      const title = `speaks for ${nameOf(one)}`;
      return el(`mark.${side}@word-effect`, { "--class": look(one).colour, "--strength": `${strength}%`, title }, piece);
    });
}

export function explanationTable({ label, other, by_prior, intercept, rest, features }, isOpen = false) {
  const labels = inOrder(classNames());
  const shown = labels.length <= CLASSES_MAX ? labels : [label, other];
  const forces = [intercept, rest, ...features.map(({ score }) => score)];
  const most = Math.max(...forces.map(Math.abs)) || 1;
  const hasGroups = new Set(features.map(({ group }) => group)).size > 1;

  function row(spec, name, score, feature = {}) {
    const length = Math.min(1, Math.abs(score) / most) / 2;
    const push = score < 0 ? bar(other, length, 0.5 - length) : bar(label, length, 0.5);
    return el(
      spec,
      { "data-feature": feature.feature, "data-score": score },
      el("th", { scope: "row" }, spelled(name), feature.unseen && el("small", " (unseen)")),
      el("td.push-cell", el("span.track.push", push)),
      el("td.number", signed(score)),
      shown.map((each) => learned(feature, each)),
    );
  }

  const node = copy("explaining");
  part(node, "because").append(...sentence(label, other, features));
  part(node, "by-prior").hidden = !by_prior;
  part(node, "numbers").open = isOpen;
  part(node, "for").append(named(label));
  part(node, "against").append(named(other));
  part(node, "columns-of").append(...shown.map((each) => el("th.number", { scope: "col" }, named(each))));
  const rows = features.map((one) => row("tr@push-row", hasGroups ? `${one.group}: ${one.feature}` : one.feature, one.score, one));
  if (rest) rows.push(row("tr", "others", rest));
  part(node, "rows").append(...rows, row("tr.intercept@intercept-row", "before any of them", intercept));
  part(node, "sum").append(row("tr", "sum", forces.reduce((sum, score) => sum + (score ?? NaN), 0)));
  return node;
}

const TYPING_MS = 100;

function messageOf(said) {
  const message = JSON.parse(said);
  if (message?.constructor !== Object) throw SyntaxError();
  return message;
}

const EXAMPLES = { numbers: 1.5, flags: true };

export let tried = null; // what the daemon is asked

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
  isJson.checked ||= !readsSentence;
  const example = {};
  for (const name in fields) name.split(".").reduce((inner, key, i, keys) => (Object(inner)[key] ??= keys[i + 1] ? {} : EXAMPLES[fields[name]] ?? "…"), example);
  json.placeholder = JSON.stringify(example, null, 1);
  let asked = 0;
  let shown = 0;
  let told = ""; // in the address

  function draw({ classes, n_examples: n, predictions: [{ label, probabilities, interval, prediction_set: set, explanation, answered_by }] }) {
    setClasses(classes);
    const isKnown = explanation?.known ?? true;
    $("try-bars").hidden = $("try-reasons").hidden = n > 0 && !isKnown;
    if (n && !isKnown) {
      const what = isJson.checked ? "Nothing in this" : "None of these words";
      return $("try-label").replaceChildren(`${what} is known to the model.`, el("span.note", "It has no reason to prefer a class."));
    }
    const sure = el("strong", probability(probabilities[label]));
    $("try-label").replaceChildren(named(label), sure, el("span.note", n ? [interval && withinWords(interval), meant(set), el("div", answered_by)] : "nothing is learned yet"));
    bars.update(inOrder(classes), (name) => ({ share: probabilities[name], words: probability(probabilities[name]) }));
    const isOpen = part($("try-reasons"), "numbers")?.open ?? true; // as it was left
    $("try-reasons").replaceChildren(...(explanation ? [explanationTable(explanation, isOpen)] : []));
  }

  /** Judge what stands there. */
  async function judge() {
    const turn = ++asked;
    const said = (isJson.checked ? json : sentence).value.trim();
    $("try-text-part").hidden = isJson.checked;
    $("try-json-part").hidden = !isJson.checked;
    let answer = null;
    let problem = (tried = null);
    try {
      if (said) tried = { ...(isJson.checked ? { message: messageOf(said) } : { text: said }), explain: true, interval: 0.95 };
      answer = tried && (await ask("/v1/predict", { method: "POST", body: tried }));
    } catch (error) {
      problem = error instanceof SyntaxError ? "Not a JSON object. A message begins with { and ends with }." : error.message;
    }
    if (turn < shown) return;
    shown = turn;
    if (answer) draw(answer);
    $("try-answer").hidden = !answer;
    say($("try-problem"), problem);
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
