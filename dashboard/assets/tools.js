/* What the pages need of the browser: colours, saving plots, copying the address, uploads. */
(function () {
  "use strict";

  function systemDark() {
    return window.matchMedia && window.matchMedia("(prefers-color-scheme: dark)").matches;
  }

  let asked = false;
  /* Follows the system until the switch is used; then what was chosen is kept. */
  window.htkColours = function (on, kept) {
    const first = !asked;
    asked = true;
    const dark = first ? (kept === null || kept === undefined ? systemDark() : kept) : !!on;
    const store = first && (kept === null || kept === undefined) && !dark
      ? window.dash_clientside.no_update : dark;
    document.body.dataset.agThemeMode = dark ? "dark-blue" : "light";
    return [store, dark ? "dark" : "light", dark];
  };

  /* Another address, the same page. */
  function keepSearch(text) {
    history.replaceState(history.state, "", location.pathname + text);
  }

  window.htkAddress = function (search) {
    if (search) keepSearch(search === "?" ? "" : search);
    return "";
  };

  const TABLE = /^o\.(group|sort|where)\./; // how a table is looked at

  /* A copied link opens the tables grouped, sorted and filtered as they are. */
  window.htkTables = function (groups, columns, filters, tables, grids) {
    const asked = new URLSearchParams(location.search);
    const before = asked.toString();
    const put = (kind, table, text) => {
      const name = `o.${kind}.${table.name}`;
      if (text) asked.set(name, text); else asked.delete(name);
    };
    tables.forEach((table, k) => put("group", table, groups[k]));
    grids.forEach((table, k) => {
      if (columns[k]) { // the grid is there
        const sorted = columns[k].filter((c) => c.sort).sort((a, b) => a.sortIndex - b.sortIndex);
        put("sort", table, sorted.map((c) => `${c.colId}:${c.sort}`).join(","));
      }
      if (filters[k]) put("where", table, Object.keys(filters[k]).length ? JSON.stringify(filters[k]) : "");
    });
    const now = asked.toString();
    if (now === before) return;
    keepSearch(now ? `?${now}` : "");
  };

  /* The address of the same page under other filters: its tables stay as they are looked at. */
  window.htkWithTables = function (search) {
    const looks = [...new URLSearchParams(location.search)].filter(([name]) => TABLE.test(name));
    if (!looks.length) return search;
    const wanted = new URLSearchParams(search);
    for (const [name, value] of looks) wanted.set(name, value);
    return `?${wanted}`;
  };

  /* What is exported is what is seen. */
  function exportsWhatIsSeen(link) {
    const address = new URL(link.href);
    const shown = new URLSearchParams(location.search);
    for (const kind of ["group", "sort", "where"]) {
      const name = `o.${kind}.${link.dataset.table}`;
      if (shown.has(name)) address.searchParams.set(name, shown.get(name));
      else address.searchParams.delete(name);
    }
    address.searchParams.set("o.table", link.dataset.table);
    link.href = address.href;
  }

  /* From a row of a table to its longest instance: the address of the timeline there. */
  window.htkRowTimeline = function (cells) {
    const cell = window.dash_clientside.callback_context.triggered.map((t) => t.value)[0];
    if (!cell || cell.colId !== "timeline" || !cell.value || cell.value === "others") {
      return window.dash_clientside.no_update;
    }
    const query = new URLSearchParams(location.search);
    for (const key of [...query.keys()]) if (key.startsWith("o.")) query.delete(key);
    query.set("name", cell.value);
    window.htkVisit(`/timeline?${query}#longest`);
    return window.dash_clientside.no_update;
  };

  /* To another page, as links of the app go there. */
  window.htkVisit = function (href) {
    if (href) {
      history.pushState({}, "", href);
      window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    }
    return "";
  };

  /* Tabs are told apart by their page and run. */
  function nameTab() {
    const text = (what) => (document.querySelector(what)?.textContent || "").trim();
    const run = text("#run").replace(/ · \d+ files$/, "");
    document.title = [text("nav a.here") || text("main h1"), run, "htk"].filter(Boolean).join(" · ");
  }

  window.htkDrawn = function () {
    window.htkMountTimeline();
    window.htkMirror();
    requestAnimationFrame(() => { mountUpload(); nameTab(); });
    return "";
  };

  /* Ctrl and Enter run the query that is being written. */
  document.addEventListener("keydown", (event) => {
    const { id } = /** @type {HTMLElement} */ (event.target);
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || id !== "sql-text") return;
    event.preventDefault();
    // The app hears of the text a moment after it was typed.
    setTimeout(() => document.getElementById("sql-run").click(), 250);
  });

  /* One picker is open at a time; a click elsewhere or Escape closes it. */
  function closePickers(but) {
    document.querySelectorAll("details.pick[open]").forEach((d) => { if (d !== but) d.removeAttribute("open"); });
  }
  document.addEventListener("toggle", (event) => { // what is typed next goes into its field
    const pick = /** @type {HTMLDetailsElement} */ (event.target);
    if (pick.open && pick.matches("details.pick")) pick.querySelector("input")?.focus();
  }, true);
  document.addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && document.querySelector("details.pick[open]");
    if (!open) return;
    closePickers(null);
    open.querySelector("summary").focus();
  });

  document.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (document.contains(target)) closePickers(target.closest("details.pick"));
    const toggle = target.closest("#menu-toggle");
    const side = document.querySelector(".side");
    if (toggle || target.closest("nav a")) {
      const open = !!toggle && !side.classList.contains("open");
      side.classList.toggle("open", open);
      document.getElementById("menu-toggle").setAttribute("aria-expanded", String(open));
    }
    const skip = target.closest(".skip");
    if (skip) {
      event.preventDefault();
      document.getElementById("page").focus();
    }
    const link = /** @type {HTMLAnchorElement} */ (target.closest("a[data-table]"));
    if (link) exportsWhatIsSeen(link);
    const save = /** @type {HTMLElement} */ (target.closest("[data-save]"));
    if (save) {
      const plot = save.closest("figure").querySelector(".js-plotly-plot");
      const label = save.closest("figure").getAttribute("aria-label") || "plot";
      const filename = label.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 50);
      window.Plotly.downloadImage(plot, { format: save.dataset.save, filename, scale: 2,
        width: plot.clientWidth, height: plot.clientHeight });
    }
    if (target.id === "copy") {
      copied(window.location.href).then((done) => {
        target.textContent = done ? "Copied" : "Copy the address above";
        setTimeout(() => { target.textContent = "Copy link"; }, 1500);
      });
    }
  });

  /* Browsers give the clipboard to pages of this machine or with TLS only. */
  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (error) {
      return false;
    }
  }

  function mountUpload() {
    const place = document.getElementById("upload-place");
    if (!place || place.dataset.on) return;
    place.dataset.on = "1";
    const input = document.createElement("input");
    input.type = "file";
    input.id = "upload-file";
    const state = document.createElement("div");
    state.setAttribute("role", "status");
    input.multiple = true;
    input.addEventListener("change", () => input.files.length && sendAll([...input.files], place, state));
    place.append(input, state);
  }

  /* The files of all ranks, one after the other: together they are one run. */
  async function sendAll(files, place, state) {
    const total = files.reduce((sum, file) => sum + file.size, 0);
    if (total > Number(place.dataset.most)) {
      const what = files.length > 1 ? `${files.length} files are` : `${files[0].name} is`;
      state.textContent = `${what} larger than may be uploaded`;
      return;
    }
    let key = "";
    for (let k = 0; k < files.length; k++) {
      const place = files.length > 1 ? `${k + 1} of ${files.length}: ` : "";
      key = await send(files[k], key, place, state);
      if (!key) return;
    }
    window.location.assign(`/?run=${key}`);
  }

  /* Sends one file; its upload's key, or nothing where it was not sent, which is said. */
  function send(file, key, number, state) {
    const request = new XMLHttpRequest();
    const cancel = document.createElement("button");
    cancel.textContent = "Cancel";
    cancel.className = "chip";
    cancel.onclick = () => request.abort();
    const text = document.createElement("span");
    state.replaceChildren(text, " ", cancel);
    text.textContent = `sending ${number}${file.name}`;
    return new Promise((resolve) => {
      const fail = (words) => { state.textContent = words; resolve(""); };
      request.upload.onprogress = (e) => {
        text.textContent = `sending ${number}${file.name}: ${Math.round((100 * e.loaded) / Math.max(e.total, 1))} %`;
      };
      request.onabort = () => fail("not sent");
      request.onerror = () => fail("the server did not answer; is it still running?");
      request.onload = () => {
        if (request.status === 200) resolve(request.responseText);
        else fail(`${file.name}: ${request.responseText}`);
      };
      const of = key ? `&key=${encodeURIComponent(key)}` : "";
      request.open("POST", `/upload?name=${encodeURIComponent(file.name)}${of}`);
      request.setRequestHeader("X-Htk-Upload", "1");
      request.send(file);
    });
  }
})();
