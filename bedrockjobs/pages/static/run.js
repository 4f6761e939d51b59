// The output of a run: colours, timestamps in local time, and new lines as they arrive. A job's page shows the
// output of its newest run, which may change.
(() => {
  "use strict";
  const LINES_KEPT = 5000;
  const FLUSH_MS = 100;
  const root = document.documentElement.dataset.root;
  let log, follow, times, place;
  let last = 0;
  let stream = null;
  let shown = 0;
  let dropped = 0;

  // --- colours ---------------------------------------------------------------------------------------------

  const colours = ["faint", "red", "green", "yellow", "blue", "magenta", "cyan", ""];

  function changed(look, codes) {
    const next = { ...look };
    for (let at = 0; at < codes.length; at += 1) {
      const code = codes[at];
      if (code === 0) Object.assign(next, { fg: "", b: false, i: false, u: false });
      else if (code === 1) next.b = true;
      else if (code === 3) next.i = true;
      else if (code === 4) next.u = true;
      else if (code === 22) next.b = false;
      else if (code === 23) next.i = false;
      else if (code === 24) next.u = false;
      else if (code === 39) next.fg = "";
      else if (code >= 30 && code <= 37) next.fg = colours[code - 30];
      else if (code >= 90 && code <= 97) next.fg = colours[code - 90];
      else if (code === 38 || code === 48) {
        if (code === 38 && codes[at + 1] === 5 && codes[at + 2] < 16) next.fg = colours[codes[at + 2] % 8];
        at += codes[at + 1] === 5 ? 2 : 4;
      }
    }
    return next;
  }

  function paint(said, raw) {
    let look = { fg: "", b: false, i: false, u: false };
    said.textContent = "";
    const text = raw.slice(raw.lastIndexOf("\r") + 1);
    // eslint-disable-next-line no-control-regex
    const parts = text.split(/\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/);
    parts.forEach((part, index) => {
      if (index % 2) {
        if (/^\[[0-9;]*m$/.test(part)) look = changed(look, part.slice(1, -1).split(";").map(Number));
      } else if (part) {
        const span = document.createElement("span");
        span.className = [look.fg && `fg-${look.fg}`, look.b && "b", look.i && "i", look.u && "u"].filter(Boolean).join(" ");
        // eslint-disable-next-line no-control-regex
        span.textContent = part.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "\ufffd");
        said.append(span);
      }
    });
  }

  // --- timestamps ------------------------------------------------------------------------------------------

  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

  function tell(time) {
    time.textContent = `${clock.format(new Date(time.dateTime))} · ${time.dateTime.slice(11, 19)} UTC`;
  }

  function showTimes() {
    log.classList.toggle("times", times.checked);
    const download = document.getElementById("download");
    if (!download) return;
    for (const address of [new URL(location.href), new URL(download.href)]) {
      if (times.checked) address.searchParams.set("times", "1");
      else address.searchParams.delete("times");
      if (address.pathname === location.pathname) history.replaceState(null, "", address);
      else download.href = address;
    }
  }

  // --- long lines: wrapped, or scrolled sideways; the browser remembers which ---------------------------------

  function kept() {
    try { return localStorage.getItem("wrap") !== "no"; } catch { return true; }
  }

  function wrap(wraps) {
    log.classList.toggle("unwrapped", !wraps);
    try { localStorage.setItem("wrap", wraps ? "yes" : "no"); } catch { /* then it lasts until the page is left */ }
  }

  // --- new lines -------------------------------------------------------------------------------------------

  const part = (kind, name, text) => {
    const made = document.createElement(kind);
    made.className = name;
    made.textContent = text;
    return made;
  };

  function row({ seq, at, stream: from, line }) {
    const made = part("div", from === "err" ? "line err" : "line", "");
    const when = part("time", "when", "");
    const said = part("span", "said", "");
    made.id = `line-${seq}`;
    when.dateTime = `${at.replace(" ", "T")}Z`;
    tell(when);
    paint(said, line);
    made.append(part("span", "no", seq), when, part("span", "stream", from === "err" ? "err" : ""), said);
    return made;
  }

  let waiting = [];

  function flush() {
    if (!waiting.length) return;
    const lines = waiting.slice(-LINES_KEPT);
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    dropped += waiting.length - lines.length;
    waiting = [];
    document.getElementById("nothing")?.remove();
    log.append(...lines.map(row));
    shown += lines.length;
    for (; shown > LINES_KEPT; shown -= 1) {
      log.querySelector(".line").remove();
      dropped += 1;
    }
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  function add(line) {
    if (line.seq <= last) return;
    last = line.seq;
    if (!waiting.length) setTimeout(flush, FLUSH_MS);
    waiting.push(line);
  }

  function say(text) {
    place.textContent = dropped ? `${text} ${dropped} lines left the page at its top.` : text;
  }

  function close() {
    if (stream) stream.close();
    stream = null;
  }

  function open() {
    if (stream || !follow || !follow.checked || document.hidden) return;
    stream = new EventSource(`${root}/runs/${log.dataset.run}/output?after=${last}`);
    stream.addEventListener("open", () => say("Following."));
    stream.addEventListener("line", (event) => add(JSON.parse(event.data)));
    stream.addEventListener("end", (event) => {
      close();
      flush();
      follow.checked = false;
      follow.disabled = true;
      say(`The run has ended: ${JSON.parse(event.data).status}.`);
      document.body.dispatchEvent(new CustomEvent("refresh"));
    });
    stream.addEventListener("error", () => say("Reconnecting…"));
  }

  function begin() {
    close();
    [log, follow, times, place] = ["log", "follow", "times", "following"].map((id) => document.getElementById(id));
    if (!log) return;
    [waiting, last, shown, dropped] = [[], Number(log.dataset.last), log.querySelectorAll(".line").length, 0];
    for (const said of log.querySelectorAll("[data-raw]")) paint(said, JSON.parse(said.dataset.raw));
    for (const time of log.querySelectorAll(".when")) tell(time);
    times.addEventListener("change", showTimes);
    const wraps = document.getElementById("wrap");
    wraps.checked = kept();
    wrap(wraps.checked);
    wraps.addEventListener("change", () => wrap(wraps.checked));
    if (!follow) return;
    log.scrollTop = log.scrollHeight;
    follow.addEventListener("change", () => {
      if (follow.checked) { log.scrollTop = log.scrollHeight; open(); } else { close(); say("Not following."); }
    });
    open();
  }

  document.addEventListener("htmx:after:swap", () => {
    if (document.getElementById("log") !== log) begin();
    const newest = document.querySelector("[data-newest]");
    const known = log ? log.dataset.run : "";
    if (newest && newest.dataset.newest !== known) document.body.dispatchEvent(new CustomEvent("newrun"));
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  begin();
})();
