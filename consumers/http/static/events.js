/** One stream of events for all queries. It comes back by itself, and rests while nobody sees the page. */

import { ask, asked } from "./api.js";
import { on } from "./dom.js";

const KINDS = ["summary", "messages", "status", "change", "problem"];
const RETRY_MS = 2_000;
const SILENCE_MAX_MS = 30_000; // the daemon tells its state far more often
const UNSEEN_MAX_MS = 60_000; // connections to a host are few: hidden pages give theirs up

/** `onState` is told "live", or "offline" and the error that is known. */
export function makeStream(onEvent, onState) {
  let path = null;
  let source = null;
  let timer = 0; // until the next try, or until silence says that nobody is there
  let unseenTimer = 0;

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function lost() {
    close();
    onState("offline");
    timer = setTimeout(open, RETRY_MS);
  }

  function heard() {
    clearTimeout(timer);
    timer = setTimeout(lost, SILENCE_MAX_MS);
  }

  function open() {
    close();
    if (!path) return;
    source = new EventSource(path);
    on(source, "open", () => {
      onState("live");
      heard();
    });
    // How browsers come back differs; this is one way for all.
    on(source, "error", async ({ target }) => {
      const isRefused = target.readyState === EventSource.CLOSED;
      lost();
      // It does not tell why; the same asked in the plain way is told.
      const error = isRefused ? await ask(path).catch((problem) => problem) : null;
      if (!source) onState("offline", error);
    });
    for (const kind of KINDS) {
      on(source, kind, (event) => {
        heard();
        onEvent(kind, JSON.parse(event.data));
      });
    }
  }

  on(document, "visibilitychange", () => {
    clearTimeout(unseenTimer);
    if (document.hidden) unseenTimer = setTimeout(close, UNSEEN_MAX_MS);
    else if (!source) open();
  });
  on(window, "pagehide", close);

  return {
    /** Watch these queries from now on; the same ones again change nothing. */
    watch(queries) {
      const pairs = queries.flatMap((query) => Object.entries(asked(query)));
      const wanted = `/v1/events?${new URLSearchParams(pairs)}`;
      if (wanted === path) return;
      path = wanted;
      open();
    },
    retry: open,
  };
}
