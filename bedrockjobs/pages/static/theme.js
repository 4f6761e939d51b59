// Applies the chosen theme before the page is drawn: light, dark, or the system's.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* storage is disabled */ }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
})();
