"use strict";
// The kernel table: grouped, filtered, searched and sorted here, from at most a thousand rows.
profkit.kernels = (() => {
  const { data, byId, text, words, element, clip, fixed, digitsFor, ms, percent, perStep, tone, chip } = profkit;
  const table = byId("kernel-table");
  if (!table) return { select() {} };
  const SHOWN = 25;
  const body = table.tBodies[0];
  const state = { sort: "total_ns", descending: true, group: "name", search: null, all: false, open: new Set() };
  const rows = data.kernels.map((row, index) => ({
    ...row, index, id: row.name, name: text(row.name) ?? "", title: text(row.short_name) || text(row.name) || "", family: text(row.family) ?? "unknown",
    whole_ns: row.total_ns, launches: row.count, dtype: text(row.dtype), bound: text(row.bound) ?? "unknown", basis: text(row.basis) ?? "unknown",
    phases: row.phases.map(([path, ns, count]) => [text(path), ns, count]), operators: row.operators.map(([name, count]) => [text(name), count]),
    modules: row.modules.map(([name, count]) => [text(name), count]), lines: row.lines.map(([line, count]) => [text(line), count]),
  }));
  const dims = (grid) => (grid ? grid.join(" × ") : "–");
  const labels = {
    steps: data.steps.map((step) => text(step.name)),
    devices: data.devices.map(({ id, rank }) => `GPU ${id}${rank === null || rank === undefined ? "" : `, rank ${rank}`}`),
  };
  const shapeKey = (row) => `${row.id} ${dims(row.grid)} ${dims(row.block)} ${row.shapes}`;
  const chosen = () => Object.fromEntries(["phase", "step", "family", "bound", "device"].map((id) => [id, byId(id).value]));

  // With a step or a device chosen, times are of that one alone, and shares are of its own busy time.
  function scaled() {
    const { step, device } = chosen();
    const busy = (list) => list.reduce((sum, one) => sum + (one.busy_ns ?? 0), 0);
    const of = (list, at) => (at === "" ? [1, 1] : [list.length, list[at].busy_ns ? busy(list) / list[at].busy_ns : list.length]);
    const [[steps, byStep], [devices, byDevice]] = [of(data.steps, step), of(data.devices, device)];
    return { time: steps * devices, share: byStep * byDevice };
  }
  let scope = { time: 1, share: 1 };
  const shown = (ns) => perStep(ns) * scope.time;

  // A part of a row: its time in the chosen phase, or in one group of several. Launches are counts or unknown, and never
  // worked out from times: a rank that waits in a collective is as long in one launch as the others are in many.
  function part(row, ns, count) {
    if (ns === row.total_ns && count === row.count) return row;
    const scale = row.total_ns ? ns / row.total_ns : 0;
    const times = (value) => (value === null ? null : value * scale);
    return { ...row, total_ns: ns, count, share: times(row.share), flop: times(row.flop), dram_bytes: times(row.dram_bytes), partial: true };
  }
  const addedUp = (counts) => counts.reduce((sum, count) => (sum === null || count === null ? null : sum + count), 0);
  // What a row has of a group: all of its launches with all of its time, the group's own count of a whole row, else unknown.
  const grouped = (row, key, ns, count) => [key, ns, ns === row.total_ns ? row.count : row.partial ? null : count];
  const insideOf = (row, path) => row.phases.filter(([one]) => profkit.within(one, path));

  function matching() {
    const { step, family, bound, device } = chosen();
    const path = profkit.phase();
    scope = scaled();
    return rows.flatMap((row) => {
      if (family && row.family !== family) return [];
      if (bound && row.bound !== bound) return [];
      if (state.search && !state.search.test(row.name) && !state.search.test(row.title) && !row.operators.some(([name]) => state.search.test(name))) return [];
      // Each of phase, step and device has its exact part; of several the parts are taken to be independent.
      const parts = [];
      const inside = path === null ? [] : insideOf(row, path);
      if (path !== null) parts.push(inside.reduce((sum, [, ns]) => sum + ns, 0));
      if (step) parts.push(row.steps[step]);
      if (device) parts.push(row.devices[device]);
      const ns = parts.reduce((left, one) => (row.total_ns ? (left * one) / row.total_ns : 0), row.total_ns);
      const count = ns === row.total_ns ? row.count : path !== null && parts.length === 1 ? addedUp(inside.map(([, , one]) => one)) : null;
      return ns || !parts.length ? [part(row, ns, count)] : [];
    });
  }

  // The groups that a row belongs to, each with its part of the row's time and launches.
  function keys(row) {
    switch (state.group) {
      case "name": return [[row.id, row.total_ns, row.count]];
      case "shape": return [[shapeKey(row), row.total_ns, row.count]];
      case "operators": {
        const all = row.operators.reduce((sum, [, count]) => sum + count, 0);
        return all ? row.operators.map(([name, count]) => grouped(row, name, (row.total_ns * count) / all, count)) : [["no operator", row.total_ns, row.count]];
      }
      case "modules": {
        const known = row.modules.reduce((sum, [, count]) => sum + count, 0);
        const all = Math.max(known, row.launches);
        const inside = row.modules.map(([name, count]) => grouped(row, name, (row.total_ns * count) / all, count));
        return known < all ? [...inside, grouped(row, "no module", row.total_ns * (1 - known / all), all - known)] : inside;
      }
      case "steps":
      case "devices": {
        const only = byId(state.group === "steps" ? "step" : "device").value;
        if (only !== "") return [[labels[state.group][only], row.total_ns, row.count]];
        const ofWhole = row.whole_ns ? row.total_ns / row.whole_ns : 0;
        const inside = row[state.group].map((ns, at) => grouped(row, labels[state.group][at], ns * ofWhole, null)).filter(([, ns]) => ns);
        const rest = row.total_ns - inside.reduce((sum, [, ns]) => sum + ns, 0);
        return rest > 0.5 || !inside.length ? [...inside, grouped(row, state.group === "steps" ? "no step" : "no device", rest, null)] : inside;
      }
      case "phases": {
        const path = profkit.phase();
        const inside = insideOf(row, path);
        const known = inside.reduce((sum, [, ns]) => sum + ns, 0);
        const ofWhole = path !== null && known ? row.total_ns / known : row.whole_ns ? row.total_ns / row.whole_ns : 0;
        const alone = !byId("step").value && !byId("device").value;
        const parts = inside.map(([one, ns, count]) => [one, ns * ofWhole, alone ? count : null]);
        const rest = row.total_ns - known * ofWhole;
        const others = addedUp(parts.map(([, , count]) => count));
        return rest > 0.5 ? [...parts, ["no phase", rest, others === null || row.count === null ? null : row.count - others]] : parts;
      }
      case "bound": return [[words("bounds", row.bound), row.total_ns, row.count]];
      default: return [[row[state.group] ?? "unknown", row.total_ns, row.count]];
    }
  }

  function united(key, members) {
    const sum = (name) => members.reduce((total, row) => total + (row[name] ?? 0), 0);
    const times = new Map();
    for (const row of members) times.set(row.bound, (times.get(row.bound) ?? 0) + row.total_ns);
    const bound = [...times].sort((a, b) => b[1] - a[1])[0][0];
    // An efficiency is a term over a duration, so that of a group is the mean of its side, weighted by time.
    const side = members.filter((row) => row.bound === bound && row.efficiency !== null);
    const time = side.reduce((total, row) => total + row.total_ns, 0);
    const count = addedUp(members.map((row) => row.count));
    const total = sum("total_ns");
    const byKernel = state.group === "name" || state.group === "shape";
    return {
      key, members, bound, count, total_ns: total, share: sum("share") * scope.share, mean_ns: count ? total / count : null,
      title: byKernel ? members[0].title : key,
      efficiency: time ? side.reduce((all, row) => all + row.efficiency * row.total_ns, 0) / time : null,
      unsaturated: time > 0 && side.reduce((all, row) => all + (row.unsaturated ? row.total_ns : 0), 0) * 2 > time,
    };
  }

  function groups() {
    const found = new Map();
    for (const row of matching()) {
      for (const [key, ns, count] of keys(row)) {
        if (!found.has(key)) found.set(key, []);
        found.get(key).push(part(row, ns, count));
      }
    }
    const made = [...found].map(([key, members]) => united(key, members));
    const value = (group) => (state.sort === "title" || state.sort === "bound" ? group[state.sort].toLowerCase() : group[state.sort]);
    return made.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === y) return b.total_ns - a.total_ns;
      if (x === null) return 1; // what is unknown stays last, whichever way
      if (y === null) return -1;
      return (x < y ? -1 : 1) * (state.descending ? -1 : 1);
    });
  }

  function meter(share, name) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of Object.entries({ class: "meter", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" })) svg.setAttribute(key, value);
    for (const [kind, width] of [["track", 100], [tone(name), Math.min(100, Math.max(0, share * 100))]]) {
      const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [key, value] of Object.entries({ class: kind, width, height: 6 })) rect.setAttribute(key, value);
      svg.append(rect);
    }
    return svg;
  }

  const countText = (count, scaled = shown) => {
    if (count === null) return "–";
    const value = scaled(count);
    return fixed(value, Math.abs(value - Math.round(value)) < 1e-9 ? 0 : 1);
  };
  const tag = (label, kind = "") => element("span", { class: `tag ${kind}` }, label);

  const figure = (value) => element("span", { class: "figure" }, value);

  function chipsOf(group) {
    const first = group.members[0];
    if (state.group !== "name" && state.group !== "shape") return tag(`${group.members.length} ${group.members.length === 1 ? "row" : "rows"}`);
    const chips = [tag(clip(first.family, 30))];
    if (first.dtype) chips.push(tag(clip(first.dtype, 20)));
    if (first.tensor_core) chips.push(tag("tensor cores"));
    if (state.group === "shape") chips.push(tag(`grid ${dims(first.grid)}`), tag(`block ${dims(first.block)}`));
    else if (group.members.length > 1) chips.push(tag(`${group.members.length} launch shapes`));
    return element("div", { class: "chips" }, ...chips);
  }

  function line(group, scale) {
    const open = state.open.has(group.key);
    const button = element("button", { type: "button", class: "kernel-name", "aria-expanded": String(open), onclick: () => toggle(group.key) },
      element("bdi", {}, clip(group.title, 110)));
    const efficiency = element("td", { class: "n" }, figure(percent(group.efficiency)));
    if (group.efficiency !== null) efficiency.prepend(meter(group.efficiency, group.bound));
    const bar = scale.share ? meter((group.share ?? 0) / scale.share, group.bound) : "";
    return element("tr", { "data-key": rowKey(group.key) },
      element("th", { scope: "row" }, element("div", { class: "name" }, button, chipsOf(group))),
      element("td", { class: "n strong" }, ms(shown(group.total_ns), scale.digits)),
      element("td", { class: "n" }, bar, figure(percent(group.share))),
      element("td", { class: "n" }, countText(group.count)),
      element("td", { class: "n" }, group.mean_ns === null ? "–" : fixed(group.mean_ns / 1e3, scale.mean)),
      element("td", { class: "bound" }, chip(group.bound, words("bounds", group.bound)), group.unsaturated ? tag("unsaturated", "warn") : ""),
      efficiency);
  }
  const ids = new Map();
  const rowKey = (key) => ids.get(key) ?? (ids.set(key, `k${ids.size}`), ids.get(key));

  function smallTable(caption, headers, cells) {
    const head = element("tr", {}, ...headers.map(([label, kind]) => element("th", { scope: "col", class: kind }, label)));
    const lines = cells.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", { class: headers[i][1] }, cell instanceof Node ? cell : element("bdi", {}, cell)))));
    return element("table", { class: "data" }, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...lines));
  }

  function merged(members, field) {
    const sums = new Map();
    for (const row of members) for (const [name, value] of row[field]) sums.set(name, (sums.get(name) ?? 0) + (value ?? 0));
    return [...sums].sort((a, b) => b[1] - a[1]).slice(0, 12);
  }

  function detail(group) {
    const members = [...group.members].sort((a, b) => b.total_ns - a.total_ns);
    const byKernel = state.group === "name" || state.group === "shape";
    const parts = [];
    if (byKernel) {
      const copyButton = element("button", { type: "button", onclick: (event) => profkit.copy(members[0].name, event.currentTarget) }, "Copy name");
      parts.push(element("p", { class: "full" }, element("code", {}, element("bdi", {}, profkit.visible(members[0].name))), copyButton));
    }
    const inputs = members.some((row) => row.shapes >= 0);
    const filled = members.some((row) => row.occupancy !== null);
    const shapes = smallTable(byKernel ? "Launch shapes" : "Kernels",
      [[byKernel ? "Grid" : "Kernel", ""], ["Block", ""], ...(inputs ? [["Operator's inputs", ""]] : []), [`ms ${data.scale.label}`, "n"], ["Launches", "n"], ["Median µs", "n"], ["Min to max µs", "n"], ["Efficiency", "n"], ["TFLOP/s", "n"], ["GB/s", "n"], ...(filled ? [["Occupancy, limited by", ""], ["Waves", "n"]] : [])],
      members.slice(0, 20).map((row) => [byKernel ? dims(row.grid) : clip(row.title, 60), dims(row.block), ...(inputs ? [clip(text(row.shapes) ?? "–", 80)] : []), ms(shown(row.total_ns)), countText(row.count),
        row.median_ns === null ? "–" : fixed(row.median_ns / 1e3, 2), `${fixed(row.min_ns / 1e3, 2)} to ${fixed(row.max_ns / 1e3, 2)}`,
        `${percent(row.efficiency)}${row.unsaturated ? " !" : ""}`, fixed(row.tflops, 1), fixed(row.gbs, 0),
        ...(filled ? [`${percent(row.occupancy)}${row.limit < 0 ? "" : ` · ${text(row.limit)}`}`, fixed(row.waves, 2)] : [])]));
    parts.push(element("div", { class: "scroll" }, shapes));
    if (members.length > 20) parts.push(element("p", { class: "more" }, `${members.length - 20} more`));
    const lists = element("div", { class: "columns" });
    const operators = merged(members, "operators");
    if (operators.length) lists.append(smallTable("Operators", [["Operator", ""], ["Launches in all", "n"]], operators.map(([name, count]) => [clip(name, 90), fixed(count, 0)])));
    const phases = merged(members, "phases");
    const launches = (path) => addedUp(members.flatMap((row) => row.phases.filter(([one]) => one === path).map(([, , count]) => count)));
    if (phases.length) {
      lists.append(smallTable("Phases", [["Phase", ""], [`ms ${data.scale.label}`, "n"], ["Launches", "n"]], phases.map(([path, ns]) => [
        element("button", { type: "button", class: "link", onclick: () => profkit.choosePhase(path) }, element("bdi", {}, clip(path, 90))), ms(perStep(ns)), countText(launches(path), perStep)])));
    }
    const modules = merged(members, "modules");
    if (modules.length) lists.append(smallTable("Modules", [["Module", ""], ["Launches in all", "n"]], modules.map(([name, count]) => [clip(name, 90), fixed(count, 0)])));
    const lines = merged(members, "lines");
    if (lines.length) lists.append(smallTable("Source lines", [["Line", ""], ["Launches in all", "n"]], lines.map(([name, count]) => [clip(name, 90), count ? fixed(count, 0) : "–"])));
    parts.push(lists);
    const bases = [...new Set(members.map((row) => row.basis))];
    parts.push(element("p", { class: "quiet" }, `Bound and efficiency: ${bases.map((basis) => `${basis}, ${words("bases", basis)}`).join("; ")}.`));
    return element("tr", { class: "detail" }, element("td", { colspan: "7" }, ...parts));
  }

  function toggle(key) {
    if (!state.open.delete(key)) state.open.add(key);
    draw();
    body.querySelector(`[data-key="${rowKey(key)}"] .kernel-name`)?.focus({ preventScroll: true });
  }

  // What the times are of, in words; more than one of phase, step and device makes them an estimate.
  function scopeText() {
    const { step, device } = chosen();
    const places = [step && clip(labels.steps[step], 40), device && `on ${labels.devices[device]}`].filter(Boolean);
    const many = places.length + (profkit.phase() === null ? 0 : 1) > 1;
    return `${places.length ? `in ${places.join(", ")}`.replace("in on ", "on ") : data.scale.label}${many ? " (estimated: as if the choices were independent)" : ""}`;
  }

  let current = [];
  function draw() {
    current = groups();
    const visible = state.all ? current : current.slice(0, SHOWN);
    const scale = { digits: digitsFor(Math.max(...current.map((group) => shown(group.total_ns) / 1e6), 0)), share: Math.max(...current.map((group) => group.share ?? 0), 0), mean: Math.min(2, digitsFor(Math.max(...current.map((group) => (group.mean_ns ?? 0) / 1e3), 0))) };
    body.replaceChildren(...visible.flatMap((group) => (state.open.has(group.key) ? [line(group, scale), detail(group)] : [line(group, scale)])));
    profkit.nameCells(table);
    const total = current.reduce((sum, group) => sum + group.total_ns, 0);
    const noun = byId("group").selectedOptions[0].textContent.toLowerCase();
    byId("summary").textContent = `${fixed(current.length, 0)} ${current.length === 1 ? noun : noun === "family" ? "families" : `${noun}s`}, ${ms(shown(total))} ms ${scopeText()}${total ? "" : ": nothing matches"}`;
    byId("more-rows").hidden = current.length <= SHOWN;
    byId("show-all").textContent = state.all ? `Show the first ${SHOWN}` : `Show all ${fixed(current.length, 0)}`;
    for (const button of table.tHead.querySelectorAll("[data-sort]")) {
      button.closest("th").setAttribute("aria-sort", button.dataset.sort !== state.sort ? "none" : state.descending ? "descending" : "ascending");
    }
  }

  // The same rule as the file of --format csv: a text that a spreadsheet would run gets an apostrophe.
  function csv() {
    const cell = (value) => {
      if (value === null || value === undefined) return "";
      let content = String(value);
      if (typeof value === "string" && /^[ \n]*[=+\-@\t\r]/.test(content)) content = `'${content}`;
      return /[",\r\n]/.test(content) ? `"${content.replaceAll('"', '""')}"` : content;
    };
    const byKernel = state.group === "name" || state.group === "shape";
    const head = [byId("group").selectedOptions[0].textContent.toLowerCase(), "name", "bound", "efficiency", "total_ns", "share", "count", "mean_ns"];
    const lines = current.map((group) => [group.title, byKernel ? group.members[0].name : null, group.bound, group.efficiency, Math.round(group.total_ns), group.share, group.count === null ? null : Math.round(group.count), group.mean_ns]);
    return [head, ...lines].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  function options(id, values, label = (value) => value) {
    for (const value of values) byId(id).append(element("option", { value }, clip(label(value), 60)));
    byId(id).closest("label").hidden = values.length < 2;
    byId(id).addEventListener("change", draw);
  }
  const distinct = (field) => [...new Set(rows.map((row) => row[field]))].filter((value) => value !== null && value !== undefined);

  options("family", distinct("family").sort());
  options("bound", distinct("bound"), (name) => words("bounds", name));
  // Steps, devices and phases are chosen by their index: an option's value would drop or bend odd names.
  const indices = (list, known) => (rows.some((row) => row[known].some(Boolean)) ? list.map((_, at) => String(at)) : []);
  options("step", indices(labels.steps, "steps"), (at) => labels.steps[at]);
  options("device", indices(labels.devices, "devices"), (at) => labels.devices[at]);
  for (const [value, known] of [["modules", rows.some((row) => row.modules.length)], ["steps", labels.steps.length > 1], ["devices", labels.devices.length > 1]]) {
    if (!known) byId("group").querySelector(`[value=${value}]`).remove();
  }
  data.phases.forEach((row, index) => byId("phase").append(element("option", { value: String(index) }, "\u2003".repeat(Math.min(row.depth, 6)) + clip(text(row.path).split("/").at(-1), 60))));
  byId("phase").closest("label").hidden = !data.phases.length;
  byId("phase").addEventListener("change", (event) => profkit.choosePhase(event.target.value === "" ? null : text(data.phases[event.target.value].path)));
  profkit.onPhase((path) => {
    const index = path === null ? -1 : data.phases.findIndex((row) => text(row.path) === path);
    byId("phase").value = index < 0 ? "" : String(index);
    draw();
  });
  byId("group").addEventListener("change", (event) => {
    state.group = event.target.value;
    state.open.clear();
    draw();
  });
  byId("search").addEventListener("input", (event) => {
    const input = event.target;
    try {
      state.search = input.value ? new RegExp(input.value, "i") : null;
      input.removeAttribute("aria-invalid");
      input.setCustomValidity("");
    } catch (error) {
      input.setAttribute("aria-invalid", "true");
      input.setCustomValidity(error.message);
      byId("summary").textContent = "This is not a complete regular expression yet.";
      return;
    }
    draw();
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => {
    byId("filters").reset();
    Object.assign(state, { group: "name", search: null, sort: "total_ns", descending: true, all: false });
    byId("search").removeAttribute("aria-invalid");
    state.open.clear();
    profkit.choosePhase(null);
  });
  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("[data-sort]");
    if (!button) return;
    const column = button.dataset.sort;
    state.descending = state.sort === column ? !state.descending : column !== "title" && column !== "bound";
    state.sort = column;
    draw();
  });
  byId("show-all").addEventListener("click", () => {
    state.all = !state.all;
    draw();
  });
  byId("copy-csv").addEventListener("click", (event) => profkit.copy(csv(), event.currentTarget));
  byId("save-csv").addEventListener("click", () => profkit.download("kernels.csv", csv(), "text/csv"));
  const left = data.kernels_left;
  if (left.rows) byId("kernels-left").textContent = `${fixed(left.rows, 0)} smaller rows with ${ms(perStep(left.total_ns))} ms ${data.scale.label} in ${fixed(left.count, 0)} launches are not in this page; --format json has them.`;
  byId("filters").hidden = false;
  draw();

  // Another view chose this kernel: show its row, open, whatever was filtered.
  function select(index) {
    const row = rows[index];
    byId("clear").click();
    state.open.add(row.id);
    state.all = state.all || current.findIndex((group) => group.key === row.id) >= SHOWN;
    draw();
    const line = body.querySelector(`[data-key="${rowKey(row.id)}"]`);
    line?.scrollIntoView({ block: "center" });
    line?.querySelector(".kernel-name").focus({ preventScroll: true });
  }
  return { select, rows, matching };
})();
