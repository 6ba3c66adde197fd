"use strict";
// The plots. Plotly lies in the page, compressed; it is unpacked when the first plot comes into view.
profkit.plots = (() => {
  const { data, byId, text, words, clip, fixed, perStep } = profkit;
  const packed = byId("plotly");
  const plots = [];
  let loading = null;

  async function unpack() {
    const bytes = Uint8Array.from(atob(packed.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    packed.remove();
    return window.Plotly;
  }
  const plotly = () => (loading ??= unpack());

  // Plotly reads a little markup and entities in its texts: names are escaped so that they stay names.
  const safe = (value, length = 90) => clip(value, length).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const probe = document.createElement("i");
  function color(variable) {
    document.body.append(probe);
    probe.style.color = `var(--${variable})`;
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }
  const channels = (variable) => color(variable).match(/[\d.]+/g).slice(0, 3).map(Number);
  const mixed = (strength) => `rgb(${channels("dependency").map((value, i) => Math.round((value * strength + channels("paper")[i] * (100 - strength)) / 100)).join(",")})`;
  const ALIAS = { phase: "unclassified", call: "other", host: "launch", overhead: "small", small_kernels: "small", unknown: "unclassified", tail: "other", parameter: "compilation", gradient: "sync", optimizer_state: "profiler", activation: "dependency", temporary: "queue", workspace: "transfer" };
  const NAMES = { phase: "Phase", call: "Call", overhead: "Small kernels" };
  const PALETTE = ["compute", "memory", "launch", "communication", "sync", "input", "transfer", "compilation", "profiler", "allocation", "dependency", "queue", "unclassified"];
  const toneColor = (name) => color(PALETTE.includes(ALIAS[name] ?? name) || ["other", "tail", "call", "overhead", "small_kernels"].includes(name) ? ALIAS[name] ?? name : "unclassified");

  function layout(more) {
    const axis = { gridcolor: color("rule"), linecolor: color("rule"), zerolinecolor: color("rule"), automargin: true, title: { standoff: 12 } };
    const { xaxis = {}, yaxis = {}, ...rest } = more;
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: color("soft") },
      margin: { l: 56, r: 12, t: 8, b: 44 }, hoverlabel: { bgcolor: color("raised"), bordercolor: color("rule"), font: { color: color("ink") }, align: "left" },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" }, showlegend: true, ...rest, xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis },
    };
  }
  const config = { displayModeBar: false, responsive: true, displaylogo: false, showTips: false };

  function add(id, height, make, { wire, followsPhase = false } = {}) {
    const figure = byId(id);
    if (!figure || !packed) return;
    figure.hidden = false;
    const box = figure.querySelector("div");
    box.style.height = `${height}px`;
    plots.push({ figure, box, height, make, wire, followsPhase, drawn: false });
  }

  const PAPER = 700; // a sheet's width in CSS pixels, margins taken off
  function paint(plot, library, width) {
    const { traces, shape } = plot.make();
    return library.react(plot.box, traces, layout({ height: plot.height, ...(width && { width }), ...shape }), config);
  }

  async function draw(plot) {
    const library = await plotly();
    const first = !plot.drawn;
    plot.drawn = true;
    await paint(plot, library);
    if (first) plot.wire?.(plot.box);
    plot.figure.dataset.drawn = "true";
  }

  // On paper plots are light and as wide as the sheet, whatever the screen has.
  let theme = "auto";
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    for (const plot of plots) if (plot.figure.dataset.drawn) paint(plot, window.Plotly, PAPER);
  });
  addEventListener("afterprint", () => {
    document.documentElement.dataset.theme = theme;
    for (const plot of plots) if (plot.drawn) paint(plot, window.Plotly).then(() => window.Plotly.Plots.resize(plot.box));
  });

  // The print command of the keyboard waits until all plots are drawn, which no event of printing can. What was printed
  // some other way before that says, by the style sheet, which plots it lacks.
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "p" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || plots.every((plot) => plot.figure.dataset.drawn)) return;
    event.preventDefault();
    Promise.all(plots.map(draw)).then(() => print(), () => print());
  });

  function roofline() {
    const rows = profkit.kernels.rows?.filter((row) => row.flop > 0 && row.dram_bytes > 0 && row.tflops > 0 && row.share > 0.0005 && row.bound !== "overhead") ?? [];
    if (!rows.length) return;
    const timeOf = (some) => some.reduce((sum, row) => sum + row.total_ns, 0);
    const missing = timeOf(profkit.kernels.rows.filter((row) => !(row.flop > 0 && row.dram_bytes > 0 && row.tflops > 0))) / timeOf(profkit.kernels.rows);
    if (missing > 0.005) byId("plot-roofline").querySelector("figcaption span").textContent = `Kernels with ${profkit.percent(missing).replace(" ", "\u00a0")} of the kernels' time are not here: their FLOP or bytes are not known.`;
    add("plot-roofline", 440, () => {
      const longest = Math.max(...rows.map((row) => row.total_ns));
      const intensity = (row) => row.flop / row.dram_bytes;
      const xs = rows.map(intensity);
      const range = [Math.min(...xs, 1) / 2, Math.max(...xs, 1000) * 2];
      const traces = [...new Set(rows.map((row) => row.bound))].map((bound) => {
        const some = rows.filter((row) => row.bound === bound);
        return { type: "scatter", mode: "markers", name: safe(words("bounds", bound)), x: some.map(intensity), y: some.map((row) => row.tflops),
          customdata: some.map((row) => [row.index, safe(row.title), fixed(perStep(row.total_ns) / 1e6, 3), row.efficiency === null ? "–" : fixed(row.efficiency * 100, 0)]),
          marker: { color: toneColor(bound), opacity: 0.75, line: { color: color("paper"), width: 1 }, sizemode: "area", sizemin: 3, size: some.map((row) => row.total_ns), sizeref: longest / 900 },
          hovertemplate: `%{customdata[1]}<br>%{y:.3~g} TFLOP/s at %{x:.3~g} FLOP/B<br>%{customdata[2]} ms ${data.scale.label}, efficiency %{customdata[3]} %<extra></extra>` };
      });
      const device = data.devices.find((one) => one.bandwidth_gbs) ?? {};
      const used = new Set(rows.map((row) => row.dtype));
      const notes = [];
      const roofs = new Map(); // types of one peak share a roof
      for (const [dtype, peak] of Object.entries(device.peaks ?? {})) {
        if (peak && device.bandwidth_gbs && (!used.size || used.has(dtype))) roofs.set(peak, [...(roofs.get(peak) ?? []), dtype]);
      }
      for (const [peak, dtypes] of roofs) {
        const ridge = (peak * 1e3) / device.bandwidth_gbs;
        traces.unshift({ type: "scatter", mode: "lines", showlegend: false, hoverinfo: "skip", line: { color: color("soft"), width: 1.2 }, x: [range[0], Math.max(ridge, range[0]), Math.max(range[1], ridge)], y: [(range[0] * device.bandwidth_gbs) / 1e3, peak, peak] });
        notes.push({ x: Math.log10(range[1]), y: Math.log10(peak), xanchor: "right", yanchor: "bottom", showarrow: false, text: `${safe(dtypes.join(", "), 40)} ${fixed(peak, 0)} TFLOP/s` });
      }
      if (notes.length) notes.push({ x: Math.log10(4), y: Math.log10((4 * device.bandwidth_gbs) / 1e3), xanchor: "right", yanchor: "bottom", showarrow: false, text: `${fixed(device.bandwidth_gbs, 0)} GB/s` });
      return { traces, shape: { annotations: notes, hovermode: "closest", xaxis: { type: "log", dtick: 1, title: { text: "FLOP per byte of DRAM" }, range: range.map(Math.log10) }, yaxis: { type: "log", dtick: 1, title: { text: "TFLOP/s" } } } };
    }, { wire: (box) => box.on("plotly_click", ({ points }) => points[0].customdata && profkit.kernels.select(points[0].customdata[0])) });
  }

  function families() {
    const rows = profkit.kernels.rows ?? [];
    const times = new Map();
    const paths = new Map(data.phases.map((row) => [text(row.path), row.depth]));
    for (const row of rows) for (const [path, ns] of row.phases) {
      if (!times.has(row.family)) times.set(row.family, new Map());
      times.get(row.family).set(path, (times.get(row.family).get(path) ?? 0) + ns);
    }
    const order = [...paths.keys()].filter((path) => [...times.values()].some((family) => family.has(path))).slice(0, 30);
    if (order.length < 2) return;
    const total = (family) => [...times.get(family).values()].reduce((sum, ns) => sum + ns, 0);
    const ranked = [...times.keys()].sort((a, b) => total(b) - total(a));
    add("plot-family", 110 + 30 * order.length, () => {
      // Shades of one hue: the colours of the page mean bounds, and a family is none.
      const shades = [100, 78, 60, 46, 35, 26, 19, 12].map((strength) => mixed(strength));
      const shown = ranked.length > 8 ? [...ranked.slice(0, 7), null] : ranked;
      const time = (family, path) => (family === null ? ranked.slice(7) : [family]).reduce((sum, one) => sum + (times.get(one).get(path) ?? 0), 0);
      const traces = shown.map((key, index) => [key, key ?? "others", index]).map(([key, family, index]) => ({
        type: "bar", orientation: "h", name: safe(family, 30), y: order.map((_, i) => i), x: order.map((path) => perStep(time(key, path)) / 1e6),
        customdata: order.map((path) => safe(path)), marker: { color: shades[index], line: { color: color("paper"), width: 1 } }, text: order.map(() => safe(family, 24)), textposition: "inside", insidetextanchor: "middle", textangle: 0, textfont: { color: color(index < 2 ? "paper" : "ink") }, 
        meta: safe(family, 30), hovertemplate: "%{customdata}<br>%{meta}: %{x:.3~f} ms<extra></extra>" }));
      return { traces, shape: { barmode: "stack", bargap: 0.35, showlegend: innerWidth > 700, uniformtext: { mode: "hide", minsize: 11 }, xaxis: { title: { text: `ms ${data.scale.label}` } }, yaxis: { autorange: "reversed", tickvals: order.map((_, i) => i), ticktext: order.map((path) => safe(path, 36)) } } };
    }, { wire: (box) => box.on("plotly_click", ({ points }) => profkit.choosePhase(order[points[0].pointIndex])) });
  }

  function timeline() {
    const line = data.timeline;
    if (!line) return;
    const lanes = line.lanes;
    // A bar of a phase lane is in the phase that it is; older reports do not say it.
    const inPhase = (lane, name, phase) => profkit.phase() === null || profkit.within(text(phase) ?? (lane.kind === "phase" ? text(name) : "") ?? "", profkit.phase());
    const named = innerWidth > 700; // on a phone the colours' names would take more room than the lanes
    const height = 60 + (named ? 30 : 0) + 34 * lanes.length;
    const queue = line.queue.length ? 70 : 0; // pixels for the launches that stand queued, below the lanes
    add("plot-timeline", height + queue, () => {
      const byTone = new Map();
      lanes.forEach((lane, y) => {
        for (const [start, length, name, tone, phase] of lane.bars) {
          const key = text(tone) ?? "unknown";
          if (!byTone.has(key)) byTone.set(key, { base: [], x: [], y: [], customdata: [], text: [], opacity: [] });
          const one = byTone.get(key);
          one.opacity.push(inPhase(lane, name, phase) ? 1 : 0.12);
          one.base.push((start - line.start_ns) / 1e6);
          one.x.push(length / 1e6);
          one.y.push(y);
          one.customdata.push([safe(text(name)), profkit.ms(length, 4)]);
          one.text.push(lane.kind === "phase" ? safe(text(name), 24) : "");
        }
      });
      const label = (tone) => { if (Object.hasOwn(NAMES, tone)) return NAMES[tone]; for (const kind of ["shares", "causes", "bounds"]) if (Object.hasOwn(data.words[kind], tone)) return data.words[kind][tone]; return safe(tone, 30); };
      const traces = [...byTone].map(([tone, { opacity, ...bars }]) => ({ type: "bar", orientation: "h", name: label(tone), ...bars, width: 0.7, textposition: "inside", insidetextanchor: "middle", textangle: 0, textfont: { color: color("paper") }, marker: { color: toneColor(tone), opacity, line: { width: 0 } }, hovertemplate: "%{customdata[0]}<br>%{customdata[1]} ms, from %{base:.4~f} ms<extra></extra>" }));
      if (queue) {
        const [time, depth] = [line.queue.map(([at]) => (at - line.start_ns) / 1e6), line.queue.map(([, many]) => many)];
        traces.push({ type: "scatter", mode: "lines", name: "Queued launches", showlegend: false, yaxis: "y2", x: [...time, (line.end_ns - line.start_ns) / 1e6], y: [...depth, depth.at(-1)], fill: "tozeroy", line: { shape: "hv", width: 1, color: color("soft") }, hovertemplate: "%{y} launches queued at %{x:.4~f} ms<extra></extra>" });
      }
      const share = queue / (height + queue);
      return { traces, shape: { barmode: "overlay", showlegend: named, yaxis2: { domain: [0, share * 0.75], rangemode: "tozero", fixedrange: true, nticks: 3, title: { text: "queue", standoff: 4 } }, uniformtext: { mode: "hide", minsize: 10 }, dragmode: "zoom", hovermode: "closest", xaxis: { anchor: queue ? "y2" : "y", title: { text: "ms from the step's start" }, range: [0, (line.end_ns - line.start_ns) / 1e6] }, yaxis: { domain: [queue ? share : 0, 1], autorange: "reversed", fixedrange: true, tickvals: lanes.map((_, i) => i), ticktext: lanes.map((lane) => safe(text(lane.label), 34)), showgrid: false }, uirevision: "timeline" } };
    }, { followsPhase: true });
    if (line.left_out) byId("plot-timeline").querySelector("figcaption").textContent = `${fixed(line.left_out, 0)} of the shortest bars are not drawn.`;
  }

  function memory() {
    const curves = data.memory?.curves ?? [];
    if (!curves.length) return;
    const timed = curves.every((curve) => curve.timed);
    add("plot-memory", 340, () => {
      const zero = Math.min(...curves.map((curve) => curve.x[0] ?? 0));
      const last = Math.max(...curves.map((curve) => curve.x.at(-1) ?? 0));
      const unit = timed ? 1e6 : 1;
      const [size, sizeName] = memoryUnit(Math.max(...curves.flatMap((curve) => [...curve.allocated_bytes, ...curve.reserved_bytes])));
      const sized = (values) => values.map((value) => (value === null ? null : value / size));
      const traces = [];
      const shapes = [];
      const notes = [];
      curves.forEach((curve, index) => {
        const x = curve.x.map((value) => (value - zero) / unit);
        const of = curves.length > 1 ? `, device ${curve.id ?? index}` : "";
        if (curve.reserved_bytes.length) traces.push({ type: "scatter", mode: "lines", name: `reserved${of}`, x, y: sized(curve.reserved_bytes), line: { shape: "hv", width: 1.2, dash: "dot", color: color("soft") }, hovertemplate: `%{y:.4~r} ${sizeName}<extra></extra>` });
        if (curve.allocated_bytes.length) traces.push({ type: "scatter", mode: "lines", name: `allocated${of}`, x, y: sized(curve.allocated_bytes), fill: "tozeroy", line: { shape: "hv", width: 1.5, color: color(PALETTE[index]) }, hovertemplate: `%{y:.4~r} ${sizeName}<extra></extra>` });
        if (index === 0) for (const phase of curve.phases ?? []) {
          const [start, end, name] = Array.isArray(phase) ? phase : [phase.start_ns, phase.end_ns, phase.path ?? phase.name];
          if (!Number.isFinite(start) || !Number.isFinite(end)) continue;
          shapes.push({ type: "rect", xref: "x", yref: "paper", x0: (start - zero) / 1e6, x1: (end - zero) / 1e6, y0: 0, y1: 1, fillcolor: color("soft"), opacity: shapes.length % 2 ? 0.05 : 0.1, line: { width: 0 }, layer: "below" });
          if (end - start > 0.06 * (last - zero)) notes.push({ x: (start - zero) / 1e6, y: 1, yref: "paper", xanchor: "left", yanchor: "top", showarrow: false, text: safe(String(name), 20), font: { size: 11 } });
        }
      });
      return { traces, shape: { shapes, annotations: notes.slice(0, 40), hovermode: "x", xaxis: { title: { text: timed ? "ms" : "event of the history" }, range: [0, (last - zero) / unit] }, yaxis: { title: { text: sizeName }, rangemode: "tozero" } } };
    });
  }

  const memoryUnit = (most) => (most < 2 ** 30 ? [2 ** 20, "MiB"] : [2 ** 30, "GiB"]);

  // Each allocation at the lowest place that is free for as long as it lives: heights then read as bytes.
  function placesOf(bars) {
    const placed = [];
    for (const bar of bars) {
      const [start, end, bytes] = bar;
      let floor = 0;
      const others = placed.filter(([from, to]) => from < end && to > start).sort((a, b) => a[2] - b[2]);
      for (const [, , bottom, top] of others) {
        if (bottom - floor >= bytes) break;
        floor = Math.max(floor, top);
      }
      placed.push([start, end, floor, floor + bytes]);
    }
    return placed;
  }

  function largest() {
    const found = data.memory?.largest;
    if (!found) return;
    const curve = data.memory.curves.find((one) => one.id === found.device);
    const known = (at) => found.bars.map((bar) => bar[at]).filter((value) => value !== null);
    const first = Math.min(curve?.x[0] ?? Infinity, ...known(0), ...known(1));
    const last = Math.max(curve?.x.at(-1) ?? -Infinity, ...known(0), ...known(1));
    const unit = found.timed ? 1e6 : 1;
    // Those that live longest lie lowest: what stays is the ground that the others stand on.
    const lives = found.bars.map(([start, end, ...rest]) => [start ?? first, end ?? last, ...rest, start === null, end === null]).sort((a, b) => b[1] - b[0] - (a[1] - a[0]));
    const places = placesOf(lives);
    const [size, sizeName] = memoryUnit(Math.max(...places.map((place) => place[3])));
    add("plot-largest", 380, () => {
      const uses = new Map();
      lives.forEach(([start, end, bytes, category, where, older, kept], index) => {
        const use = text(category) ?? "unknown";
        if (!uses.has(use)) uses.set(use, { base: [], x: [], y: [], width: [], customdata: [], edge: [] });
        const one = uses.get(use);
        one.edge.push(end - start > 0.004 * (last - first) ? 0.5 : 0); // an edge would hide a narrow bar
        one.base.push((start - first) / unit);
        one.x.push((end - start) / unit);
        one.y.push((places[index][2] + places[index][3]) / 2 / size);
        one.width.push(bytes / size);
        const since = older ? "before the history" : `${fixed((start - first) / unit, found.timed ? 3 : 0)}`;
        one.customdata.push([safe(text(where) ?? "no stack"), profkit.bytes(bytes), since, kept ? "not freed" : fixed((end - first) / unit, found.timed ? 3 : 0)]);
      });
      const traces = [...uses].map(([use, { edge, ...bars }]) => ({ type: "bar", orientation: "h", name: safe(use.replaceAll("_", " "), 30), ...bars, marker: { color: toneColor(use), line: { color: color("paper"), width: edge } },
        hovertemplate: `%{customdata[1]}, ${safe(use.replaceAll("_", " "), 30)}<br>%{customdata[0]}<br>%{customdata[2]} to %{customdata[3]}${found.timed ? " (ms)" : " (events)"}<extra></extra>` }));
      return { traces, shape: { barmode: "overlay", hovermode: "closest", xaxis: { title: { text: found.timed ? "ms" : "event of the history" }, range: [0, (last - first) / unit] }, yaxis: { title: { text: sizeName }, rangemode: "tozero" } } };
    });
    if (found.left) byId("plot-largest").querySelector(".more").textContent = `${fixed(found.left, 0)} smaller or shorter allocations are not drawn; together they hold at most ${profkit.bytes(found.left_bytes)} at a time.`;
  }

  function stacks() {
    const nodes = data.memory?.stacks ?? [];
    if (nodes.length < 2) return;
    add("plot-stacks", 460, () => ({
      traces: [{ type: "icicle", branchvalues: "total", ids: nodes.map((_, i) => String(i)), parents: nodes.map(([parent]) => (parent < 0 ? "" : String(parent))), labels: nodes.map(([, name]) => safe(text(name), 70)),
        values: nodes.map(([, , bytes]) => bytes / 2 ** 30), customdata: nodes.map(([, , , count]) => count), tiling: { orientation: "v" }, pathbar: { visible: true }, sort: true,
        marker: { colors: nodes.map((_, i) => mixed(28 + ((i * 37) % 5) * 9)), line: { color: color("paper"), width: 1 } }, textfont: { color: color("ink"), size: 12 }, hovertemplate: "%{label}<br>%{value:.3~f} GiB in %{customdata} blocks<extra></extra>" }],
      shape: { margin: { l: 0, r: 0, t: 4, b: 4 } },
    }));
  }

  function utilisation() {
    if (!data.utilisation.length) return;
    add("plot-utilisation", 320, () => ({
      traces: data.utilisation.map((row, index) => ({ type: "scatter", mode: "lines", name: safe(row.metric, 40), visible: /pcie|nvlink|^gr |issue|host|clock/i.test(row.metric) ? "legendonly" : true, yaxis: /clock/i.test(row.metric) ? "y2" : "y", x: row.time_ns.map((ns) => ns / 1e6), y: row.value, connectgaps: false, line: { width: 1.3, color: color(PALETTE[index % PALETTE.length]) } })),
      shape: { hovermode: "x", xaxis: { title: { text: "ms" } }, yaxis: { rangemode: "tozero" }, yaxis2: { overlaying: "y", side: "right", showgrid: false, title: { text: data.utilisation.some((row) => /clock/i.test(row.metric)) ? "MHz" : "" }, rangemode: "tozero" } },
    }));
  }

  for (const make of [families, roofline, timeline, memory, largest, stacks, utilisation]) make();
  // Once the library is there, the others follow while the page has nothing else to do: paper then has them all.
  const whenIdle = window.requestIdleCallback ?? ((call) => setTimeout(call, 200));
  function drawNext() {
    const next = plots.find((plot) => !plot.drawn);
    if (next) whenIdle(() => (next.drawn ? drawNext() : draw(next).then(drawNext)));
  }
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      draw(plots.find((plot) => plot.figure === entry.target)).then(drawNext);
    }
  }, { rootMargin: "400px" });
  for (const plot of plots) near.observe(plot.figure);
  // The timeline follows the chosen phase; a zoom stays as it is.
  profkit.onPhase(() => plots.filter((plot) => plot.drawn && plot.followsPhase).forEach(draw));
  profkit.onTheme(() => plots.filter((plot) => plot.drawn).forEach(draw));
  document.documentElement.dataset.ready = "true";
  return { drawAll: () => Promise.all(plots.map(draw)), count: plots.length, drawn: (id) => plots.find((plot) => plot.figure.id === id && plot.drawn)?.box.data };
})();
