/** The figures of a search. */

import { inOrder, leading, nameOf } from "./classes.js";
import { $, on, say, text } from "./dom.js";
import { count, fine, percent, withError } from "./format.js";
import { names } from "./names.js";
import { makeSeries } from "./series.js";
import { makeBars, makeRing } from "./shares.js";

/** Return `{share, low, high}` by class: corrected, or else `{share}` as judged. */
export const sharesOf = ({ corrected, raw, classes }) =>
  Object.fromEntries(classes.map((label) => [label, corrected?.[label] ?? { share: raw[label] }]));

export const inWords = (shares) =>
  Object.entries(shares).map(([label, share]) => `${nameOf(label)} ${withError(share)}`).join(", ");

function percentNote(summary) {
  if (!summary.enough) {
    return `At least ${count(summary.messages_min)} ${names.messages} needed for a share; ${count(summary.n)} found.`;
  }
  if (summary.corrected) return "Corrected for the model’s errors, with 95% intervals.";
  return `Share of predictions, not corrected. ${summary.corrected_reason}`;
}

function countNote({ n, n_max: most, newest_only: isCut, n_unsure: unsure }) {
  const which = isCut ? `Latest ${count(most)} matches.` : `${count(n)} ${n === 1 ? "match" : "matches"}.`;
  return unsure ? `${which} ${count(unsure)} unsure (${percent(unsure / n)}).` : which;
}

function sampleNote({ share, stored_per_s: stored, offered_per_s: offered }) {
  if (share >= 0.995) return null;
  // Share and rates are of different stretches of time; they are shown together only where they agree.
  const rates = stored / offered < 0.995 ? `, ${count(stored)} of ${count(offered)} ${names.messages} per second` : "";
  return `Sample: ${percent(share, +(share < 0.095))} of the stream is kept${rates}.`;
}

/** Return the figures; `onRange(range)` hears which time the chart should show. */
export function makeFigures(onRange) {
  const ring = makeRing();
  ring.dataset.testid = "ring";
  const shareBars = makeBars("share-row", "share", "raw-share");
  const countBars = makeBars("count-row", "count");
  const series = makeSeries(onRange);
  $("percent").append(shareBars);
  let last = null;

  function drawPercent() {
    const { enough, corrected, raw } = last;
    const labels = inOrder(last.classes);
    text($("percent-note"), percentNote(last));
    $("raw-label").hidden = !enough || !corrected;
    $("percent").hidden = !enough;
    if (!enough) return ring.remove(); // what would say nothing is not there at all
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
  function draw(summary) {
    last = summary;
    drawPercent();
    const { counts } = summary;
    const labels = inOrder(summary.classes);
    const most = Math.max(1, ...Object.values(counts));
    if (!countBars.isConnected) $("counts").replaceChildren(countBars);
    countBars.update(labels, (label) => ({ share: counts[label] / most, words: count(counts[label]) }));
    text($("count-note"), countNote(summary));
    series.draw(summary);
    say($("sample-note"), sampleNote(summary.sample));
  }

  return { draw, show: series.show };
}
