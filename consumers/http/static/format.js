/** Numbers, shares, times and languages as the reader writes them. */

const locales = navigator.languages;
const NONE = "–";
const formats = new Map();

/** Write a number; the formats, which cost most, are made once each. */
function write(value, options) {
  if (!Number.isFinite(value)) return NONE;
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(locales, options));
  return formats.get(key).format(value);
}

const exactly = (digits) => ({ minimumFractionDigits: digits, maximumFractionDigits: digits });

export const count = (n) => write(n, { maximumFractionDigits: 0 });
export const short = (n) => write(n, { notation: "compact", maximumFractionDigits: 1 });
export const decimal = (x, digits = 3) => write(x, exactly(digits));
export const percent = (x, digits = 0) => write(x, { style: "percent", ...exactly(digits) });
export const fine = (x, digits = 3) => percent(x, digits - 2);
export const likelihood = (x) => write(x, { maximumSignificantDigits: 2 });

export const signed = (x, digits = 2) => (Number.isFinite(x) ? (x < 0 ? "−" : "+") + decimal(Math.abs(x), digits) : NONE);

/** Return a probability: what is nearly certain is not 100%, nor is its opposite 0%. */
export function probability(p, digits = 0) {
  if (p < 0.0001) return `< ${percent(0.0001, 2)}`;
  if (p > 0.9999) return `> ${percent(0.9999, 2)}`;
  return percent(p, p > 0.995 || p < 0.005 ? 2 : digits);
}

/** Return "62% ± 4", or both ends where the share is not in their middle. */
export function withError({ share, low, high }) {
  if (!Number.isFinite(high - low)) return percent(share);
  const half = (high - low) / 2;
  if (Math.abs((high + low) / 2 - share) > 0.006) {
    return `${percent(share)} (${count(100 * low)}–${count(100 * high)})`;
  }
  return `${percent(share)} ± ${decimal(100 * half, half < 0.0095 ? 1 : 0)}`;
}

export function withinWords({ low, high, level }) {
  const [from, to] = [probability(low, 1), probability(high, 1)];
  return `${percent(level)} credible interval: ${from === to ? from : `${from} to ${to}`}`;
}

const time = (options) => new Intl.DateTimeFormat(locales, options).format;
export const clock = time({ timeStyle: "medium" });
export const fullTime = time({ dateStyle: "full", timeStyle: "medium" });
const date = time({ dateStyle: "medium", timeStyle: "short" });
const exact = time({ dateStyle: "medium", timeStyle: "medium" });
const day = time({ dateStyle: "medium" });
const utcDay = time({ dateStyle: "medium", timeZone: "UTC" });
export const hourAndMinute = time({ timeStyle: "short" });
export const dayAndMonth = time({ day: "numeric", month: "short" });

/** Return when a step of a length begins: the time, the day as well, or the day alone. */
export function moment(timeMs, stepMs = 0) {
  if (stepMs >= 1000 * DAY_S) return utcDay(timeMs);
  return (day(timeMs) === day(Date.now()) ? clock : stepMs % 60_000 ? exact : date)(timeMs);
}

const agoFormat = new Intl.RelativeTimeFormat(locales, { numeric: "auto", style: "short" });
const DAY_S = 86_400;
const UNITS = [["day", DAY_S], ["hour", 3600], ["minute", 60]];
const unitOf = (seconds, least) => UNITS.find(([, size]) => seconds >= least * size) ?? ["second", 1];

export function ago(timeMs, nowMs) {
  const elapsed = Math.max(0, (nowMs - timeMs) / 1000);
  const [unit, size] = unitOf(elapsed, 1);
  return elapsed < 7 * DAY_S ? agoFormat.format(-Math.floor(elapsed / size), unit) : date(timeMs);
}

export function span(seconds) {
  const [unit, size] = unitOf(seconds, 1.5);
  return write(seconds / size, { style: "unit", unit, maximumFractionDigits: seconds / size < 10 ? 1 : 0 });
}

const names = new Intl.DisplayNames(locales, { type: "language" });

export function language(code) {
  try {
    const name = names.of(code);
    return name === code ? code : `${name} (${code})`;
  } catch {
    return code; // a stream may call a language what it likes
  }
}
