/* A static table that sorts, filters and pages; without this script it shows its first rows. */
function htkTable(root) {
  if (root.dataset.live) return;
  root.dataset.live = "1";
  const body = root.querySelector("tbody"), heads = [...root.querySelectorAll("th")];
  const size = +root.dataset.page || 10, all = [...body.rows];
  let shown = all, page = 0;
  const value = (row, k) => {
    const cell = row.cells[k], raw = cell.dataset.v;
    return raw === undefined ? cell.textContent : raw === "" ? null : +raw;
  };
  const bar = document.createElement("div");
  bar.className = "bar";
  const find = document.createElement("input"), says = document.createElement("span");
  find.placeholder = "filter";
  find.setAttribute("aria-label", "filter rows");
  const [back, next] = ["‹", "›"].map((text, k) => {
    const made = document.createElement("button");
    made.textContent = text;
    made.setAttribute("aria-label", k ? "next page" : "previous page");
    made.onclick = () => { page += k ? 1 : -1; draw(); };
    return made;
  });
  bar.append(find, back, says, next);
  function draw() {
    const last = Math.max(0, Math.ceil(shown.length / size) - 1);
    page = Math.min(Math.max(page, 0), last);
    const from = page * size, rows = shown.slice(from, from + size);
    body.replaceChildren(...rows);
    says.textContent = shown.length
      ? `${from + 1}–${from + rows.length} of ${shown.length}` : "no row";
    back.disabled = page === 0;
    next.disabled = page === last;
  }
  heads.forEach((head, k) => {
    head.tabIndex = 0;
    head.onclick = () => {
      const up = head.getAttribute("aria-sort") === "descending";
      heads.forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const order = (a, b) => {
        const [x, y] = [value(a, k), value(b, k)];
        if (x === null || y === null) return Number(x === null) - Number(y === null);
        const sign = typeof x === "string" ? x.localeCompare(y) : x - y;
        return up ? sign : -sign;
      };
      all.sort(order);
      shown = [...shown].sort(order);
      page = 0;
      draw();
    };
    head.onkeydown = event => { if (event.key === "Enter") head.click(); };
  });
  find.oninput = () => {
    const words = find.value.toLowerCase();
    shown = all.filter(row => row.textContent.toLowerCase().includes(words));
    page = 0;
    draw();
  };
  if (all.length > size) root.append(bar);
  draw();
}
