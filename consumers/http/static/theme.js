/** Light or dark. No module: it runs before anything is painted. */
{
  const KEY = "streamnb.theme";
  const { dataset } = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  // Its room is kept until it is drawn.
  dataset.compares = /[?&](vs|change)=/.test(location.search);
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // Storage is forbidden.
  }

  const show = () => {
    dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    document.getElementById("theme")?.setAttribute("aria-pressed", dataset.theme === "dark");
  };

  show();
  system.addEventListener("change", show);
  addEventListener("DOMContentLoaded", show);
  addEventListener("click", ({ target }) => {
    if (!target.closest("#theme")) return;
    chosen = dataset.theme === "dark" ? "light" : "dark";
    show();
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
    }
  });
}
