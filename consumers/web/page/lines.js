/** The drawings of the model's quality: lines over time, and calibration. */

import { attr, part, svg, text } from "./dom.js";
import { clock, count, fine, percent } from "./format.js";

// As in the viewBox of the charts, in index.html.
const WIDTH = 240;
const HEIGHT = 60;

export function drawLine(place, history, format) {
  const points = history.map((point) => [point.time_ms, point[place.dataset.line]]).filter(([, value]) => Number.isFinite(value));
  if (points.length < 2) return;
  const values = points.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const at = ([timeMs, value]) => {
    const y = high > low ? (value - low) / (high - low) : 0.5;
    return `${(((timeMs - first) / (last - first || 1)) * WIDTH).toFixed(1)} ${(HEIGHT - 4 - y * (HEIGHT - 8)).toFixed(1)}`;
  };
  const range = `${format(low)} to ${format(high)} since ${clock(first)}`;
  text(part(place, "big"), format(values.at(-1)));
  attr(part(place, "stroke"), "d", `M${points.map(at).join("L")}`);
  attr(place.querySelector("svg"), "aria-label", range);
  text(part(place, "note"), range);
}

export function drawCalibration(chart, bins) {
  const filled = bins.filter((bin) => bin.n > 0);
  const most = Math.max(...filled.map((bin) => bin.n));
  const x = (value) => 6 + 88 * value;
  const y = (value) => 100 - x(value);
  const dots = filled.map(({ n, mean_probability: said, accuracy }) =>
    svg(
      "circle.dot",
      { cx: x(said), cy: y(accuracy), r: 1.2 + 2.4 * Math.sqrt(n / most) },
      svg("title", `said ${fine(said)}, right ${fine(accuracy)} of ${count(n)}`),
    ),
  );
  const corners = filled.map((bin) => `${x(bin.mean_probability)} ${y(bin.accuracy)}`);
  const words = filled.map((bin) => `said ${percent(bin.mean_probability)}, was right ${percent(bin.accuracy)}`);
  attr(part(chart, "stroke"), "d", corners.length ? `M${corners.join("L")}` : "");
  part(chart, "dots").replaceChildren(...dots);
  attr(chart, "aria-label", `Calibration: ${words.join("; ") || "nothing has been judged yet"}.`);
}
