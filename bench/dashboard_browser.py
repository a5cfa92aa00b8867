"""A person at the dashboard: how long until a browser has drawn what was asked for.

    python bench/dashboard_browser.py ADDRESS

Opens the first page in browsers that hold nothing yet, goes from page to page as links do, and
moves the sliders of the what-if page by keys. Prints one JSON object, in ms. A page is complete
when no callback is under way, every part of it is answered, and each chart and table is there that
is in the window, or so near to it that the page draws it ahead of sight. What is farther away is
not made before one scrolls to it; how long it then takes to be there is measured too.
Needs playwright and Chromium.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

PAGES = ("/", "/kernels", "/operators", "/communication", "/memory", "/idle", "/timeline", "/sql")
OPENINGS, ROUNDS = 5, 3
KEYS = 4 * ("ArrowRight",) + 4 * ("ArrowLeft",)
PATIENCE_MS = 120_000
# When each thing is first there; what was not seen yet is looked for at each frame.
_WATCH = """
window.firstSeen = {};
const isThere = (what) => !!document.querySelector(`main ${what}`);
const wanted = {
  heading: () => document.querySelector('main h1'),
  'first screen': () => ['.tile', '.rank-bar', '.cause'].every(isThere),
  'first chart': () => document.querySelector('main figure.plot .main-svg'),
  complete: () => window.isComplete(),
};
const isNear = (element) => { // in sight, or so near that it is drawn before it is seen
  const { top, bottom } = element.getBoundingClientRect(), ahead = 0.45 * window.innerHeight;
  return bottom > -ahead && top < window.innerHeight + ahead;
};
window.isComplete = () => {
  const all = (what, has) => [...document.querySelectorAll(`main ${what}`)].every(has);
  const isAnswered = (part) => part.childElementCount && !part.dataset.dashIsLoading;
  return !!document.querySelector('main h1') && all('.part', (p) => !isNear(p) || isAnswered(p))
    && all('figure.plot .dash-graph', (g) => !isNear(g) || g.querySelector('.main-svg'))
    && all('.nearby', (n) => !isNear(n) || n.querySelector('.ag-row .ag-cell-value'));
};
(function look() {
  for (const [name, seen] of Object.entries(wanted)) {
    if (!(name in window.firstSeen) && seen()) window.firstSeen[name] = performance.now();
  }
  requestAnimationFrame(look);
})();
"""
_GO = """async (path) => {
  const begun = performance.now(), frame = () => new Promise(requestAnimationFrame);
  const shown = () => document.querySelector('#page [data-view]')?.dataset.view === path;
  window.htkVisit(path);
  while (!shown() || !document.querySelector('main h1')) await frame();
  const heading = performance.now() - begun;
  while (!window.isComplete()) await frame();
  return [heading, performance.now() - begun];
}"""
_SCROLL = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const end = document.documentElement.scrollHeight, taken = [];
  for (let top = innerHeight; top < end; top += innerHeight) { // page by page, as keys do
    const begun = performance.now();
    window.scrollTo(0, top);
    await frame();
    while (!window.isComplete()) await frame();
    taken.push(performance.now() - begun);
  }
  window.scrollTo(0, 0);
  return taken;
}"""
_OLD = """() => {
  document.querySelector('#whatif-answer').firstElementChild.dataset.old = performance.now();
}"""
_NEW = """async () => {
  const begun = Number(document.querySelector('#whatif-answer [data-old]').dataset.old);
  const frame = () => new Promise(requestAnimationFrame);
  while (document.querySelector('#whatif-answer [data-old]')) await frame();
  await frame();
  return performance.now() - begun;
}"""


def main() -> None:
    address = sys.argv[1]
    chromium = os.environ.get("HTK_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as p:

        def launch() -> Browser:
            return p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        first = [_first_page(launch(), address) for _ in range(OPENINGS)]
        browser = launch()
        page = _tab(browser)
        page.goto(address)
        changes = list(_changes(page))
        scrolls = list(_scrolls(page))
        moves = list(_moves(page, address))
        browser.close()
    figures = {f"first page, cold browser: {k}": _spread([f[k] for f in first]) for k in first[0]}
    figures["change of page: heading"] = _spread([heading for heading, _ in changes])
    figures["change of page: complete"] = _spread([complete for _, complete in changes])
    figures["scrolled to what was not made"] = _spread(scrolls)
    figures["what-if slider to new numbers"] = _spread(moves)
    print(json.dumps(figures, indent=1))


def _tab(browser: Browser) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.add_init_script(_WATCH)
    return page


def _first_page(browser: Browser, address: str) -> dict[str, float]:
    """Return when each thing of the first page is seen by a browser that was just started."""
    page = _tab(browser)
    page.goto(address, wait_until="commit")
    while "complete" not in (seen := page.evaluate("window.firstSeen")):
        page.wait_for_timeout(50)
    browser.close()
    return dict(seen)


def _changes(page: Page) -> Iterator[Any]:
    for turn in range(ROUNDS + 1):
        for path in (*PAGES[1:], PAGES[0]):
            times = page.evaluate(_GO, path)
            if turn:  # the first turn fetches scripts of the page's own
                yield times


def _scrolls(page: Page) -> Iterator[float]:
    """Yield how long each window of the long pages takes, from the top of a page to its end."""
    for path in PAGES[1:6]:
        page.evaluate(_GO, path)
        yield from page.evaluate(_SCROLL)


def _moves(page: Page, address: str) -> Iterator[float]:
    page.goto(f"{address}/whatif")
    while not page.evaluate("window.isComplete()"):
        page.wait_for_timeout(50)
    thumbs = page.locator(".edits [role=slider]")
    for number in range(thumbs.count()):
        thumbs.nth(number).focus()
        for key in KEYS:
            page.evaluate(_OLD)
            page.keyboard.press(key)
            yield page.evaluate(_NEW)
            while not page.evaluate("window.isComplete()"):
                page.wait_for_timeout(20)


def _spread(values: list[float]) -> dict[str, int]:
    p50, p95 = np.percentile(values, [50, 95]).round().astype(int).tolist()
    return {"p50_ms": p50, "p95_ms": p95, "of": len(values)}


if __name__ == "__main__":
    main()
