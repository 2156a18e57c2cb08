/** Charts over time by uPlot, with a crosshair that keys move too; pictures and tables as files. */

import { attr, el, on, part, svg } from "./base.js";
import { clock, dayAndMonth, hourAndMinute } from "./format.js";

const { uPlot } = globalThis; // vendor/uPlot.iife.min.js runs before any module
const DAY_MS = 86_400_000;
const DRAG_PX_MIN = 6; // less is a click

export const DASHES = [[], [8, 3], [2, 3], [10, 3, 2, 3]];

export const swatch = (dash) =>
  svg("svg.swatch", { viewBox: "0 0 22 8", "aria-hidden": "true" }, svg("path", { d: "M0 4h22", "stroke-dasharray": dash.join(" ") }));

export const Z = 1.96; // of 95%

/** Return Wilson's interval of a share, k of n: it holds for few, too. */
export function within(k, n) {
  const [middle, half] = [(k + (Z * Z) / 2) / (n + Z * Z), (Z * Math.sqrt((k * (n - k)) / n + (Z * Z) / 4)) / (n + Z * Z)];
  return { share: k / n, low: middle - half, high: middle + half };
}

const charts = new Set();
const probe = document.body.appendChild(el("i", { hidden: "" }));
const inks = new Map();

/** Return a colour of the theme as a canvas takes it, which knows no variables. */
export function ink(colour, opacity = 1) {
  if (!inks.has(colour)) {
    probe.style.color = colour;
    inks.set(colour, getComputedStyle(probe).color);
  }
  return inks.get(colour).replace(")", `, ${opacity})`);
}

export const bandOf = (column, colour) => ({ series: [column, column + 1], fill: () => ink(colour, 0.2) });

export function linesOf(label, colour, own) {
  const line = { width: 2, scale: "y", points: { show: false }, ...own };
  const end = { ...line, width: 0 };
  return [{ ...line, stroke: () => ink(colour), label, colour }, end, end];
}

function repaint() {
  inks.clear();
  for (const chart of charts) chart.redraw(false);
}

function pictureOf({ ctx: { canvas }, series, root }) {
  const unit = devicePixelRatio;
  const paper = el("canvas", { width: canvas.width, height: canvas.height + 28 * unit });
  const pen = paper.getContext("2d");
  pen.fillStyle = ink("var(--surface)");
  pen.fillRect(0, 0, paper.width, paper.height);
  pen.font = `${13 * unit}px ${getComputedStyle(root).fontFamily}`;
  let x = 8 * unit;
  for (const { label, colour } of [{ label: `${document.title} · ${root.parentNode.ariaLabel.split(/[.:]/)[0]}`, colour: "var(--ink)" }, ...series]) {
    if (!colour) continue;
    pen.fillStyle = ink(colour);
    pen.fillText(label, x, 18 * unit);
    x += pen.measureText(label).width + 16 * unit;
  }
  pen.drawImage(canvas, 0, 28 * unit);
  return paper.toDataURL();
}

