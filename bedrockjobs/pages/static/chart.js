// Charts: data from the server, drawn by uPlot in the colours of the theme. A tooltip shows
// the values of a point, by pointer or, in a focused chart, by arrow keys.
(() => {
  "use strict";
  const looks = {
    created: { tone: "--active", dash: [] }, finished: { tone: "--good", dash: [6, 3] },
    failed: { tone: "--bad", dash: [2, 3] }, retried: { tone: "--active", dash: [6, 3] }, lost: { tone: "--text", dash: [] },
    depth: { tone: "--active", dash: [], name: "queued", sparse: true },
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
  const SPANS = [1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400, 172800];
  const TIP_PX = 12;
  const figure = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
  const count = new Intl.NumberFormat();

  // Durations as on the pages: two units at most.
  function duration(seconds) {
    if (seconds && seconds < 1) return `${figure.format(seconds * 1000)} ms`;
    if (seconds < 60) return `${figure.format(seconds)} s`;
    const [size, unit, rest, below] = seconds < 3600 ? [60, "min", 1, "s"] : seconds < DAY_S ? [3600, "h", 60, "min"] : [DAY_S, "d", 3600, "h"];
    const left = Math.floor((seconds % size) / rest);
    return `${Math.floor(seconds / size)} ${unit}${left ? ` ${left} ${below}` : ""}`;
  }

  function said(place, value) {
    if (value == null) return "–";
    return "seconds" in place.dataset ? duration(value) : count.format(value);
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

  async function read(url) {
    const answer = await fetch(url);
    return answer.ok ? answer.json() : null;
  }

  // The labels of an axis are as wide as the longest, and without data there is none but 0.
  const TICK_PX = 24;
  const HEIGHT_PX = 220;

  function room(chart, labels, index) {
    if (!labels) return TICK_PX;
    chart.ctx.font = chart.axes[index].font[0];
    const widths = labels.map((label) => chart.ctx.measureText(label).width / devicePixelRatio);
    return Math.ceil(Math.max(...widths)) + TICK_PX;
  }

  function isEmpty(data) {
    return data.slice(1).every((values) => values.every((value) => !value));
  }

  function plot(place, data) {
    const series = place.dataset.series.split(" ");
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const options = {
      width: place.clientWidth,
      height: HEIGHT_PX,
      legend: { live: false },
      cursor: { drag: { x: true, y: false } },
      hooks: { setCursor: [(chart) => tip(chart, place)] },
      scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.05] } },
      axes: [
        { ...axis, values: moments, space: 70 },
        {
          ...axis, size: room,
          values: (chart, splits) => splits.map((value) => (value && isEmpty(chart.data) ? "" : said(place, value))),
          ...("seconds" in place.dataset ? { incrs: SPANS } : { incrs: COUNTS }),
        },
      ],
      series: [
        {},
        ...series.map((name) => ({
          label: looks[name].name || name, stroke: colour(looks[name].tone), width: 2, dash: looks[name].dash,
          points: { show: Boolean(looks[name].sparse) }, spanGaps: name === "depth",
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

  function draw(place, found) {
    const data = [found.at, ...place.dataset.series.split(" ").map((name) => found[name])];
    place.toggleAttribute("data-empty", isEmpty(data));
    if (drawn.has(place)) drawn.get(place).setData(data);
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
  async function renew() {
    for (const url of new Set(places.map((place) => place.dataset.chart))) {
      const found = await read(url).catch(() => null);
      if (found) places.filter((place) => place.dataset.chart === url).forEach((place) => draw(place, found));
    }
  }
  const recolour = () => drawn.forEach((chart, place) => plot(place, chart.data));
  renew();
  document.body.addEventListener("refresh", renew);
  document.addEventListener("theme", recolour);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  const fit = new ResizeObserver((changed) => changed.forEach(({ target }) => drawn.get(target)?.setSize({ width: target.clientWidth, height: HEIGHT_PX })));
  places.forEach((place) => fit.observe(place));
})();
