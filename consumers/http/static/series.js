/** Shares by class over time, with the number of messages beneath. */

import { leading, look, nameOf } from "./classes.js";
import { attr, $, keyed, svg, text } from "./dom.js";
import { clock, count, percent } from "./format.js";

// As in the viewBox of the chart, in index.html.
const WIDTH = 400;
const HEIGHT = 120;
const VOLUME = 26;

const Z = 1.96; // of 95%

/** Return Wilson's interval of a share, k of n: it holds for few, too. */
function within(k, n) {
  const [middle, half] = [(k + (Z * Z) / 2) / (n + Z * Z), (Z * Math.sqrt((k * (n - k)) / n + (Z * Z) / 4)) / (n + Z * Z)];
  return [middle - half, middle + half];
}

const total = (point) => Object.values(point.counts).reduce((sum, n) => sum + n, 0);

function inWords(point) {
  const lead = leading(point.counts);
  return `${clock(point.time_ms)}: ${percent(point.counts[lead] / total(point))} ${nameOf(lead)} of ${count(total(point))}`;
}

export function makeSeries() {
  const areas = svg("g");
  const intervals = svg("g");
  const chart = $("series-chart");
  chart.prepend(areas, intervals);
  let points = [];
  let xs = [];

  function drawBands(labels) {
    const paths = keyed(areas, labels, String, (label) => svg("path.area", { fill: look(label).fill }));
    let lower = points.map(() => 0);
    const between = (upper, under) => {
      const at = (shares) => shares.map((share, i) => `${xs[i].toFixed(1)} ${((1 - share) * HEIGHT).toFixed(1)}`);
      return `M${at(upper).join("L")}L${at(under).reverse().join("L")}Z`;
    };
    // Each border between classes is a share of its own: of all classes below it.
    const borders = keyed(intervals, labels.slice(0, -1), String, () => svg("path.interval@series-interval"));
    labels.forEach((label, k) => {
      const upper = points.map((point, i) => lower[i] + point.counts[label] / total(point));
      attr(paths[k], "d", between(upper, lower));
      const ends = points.map((point, i) => within(upper[i] * total(point), total(point)));
      if (borders[k]) attr(borders[k], "d", between(ends.map(([, high]) => high), ends.map(([low]) => low)));
      lower = upper;
    });
  }

  function drawVolume(width) {
    const most = Math.max(...points.map(total));
    const columns = points.map((point, i) => {
      const high = ((total(point) / most) * (VOLUME - 5)).toFixed(1);
      return `M${xs[i].toFixed(1)} ${HEIGHT + VOLUME}v-${high}h${width}v${high}z`;
    });
    attr($("series-volume"), "d", columns.slice(0, -1).join(""));
  }

  return (labels, series, enough) => {
    points = series.points.filter(total);
    const isDrawn = enough && points.length > 0;
    $("series-drawn").hidden = !isDrawn;
    $("series-few").hidden = isDrawn;
    if (!isDrawn) return;
    const [first, last] = [points[0], points.at(-1)];
    const stepMs = series.step_s * 1000;
    points.push({ ...last, time_ms: last.time_ms + stepMs }); // where the last step ends
    const scale = WIDTH / (points.at(-1).time_ms - first.time_ms);
    xs = points.map((point) => (point.time_ms - first.time_ms) * scale);
    drawBands(labels);
    attr($("series-unfinished"), "x", xs.at(-2).toFixed(1));
    attr($("series-unfinished"), "width", (WIDTH - xs.at(-2)).toFixed(1));
    drawVolume(Math.max(0.5, stepMs * scale - 1).toFixed(1));
    text($("series-from"), clock(first.time_ms));
    text($("series-to"), clock(last.time_ms));
    attr(chart, "aria-label", `From ${inWords(first)}, to ${inWords(last)}, which is unfinished.`);
  };
}
