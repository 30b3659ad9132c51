// Runs before the first paint: a theme that was chosen must not flash.
(() => {
  "use strict";
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
