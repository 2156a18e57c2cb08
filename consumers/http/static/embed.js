/** Keeps a card new: it is asked for again and put in its place, unless the focus is in it. */
setInterval(async () => {
  try {
    const said = await (await fetch(location)).text();
    const main = document.querySelector("main:not(:focus-within)");
    main?.replaceWith(new DOMParser().parseFromString(said, "text/html").querySelector("main") ?? main);
  } catch {
    // Nobody answers: what was said last stays.
  }
}, 30_000);
