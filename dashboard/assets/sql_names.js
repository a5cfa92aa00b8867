/* While a query is written: tables, their columns and analyses that begin as the word does. */
(function () {
  "use strict";
  const MOST = 8;
  const WORD = /[A-Za-z_]\w*$/;
  let chosen = 0;

  const box = () => /** @type {HTMLTextAreaElement} */ (document.getElementById("sql-text"));
  const list = () => document.getElementById("sql-suggestions");
  const known = () => JSON.parse(document.getElementById("sql-names").dataset.names);

  /* The names that go on from what stands before the caret: columns of tables in the query first. */
  function suggestions(text, caret) {
    const begun = WORD.exec(text.slice(0, caret));
    if (!begun || begun[0].length < 2) return { word: "", names: [] };
    const word = begun[0].toLowerCase();
    const { tables, analyses } = known();
    const used = new Set(text.toLowerCase().match(/\w+/g));
    const offered = new Map();
    const offer = (name, what) => name.startsWith(word) && name !== word && !offered.has(name) && offered.set(name, what);
    for (const [table, columns] of Object.entries(tables)) if (used.has(table)) columns.forEach((c) => offer(c, `column of ${table}`));
    Object.keys(tables).forEach((table) => offer(table, "table"));
    analyses.forEach((name) => offer(name, "analysis"));
    return { word: begun[0], names: [...offered].slice(0, MOST) };
  }

  function close() {
    list()?.replaceChildren();
    box()?.removeAttribute("aria-activedescendant");
  }

  function mark(position) {
    const items = [...list().children];
    chosen = (position + items.length) % items.length;
    items.forEach((item, k) => item.setAttribute("aria-selected", String(k === chosen)));
    box().setAttribute("aria-activedescendant", items[chosen].id);
  }

  function open() {
    const { word, names } = suggestions(box().value, box().selectionStart);
    if (!names.length) return close();
    list().replaceChildren(...names.map(([name, what], k) => {
      const item = document.createElement("li");
      item.id = `sql-suggestion-${k}`;
      item.setAttribute("role", "option");
      item.dataset.rest = name.slice(word.length);
      const hint = document.createElement("small");
      hint.textContent = what;
      item.append(name, hint);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); mark(k); take(); });
      return item;
    }));
    mark(0);
  }

  /* As if it had been typed, so that the page hears of it. */
  function take() {
    const { rest } = /** @type {HTMLElement} */ (list().children[chosen]).dataset;
    const { value, selectionStart: caret } = box();
    const set = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set;
    set.call(box(), value.slice(0, caret) + rest + value.slice(caret));
    box().setSelectionRange(caret + rest.length, caret + rest.length);
    box().dispatchEvent(new Event("input", { bubbles: true }));
    close();
  }

  /* Names of what can be read, each with what it holds below it. */
  function fill(/** @type {HTMLElement} */ place) {
    const entries = JSON.parse(place.dataset.listed);
    delete place.dataset.listed;
    place.replaceChildren(...entries.map(([name, text]) => {
      const [entry, title, body] = ["details", "summary", "p"].map((tag) => document.createElement(tag));
      [title.className, title.textContent, body.className, body.textContent] = ["subject", name, "columns", text];
      entry.append(title, body);
      return entry;
    }));
  }
  new MutationObserver(() => { for (const place of document.querySelectorAll("[data-listed]")) fill(/** @type {HTMLElement} */ (place)); })
    .observe(document.documentElement, { childList: true, subtree: true });

  document.addEventListener("input", (event) => {
    if (event.target !== box()) return;
    const { data } = /** @type {InputEvent} */ (event);
    if (data && data.length === 1) open(); // typed, not pasted
    else close();
  });
  document.addEventListener("focusout", (event) => { if (event.target === box()) close(); });
  document.addEventListener("keydown", (event) => {
    if (event.target !== box() || !list()?.childElementCount || event.ctrlKey || event.metaKey) return;
    const does = { ArrowDown: () => mark(chosen + 1), ArrowUp: () => mark(chosen - 1), Tab: take, Escape: close }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }, true);
})();
