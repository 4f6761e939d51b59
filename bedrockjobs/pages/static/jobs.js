// The list of jobs: suggestions for names, and actions on all matches.
(() => {
  "use strict";
  const field = document.querySelector("input[data-names]");
  const list = document.getElementById("names");
  let timer = 0;

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const typed = field.value;
      const answer = await fetch(`${field.dataset.names}?name=${encodeURIComponent(typed)}`).catch(() => null);
      if (!answer || !answer.ok || field.value !== typed) return;
      const names = await answer.json();
      list.replaceChildren(...names.map((name) => Object.assign(document.createElement("option"), { value: name })));
    }, 150);
  });
})();
