/**
 * One stream of server-sent events for all queries of the page. It says whether the daemon is there,
 * comes back by itself, and rests while nobody sees the page.
 */

import { on } from "./dom.js";
import { asked } from "./route.js";

const KINDS = ["summary", "messages", "status", "change", "problem"];
const RETRY_MS = 2_000;
const SILENCE_MAX_MS = 30_000; // the daemon tells its state far more often
const UNSEEN_MAX_MS = 60_000; // connections to a host are few: hidden pages give theirs up

/** Return a stream; `onState` is told "live" or "offline". */
export function makeStream(onEvent, onState) {
  let path = null;
  let source = null;
  let timer = 0; // until the next try, or until silence means that nobody is there
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
    source = new EventSource(path);
    on(source, "open", () => {
      onState("live");
      heard();
    });
    // How browsers come back by themselves differs; this is one way for all.
    on(source, "error", lost);
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
