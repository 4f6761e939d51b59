// The charts of the overview: numbers from the server, drawn by uPlot in the colours of the theme.
(() => {
  "use strict";
  const looks = {
    created: { tone: "--active", dash: [] }, finished: { tone: "--good", dash: [6, 3] },
    failed: { tone: "--bad", dash: [2, 3] }, wait_ms: { tone: "--active", dash: [], name: "wait" },
  };
  const drawn = new Map();

  // uPlot writes dates as in the United States; these are the browser's own.
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

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  async function read(place) {
    const answer = await fetch(place.dataset.chart);
    if (!answer.ok) return null;
    const found = await answer.json();
    const unit = Number(place.dataset.unit || 1);
    const series = place.dataset.series.split(" ");
    return [found.at, ...series.map((name) => found[name].map((value) => (value === null ? null : value * unit)))];
  }

  function plot(place, data) {
    const series = place.dataset.series.split(" ");
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const options = {
      width: place.clientWidth,
      height: 220,
      legend: { live: true },
      cursor: { drag: { x: true, y: false } },
      scales: { y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
      axes: [{ ...axis, values: moments, space: 70 }, { ...axis, size: 60 }],
      series: [
        { value: (_, at) => (at == null ? "--" : moment.format(at * 1000)) },
        ...series.map((name) => ({
          label: looks[name].name || name, stroke: colour(looks[name].tone), width: 2, dash: looks[name].dash,
          points: { show: name === "wait_ms" },
        })),
      ],
    };
    place.replaceChildren();
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
  const all = (again) => places.forEach((place) => draw(place, again));
  all(false);
  document.body.addEventListener("refresh", () => all(true));
  document.addEventListener("theme", () => all(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(false));
  addEventListener("resize", () => places.forEach((place) => drawn.get(place)?.setSize({ width: place.clientWidth, height: 220 })));
})();
