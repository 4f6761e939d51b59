// Tooltips for the marks of a chart, by pointer and keyboard.
(() => {
  "use strict";
  const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const GAP_PX = 8;
  const box = document.createElement("div");
  box.className = "tip";
  box.setAttribute("role", "status");
  box.hidden = true;
  document.body.append(box);

  function show(mark) {
    box.hidden = !mark;
    if (!mark) return;
    const at = mark.dataset.at ? `${moment.format(new Date(mark.dataset.at))}: ` : "";
    box.textContent = at + mark.dataset.tip;
    const place = mark.getBoundingClientRect();
    const left = Math.min(place.left + scrollX, document.documentElement.clientWidth - box.offsetWidth - GAP_PX);
    box.style.left = `${Math.max(left, GAP_PX)}px`;
    box.style.top = `${place.top + scrollY - box.offsetHeight - GAP_PX}px`;
  }

  const marked = (event) => (event.target.closest ? event.target.closest("[data-tip]") : null);
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, (event) => show(marked(event)));
  document.addEventListener("focusout", () => show(null));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });
  document.body.addEventListener("htmx:after:swap", () => show(null));
})();
