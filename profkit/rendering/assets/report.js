"use strict";
// What every part of the page uses: data, numbers as text, elements, and the phase that is chosen.
const profkit = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const listeners = [];
  let phase = null;

  const byId = (id) => document.getElementById(id);
  const text = (index) => (index < 0 ? null : data.strings[index]);
  const words = (kind, name) => (Object.hasOwn(data.words[kind], name) ? data.words[kind][name] : name);

  // Names only ever become text nodes or attribute values, never markup.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick") made.addEventListener("click", value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  // Controls, and marks that turn the reading direction, are shown by their number: they could hide what a name says.
  const visible = (value) => value.replace(/[\n\t]/g, " ").replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

  function clip(value, length) {
    if (value === null || value === undefined || value === "") return "–";
    value = visible(value.length > 4 * length ? value.slice(0, 2 * length) + value.slice(-2 * length) : value);
    const head = Math.floor((length * 2) / 3);
    return value.length <= length ? value : `${value.slice(0, head)}…${value.slice(-Math.floor(length / 3))}`;
  }

  const grouped = (digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const formats = [0, 1, 2, 3, 4].map(grouped);
  const fixed = (value, digits) => (value === null || value === undefined ? "–" : formats[digits].format(value).replaceAll(",", "\u202f"));
  const digitsFor = (largest) => (largest >= 10000 ? 0 : largest >= 100 ? 1 : largest >= 10 ? 2 : 3);
  const ms = (ns, digits = 3) => (ns === null ? "–" : ns > 0 && ns / 1e6 < 0.5 * 10 ** -digits ? `<${(10 ** -digits).toFixed(digits)}` : fixed(ns / 1e6, digits));
  const percent = (share) => (share === null || share === undefined ? "–" : share > 0 && share < 0.0005 ? "<0.1 %" : `${fixed(share * 100, share && Math.abs(share) < 0.0995 ? 1 : 0)} %`);
  function bytes(value) {
    const power = value ? Math.min(4, Math.max(0, Math.floor(Math.log2(Math.abs(value)) / 10))) : 0;
    const scaled = value / 1024 ** power;
    return `${fixed(scaled, power ? (scaled < 10 ? 2 : scaled < 100 ? 1 : 0) : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
  }
  const perStep = (ns) => ns / data.scale.divisor;
  const tones = new Set([...Object.keys(data.words.shares), ...Object.keys(data.words.bounds), ...Object.keys(data.words.causes)]);
  const tone = (name) => `tone-${tones.has(name) ? name : "unknown"}`;
  const chip = (name, label) => element("span", { class: `chip ${tone(name)}` }, element("i"), label ?? name);

  function download(name, content, type) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  async function copy(content, button) {
    const before = button.textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(content);
    } catch {
      // A page opened as a file may have no clipboard: select and copy the old way.
      const area = element("textarea", { "aria-hidden": "true" });
      area.value = content;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = before), 1500);
  }

  // A phase chosen in one place filters all the others.
  function choosePhase(path) {
    phase = path;
    for (const listener of listeners) listener(path);
  }
  const within = (path, chosen) => chosen === null || path === chosen || path.startsWith(`${chosen}/`);

  listeners.push((path) => {
    for (const button of document.querySelectorAll("[data-phase]")) {
      button.setAttribute("aria-pressed", String(path !== null && text(data.phases[button.dataset.phase].path) === path));
    }
    // Rows that are too small for the whole are there for their phase alone.
    for (const row of document.querySelectorAll("tr[data-path]")) row.hidden = path === null ? "extra" in row.dataset : !within(row.dataset.path, visible(path));
    // What is counted as not shown is counted of all phases.
    for (const table of document.querySelectorAll("table:has(tr[data-path])")) if (table.parentElement.nextElementSibling?.matches(".more")) table.parentElement.nextElementSibling.hidden = path !== null;
    const note = byId("selection");
    note.hidden = path === null;
    note.querySelector("bdi").textContent = clip(path, 80);
  });
  byId("selection").querySelector("button").addEventListener("click", () => choosePhase(null));
  for (const button of document.querySelectorAll("[data-phase]")) {
    button.addEventListener("click", () => {
      const path = text(data.phases[button.dataset.phase].path);
      choosePhase(path === phase ? null : path);
    });
  }

  // On a phone a wide table is a list of cards: each cell then needs the name of its column.
  function nameCells(table) {
    const names = [...table.tHead.rows[0].cells].map((cell) => {
      const small = cell.querySelector("small")?.textContent ?? "";
      const unit = small.match(/^(ms|µs|GB\/s)/)?.[0]; // per what is said above the table
      return cell.textContent.replace(small, "").trim() + (unit ? `, ${unit}` : "");
    });
    for (const row of table.tBodies[0].rows) {
      if (row.cells.length !== names.length) continue;
      [...row.cells].forEach((cell, at) => {
        cell.dataset.label = names[at];
        cell.classList.toggle("void", ["", "–"].includes(cell.textContent.trim()) && !cell.querySelector("svg"));
      });
    }
    table.classList.add("named");
  }
  for (const table of document.querySelectorAll("table.cards")) nameCells(table);

  // Theme: as the system has it, light, dark.
  const themes = ["auto", "light", "dark"];
  const themed = [];
  byId("theme").addEventListener("click", (event) => {
    const root = document.documentElement;
    root.dataset.theme = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
    event.currentTarget.textContent = `Theme: ${root.dataset.theme}`;
    for (const listener of themed) listener();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => themed.forEach((listener) => listener()));

  // The section in view is marked in the navigation.
  const links = new Map([...document.querySelectorAll(".top nav a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting || !links.has(entry.target.id)) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);

  return { data, byId, text, words, element, visible, clip, fixed, digitsFor, ms, percent, bytes, perStep, tone, chip, download, copy,
    nameCells, choosePhase, within, onPhase: (listener) => listeners.push(listener), onTheme: (listener) => themed.push(listener), phase: () => phase };
})();
