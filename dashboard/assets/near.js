/* Charts and tables are made when they come near the window: what nobody scrolls to costs nothing.
   All are made before the page is printed. Parts of a page are asked for when they come near; those
   farther off follow one by one while no other is being answered, in the order of the page. */
(function () {
  "use strict";
  const MARGIN = "50% 0px"; // of the window, above and below it: made before it is seen
  const waiting = new Map(); // what to do, by the element that is to come near
  /** @type {IntersectionObserver} */
  let observer;

  function forget(element) {
    waiting.delete(element);
    observer.unobserve(element);
  }

  function arrive(element, isPrinted) {
    const act = waiting.get(element);
    forget(element);
    if (act) act(isPrinted);
  }

  /* Does something once, when the element is near: at once where it is to be printed. */
  window.htkWhenNear = function (element, act) {
    observer ??= new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) arrive(entry.target, false);
    }, { rootMargin: MARGIN });
    for (const other of [...waiting.keys()]) if (!other.isConnected) forget(other); // its page was left
    waiting.set(element, act);
    observer.observe(element);
    return () => { if (waiting.get(element) === act) forget(element); };
  };

  const AT_ONCE = 2; // parts: a server makes hardly more of them side by side
  const PATIENCE = 20_000; // ms: a part that takes longer, or failed, holds up no other
  const parts = new Map(); // how to ask for a part, and whether it is near, by its place
  const asked = new Set(); // places of parts that have no answer yet

  function askForNext() {
    const unasked = [...parts].filter(([place]) => !asked.has(place));
    const near = unasked.filter(([, part]) => part.isNear).slice(0, AT_ONCE - asked.size);
    for (const [place, part] of near.length || asked.size ? near : unasked.slice(0, 1)) {
      asked.add(place);
      part.ask();
      setTimeout(() => leavePart(place), PATIENCE);
    }
  }

  function leavePart(place) {
    parts.delete(place);
    asked.delete(place);
    setTimeout(askForNext); // what has just come may bring others near
  }

  /* Asks for a part when its turn comes; gives back what forgets its place. */
  window.htkAskInTurn = function (place, ask) {
    const part = { ask, isNear: false };
    parts.set(place, part);
    const forgetPlace = window.htkWhenNear(place, () => { part.isNear = true; askForNext(); });
    return () => { forgetPlace(); leavePart(place); };
  };

  window.htkAnswered = leavePart;

  window.addEventListener("beforeprint", () => { for (const element of [...waiting.keys()]) arrive(element, true); });
})();
