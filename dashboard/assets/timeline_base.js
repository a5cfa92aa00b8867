/* The timeline's words and colours: what every other part of it shares. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const HOUR = 3.6e12;
  /* Fill; border where the fill is a pale neutral; and what many of them together look like.
     The same colours as in figures: htk/answers/output/tokens.py. */
  T.LIGHT = {
    ink: "#16202E", soft: "#55627A", paper: "#FFFFFF", head: "#F6F7F9", line: "#E4E7EC", band: "#F9FAFB",
    accent: "#1259C4", unrecorded: "#ECEFF3", hatch: "#B6BFCB",
    kinds: {
      compute: ["#2F7DE1"], comm: ["#D9822B"], memory: ["#16826B"], cpu: ["#6B7788"], launch: ["#7A4FB5"],
      range: ["#E6EBF2", "#9AA6B8"], phase: ["#F3F6FA", "#AEB9C9"], python: ["#C3CBD6", "#98A3B3"],
      idle: ["#F1F4F8", "#8D99AB", "#B6BFCB"], overhead: ["#EAE4D6", "#B3A98F"], pending: ["#FBEBD6", "#B8651A"],
    },
  };
  T.DARK = {
    ink: "#E6EBF2", soft: "#9CA9BA", paper: "#161E29", head: "#0E141C", line: "#263241", band: "#1A2330",
    accent: "#6AA6FF", unrecorded: "#1D2733", hatch: "#475364",
    kinds: {
      compute: ["#4C93F0"], comm: ["#E69A4A"], memory: ["#2AA68B"], cpu: ["#8793A6"], launch: ["#B894EE"],
      range: ["#27334A", "#5A6A85"], phase: ["#1D283B", "#4A5872"], python: ["#3B485E", "#66758F"],
      idle: ["#1D293D", "#71809A", "#475364"], overhead: ["#39352A", "#6E6750"], pending: ["#43321F", "#E69A4A"],
    },
  };
  T.STRIPES = ["compute", "comm", "memory"]; // of a rank's strip, from the bottom up
  T.WORDS = {
    compute: "compute", comm: "communication", memory: "copies", cpu: "CPU operators", launch: "launch calls",
    range: "ranges", phase: "phases", python: "Python", idle: "idle", overhead: "profiler",
    pending: "communication that had not ended",
  };
  const NARROW = typeof innerWidth === "number" && innerWidth <= 600; // a phone
  T.GUTTER = NARROW ? 124 : 216;
  T.LETTERS = NARROW ? 14 : 28; // of a track's name
  T.AXIS = 24;
  T.LANE = 17;
  T.HEAD = 24;
  T.CHART = 34; // of a counter that is not folded
  T.PIN = 20; // of the gutter's right end, which pins a track
  /* What of the view an address holds. */
  T.LINKED = ["at", "event", "range", "aligned", "find", "filter", "pins", "order", "notes"];

  /* Texts as one, and back: any of them may hold the sign between them. */
  T.joined = (texts) => texts.map(encodeURIComponent).join(",");
  T.split = function (text) {
    try {
      return (text || "").split(",").filter(Boolean).map(decodeURIComponent);
    } catch (error) { // an address that was cut
      return [];
    }
  };

  T.rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));

  /* Three shades of each colour, so that neighbours are told apart; the hue is the meaning. */
  T.palette = function (colours, kinds) {
    return kinds.map((kind) => {
      const [fill, border, many] = colours.kinds[kind];
      const base = T.rgb(fill);
      const light = 0.299 * base[0] + 0.587 * base[1] + 0.114 * base[2];
      const shades = [0, 1, 2].map((k) => {
        if (border || !k) return fill;
        const to = light > 40 && k === 2 ? 0 : 255;
        return `rgb(${base.map((c) => Math.round(c + (to - c) * 0.14)).join(",")})`;
      });
      return { shades, border, base: T.rgb(many || border || fill), text: light > 150 ? "#10151f" : "#ffffff" };
    });
  };

  T.time = function (ns, digits = 4) {
    const a = Math.abs(ns);
    if (a >= 48 * HOUR) return `${(ns / (24 * HOUR)).toPrecision(digits)} days`;
    if (a >= 2 * HOUR) return `${(ns / HOUR).toPrecision(digits)} h`;
    if (a >= 1e9) return `${(ns / 1e9).toPrecision(digits)} s`;
    if (a >= 1e6) return `${(ns / 1e6).toPrecision(digits)} ms`;
    if (a >= 1e3) return `${(ns / 1e3).toPrecision(digits)} µs`;
    return `${Math.round(ns)} ns`;
  };

  /* A moment on the axis, with as many digits as the distance of its marks calls for. */
  T.moment = function (ns, step) {
    const [scale, unit] = Math.abs(ns) >= 1e9 || step >= 1e8 ? [1e9, "s"]
      : Math.abs(ns) >= 1e6 || step >= 1e5 ? [1e6, "ms"] : Math.abs(ns) >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / scale) - 1e-9)));
    return `${(ns / scale).toFixed(digits)} ${unit}`;
  };

  /* A counter's value with its unit. */
  T.value = function (value, unit) {
    if (unit === "bytes") {
      const k = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(value))) / 10)));
      return `${k ? (value / 2 ** (10 * k)).toPrecision(3) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][k]}`;
    }
    const number = Number.isInteger(value) ? T.count(value) : value.toPrecision(3);
    return unit ? `${number} ${unit}` : number;
  };

  T.count = (n) => n.toLocaleString("en");

  /* A long name with its middle left out; of a very short one the end. */
  T.short = function (text, most) {
    if (text.length <= most) return text;
    const keep = Math.max(1, most - 1);
    if (keep < 14) return `${text.slice(0, keep)}…`;
    const front = Math.ceil(keep * 0.6);
    return `${text.slice(0, front)}…${text.slice(text.length - (keep - front))}`;
  };

  /* A name without the namespaces in front of it, which many share. */
  T.bare = (name) => name.replace(/^void /, "").replace(/^(?:(?:\w+|\(anonymous namespace\))::)+(?=\w)/, "");

  const TYPES = {
    density: Uint8Array, dominant: Uint8Array, x: Float32Array, w: Float32Array,
    id: Uint32Array, name: Uint32Array, lane: Uint16Array, stack: Uint8Array,
    counter_low: Float32Array, counter_high: Float32Array,
    lit_density: Uint8Array, lit_dominant: Uint8Array, lit_stack: Uint8Array,
  };

  T.unpack = function (buffer) {
    const size = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    const data = /** @type {any} */ ({ head });
    for (const [name, offset, length] of head.arrays) {
      data[name] = new TYPES[name](buffer, 4 + size + offset, length / TYPES[name].BYTES_PER_ELEMENT);
    }
    return data;
  };

  /* [0,1,2,7] as "0..2,7". */
  T.ranges = function (numbers) {
    const found = [];
    for (const n of numbers) {
      const last = found[found.length - 1];
      if (last && last[1] === n - 1) last[1] = n;
      else found.push([n, n]);
    }
    return found.map(([a, b]) => (a === b ? `${a}` : `${a}..${b}`)).join(",");
  };

  T.element = function (tag, facts = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(facts)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
    }
    made.append(...children.filter((c) => c !== null && c !== undefined));
    return made;
  };

  /* A source over HTTP; `query` names the run and its filters. */
  T.http = function (query) {
    const join = query && query !== "?" ? `${query}&` : "?";
    return {
      async ask(question, given) {
        const answer = await fetch(`/timeline/${question}${join}${new URLSearchParams(given)}`);
        if (!answer.ok) throw new Error(await answer.text());
        if (question === "view") return T.unpack(await answer.arrayBuffer());
        const found = await answer.json();
        if (found.error) throw new Error(found.error);
        return found;
      },
    };
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
