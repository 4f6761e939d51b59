// What pages do in a browser: local times, actions with a confirmation, keys, one stream that refreshes parts.
(() => {
  "use strict";
  const root = document.documentElement.dataset.root;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

  // --- times: local, with UTC beside ---------------------------------------------------------------------

  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const near = new Intl.RelativeTimeFormat(undefined, { numeric: "always", style: "short" });
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

  function relative(moment) {
    const seconds = Math.round((moment - Date.now()) / 1000);
    const [size, unit] = units.find(([size]) => Math.abs(seconds) >= size) || [1, "second"];
    return near.format(Math.trunc(seconds / size), unit);
  }

  function tellTimes(from = document) {
    for (const time of $$("time[datetime]", from)) {
      const moment = new Date(time.dateTime);
      const local = $(".local", time);
      if (!local || Number.isNaN(moment.getTime())) continue;
      const text = day.format(moment) + ("relative" in time.dataset ? ` (${relative(moment)})` : "");
      if (local.textContent !== text) local.textContent = text;
    }
  }

  // A form's times are UTC in the address, and without scripts; here they are typed in local time.
  function localTimes() {
    for (const field of $$("input[data-utc]")) {
      const moment = new Date(`${field.value}Z`);
      const shifted = new Date(moment - moment.getTimezoneOffset() * 60000);
      if (field.value) field.value = shifted.toISOString().slice(0, 19);
      field.form.addEventListener("formdata", (event) => {
        if (field.value) event.formData.set(field.name, `${new Date(field.value).toISOString().slice(0, 19)}Z`);
        else event.formData.delete(field.name);
      });
    }
    for (const zone of $$("[data-zone]")) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  }

  // --- parts that are read again -------------------------------------------------------------------------

  function refresh() {
    document.body.dispatchEvent(new CustomEvent("refresh"));
  }

  let stream = null;
  let due = false;
  const told = { open: "live", wait: "reconnecting…", off: "paused" };

  function tell(state) {
    const link = $("#link");
    link.dataset.state = state;
    link.textContent = told[state];
  }

  function listen() {
    if (stream || document.hidden || !window.EventSource) return;
    stream = new EventSource(`${root}/ui/live`);
    stream.addEventListener("open", () => {
      tell("open");
      if (due) refresh();
      due = false;
    });
    stream.addEventListener("error", () => {
      tell("wait");
      due = true;
      if (stream && stream.readyState === EventSource.CLOSED) {
        stream = null;
        setTimeout(listen, 5000);
      }
    });
    stream.addEventListener("changed", refresh);
  }

  function rest() {
    if (stream) stream.close();
    stream = null;
    due = true;
    tell("off");
  }

  // --- actions -------------------------------------------------------------------------------------------

  const named = { jobID: "job", runID: "run", worker: "worker", name: "" };
  const SHOWN = 5;

  function which(key, ids) {
    const what = named[key] ?? key;
    if (ids.length === 1) return `${what} ${ids[0]}`.trim();
    const more = ids.length > SHOWN ? `, … (${ids.length - SHOWN} more)` : "";
    return `${ids.length} ${what}s (${ids.slice(0, SHOWN).join(", ")}${more})`;
  }

  function confirmed(question, label) {
    const dialog = $("#confirm");
    $("#confirm-which").textContent = question;
    $("#confirm-yes").textContent = label;
    dialog.returnValue = "";
    dialog.showModal();
    $("#confirm-no").focus();
    return new Promise((resolve) => {
      dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    });
  }

  function news(text, bad = false) {
    const place = $("#news");
    place.classList.toggle("bad", bad);
    place.textContent = text;
  }

  function fields(form) {
    const given = {};
    for (const field of form.elements) {
      if (!field.name || field.disabled || field.value === "") continue;
      if (field.type === "checkbox" && !field.checked) continue;
      given[field.name] = field.type === "datetime-local" ? new Date(field.value).toISOString() : field.value;
    }
    return given;
  }

  async function send(command, body) {
    const answer = await fetch(`${root}/${command}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    if (answer.ok) return "";
    const problem = await answer.json().catch(() => ({}));
    return problem.detail && problem.detail !== problem.reason
      ? `${problem.reason}: ${problem.detail}` : problem.reason || `HTTP ${answer.status}`;
  }

  async function act(form) {
    const { command, say, done, selection, as } = form.dataset;
    const given = fields(form);
    let ids = [given.jobID ?? given.runID ?? given.worker ?? given.name ?? ""];
    let more = "";
    if (selection) ids = $$(`input[name="${CSS.escape(selection)}"]:checked`).map((box) => box.value);
    const matching = selection && $("input[data-matching]:checked");
    if (matching) {
      const answer = await fetch(matching.dataset.matching);
      if (!answer.ok) return news(`What matches could not be read: HTTP ${answer.status}.`, true);
      const found = await answer.json();
      ids = found.ids.map(String);
      if (!found.all) more = " There may be more that match: act again for them.";
    }
    const key = selection ? as : ["jobID", "runID", "worker", "name"].find((name) => name in given) || "name";
    if (selection && !ids.length) return news("Nothing is selected.", true);
    const button = $("button[type=submit]", form);
    if (!(await confirmed(say.replace("{n}", () => which(key, ids)) + more, button.textContent))) return button.focus();
    const failed = [];
    button.disabled = true;
    for (const [index, id] of ids.entries()) {
      if (ids.length > 1) news(`${done}: ${index + 1} of ${ids.length} …`);
      let problem;
      try {
        problem = await send(command, selection ? { ...given, [key]: id } : given);
      } catch (error) {
        problem = `the server was not reached (${error.message})`;
      }
      if (problem) failed.push(`${which(key, [id])}: ${problem}`);
      else if (selection) $$(`input[name="${CSS.escape(selection)}"][value="${CSS.escape(id)}"]`).forEach((box) => { box.checked = false; });
    }
    button.disabled = false;
    if (matching) matching.checked = false;
    count();
    if (!failed.length) news(`${done}: ${which(key, ids)}.`);
    else news(`${ids.length - failed.length} of ${ids.length} done. ${failed.slice(0, SHOWN).join("; ")}`, true);
    if (form.dataset.then && !failed.length) location.assign(form.dataset.then);
    else refresh();
  }

  // --- selections ----------------------------------------------------------------------------------------

  function count() {
    for (const place of $$("[data-count]")) {
      const boxes = $$(`input[name="${CSS.escape(place.dataset.count)}"]`);
      const chosen = boxes.filter((box) => box.checked).length;
      const text = chosen ? `${chosen} selected` : "none selected";
      if (place.textContent !== text) place.textContent = text;
      for (const all of $$(`input[data-all="${CSS.escape(place.dataset.count)}"]`)) {
        all.checked = boxes.length > 0 && chosen === boxes.length;
        all.indeterminate = chosen > 0 && chosen < boxes.length;
      }
    }
  }

  // --- keys ----------------------------------------------------------------------------------------------

  const themes = ["system", "light", "dark"];

  function theme(next) {
    const now = document.documentElement.dataset.theme || "system";
    const chosen = next ? themes[(themes.indexOf(now) + 1) % themes.length] : now;
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    try { localStorage.setItem("theme", chosen); } catch { /* it lasts as long as the page */ }
    $("#theme").textContent = `Theme: ${chosen}`;
    document.dispatchEvent(new CustomEvent("theme"));
  }

  function step(by) {
    const rows = $$("[data-row]");
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const row = rows[Math.min(Math.max(at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by, 0), rows.length - 1)];
    const place = row && $("summary, a", row);
    if (place) place.focus();
  }

  let going = 0;
  const keys = {
    "?": () => $("#help").showModal(),
    "/": () => { const field = $("[data-search]"); if (field) { field.focus(); field.select(); } },
    j: () => step(1),
    k: () => step(-1),
    x: () => {
      const row = document.activeElement.closest("[data-row]");
      const box = row && $("input[type=checkbox]", row);
      if (box) { box.checked = !box.checked; count(); }
    },
    n: () => { const next = $("a[rel=next]"); if (next) next.click(); },
    p: () => { const first = $("a[rel=first]"); if (first) first.click(); },
    r: refresh,
    t: () => theme(true),
    g: () => { going = Date.now(); },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]")) return;
    if (Date.now() - going < 1500) {
      going = 0;
      const link = $(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const key = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (key) { event.preventDefault(); key(); }
  });

  // --- all together --------------------------------------------------------------------------------------

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-command]")) return;
    event.preventDefault();
    act(event.target);
  });
  document.addEventListener("change", (event) => {
    const name = event.target.dataset && event.target.dataset.all;
    if (name) for (const box of $$(`input[name="${CSS.escape(name)}"]`)) box.checked = event.target.checked;
    count();
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = $("pre", button.parentElement).textContent;
    try {
      await navigator.clipboard.writeText(text);
      news("Copied.");
    } catch {
      getSelection().selectAllChildren($("pre", button.parentElement));
      news("Selected: copy it with the browser's own key.");
    }
  });
  document.addEventListener("htmx:after:swap", () => { tellTimes(); count(); });
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : listen()));
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  $("#theme").addEventListener("click", () => theme(true));
  $("#keys").addEventListener("click", keys["?"]);
  theme(false);
  localTimes();
  tellTimes();
  count();
  listen();
  setInterval(tellTimes, 10000);
})();
