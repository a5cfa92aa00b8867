// When charts are drawn: those near the window, in sight first, one at a time; all before printing.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

const [NEAR, CODE] = ["near", "plot_order"].map((name) =>
  readFileSync(new URL(`../../../dashboard/assets/${name}.js`, import.meta.url), "utf8"));

class Element {
  constructor(name, top) {
    Object.assign(this, { name, top, isConnected: true });
  }
  getBoundingClientRect() {
    return { top: this.top, bottom: this.top + 100 };
  }
}

/* The window is 800 high, and what is within 400 of it is near; `scrolled` moves all elements. */
function loaded() {
  const drawn = [], watched = new Set(), listeners = {};
  let tell;
  class IntersectionObserver {
    constructor(callback) { tell = callback; }
    observe(element) { watched.add(element); setTimeout(look); }
    unobserve(element) { watched.delete(element); }
  }
  const look = () => {
    const near = [...watched].filter(({ top }) => top < 1200 && top + 100 > -400);
    if (near.length) tell(near.map((target) => ({ target, isIntersecting: true })));
  };
  const window = { innerHeight: 800, addEventListener: (name, act) => { listeners[name] = act; } };
  const react = (gd) => {
    drawn.push(gd.name);
    gd._fullLayout = {};
    return Promise.resolve(gd);
  };
  const names = { window, Element, IntersectionObserver, setTimeout, Promise, Math, Object, Map };
  const context = vm.createContext(names);
  for (const code of [NEAR, CODE]) vm.runInContext(code, context);
  const fitted = [];
  window.Plotly = { react, Plots: { resize: (gd) => { fitted.push(gd.name); return Promise.resolve(gd); } } };
  return { drawn, fitted, look, plotly: window.Plotly, print: () => listeners.beforeprint() };
}

test("charts in sight come first, in the order of the page; each is drawn once", async () => {
  const { drawn, plotly } = loaded();
  const charts = [["below", 1150], ["above", -380], ["first", 40], ["second", 500], ["near", 1000]];
  const done = charts.map(([name, top]) => plotly.react(new Element(name, top)));
  assert.deepEqual(drawn, []); // nothing before the browser had its turn
  const drawnTo = await Promise.all(done);
  assert.deepEqual(drawn, ["first", "second", "near", "above", "below"]);
  assert.deepEqual(drawnTo.map((gd) => gd.name), charts.map(([name]) => name));
});

test("a far chart is drawn when it comes near, and before the page is printed", async () => {
  const { drawn, look, plotly, print } = loaded();
  const far = new Element("far", 2900), last = new Element("last", 5000), left = new Element("left", 4000);
  const done = [far, last, left].map((gd) => plotly.react(gd));
  await plotly.react(new Element("first", 40));
  look();
  assert.deepEqual(drawn, ["first"]);
  far.top = 1100;
  look();
  await done[0];
  assert.deepEqual(drawn, ["first", "far"]);
  left.isConnected = false;
  print();
  assert.deepEqual(drawn, ["first", "far", "last"]); // at once: printing waits for nothing
  await done[1];
});

test("a chart is fitted to its place where it has not its size", async () => {
  const { fitted, plotly } = loaded();
  const gd = Object.assign(new Element("chart", 0), { clientWidth: 600, clientHeight: 380 });
  gd._fullLayout = { width: 600, height: 380, autosize: true };
  await plotly.Plots.resize(gd);
  assert.deepEqual(fitted, []);
  gd.clientWidth = 500;
  await plotly.Plots.resize(gd);
  gd.clientWidth = 600;
  gd._fullLayout.autosize = false; // it keeps a size of its own: that it shall fit is news
  await plotly.Plots.resize(gd);
  assert.deepEqual(fitted, ["chart", "chart"]);
});

test("a chart that is there is drawn again at once; one that has left is not drawn", async () => {
  const { drawn, plotly } = loaded();
  const there = new Element("there", 0), left = new Element("left", 10), late = new Element("late", 20);
  await plotly.react(there);
  const waiting = [plotly.react(left), plotly.react(late)];
  left.isConnected = false;
  plotly.react(there);
  assert.deepEqual(drawn, ["there", "there"]);
  await Promise.all(waiting);
  assert.deepEqual(drawn, ["there", "there", "late"]);
});

test("a chart that cannot be drawn says so, and the next is drawn", async () => {
  const { plotly } = loaded();
  const bad = new Element("bad", 0), good = new Element("good", 10);
  Object.defineProperty(bad, "name", { get: () => { throw new Error("no name"); } });
  const results = await Promise.allSettled([plotly.react(bad), plotly.react(good)]);
  assert.deepEqual(results.map((r) => r.status), ["rejected", "fulfilled"]);
});
