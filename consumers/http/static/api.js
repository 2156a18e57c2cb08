/** Asking the daemon. What goes wrong is thrown, with a sentence as its message. */

const ANSWER_MAX_MS = 15_000;

/** Return what went wrong: `status` is HTTP's, or 0 where nobody answered. */
const problem = (status, sentence) => Object.assign(new Error(sentence), { status });

/** Ask, and return the answer's JSON; throws such a problem. */
export async function ask(path, { method, body, token } = {}) {
  const headers = { Accept: "application/json" };
  if (body) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  const signal = AbortSignal.timeout(ANSWER_MAX_MS);
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  } catch {
    throw problem(0, "The daemon does not answer. Try again.");
  }
  if (response.ok) return response.json();
  // A proxy in between may answer with anything.
  const said = await response.json().catch(() => ({}));
  throw problem(response.status, said.detail ?? said.title ?? `The daemon answered with status ${response.status}.`);
}

/** Return the query string of those values that say something. */
export function queryOf(values) {
  const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
  return text && `?${text}`;
}

export const messagePath = (id) => `/v1/messages/${encodeURIComponent(id)}`;
