// Charts: data from the server, drawn by uPlot in the colours of the theme. A tooltip shows
// the values of a point, by pointer or, in a focused chart, by arrow keys.
(() => {
  "use strict";
  const looks = {
    created: { tone: "--active", dash: [] }, finished: { tone: "--good", dash: [6, 3] },
    failed: { tone: "--bad", dash: [2, 3] }, depth: { tone: "--active", dash: [] },
    wait_p50: { tone: "--active", dash: [], name: "median", sparse: true },
    wait_p95: { tone: "--soft", dash: [6, 3], name: "95 %", sparse: true },
    took_p50: { tone: "--active", dash: [], name: "median", sparse: true },
    took_p95: { tone: "--soft", dash: [6, 3], name: "95 %", sparse: true },
  };
  const drawn = new Map();

  // The browser's date formats, because uPlot uses those of the United States.
  const DAY_S = 86400;
  const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

  function moments(_, splits, axis, space, step) {
    let last = "";
    return splits.map((at) => {
      const date = day.format(at * 1000);
      const isNew = date !== last;
      last = date;
      if (step >= DAY_S) return date;
      return clock.format(at * 1000) + (isNew ? `\n${date}` : "");
    });
  }

  const COUNTS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8, 1e9];
  const TIP_PX = 12;
  const figure = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
  const count = new Intl.NumberFormat();

  function said(place, value) {
    if (value == null) return "–";
    return place.dataset.suffix ? figure.format(value) + place.dataset.suffix : count.format(value);
  }

  function tip(chart, place) {
    const { idx, left } = chart.cursor;
    const box = place.querySelector(".tip");
    box.hidden = idx == null || left < 0;
    if (box.hidden) return;
    const parts = chart.series.slice(1).map((one, at) => `${one.label} ${said(place, chart.data[at + 1][idx])}`);
    const text = `${moment.format(chart.data[0][idx] * 1000)}: ${parts.join(", ")}`;
    if (box.textContent !== text) box.textContent = text;
    const room = chart.over.offsetLeft + left;
    const behind = room + TIP_PX + box.offsetWidth > place.clientWidth;
    const at = Math.max(behind ? room - TIP_PX - box.offsetWidth : room + TIP_PX, 0);
    box.style.left = `${Math.min(at, Math.max(place.clientWidth - box.offsetWidth, 0))}px`;
  }

  function go(chart, index) {
    const last = chart.data[0].length - 1;
    const at = Math.min(Math.max(index, 0), last);
    chart.setCursor({ left: chart.valToPos(chart.data[0][at], "x"), top: 0 });
  }

  function keyed(event) {
    const chart = drawn.get(event.currentTarget);
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (!chart || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") chart.setCursor({ left: -10, top: -10 });
    if (step === undefined) return;
    event.preventDefault();
    go(chart, (chart.cursor.idx ?? chart.data[0].length) + step);
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  async function read(place) {
    const answer = await fetch(place.dataset.chart);
    if (!answer.ok) return null;
    const found = await answer.json();
    return [found.at, ...place.dataset.series.split(" ").map((name) => found[name])];
  }

  function plot(place, data) {
    const series = place.dataset.series.split(" ");
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const options = {
      width: place.clientWidth,
      height: 220,
      legend: { live: false },
      cursor: { drag: { x: true, y: false } },
      hooks: { setCursor: [(chart) => tip(chart, place)] },
      scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.05] } },
      axes: [
        { ...axis, values: moments, space: 70 },
        {
          ...axis, size: 60, values: (_, splits) => splits.map((value) => said(place, value)),
          ...(place.dataset.suffix ? {} : { incrs: COUNTS }),
        },
      ],
      series: [
        {},
        ...series.map((name) => ({
          label: looks[name].name || name, stroke: colour(looks[name].tone), width: 2, dash: looks[name].dash,
          points: { show: Boolean(looks[name].sparse) },
        })),
      ],
    };
    const box = document.createElement("div");
    box.className = "tip";
    box.setAttribute("role", "status");
    box.hidden = true;
    place.replaceChildren(box);
    drawn.set(place, new uPlot(options, data, place));
  }

  async function draw(place, again) {
    const data = await read(place).catch(() => null);
    if (!data) return;
    if (again && drawn.has(place)) drawn.get(place).setData(data);
    else plot(place, data);
    place.dataset.points = data[0].length;
    place.dataset.sum = data[1].reduce((sum, value) => sum + (value || 0), 0);
  }

  const places = [...document.querySelectorAll("[data-chart]")];
  for (const place of places) {
    place.addEventListener("keydown", keyed);
    place.addEventListener("focus", () => { const chart = drawn.get(place); if (chart) go(chart, Infinity); });
    place.addEventListener("blur", () => drawn.get(place)?.setCursor({ left: -10, top: -10 }));
  }
  const all = (again) => places.forEach((place) => draw(place, again));
  all(false);
  document.body.addEventListener("refresh", () => all(true));
  document.addEventListener("theme", () => all(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(false));
  addEventListener("resize", () => places.forEach((place) => drawn.get(place)?.setSize({ width: place.clientWidth, height: 220 })));
})();
