/**
 * Light or dark. No module: it runs before anything is painted, so that dark never begins with a
 * flash of light.
 */
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("streamnb.theme");
  } catch {
    // Where storage is forbidden the system's choice holds.
  }

  function show() {
    root.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    const button = document.getElementById("theme");
    button?.setAttribute("aria-pressed", String(root.dataset.theme === "dark"));
  }

  show();
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("streamnb.theme", chosen);
      } catch {
        // It holds for this visit.
      }
      show();
    });
  });
})();
