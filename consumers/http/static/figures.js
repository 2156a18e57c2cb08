/** The figures of a search. */

import { leading } from "./classes.js";
import { $, on, say, text } from "./dom.js";
import { count, fine, percent, withError } from "./format.js";
import { makeSeries } from "./series.js";
import { makeBars, makeRing } from "./shares.js";

/** Return `{share, low, high}` by class: corrected, or else `{share}` as judged. */
export const sharesOf = ({ corrected, raw, classes }) =>
  Object.fromEntries(classes.map((label) => [label, corrected?.[label] ?? { share: raw[label] }]));

export const inWords = (shares) =>
  Object.entries(shares).map(([label, share]) => `${label} ${withError(share)}`).join(", ");

function percentNote(summary) {
  const least = `A share is shown from ${count(summary.messages_min)} on: fewer would say little.`;
  if (!summary.enough) return `${count(summary.n)} found so far. ${least}`;
  if (summary.corrected) return "Corrected for the model’s own mistakes, with 95% intervals.";
  return `The raw share, as judged. ${summary.corrected_reason}`;
}

function countNote({ n, n_max: most, newest_only: isCut, n_unsure: unsure }) {
  const which = isCut ? `The newest ${count(most)} of more.` : `${count(n)} in all.`;
  return unsure ? `${which} Unsure of ${count(unsure)} (${percent(unsure / n)}).` : which;
}

function sampleNote({ share, stored_per_s: stored, offered_per_s: offered }) {
  if (share >= 0.995) return null;
  const rates = `${count(stored)} of ${count(offered)} messages a second`;
  return `A sample: ${percent(share, +(share < 0.095))} of the stream is kept here, ${rates}.`;
}

export function makeFigures() {
  const ring = makeRing();
  ring.dataset.testid = "ring";
  const shareBars = makeBars("share-row", "share", "raw-share");
  const countBars = makeBars("count-row", "count");
  const drawSeries = makeSeries();
  $("percent").append(shareBars);
  let last = null;

  function drawPercent() {
    const { enough, corrected, raw, classes: labels } = last;
    text($("percent-note"), percentNote(last));
    $("raw-label").hidden = !enough || !corrected;
    $("percent").hidden = !enough;
    if (!enough) return ring.remove(); // what would say nothing is not there at all
    if (!ring.isConnected) $("ring-around").prepend(ring);
    const shares = sharesOf(last);
    ring.update(labels, shares, inWords(shares));
    const lead = leading(Object.fromEntries(labels.map((label) => [label, shares[label].share])));
    text($("ring-share"), percent(shares[lead].share));
    text($("ring-class"), lead);
    const wantsRaw = corrected && $("raw").checked;
    return shareBars.update(labels, (label) => {
      const share = shares[label];
      return { ...share, words: withError(share), raw: wantsRaw && `raw ${fine(raw[label])}` };
    });
  }

  on($("raw"), "change", () => last && drawPercent());
  return (summary) => {
    last = summary;
    drawPercent();
    const { classes: labels, counts } = summary;
    const most = Math.max(1, ...Object.values(counts));
    if (!countBars.isConnected) $("counts").replaceChildren(countBars);
    countBars.update(labels, (label) => ({ share: counts[label] / most, words: count(counts[label]) }));
    text($("count-note"), countNote(summary));
    drawSeries(labels, summary.series, summary.enough);
    say($("sample-note"), sampleNote(summary.sample));
  };
}
