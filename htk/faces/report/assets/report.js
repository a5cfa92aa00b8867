"use strict";
const data = id => JSON.parse(document.getElementById(id).textContent);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));

function time(ns) {
  for (const [factor, unit] of /** @type {[number, string][]} */ ([[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]))
    if (Math.abs(ns) >= factor) return (ns / factor).toPrecision(3) + " " + unit;
  return Math.round(ns) + " ns";
}

/* The timeline: a row for each stream, a cell for each pixel or so. */
function timeline(step) {
  const canvas = /** @type {HTMLCanvasElement} */ (document.getElementById("lanes")), says = document.getElementById("lane-says");
  const codes = new Int16Array(bytes(step.codes).buffer), busy = bytes(step.busy);
  const row = 20, left = 132, axis = 24, kinds = ["--compute", "--comm", "--memory"];
  const tops = [];
  step.lanes.forEach((name, lane) => {
    const next = lane && name.split(" · ")[0] !== step.lanes[lane - 1].split(" · ")[0];
    tops.push(lane ? tops[lane - 1] + row + (next ? 9 : 2) : 0);
  });
  const high = tops.at(-1) + row + axis;
  let wide = 0, scale = 1;
  function draw(print) {
    const ratio = Math.max(devicePixelRatio || 1, print ? 2 : 1);
    wide = canvas.clientWidth;
    canvas.style.height = high + "px";
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    scale = (wide - left) / step.cells;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const inks = kinds.map(colour), pale = colour("--idle"), ink = colour("--ink");
    step.lanes.forEach((name, lane) => {
      const y = tops[lane];
      pen.globalAlpha = 1;
      pen.fillStyle = colour("--soft");
      pen.fillText(name, 0, y + row / 2);
      pen.globalAlpha = .45;
      pen.fillStyle = pale;
      pen.fillRect(left, y, wide - left, row);
      let from = 0;
      for (let k = 0; k < step.cells; k++) {
        const at = lane * step.cells + k, here = codes[at];
        if (here >= 0) {
          pen.globalAlpha = .3 + .7 * busy[at] / 255;
          pen.fillStyle = inks[step.kinds[here]];
          const x = Math.round((left + k * scale) * ratio) / ratio;
          pen.fillRect(x, y, Math.round((left + (k + 1) * scale) * ratio) / ratio - x, row);
        }
        if (k + 1 === step.cells || codes[at + 1] !== here) {
          const room = (k + 1 - from) * scale;
          if (here === -2) hatch(pen, left + from * scale, y, room);
          if (here >= 0 && room > 64) label(pen, step.names[here], left + from * scale, y, room);
          from = k + 1;
        }
      }
    });
    ticks(pen, high - axis + 4, ink);
  }
  function hatch(pen, x, y, room) { // not recorded: neither idle nor busy
    pen.save();
    pen.beginPath();
    pen.rect(x, y, room, row);
    pen.clip();
    pen.globalAlpha = 1;
    pen.fillStyle = colour("--unrecorded");
    pen.fillRect(x, y, room, row);
    pen.strokeStyle = colour("--soft");
    pen.globalAlpha = .5;
    pen.beginPath();
    for (let k = x - row; k < x + room; k += 7) {
      pen.moveTo(k, y + row);
      pen.lineTo(k + row, y);
    }
    pen.stroke();
    pen.restore();
  }
  function label(pen, text, x, y, room) {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, room - 4, row);
    pen.clip();
    pen.globalAlpha = 1;
    pen.fillStyle = "#fff";
    pen.shadowColor = "rgb(0 0 0 / 70%)";
    pen.shadowBlur = 3;
    pen.fillText(text, x + 4, y + row / 2 + .5);
    pen.restore();
  }
  function ticks(pen, y, ink) {
    const about = step.length_ns / Math.max((wide - left) / 110, 1);
    const power = 10 ** Math.floor(Math.log10(about));
    const each = [1, 2, 5, 10].map(f => f * power).find(v => v >= about);
    pen.globalAlpha = .75;
    pen.fillStyle = ink;
    for (let at = 0; at <= step.length_ns; at += each) {
      const x = left + (wide - left) * at / step.length_ns;
      pen.fillRect(x, y, 1, 5);
      if (x < wide - 56) pen.fillText(at ? time(at) : "0", x + 3, y + 11);
    }
  }
  canvas.onmousemove = event => {
    const lane = tops.findLastIndex(top => event.offsetY >= top);
    const k = Math.floor((event.offsetX - left) / scale);
    if (lane < 0 || lane >= step.lanes.length || k < 0 || k >= step.cells) return;
    const at = lane * step.cells + k, name = codes[at] < 0 ? "nothing" : step.names[codes[at]];
    if (codes[at] === -2) {
      says.textContent = `${step.lanes[lane]}: not recorded then`;
      return;
    }
    const when = time(k * step.length_ns / step.cells);
    const share = Math.round(100 * busy[at] / 255);
    says.textContent = `${step.lanes[lane]}, at ${when}: ${name} (${share} % busy)`;
  };
  draw();
  addEventListener("resize", () => draw());
  addEventListener("beforeprint", () => draw(true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
}

/* The plotting library travels compressed; it is unpacked once, here. */
async function library() {
  const packed = new Blob([bytes(document.getElementById("plotly").textContent)]);
  const stream = packed.stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

function themed(layout) {
  const lines = { gridcolor: colour("--line"), zerolinecolor: colour("--line"),
    linecolor: colour("--line") };
  const axes = {};
  for (const key of Object.keys(layout))
    if (/^[xy]axis/.test(key)) axes[key] = { ...layout[key], ...lines, automargin: true };
  return { ...layout, ...axes, font: { ...layout.font, color: colour("--ink") }, autosize: true };
}

/* On a phone, ranks below bars by their numbers: "rank 0 rank 1 …" would run together. */
function numbered(figure) {
  const words = [...new Set(figure.data.flatMap(trace => Array.isArray(trace.x) ? trace.x : []))];
  const found = words.map(word => /^(rank|step|stage|device) (\S+)$/.exec(word));
  if (innerWidth > 600 || !words.length || found.includes(null)) return figure.layout;
  const axis = { tickvals: words, ticktext: found.map(match => match[2]), title: { text: found[0][1] } };
  return { ...figure.layout, xaxis: { ...figure.layout.xaxis, ...axis } };
}

async function plots() {
  const places = [...document.querySelectorAll("[data-plot]")];
  if (places.length) {
    try {
      await library();
    } catch {
      places.forEach(place => { place.textContent = "Plots need a browser of 2023 or later."; });
      return;
    }
    const figures = data("figures"), inDark = data("dark-colours");
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const themedColour = c => (scheme.matches && inDark[c.toUpperCase()]) || c;
    const draw = async place => {
      const text = figures[place.dataset.plot].replace(/#[0-9a-f]{6}\b/gi, themedColour);
      const figure = JSON.parse(text);
      await Plotly.react(place, figure.data, themed(numbered(figure)),
        { displaylogo: false, responsive: true, displayModeBar: false });
    };
    for (const place of places) await draw(place);
    const all = () => places.forEach(draw);
    scheme.addEventListener("change", all);
    addEventListener("beforeprint", () => places.forEach(p => Plotly.Plots.resize(p)));
  }
  document.documentElement.dataset.ready = "1";
}

document.querySelectorAll(".htk-t").forEach(htkTable);
const step = data("lane-data");
if (step) timeline(step);
plots();
