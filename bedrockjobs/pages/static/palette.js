// The palette (Ctrl+K): go to a page, a number or a name, or press a button of this page.
(() => {
  "use strict";
  const dialog = document.getElementById("palette");
  const field = document.getElementById("palette-field");
  const list = document.getElementById("palette-list");
  const SHOWN = 12;
  let names = [];
  let found = [];
  let at = 0;
  let timer = 0;

  const link = (place, kind, label) => ({ label, kind, go: () => location.assign(place) });

  function pages() {
    return [...document.querySelectorAll(".top nav a")].map((each) => link(each.href, "page", each.firstChild.textContent.trim()));
  }

  function acts() {
    const buttons = document.querySelectorAll("main :is(.actions, .needs) button, main a.button, #theme, #clock, #keys");
    return [...buttons].filter((each) => each.id || each.checkVisibility()).map((each) => ({
      label: each.textContent.trim().replace(/^\?\s*/, ""), kind: "action", go: () => each.click(),
    }));
  }

  function matches(typed) {
    if (/^\d+$/.test(typed)) {
      return [
        link(`${field.dataset.jobs}/${typed}`, "number", `Job ${typed}`),
        link(`${field.dataset.runs}/${typed}`, "number", `Run ${typed}`),
      ];
    }
    const wanted = typed.toLowerCase();
    const near = [...pages(), ...acts()].filter((each) => each.label.toLowerCase().includes(wanted));
    const named = typed ? names.flatMap((name) => [
      link(`${field.dataset.jobs}?name=${encodeURIComponent(name)}`, "jobs", name),
      link(`${field.dataset.queues}?name=${encodeURIComponent(name)}`, "queue", name),
    ]) : [];
    return [...near, ...named].slice(0, SHOWN);
  }

  function mark() {
    [...list.children].forEach((row, index) => row.setAttribute("aria-selected", index === at));
    if (found.length) {
      field.setAttribute("aria-activedescendant", `palette-${at}`);
      list.children[at].scrollIntoView({ block: "nearest" });
    } else field.removeAttribute("aria-activedescendant");
  }

  function draw() {
    found = matches(field.value.trim());
    at = 0;
    list.replaceChildren(...found.map((each, index) => {
      const row = document.createElement("li");
      const kind = Object.assign(document.createElement("span"), { className: "note", textContent: each.kind });
      row.id = `palette-${index}`;
      row.setAttribute("role", "option");
      row.append(Object.assign(document.createElement("span"), { textContent: each.label }), kind);
      row.addEventListener("click", () => choose(index));
      return row;
    }));
    mark();
  }

  function choose(index) {
    dialog.close();
    if (found[index]) found[index].go();
  }

  function open() {
    if (document.querySelector("dialog[open]")) return;
    field.value = "";
    names = [];
    dialog.showModal();
    draw();
  }

  field.addEventListener("input", () => {
    draw();
    clearTimeout(timer);
    const typed = field.value.trim();
    if (!typed || /^\d+$/.test(typed)) return;
    timer = setTimeout(async () => {
      const answer = await fetch(`${field.dataset.names}?name=${encodeURIComponent(typed)}`).catch(() => null);
      if (!answer || !answer.ok || field.value.trim() !== typed) return;
      names = await answer.json();
      draw();
    }, 150);
  });
  field.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && found.length) {
      event.preventDefault();
      at = (at + by + found.length) % found.length;
      mark();
    }
    if (event.key === "Enter") {
      event.preventDefault();
      choose(at);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    open();
  });
  document.getElementById("find").addEventListener("click", open);
})();
