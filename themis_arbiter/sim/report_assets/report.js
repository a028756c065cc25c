"use strict";
// Draws the report from the JSON in the page. Every name goes in as text, never as markup.
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const NS = "http://www.w3.org/2000/svg";
  const PAD = { left: 62, right: 12, top: 10, bottom: 24 };
  const state = { from: 0, to: D.span_s, cdf: null, hidden: new Set(), run: 0, app: -1, sort: { summary: null, apps: { key: "rho", down: true } } };
  const visible = () => D.runs.filter((r) => !state.hidden.has(r));
  const colour = (run) => D.colours[D.runs.indexOf(run) % D.colours.length];
  const dash = (run) => ["", "7 3", "2 3", "9 3 2 3"][Math.floor(D.runs.indexOf(run) / D.colours.length) % 4];

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children);
    return node;
  }
  function svg(tag, attributes, text) {
    const node = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function swatch(run) {
    const box = svg("svg", { class: "swatch", viewBox: "0 0 20 10" });
    box.append(svg("line", { x1: 0, x2: 20, y1: 5, y2: 5, stroke: colour(run), "stroke-width": 3, "stroke-dasharray": dash(run) }));
    return box;
  }

  // --- numbers ---
  function number(value, digits = 3) {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) || Math.abs(value) >= 10 ** digits) return Math.round(value).toLocaleString("en");
    return Number(value.toPrecision(digits)).toString();
  }
  const ratio = (value) => (value === null || value === undefined ? "–" : value >= 100 ? number(value) : value.toFixed(3));
  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  function duration(s) {
    if (s === null || s === undefined) return "–";
    const [name, size] = UNITS.find(([, unit]) => Math.abs(s) >= unit) || UNITS[3];
    return `${number(s / size)} ${name}`;
  }
  function clock(s, step) {
    const [name, size] = UNITS.find(([, unit]) => state.to >= 2 * unit && step >= unit / 4) || UNITS[3];
    return `${Number((s / size).toFixed(2))} ${name}`;
  }
  const STEPS = [1, 2, 5, 10, 20, 30].concat([1, 2, 5, 10, 20, 30].map((m) => m * 60), [1, 2, 4, 6, 12].map((h) => h * 3600), [1, 2, 4, 7, 14, 28, 56, 112].map((d) => d * 86400));
  function timeTicks(from, to, width) {
    const wanted = Math.max(2, Math.floor(width / 90));
    const step = STEPS.find((s) => (to - from) / s <= wanted) || Math.ceil((to - from) / wanted / 86400) * 86400;
    return range(Math.ceil(from / step) * step, to, step).map((s) => [s, clock(s, step)]);
  }
  function valueTicks(low, high, wanted) {
    const rough = (high - low) / wanted || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    return range(Math.ceil(low / step - 1e-9) * step, high + step * 1e-6, step).map((v) => [v, Number(v.toPrecision(6)).toString()]);
  }
  function range(from, to, step) {
    const out = [];
    for (let k = 0; from + k * step <= to && k < 100; k += 1) out.push(from + k * step);
    return out;
  }

  // --- one frame for every chart: axes, cursor, tooltip, zoom by dragging ---
  const tip = el("div", { class: "tip", hidden: true });
  document.body.append(tip);
  function showTip(event, ...content) {
    tip.replaceChildren(...content);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const right = event.clientX + 16 + box.width > innerWidth;
    tip.style.left = `${Math.max(4, right ? event.clientX - 16 - box.width : event.clientX + 16)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 6))}px`;
  }
  const hideTip = () => { tip.hidden = true; };

  function frame(holder, height, scale, yTicks, xTicks) {
    const width = Math.max(240, holder.clientWidth);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": holder.id });
    const box = { width, height, left: PAD.left, right: width - PAD.right, top: PAD.top, bottom: height - PAD.bottom };
    const x = (v) => box.left + scale.at(v) * (box.right - box.left);
    const y = (v) => box.bottom - ((v - scale.low) / (scale.high - scale.low)) * (box.bottom - box.top);
    for (const [value, label] of yTicks) {
      root.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }));
      root.append(svg("text", { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, label));
    }
    for (const [value, label] of xTicks) {
      const at = x(value);
      if (at < box.left - 0.5 || at > box.right + 0.5) continue;
      root.append(svg("line", { class: "axis", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 }));
      const anchor = at > box.right - 20 ? "end" : at < box.left + 8 ? "start" : "middle";
      root.append(svg("text", { x: at, y: box.bottom + 17, "text-anchor": anchor }, label));
    }
    root.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    const clip = svg("clipPath", { id: `clip-${holder.id}` });
    clip.append(svg("rect", { x: box.left, y: box.top - 2, width: box.right - box.left, height: box.bottom - box.top + 4 }));
    root.append(clip);
    holder.replaceChildren(root);
    return { root, box, x, y, back: (px) => scale.back((px - box.left) / (box.right - box.left)) };
  }
  function dragZoom(holder, drawn, hover, zoom, reset) {
    const cursor = svg("line", { class: "cursor", y1: drawn.box.top, y2: drawn.box.bottom, visibility: "hidden" });
    const select = svg("rect", { class: "select", y: drawn.box.top, height: drawn.box.bottom - drawn.box.top, visibility: "hidden" });
    drawn.root.append(cursor, select);
    let start = null;
    const at = (event) => Math.min(drawn.box.right, Math.max(drawn.box.left, event.clientX - drawn.root.getBoundingClientRect().left));
    drawn.root.addEventListener("pointerdown", (event) => { start = at(event); drawn.root.setPointerCapture(event.pointerId); });
    drawn.root.addEventListener("pointermove", (event) => {
      const px = at(event);
      cursor.setAttribute("x1", px); cursor.setAttribute("x2", px); cursor.setAttribute("visibility", "visible");
      if (start !== null && Math.abs(px - start) > 4) {
        select.setAttribute("x", Math.min(px, start)); select.setAttribute("width", Math.abs(px - start)); select.setAttribute("visibility", "visible");
      }
      hover(event, drawn.back(px), px);
    });
    drawn.root.addEventListener("pointerup", (event) => {
      const px = at(event);
      if (start !== null && Math.abs(px - start) > 4) zoom(drawn.back(Math.min(px, start)), drawn.back(Math.max(px, start)));
      select.setAttribute("visibility", "hidden");
      start = null;
    });
    drawn.root.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); hideTip(); });
    drawn.root.addEventListener("dblclick", reset);
  }
  function runRows(entries) {
    return entries.map(([run, text]) => el("div", { class: "row" }, swatch(run), el("span", {}, run.label), el("b", {}, text)));
  }
  const linear = (from, to) => ({ at: (v) => (v - from) / (to - from), back: (f) => from + f * (to - from) });
  const logarithmic = (from, to) => ({ at: (v) => Math.log(Math.max(v, from / 2) / from) / Math.log(to / from), back: (f) => from * (to / from) ** f });

  // --- rho ---
  const RHO = D.app_columns.indexOf("rho") + 1;
  for (const run of D.runs) run.rho = run.table.map((row) => row[RHO]).filter((v) => v !== null).sort((a, b) => a - b);
  function shareAt(rho, value) {
    let low = 0, high = rho.length;
    while (low < high) { const mid = (low + high) >> 1; if (rho[mid] <= value) low = mid + 1; else high = mid; }
    return rho.length ? low / rho.length : 0;
  }
  function drawCdf() {
    const all = visible().flatMap((r) => r.rho.length ? [r.rho[0], r.rho[r.rho.length - 1]] : []);
    const isLog = $("log").checked;
    const low = Math.min(1, ...all), high = Math.max(1.1, ...all) * 1.02;
    const [from, to] = state.cdf || [isLog ? Math.max(low * 0.95, 1e-3) : 0, high];
    const scale = { ...(isLog && from > 0 ? logarithmic(from, to) : linear(from, to)), low: 0, high: 1 };
    const ticks = isLog && to / from > 3 ? [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((v) => [v, `${v}`]) : valueTicks(from, to, 6);
    const drawn = frame($("cdf"), 280, scale, [0, 0.25, 0.5, 0.75, 1].map((v) => [v, `${v * 100} %`]), ticks);
    drawn.root.append(svg("line", { class: "one", x1: drawn.x(1), x2: drawn.x(1), y1: drawn.box.top, y2: drawn.box.bottom, "clip-path": "url(#clip-cdf)" }));
    for (const run of visible()) {
      let path = `M${drawn.x(from).toFixed(1)},${drawn.y(shareAt(run.rho, from)).toFixed(1)}`;
      run.rho.forEach((value, k) => { if (value > from) path += `H${drawn.x(value).toFixed(1)}V${drawn.y((k + 1) / run.rho.length).toFixed(1)}`; });
      path += `H${drawn.box.right}`;
      drawn.root.append(svg("path", { class: "run", d: path, stroke: colour(run), "stroke-dasharray": dash(run), "clip-path": "url(#clip-cdf)" }));
    }
    dragZoom($("cdf"), drawn, (event, value) => {
      const entries = visible().map((r) => [r, shareAt(r.rho, value)]).sort((a, b) => b[1] - a[1]);
      showTip(event, el("div", {}, `apps with rho ≤ ${number(value)}`), ...runRows(entries.map(([r, s]) => [r, `${(s * 100).toFixed(1)} %`])));
    }, (a, b) => { state.cdf = [a, b]; drawCdf(); }, () => { state.cdf = null; drawCdf(); });
  }

  // --- series over time ---
  function drawSeries(id, height, digits) {
    const bin = D.span_s / D.bins;
    const first = Math.max(0, Math.floor(state.from / bin)), last = Math.min(D.bins, Math.ceil(state.to / bin));
    // A step narrower than two pixels is ink without meaning where many runs lie over each other.
    const each = Math.max(1, Math.ceil((last - first) * 2.5 / Math.max(240, $(id).clientWidth)));
    let high = 0;
    for (const run of visible()) for (let k = first; k < last; k += 1) high = Math.max(high, run[id][k]);
    high = high * 1.05 || 1;
    const scale = { ...linear(state.from, state.to), low: 0, high };
    const drawn = frame($(id), height, scale, valueTicks(0, high, 4), timeTicks(state.from, state.to, $(id).clientWidth));
    for (const run of visible()) {
      let path = "";
      for (let k = first; k < last; k += each) {
        const part = run[id].slice(k, Math.min(k + each, last));
        const y = drawn.y(part.reduce((a, b) => a + b, 0) / part.length).toFixed(1);
        path += `${path ? "V" : `M${drawn.x(k * bin).toFixed(1)},`}${y}H${drawn.x(Math.min(k + each, last) * bin).toFixed(1)}`;
      }
      drawn.root.append(svg("path", { class: "run", d: path, stroke: colour(run), "stroke-dasharray": dash(run), "clip-path": `url(#clip-${id})` }));
    }
    dragZoom($(id), drawn, (event, at) => {
      const k = Math.min(D.bins - 1, Math.max(0, Math.floor(at / bin)));
      const entries = visible().map((r) => [r, r[id][k], r.present[k]]).sort((a, b) => b[1] - a[1]);
      showTip(event, el("div", {}, `at ${duration(at)}`), ...runRows(entries.map(([r, v, apps]) => [r, `${number(v, digits)} (${number(apps)} apps)`])));
    }, setTime, resetTime);
  }

  // --- timeline ---
  const appColour = (app) => `hsl(${(app * 137.508) % 360} ${[62, 48, 75][app % 3]}% ${[52, 64, 42][Math.floor(app / 3) % 3]}%)`;
  function drawTimeline() {
    const run = D.runs[state.run], holder = $("timeline"), rows = run.gpus.length;
    const rowHeight = Math.max(2, Math.min(16, Math.floor(460 / Math.max(1, rows))));
    const drawn = frame(holder, rows * rowHeight + PAD.top + PAD.bottom, { ...linear(state.from, state.to), low: rows, high: 0 }, [], timeTicks(state.from, state.to, holder.clientWidth));
    const every = Math.max(1, Math.ceil(14 / rowHeight));
    for (let k = 0; k < rows; k += every) drawn.root.append(svg("text", { x: PAD.left - 6, y: PAD.top + k * rowHeight + Math.min(rowHeight, 12) - 1, "text-anchor": "end" }, run.gpus[k].length > 10 ? `…${run.gpus[k].slice(-9)}` : run.gpus[k]));
    const canvas = el("canvas"), ratio = devicePixelRatio || 1;
    const width = drawn.box.right - drawn.box.left;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(rows * rowHeight * ratio);
    Object.assign(canvas.style, { position: "absolute", left: `${PAD.left}px`, top: `${PAD.top}px`, width: `${width}px`, height: `${rows * rowHeight}px`, pointerEvents: "none" });
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--idle");
    pen.fillRect(0, 0, width, rows * rowHeight);
    const gap = rowHeight > 4 ? 1 : 0;
    run.timeline.forEach((flat, row) => {
      for (let k = 0; k < flat.length; k += 3) {
        if (flat[k + 1] < state.from || flat[k] > state.to) continue;
        const a = Math.max(0, drawn.x(flat[k]) - PAD.left), b = Math.min(width, drawn.x(flat[k + 1]) - PAD.left);
        pen.globalAlpha = state.app < 0 || state.app === flat[k + 2] ? 1 : 0.13;
        pen.fillStyle = appColour(flat[k + 2]);
        pen.fillRect(a, row * rowHeight, Math.max(b - a, 0.4), rowHeight - gap);
      }
    });
    holder.append(canvas);
    const found = (event, at) => {
      const row = Math.floor((event.clientY - drawn.root.getBoundingClientRect().top - PAD.top) / rowHeight), flat = run.timeline[row] || [];
      for (let k = 0; k < flat.length; k += 3) if (flat[k] <= at && at < flat[k + 1]) return { row, from: flat[k], to: flat[k + 1], app: flat[k + 2] };
      return { row, app: -1 };
    };
    dragZoom(holder, drawn, (event, at) => {
      const hit = found(event, at);
      if (hit.row < 0 || hit.row >= rows) { hideTip(); return; }
      const lines = hit.app < 0 ? ["not leased"] : [D.apps[hit.app], `${duration(hit.from)} to ${duration(hit.to)} (${duration(hit.to - hit.from)})`];
      showTip(event, el("b", {}, run.gpus[hit.row]), ...lines.map((line) => el("div", {}, line)));
    }, setTime, resetTime);
    drawn.root.addEventListener("click", (event) => {
      const hit = found(event, drawn.back(event.clientX - drawn.root.getBoundingClientRect().left));
      if (hit.app >= 0) pick(hit.app === state.app ? -1 : hit.app);
    });
    const notes = [];
    if (run.gpu_count > rows) notes.push(`Shown: ${rows} of ${run.gpu_count} GPUs.`);
    if (run.step_s > 0) notes.push(`Each ${duration(run.step_s)} shows who held the GPU at its middle.`);
    $("timelinenote").textContent = notes.concat("Click an app to single it out.").join(" ");
    $("picked").textContent = state.app < 0 ? "" : D.apps[state.app];
    $("unpick").hidden = state.app < 0;
  }
  function pick(app) { state.app = app; drawTimeline(); drawApps(); }

  // --- tables ---
  function table(holder, columns, rows, sort, resort, decorate) {
    const shown = [...rows];
    if (sort) {
      const column = columns.find((c) => c.key === sort.key);
      shown.sort((a, b) => {
        const [x, y] = [column.value(a), column.value(b)];
        if (x === null || y === null || x === undefined || y === undefined) return (x === null || x === undefined) - (y === null || y === undefined);
        const order = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
        return sort.down ? -order : order;
      });
    }
    const head = el("tr", {}, ...columns.map((c) => {
      const order = sort && sort.key === c.key ? (sort.down ? "descending" : "ascending") : "none";
      const press = () => resort({ key: c.key, down: sort && sort.key === c.key ? !sort.down : c.down !== false });
      return el("th", { "aria-sort": order, scope: "col" }, el("button", { onclick: press, title: c.hint || c.label }, c.label));
    }));
    const body = el("tbody");
    for (const row of shown) {
      const tr = el("tr");
      for (const c of columns) {
        const value = c.value(row), td = el("td", { title: c.isName ? value : false }, c.show ? c.show(value) : number(value));
        if (c.best !== undefined && value === c.best) td.className = "best";
        tr.append(td);
      }
      if (decorate) decorate(tr, row);
      body.append(tr);
    }
    const kept = [holder.scrollLeft, holder.scrollTop];
    holder.replaceChildren(el("table", {}, el("thead", {}, head), body));
    [holder.scrollLeft, holder.scrollTop] = kept;
  }
  const SUMMARY = [
    ["max_rho", "max rho", "min", "", ratio], ["p95_rho", "p95 rho", "min", "", ratio], ["median_rho", "median rho", "min", "", ratio], ["frac_rho_le_1", "rho ≤ 1", "max", "share of apps", ratio],
    ["frac_rho_le_1_05", "rho ≤ 1.05", "max", "share of apps", ratio], ["max_rho_lower_bound", "lower bound", null, "no schedule has a smaller max rho", ratio], ["jain", "Jain", "max", "Jain's index of rho", ratio],
    ["avg_jct_s", "mean JCT", "min", "completion time of apps", duration], ["p99_jct_s", "p99 JCT", "min", "completion time of apps", duration],
    ["makespan_s", "makespan", "min", "first arrival to last finish", duration], ["gpu_hours", "GPU hours", "min", "GPU time held"],
    ["placement_score", "placement", "max", "1: every gang as tight as it can be", ratio], ["restarts", "restarts", "min"], ["idle_while_demand", "idle, wanted", "min"],
    ["n_apps", "apps", null], ["n_jobs", "jobs", null],
  ];
  function drawSummary() {
    const rows = visible();
    const columns = [{ key: "label", label: "run", isName: true, down: false, value: (r) => r.label }];
    for (const [key, label, best, hint, show] of SUMMARY) {
      const values = rows.map((r) => r.summary[key]).filter((v) => typeof v === "number");
      if (!values.length) continue;
      const differ = new Set(values).size > 1;
      const mark = best && differ ? Math[best](...values) : undefined;
      columns.push({ key, label, hint, show, best: mark, down: best === "max", value: (r) => (typeof r.summary[key] === "number" ? r.summary[key] : null) });
    }
    table($("summary"), columns, rows, state.sort.summary, (sort) => { state.sort.summary = sort; drawSummary(); }, (tr, run) => tr.firstChild.prepend(swatch(run), " "));
  }
  const APP = { rho: ["rho", ratio], rho_own: ["rho_own", ratio], rho_paper: ["rho_paper", ratio], arrival_s: ["arrival", duration], finish_s: ["finish", duration], t_shared_s: ["t_shared", duration], t_independent_s: ["t_independent", duration], n_avg: ["n_avg"], gpu_seconds: ["GPU hours", (v) => number(v === null ? null : v / 3600)] };
  function drawApps() {
    const run = D.runs[state.run], needle = $("filter").value.toLowerCase();
    const rows = run.table.filter((row) => D.apps[row[0]].toLowerCase().includes(needle));
    const columns = [{ key: "app", label: "app", isName: true, down: false, value: (row) => D.apps[row[0]] }];
    D.app_columns.forEach((key, k) => {
      const [label, show] = APP[key] || [key];
      columns.push({ key, label, show, value: (row) => row[k + 1] });
    });
    for (const other of visible()) {
      if (other === run) continue;
      other.byApp = other.byApp || new Map(other.table.map((row) => [row[0], row[RHO]]));
      columns.push({ key: `rho/${other.label}`, label: `rho ${other.label}`, show: ratio, value: (row) => other.byApp.get(row[0]) ?? null });
    }
    if (!columns.some((c) => c.key === state.sort.apps.key)) state.sort.apps = { key: "rho", down: true };
    table($("apps"), columns, rows, state.sort.apps, (sort) => { state.sort.apps = sort; drawApps(); }, (tr, row) => {
      tr.classList.add("pick");
      if (row[0] === state.app) tr.classList.add("chosen");
      tr.addEventListener("click", () => pick(row[0] === state.app ? -1 : row[0]));
    });
    $("count").textContent = rows.length === run.table.length ? `${rows.length} apps` : `${rows.length} of ${run.table.length} apps`;
  }

  // --- controls ---
  function drawTime() { drawSeries("contention", 280, 3); drawSeries("queue", 200, 3); drawTimeline(); }
  function setTime(from, to) {
    const width = Math.min(D.span_s, Math.max(to - from, D.span_s / D.bins));
    state.from = Math.max(0, Math.min(from, D.span_s - width));
    state.to = state.from + width;
    drawTime();
  }
  function resetTime() { setTime(0, D.span_s); }
  function shift(by, scale) {
    const width = (state.to - state.from) * scale, middle = (state.from + state.to) / 2 + by * (state.to - state.from);
    setTime(middle - width / 2, middle + width / 2);
  }
  function drawLegend() {
    $("legend").replaceChildren(...D.runs.map((run) => el("button", {
      class: "chip", "aria-pressed": String(!state.hidden.has(run)), title: "Show or hide; with Alt only this one",
      onclick: (event) => {
        if (event.altKey) state.hidden = new Set(D.runs.filter((r) => r !== run));
        else if (!state.hidden.delete(run)) state.hidden.add(run);
        drawAll();
      },
    }, swatch(run), run.label)));
  }
  function drawAll() { drawLegend(); drawSummary(); drawCdf(); drawTime(); drawApps(); }
  function choose(index) {
    state.run = index;
    $("run").value = $("tablerun").value = String(index);
    drawTimeline();
    drawApps();
  }
  for (const id of ["run", "tablerun"]) {
    D.runs.forEach((run, k) => $(id).append(el("option", { value: k }, run.label)));
    $(id).addEventListener("change", (event) => choose(Number(event.target.value)));
  }
  $("earlier").onclick = () => shift(-0.4, 1);
  $("later").onclick = () => shift(0.4, 1);
  $("in").onclick = () => shift(0, 0.5);
  $("out").onclick = () => shift(0, 2);
  $("reset").onclick = resetTime;
  $("unpick").onclick = () => pick(-1);
  $("filter").oninput = drawApps;
  $("log").checked = D.runs.some((r) => r.rho.length && r.rho[r.rho.length - 1] > 4);
  $("log").onchange = () => { state.cdf = null; drawCdf(); };
  $("sub").textContent = D.subtitle;
  let known = document.body.clientWidth;
  drawAll();
  new ResizeObserver(() => {
    const width = document.body.clientWidth;
    if (width !== known) { known = width; drawAll(); }
  }).observe(document.body);
})();
