/* Numbers as people read them; the same rules as htk/base/core/humanize.py. */
const htkGrid = (window.dashAgGridFunctions ??= /** @type {any} */ ({}));

function htkScaled(value, units) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  for (let k = 0; k + 1 < units.length; k++) {
    const [factor, unit] = units[k], smaller = units[k + 1][0];
    if (size < factor - smaller / 2) continue;
    const digits = size / factor < 9.995 ? 2 : size / factor < 99.95 ? 1 : 0;
    const shown = (value / factor).toFixed(digits);
    return `${digits ? shown : Number(shown).toLocaleString("en-US")} ${unit}`;
  }
  const last = units[units.length - 1][1];
  if (value !== 0 && size < 1) return `${value > 0 ? "< 1" : "> -1"} ${last}`;
  return `${Number.isInteger(value) ? value : Number(value.toPrecision(3))} ${last}`;
}

htkGrid.htkTime = (v) => htkScaled(v, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);
htkGrid.htkSize = (v) => htkScaled(v, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
htkGrid.htkWords = (v) => (v === null || v === undefined ? "–" : String(v).replaceAll("_", " "));
const HTK_WIDE = 1800; // pixels of a window with room for twice the letters
htkGrid.htkName = (v, row, field) =>
  (row && row[`${window.innerWidth < HTK_WIDE ? "short" : "long"} ${field}`]) || (v === null || v === undefined ? "" : String(v));
htkGrid.htkTruth = (v) => (v === null || v === undefined ? "–" : v ? "yes" : "no");
const HTK_REST = "others"; // the row of all names that a table does not list
htkGrid.htkGo = (v) => (v && v !== HTK_REST ? "↗" : "");
/** What stands for the rest is no entry of the list: it comes last, however that is sorted. */
htkGrid.htkRestLast = (nodes) => {
  const isRest = (node) => !!node.data && node.data.name === HTK_REST;
  nodes.splice(0, nodes.length, ...nodes.filter((node) => !isRest(node)), ...nodes.filter(isRest));
};
htkGrid.htkExact = (v, unit) =>
  typeof v === "number" ? `${v.toLocaleString("en", { maximumFractionDigits: 6 })} ${unit}`.trim() : "";
htkGrid.htkShare = (v) => (v === null || v === undefined ? "–" : `${v.toFixed(1)} %`);
htkGrid.htkChange = (v) => {
  if (v === null || v === undefined) return "–";
  return v >= 900 ? `${Number((1 + v / 100).toPrecision(3))}x` : `${v > 0 ? "+" : ""}${v.toFixed(1)} %`;
};
htkGrid.htkPlain = (v) =>
  v === null || v === undefined ? "–" : typeof v === "number" ? (Number.isInteger(v) ? v.toLocaleString("en") : Number(v.toPrecision(4)).toLocaleString("en")) : String(v);
