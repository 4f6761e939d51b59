// Counts down to the next tick of each schedule, by the server's clock.
(() => {
  "use strict";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const clock = document.querySelector(".foot time[datetime]");
  const ahead = clock ? new Date(clock.dateTime).getTime() - Date.now() : 0;

  function span(seconds) {
    const parts = [];
    for (const [size, unit] of units) {
      const count = Math.floor(seconds / size);
      seconds -= count * size;
      if (count) parts.push(`${count} ${unit}`);
    }
    return parts.slice(0, 2).join(" ");
  }

  function count() {
    for (const place of document.querySelectorAll("[data-until]")) {
      const left = Math.ceil((new Date(place.dataset.until).getTime() - Date.now() - ahead) / 1000);
      const text = left > 0 ? `in ${span(left)}` : "due";
      if (place.textContent !== text) place.textContent = text;
    }
  }

  count();
  setInterval(count, 1000);
  document.addEventListener("htmx:after:swap", count);
})();
