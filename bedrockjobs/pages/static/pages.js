// Scripts of all pages: times, actions with confirmation, keys, and one stream that refreshes sections.
(() => {
  "use strict";
  const root = document.documentElement.dataset.root;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

  // --- times: relative in lists with the timestamp on hover; a switch shows timestamps, local or UTC ------

  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const near = new Intl.RelativeTimeFormat(undefined, { numeric: "always", style: "short" });
  const present = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(0, "second");
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const clock = $(".foot time[datetime]");
  const skew = clock ? new Date(clock.dateTime) - Date.now() : 0;
  const ahead = Math.abs(skew) < 10000 ? 0 : skew; // less is the time that the page took, not a clock
  const ways = ["relative", "local", "UTC"];
  let way = kept("times");
  if (!ways.includes(way)) way = "relative";

  function kept(name) {
    try { return localStorage.getItem(name); } catch { return null; }
  }

  function keep(name, value) {
    try { localStorage.setItem(name, value); } catch { /* then it lasts until the page is left */ }
  }

  function relative(moment) {
    const seconds = Math.round((moment - Date.now() - ahead) / 1000);
    const [size, unit] = units.find(([size]) => Math.abs(seconds) >= size) || [1, "second"];
    if (!seconds) return present;
    return near.format(Math.trunc(seconds / size), unit);
  }

  function tellTimes(from = document) {
    for (const time of $$("time[data-kind]", from)) {
      const moment = new Date(time.dateTime);
      const local = $(".local", time);
      if (!local || Number.isNaN(moment.getTime())) continue;
      const utc = $(".utc", time).textContent;
      const exact = way === "UTC" ? utc : day.format(moment);
      let text = exact;
      if (time.dataset.kind === "relative" && way === "relative") text = relative(moment);
      if (time.dataset.kind === "full") text = `${exact} (${relative(moment)})`;
      if (local.textContent !== text) local.textContent = text;
      const title = `${day.format(moment)}\n${utc}`;
      if (time.title !== title) time.title = title;
    }
  }

  function times(next) {
    if (next) keep("times", (way = ways[(ways.indexOf(way) + 1) % ways.length]));
    $("#clock").textContent = `Times: ${way}`;
    tellTimes();
  }

  // Times in forms are UTC in the URL and without scripts; with scripts they are entered in local time.
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

  // --- refreshed sections --------------------------------------------------------------------------------

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

  // If the server is unreachable, the whole page says so: its contents are stale, and actions would fail.
  let lost = null;

  function gone(is) {
    if (is === (lost !== null)) return;
    lost = is ? new Date() : null;
    document.documentElement.classList.toggle("server-gone", is);
    const place = $("#gone");
    place.hidden = !is;
    place.textContent = is
      ? `The server has not answered since ${day.format(lost)}. The page shows the state of that time, and continues by itself.` : "";
    for (const button of $$("main button")) button.disabled = is;
  }

  async function ask() {
    try {
      const answer = await fetch(`${root}/livez`, { cache: "no-store" });
      if (!answer.ok) gone(true);
      else if (lost === null && stream === null) {
        const page = await fetch(location.href, { cache: "no-store" });
        if (page.redirected || page.status === 401) location.reload();
      }
    } catch {
      if (!document.hidden) gone(true);
    }
  }

  function listen() {
    if (stream || document.hidden || !window.EventSource) return;
    stream = new EventSource(`${root}/ui/live`);
    stream.addEventListener("open", () => {
      tell("open");
      gone(false);
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
      ask();
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

  const named = { jobID: "job", workflowID: "workflow", runID: "run", runIDs: "run", jobIDs: "job", worker: "worker", name: "" };
  const SHOWN = 10;

  function which(key, ids, called = "") {
    const what = named[key] ?? key;
    if (ids.length === 1) return `${what} ${ids[0]}${called ? ` (${called})` : ""}`.trim();
    return `${ids.length} ${what}s`;
  }

  // The targets of an action, by number and name, so that a person can check them.
  function listed(ids, names) {
    if (ids.length < 2) return [];
    const rows = ids.slice(0, SHOWN).map((id, at) => (names[at] ? `${id} ${names[at]}` : id));
    return ids.length > SHOWN ? [...rows, `and ${ids.length - SHOWN} more`] : rows;
  }

  function confirmed(question, rows, label, isDanger) {
    const dialog = $("#confirm");
    $("#confirm-which").textContent = question;
    $("#confirm-list").replaceChildren(...rows.map((row) => Object.assign(document.createElement("li"), { textContent: row })));
    $("#confirm-yes").textContent = label;
    $("#confirm-yes").className = isDanger ? "danger main" : "main";
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

  // The values of a form, including that of the pressed button.
  function fields(form, pressed) {
    const given = {};
    for (const field of form.elements) {
      if (!field.name || field.disabled || field.value === "") continue;
      if (field.type === "submit" && field !== pressed) continue;
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

  // A browser opens six connections to a server, of which the stream takes one.
  const LANES = 5;

  function uncheck(selection, id) {
    const boxes = $$(`input[name="${CSS.escape(selection)}"][value="${CSS.escape(id)}"]`);
    boxes.forEach((box) => { box.checked = false; });
  }

  // Reads the next targets that match a filter: IDs, the first names, and where the ones after them begin.
  async function nextSlice(source, before) {
    let found = { ids: [], names: [], next: before };
    do {
      const from = found.next === null ? "" : `${source.includes("?") ? "&" : "?"}before=${found.next}`;
      const answer = await fetch(source + from);
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      found = await answer.json();
    } while (!found.ids.length && found.next !== null);
    return { ...found, ids: found.ids.map(String) };
  }

  async function act(form, button) {
    const popover = form.closest("[popover]");
    if (popover) popover.hidePopover();
    const { command, say, done, selection, as, called, matching, atOnce } = { ...form.dataset, ...button.dataset };
    const given = fields(form, button);
    let ids = [given.jobID ?? given.runID ?? given.runIDs ?? given.workflowID ?? given.worker ?? given.name ?? called ?? ""];
    let names = [];
    let following = null;
    if (selection) {
      const boxes = $$(`input[name="${CSS.escape(selection)}"]:checked`);
      ids = boxes.map((box) => box.value);
      names = boxes.map((box) => box.dataset.name || "");
    }
    const box = selection && $("input[data-matching]:checked");
    const source = matching || (box && box.dataset.matching);
    if (source) {
      try {
        ({ ids, names, next: following } = await nextSlice(source, null));
      } catch (error) {
        return news(`What matches could not be read: ${error.message}.`, true);
      }
    }
    const many = selection || source;
    const key = many ? as : ["jobID", "runID", "runIDs", "workflowID", "worker", "name"].find((name) => name in given) || "name";
    if (many && !ids.length) return news("Nothing is selected.", true);
    const all = following === null ? "" : " and all others that match";
    const whom = matching ? called : which(key, ids, ids[0] === called ? "" : called || names[0]) + all;
    if (!(await confirmed(say.replace("{n}", () => whom), listed(ids, names), button.textContent, button.matches(".danger")))) return button.focus();
    const failed = [];
    let acted = 0;
    let refused = 0;
    button.disabled = true;
    if (form.dataset.then) rest(); // the page may be of what is gone then, and is left anyway
    let at = 0;
    async function lane() {
      while (at < ids.length) {
        const some = ids.slice(at, at + Number(atOnce || 1));
        at += some.length;
        if (ids.length > 1) news(`${done}: ${acted + at}${following === null ? ` of ${acted + ids.length}` : ""} …`);
        let problem;
        try {
          problem = await send(command, many ? { ...given, [key]: some.join() } : given);
        } catch (error) {
          problem = `the server was not reached (${error.message})`;
        }
        if (problem) {
          refused += some.length;
          if (failed.length < SHOWN) failed.push(`${which(key, some)}: ${problem}`);
        } else if (selection) some.forEach((id) => uncheck(selection, id));
      }
    }
    while (true) {
      await Promise.all(Array.from({ length: Math.min(LANES, ids.length) }, lane));
      acted += ids.length;
      if (following === null) break;
      at = 0;
      try {
        ({ ids, next: following } = await nextSlice(source, following));
      } catch (error) {
        failed.push(`what else matches could not be read: ${error.message}`);
        break;
      }
    }
    button.disabled = false;
    if (box) box.checked = false;
    count();
    const some = acted === ids.length ? which(key, ids) : `${acted} ${named[key] ?? key}${acted === 1 ? "" : "s"}`;
    if (!failed.length) news(`${done}: ${matching ? called : some}.`);
    else news(`${acted - refused} of ${acted} done. ${failed.join("; ")}`, true);
    if (form.dataset.then && !failed.length) location.assign(form.dataset.then);
    else {
      refresh();
      listen();
    }
  }

  // --- selections ----------------------------------------------------------------------------------------

  function count() {
    for (const place of $$("[data-count]")) {
      const boxes = $$(`input[name="${CSS.escape(place.dataset.count)}"]`);
      const chosen = boxes.filter((box) => box.checked).length;
      const text = chosen ? `${chosen} selected` : "none selected";
      if (place.textContent !== text) place.textContent = text;
      for (const bar of $$(`[data-bulk="${CSS.escape(place.dataset.count)}"]`)) {
        const matching = $("input[data-matching]", bar);
        bar.hidden = !chosen && !(matching && matching.checked);
      }
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
    keep("theme", chosen);
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

  // Presses the button of this page that tries again: of the selection, or of what the page shows.
  function again() {
    const tries = ["RetryJob", "RunAgain", "RetryWorkflow"].map((name) => `form[data-command="${name}"] button`).join();
    const button = $$(tries, $("main")).find((each) => each.checkVisibility());
    if (button) button.click();
  }

  // Clears the selection; without one, the filter.
  function clear() {
    const boxes = $$("[data-row] input:checked, [data-bulk] input:checked");
    for (const box of boxes) box.checked = false;
    count();
    const all = $(".filter > a:not(.button)");
    if (!boxes.length && all) all.click();
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
    u: () => times(true),
    g: () => { going = Date.now(); },
    R: again,
    Escape: clear,
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

  // --- cards: on a narrow screen each cell of a row has a label --------------------------------------------

  function label() {
    for (const table of $$("table.cards")) {
      const heads = $$("thead th", table).map((head) => head.textContent);
      for (const row of $$("tbody tr", table)) {
        [...row.cells].forEach((cell, at) => { if (cell.colSpan === 1 && heads[at]) cell.dataset.label = heads[at]; });
      }
    }
  }

  // --- rows, popovers, the menu, and the number of failures ---------------------------------------------------

  // A click anywhere in a row opens what the row is about, unless it selects text or hits a control.
  function openRow(event) {
    const row = event.target.closest("tr[data-row]");
    const target = row && $("a[data-main]", row) || row && $("th a", row);
    if (!target || event.defaultPrevented || event.target.closest("a, button, input, label, select, summary, details, [popover]")) return;
    if (String(getSelection())) return;
    if (event.ctrlKey || event.metaKey) open(target.href);
    else target.click();
  }

  // Places a popover below its button, within the window.
  function place(event) {
    const box = event.target;
    if (!box.matches || !box.matches("[popover]") || event.newState !== "open") return;
    const button = $(`[popovertarget="${CSS.escape(box.id)}"]`).getBoundingClientRect();
    const GAP = 4;
    const left = Math.min(button.left, document.documentElement.clientWidth - box.offsetWidth - 2 * GAP);
    const below = button.bottom + GAP;
    box.style.left = `${Math.max(left, GAP)}px`;
    box.style.top = `${below + box.offsetHeight > innerHeight ? Math.max(button.top - box.offsetHeight - GAP, GAP) : below}px`;
    const field = $("input:not([type=hidden])", box);
    if (field) field.focus();
  }

  const FAILURES_EVERY_MS = 5000;
  let counted = 0;

  async function failures() {
    const badge = $("[data-failures]");
    if (!badge || Date.now() - counted < FAILURES_EVERY_MS) return;
    counted = Date.now();
    const answer = await fetch(badge.dataset.failures, { cache: "no-store" }).catch(() => null);
    if (!answer || !answer.ok) return;
    const { count: number, text } = await answer.json();
    badge.textContent = number ? text : "";
    badge.title = number ? `${text} failed jobs not marked as seen` : "";
  }

  // --- setup ---------------------------------------------------------------------------------------------

  document.addEventListener("click", openRow);
  document.addEventListener("toggle", place, true);
  document.body.addEventListener("refresh", failures);
  if ($("#menu")) {
    $("#menu").addEventListener("click", () => $("#menu").setAttribute("aria-expanded", $("#top").classList.toggle("open")));
  }
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-command]")) return;
    event.preventDefault();
    act(event.target, event.submitter);
  });
  document.addEventListener("change", (event) => {
    const name = event.target.dataset && event.target.dataset.all;
    if (name) for (const box of $$(`input[name="${CSS.escape(name)}"]`)) box.checked = event.target.checked;
    count();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".unfold");
    if (button) button.setAttribute("aria-expanded", button.form.classList.toggle("unfolded"));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-frames]");
    if (button) button.setAttribute("aria-expanded", button.previousElementSibling.classList.toggle("whole"));
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
      news("Selected: copy it with the browser's shortcut.");
    }
  });
  document.addEventListener("htmx:after:swap", () => { tellTimes(); label(); count(); });
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : listen()));
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  $("#theme").addEventListener("click", () => theme(true));
  $("#clock").addEventListener("click", () => times(true));
  $("#keys").addEventListener("click", keys["?"]);
  theme(false);
  localTimes();
  times(false);
  label();
  count();
  failures();
  listen();
  setInterval(tellTimes, 10000);
})();
