/** What the theme and Sphinx leave out for keyboards and screen readers. */

// Their markup says what these are, but not at which level, or which of two it is.
for (const heading of document.querySelectorAll(".caption[role=heading]")) heading.ariaLevel = "2";
document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");

// The parameters of a long signature are a list of details without terms.
for (const list of document.querySelectorAll(".sig > dl")) list.role = "presentation";

/** Let keys scroll what is wider than its place, and pass by what is not. */
function reach() {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

reach();
addEventListener("resize", reach);