const FORMULA = /^[-=+@\t\r\n＝＋－＠']/; // as in the export
const quoted = (said) => `"${said.replace(FORMULA, "'$&").replaceAll('"', '""')}"`;

const csvOf = ({ rows }) => [...rows].map(({ cells }) => [...cells].map(({ textContent: said }) => quoted(said)).join()).join("\r\n");

on(document, "click", ({ target }) => {
  const { save } = target.dataset;
  const place = save && target.closest(".line-chart, .figure");
  const href = save === "csv" ? `data:text/csv;charset=utf-8,${encodeURIComponent(csvOf(part(place, "scroll table")))}` : save && pictureOf([...charts].find(({ root }) => place.contains(root)));
  if (href) el("a", { href, download: `${document.title}.${save}` }).click();
});

new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
on(matchMedia("(forced-colors: active)"), "change", repaint);

function timeTicks(chart, ticks, axis, space, stepMs) {
  if (stepMs >= DAY_MS) return ticks.map(dayAndMonth);
  const write = stepMs < 60_000 ? clock : hourAndMinute;
  const { min, max } = chart.scales.x;
  if (dayAndMonth(min) === dayAndMonth(max)) return ticks.map(write);
  const isNewDay = (tick, i) => i === 0 || dayAndMonth(tick) !== dayAndMonth(ticks[i - 1]);
  return ticks.map((tick, i) => write(tick) + (isNewDay(tick, i) ? `\n${dayAndMonth(tick)}` : ""));
}

const lines = () => ink("var(--rule)");

const axis = (own) => ({
  stroke: () => ink("var(--muted)"),
  grid: { stroke: lines, width: 1 },
  ticks: { show: false },
  gap: 6,
  ...own,
});

const timeAxis = () =>
  axis({
    space: 72,
    size: (chart, ticks) => (ticks?.some((tick) => tick.includes("\n")) ? 40 : 24),
    grid: { show: false },
    ticks: { stroke: lines, size: 4 },
    values: timeTicks,
  });

/**
 * Return a chart that fills `node`.
 *
 * `onPoint(index)` hears which column of the data the crosshair is at, or null; `onSpan(from, to)` which time
 * was dragged over, and `onSpan()` a double click. With `isStepped` a value holds until the next one.
 */
export function makeChart(node, { series, bands, scales, axes, isStepped, onPoint, onSpan, onDraw }) {
  let at = null;

  function pointed(chart) {
    const { left, idx } = chart.cursor;
    at = left < 0 || idx === null || idx === undefined ? null : idx;
    if (at !== null && isStepped) {
      if (chart.data[0][at] > chart.posToVal(left, "x")) at -= 1;
      at = Math.min(Math.max(at, 0), chart.data[0].length - 2); // the last one ends the last step
    }
    onPoint(at);
  }

  function selected(chart) {
    const { left, width } = chart.select;
    if (!onSpan || width < DRAG_PX_MIN) return;
    chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    onSpan(chart.posToVal(left, "x"), chart.posToVal(left + width, "x"));
  }

  const font = `11px ${getComputedStyle(node).fontFamily}`;
  const chart = new uPlot(
    {
      width: node.clientWidth || 300,
      height: node.clientHeight || 100,
      ms: 1,
      legend: { show: false },
      padding: [6, null, 0, null],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: Boolean(onSpan), y: false, setScale: false, dist: DRAG_PX_MIN },
        bind: { dblclick: () => () => onSpan?.() },
      },
      scales,
      series: [{}, ...series],
      bands,
      axes: [timeAxis(), ...axes.map(axis)].map((own) => ({ font, labelFont: font, ...own })),
      hooks: { setCursor: [pointed], setSelect: [selected], draw: [onDraw] },
    },
    null,
    node,
  );
  charts.add(chart);
  const size = new ResizeObserver(() => {
    const { clientWidth: width, clientHeight: height } = node;
    // What is only shown again is drawn already.
    if (width && (width !== chart.width || height !== chart.height)) chart.setSize({ width, height });
  });
  size.observe(node);

  const place = (index) => {
    const [xs] = chart.data;
    const middle = isStepped ? (xs[index] + xs[index + 1]) / 2 : xs[index];
    chart.setCursor({ left: chart.valToPos(middle, "x"), top: 0 });
  };

  node.onkeydown = (event) => {
    const last = chart.data[0].length - (isStepped ? 2 : 1);
    const next = { ArrowLeft: (at ?? last + 1) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") chart.setCursor({ left: -10, top: -10 });
    if (next === undefined || last < 0) return;
    event.preventDefault();
    place(Math.min(Math.max(next, 0), last));
  };

  return {
    chart,
    destroy() {
      size.disconnect();
      charts.delete(chart);
      chart.destroy();
    },
    /** Draw columns of data, unless somebody is dragging over what is there. */
    update(data) {
      if (chart.select.width > 0) return;
      chart.setData(data);
      attr(node, "aria-valuemax", Math.max(0, data[0].length - (isStepped ? 2 : 1)));
    },
  };
}
