// The order in which charts are drawn: those in sight first, one at a time.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

const CODE = readFileSync(new URL("../../../dashboard/assets/plot_order.js", import.meta.url), "utf8");

class Element {
  constructor(name, top) {
    Object.assign(this, { name, top, isConnected: true });
  }
  getBoundingClientRect() {
    return { top: this.top, bottom: this.top + 100 };
  }
}

function loaded() {
  const drawn = [];
  const window = { innerHeight: 800 };
  const react = (gd) => {
    drawn.push(gd.name);
    gd._fullLayout = {};
    return Promise.resolve(gd);
  };
  vm.runInNewContext(CODE, { window, Element, setTimeout, Promise, Math, Object });
  window.Plotly = { react };
  return { drawn, plotly: window.Plotly };
}

test("charts in sight come first, in the order of the page; each is drawn once", async () => {
  const { drawn, plotly } = loaded();
  const charts = [["far", 2900], ["above", -700], ["first", 40], ["second", 500], ["near", 1000]];
  const done = charts.map(([name, top]) => plotly.react(new Element(name, top)));
  assert.deepEqual(drawn, []); // nothing before the browser had its turn
  const drawnTo = await Promise.all(done);
  assert.deepEqual(drawn, ["first", "second", "near", "above", "far"]);
  assert.deepEqual(drawnTo.map((gd) => gd.name), charts.map(([name]) => name));
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
