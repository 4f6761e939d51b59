// The form of a job or schedule: validated by the server while it is filled in, sent as a command, never cleared.
(() => {
  "use strict";
  const form = document.getElementById("form");
  const $ = (id) => document.getElementById(id);
  const { form: command, check, schedule, then, job, tag, checked: checkedChars } = form.dataset;
  const root = document.documentElement.dataset.root;
  const isNew = command === "CreateJob";
  const moment = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
  const CHECK_MS = 250;
  let last = 0;
  let shown = 0;
  let timer = 0;
  let force = false;
  let attempt = { body: "", key: "" };
  const touched = new Set();

  const fields = () => [...form.elements].filter((field) => field.name);

  function begin() {
    for (const field of form.querySelectorAll("[data-moment]")) {
      if (!field.dataset.moment) continue;
      const at = new Date(field.dataset.moment);
      field.value = field.defaultValue = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
    }
    const zones = $("zones");
    if (zones && Intl.supportedValuesOf) {
      zones.replaceChildren(...Intl.supportedValuesOf("timeZone").map((name) => Object.assign(document.createElement("option"), { value: name })));
    }
    const zone = form.elements.zone;
    if (zone && isNew && !zone.value) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
    look();
  }

  function differs(field) {
    if (isNew) return true;
    if (field.type === "select-one") return ![...field.selectedOptions].every((option) => option.defaultSelected);
    return field.value !== field.defaultValue;
  }

  // The fields as texts, with times in UTC. Long data are left out: they are only validated when they are sent.
  function typed() {
    const found = {};
    const changed = [];
    for (const field of fields()) {
      const local = field.type === "datetime-local" && field.value;
      const value = local ? new Date(field.value).toISOString() : field.value;
      if (field.name === "data" && value.length > Number(checkedChars)) continue;
      found[field.name] = value;
      if (differs(field)) changed.push(field.name);
    }
    return { command, schedule: schedule === "true", fields: found, changed };
  }

  async function looked() {
    const number = ++last;
    const answer = await fetch(check, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(typed()) });
    if (!answer.ok) throw new Error(await words(answer));
    const found = await answer.json();
    if (number < shown) return found;
    shown = number;
    preview(found.preview);
    return found;
  }

  // While typing, show errors of touched fields only; sending shows all errors.
  async function look() {
    try {
      const { errors } = await looked();
      mark(Object.fromEntries(Object.entries(errors).filter(([name]) => touched.has(name))));
    } catch { /* the page shows when the server is unreachable */ }
  }

  function mark(errors) {
    for (const field of fields()) {
      const place = $(`wrong-${field.name}`);
      if (!place) continue;
      const told = errors[field.name] || "";
      if (place.textContent !== told) place.textContent = told;
      place.hidden = !told;
      if (told) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
  }

  function item(tag, text, kind = "") {
    return Object.assign(document.createElement(tag), { textContent: text, className: kind });
  }

  function warning(text) {
    const place = item("li", ` ${text}`, "problem notice");
    place.prepend(item("span", "", "shape warning tone-warn"));
    return place;
  }

  function preview(found) {
    const place = $("preview");
    place.hidden = !found || !found.valid;
    if (place.hidden) return;
    $("preview-words").textContent = `${found.words}.`;
    $("preview-zone").textContent = found.zone;
    $("preview-warnings").replaceChildren(...found.warnings.map(warning));
    $("preview-next").replaceChildren(...found.next.map(({ at, there }) => {
      const row = document.createElement("tr");
      row.append(item("td", moment.format(new Date(at))), item("td", there));
      return row;
    }));
    $("preview-none").hidden = found.next.length > 0;
  }

  async function words(answer) {
    const told = await answer.json().catch(() => ({}));
    return told.detail || told.reason || `HTTP ${answer.status}`;
  }

  function whole(text) {
    $("wrong").textContent = text;
    $("wrong").hidden = !text;
  }

  // An error begins with its field, as in "retryAfter: expected nothing with repeat".
  function refused(text) {
    const name = (/^(\w+)(?:\.[^:]*)?:/.exec(text) || [])[1];
    const aliases = { repeat: ["expression", "repeat"] };
    const named = [...(aliases[name] || [name]), form.elements.other.value.includes(`"${name}"`) ? "other" : ""]
      .find((each) => each && $(`wrong-${each}`));
    if (named) told({ [named]: text });
    else whole(text);
  }

  function told(errors) {
    mark(errors);
    Object.keys(errors).forEach((name) => touched.add(name));
    const first = fields().find((field) => errors[field.name]);
    const more = first && first.closest("details");
    if (more) more.open = true;
    if (first) first.focus();
    const count = Object.keys(errors).length;
    whole(`${isNew ? "Not created" : "Not saved"}: ${count === 1 ? "a field needs" : `${count} fields need`} another value.`);
  }

  // The same key for the same contents: a form sent again after a lost reply creates one job.
  function keyed(parameters) {
    if (!isNew) return parameters;
    const body = JSON.stringify({ ...parameters, firstRun: form.elements.delay?.value });
    if (body !== attempt.body) attempt = { body, key: [...crypto.getRandomValues(new Uint32Array(4))].join("-") };
    return { ...parameters, idempotencyKey: attempt.key };
  }

  async function send() {
    whole("");
    const { errors, parameters } = await looked();
    if (Object.keys(errors).length) return told(errors);
    mark({});
    const data = form.elements.data;
    if (data.value.length > Number(checkedChars) && differs(data)) parameters.data = data.value;
    if (!isNew && !Object.keys(parameters).length) return whole("Nothing was changed.");
    const body = isNew ? keyed(parameters) : { jobID: job, ...(tag && !force ? { ifMatch: tag } : {}), ...parameters };
    const answer = await fetch(`${root}/${command}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    if (answer.ok) return location.assign(then + (isNew ? (await answer.json()).jobID : job));
    if (answer.status === 412) {
      force = true;
      $("send").textContent = "Save anyway";
      return whole("The job has changed since this form was opened, or was taken. Reload it, or save anyway.");
    }
    refused(await words(answer));
  }

  function shows() {
    for (const place of form.querySelectorAll("[data-when]")) place.hidden = place.dataset.when !== form.elements.when.value;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    $("send").disabled = true;
    try {
      await send();
    } catch (error) {
      whole(`The server was not reached (${error.message}). What you typed is still here: try again.`);
    }
    $("send").disabled = false;
  });
  form.addEventListener("input", (event) => {
    touched.add(event.target.name);
    if (event.target.name === "zone") touched.add("expression");
    if (event.target.name === "when") shows();
    clearTimeout(timer);
    timer = setTimeout(look, CHECK_MS);
  });
  begin();
})();
