// The chosen theme, before anything is drawn: light, dark, or as the system says.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* a browser that keeps nothing */ }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
})();
