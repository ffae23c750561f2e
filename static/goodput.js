// What every page does in the browser: colours, times in the viewer's zone, live refresh, tips, copy. No dependency but
// htmx where a page loads it; everything works without this file except the remembered colours and the live refresh.
"use strict";
(() => {
  const root = document.documentElement;
  const each = (selector, within, act) => within.querySelectorAll(selector).forEach(act);

  // An app from the home screen has no browser bar (Safari says so by navigator.standalone, others by display-mode).
  const isApp = navigator.standalone === true || matchMedia("(display-mode: standalone), (display-mode: fullscreen)").matches;
  root.classList.toggle("app", isApp);

  // Colours: by system, override remembered in a cookie so that the server renders it and nothing flashes.
  const showTheme = () => {
    const now = root.dataset.theme || "system";
    each("[data-theme-set]", document, (b) => b.setAttribute("aria-pressed", String(b.dataset.themeSet === now)));
    each("meta[name=theme-color]", document, (m) => {
      m.dataset.media ||= m.media;
      const dark = m.dataset.media.includes("dark");
      m.media = now === "system" ? m.dataset.media : (now === "dark") === dark ? "all" : "not all";
    });
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-set]");
    if (!button) return;
    const theme = button.dataset.themeSet;
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `theme=${theme}; Path=/; SameSite=Lax; Max-Age=${theme === "system" ? 0 : 31536000}${secure}`;
    showTheme();
  });

  // A row of links that scrolls sideways begins at the page that is open.
  const bringIntoView = () => each("nav a[aria-current]", document, (entry) => {
    const row = entry.closest("nav");
    if (row.scrollWidth > row.clientWidth) row.scrollLeft = entry.offsetLeft - row.offsetLeft - (row.clientWidth - entry.offsetWidth) / 2;
  });

  // Menus close on Escape and on a click beside them.
  document.addEventListener("click", (event) => {
    each("details.menu[open]", document, (menu) => { if (!menu.contains(event.target)) menu.open = false; });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    hideTip();
    each("details.menu[open]", document, (menu) => { menu.open = false; menu.querySelector("summary").focus(); });
  });

  // Times: the server writes UTC into <time datetime>; here they become the viewer's zone, with UTC on hover. Words and
  // order stay those of the page, which is English: a date reads the same wherever it stands.
  const clocks = {
    clock: new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }),
    hm: new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
    day: new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" }),
    full: new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
    long: new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }),
  };
  const written = (format, at) => format.format(at).replace("Sept", "Sep"); // as the server writes it
  const localise = (within) => each("time[data-as]", within, (element) => {
    const at = new Date(element.dateTime);
    const format = clocks[element.dataset.as];
    if (!format || Number.isNaN(at.getTime())) return;
    element.title = at.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
    element.textContent = written(format, at);
  });

  // Ages count on from the server's own clock, so that a wrong clock in the viewer's machine shows no wrong age.
  let servedAt = 0;
  let readAt = 0;
  const age = (seconds) => seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min`
    : seconds < 172800 ? `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min` : `${Math.floor(seconds / 86400)} d ${Math.floor(seconds % 86400 / 3600)} h`;
  const grow = () => {
    if (!servedAt) return;
    const now = servedAt + performance.now() - readAt;
    each("[data-age]", document, (e) => {
      e.textContent = age(Math.max(0, Math.floor((now - Number(e.dataset.age)) / 1000)));
    });
  };

  // Live pages: refetched every data-every seconds while they are looked at, at once when the tab or app comes back.
  const live = () => document.getElementById("live");
  let fetchedAt = performance.now();
  let busy = false;
  const refresh = () => {
    if (!live() || !window.htmx || busy) return;
    busy = true;
    fetchedAt = performance.now();
    window.htmx.trigger(live(), "refresh");
  };
  const due = () => (performance.now() - fetchedAt) / 1000 >= Number(live()?.dataset.every || 15);
  const isTyping = () => document.activeElement?.matches("input, select, textarea") && live()?.contains(document.activeElement);
  const stale = (is) => each(".asof", document, (e) => {
    e.toggleAttribute("data-stale", is);
    const word = e.querySelector("[data-stale-word]");
    if (word) word.hidden = !is;
  });
  const arrive = () => {
    readAt = performance.now();
    servedAt = Number(live()?.dataset.asOf || 0);
    localise(document);
    each(".asof", document, (e) => { e.hidden = false; });
  };
  setInterval(() => {
    grow();
    if (document.visibilityState === "visible" && live() && due() && !isTyping()) refresh();
  }, 1000);
  document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible" && live()) refresh(); });
  window.addEventListener("pageshow", (event) => { if (event.persisted) refresh(); });
  window.addEventListener("online", refresh);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-refresh]") || !window.htmx || !live()) return;
    event.preventDefault();
    refresh();
  });
  document.addEventListener("htmx:afterRequest", (event) => { busy = false; stale(!event.detail.successful); });
  document.addEventListener("htmx:beforeSwap", (event) => {
    hideTip();
    if (new URL(event.detail.xhr.responseURL).pathname === location.pathname) return;
    event.detail.shouldSwap = false; // the session has ended: the answer is the login page, which is a page of its own
    location.reload();
  });
  document.addEventListener("htmx:afterSettle", arrive);

  // Tips: what a title says, at once and for the keyboard too.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  function hideTip() { tip.hidden = true; }
  const showTip = (element) => {
    if (element.title) { element.dataset.tip = element.title; element.removeAttribute("title"); }
    if (!element.dataset.tip) return;
    tip.textContent = element.dataset.tip;
    tip.hidden = false;
    const at = element.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const top = at.top - own.height - 6 > 60 ? at.top - own.height - 6 : at.bottom + 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  };
  const tipped = (target) => target instanceof Element ? target.closest(".tile[title], [data-tip], a.tiles[title]") : null;
  document.addEventListener("pointerover", (event) => { const e = tipped(event.target); if (e) showTip(e); else hideTip(); });
  document.addEventListener("focusin", (event) => { const e = tipped(event.target); if (e && e.matches(":focus-visible")) showTip(e); else hideTip(); });
  document.addEventListener("focusout", hideTip);
  document.addEventListener("scroll", hideTip, { passive: true });

  // A click on an hour's strip opens the slot under it; links beside the strip do the same for the keyboard.
  document.addEventListener("click", (event) => {
    const strip = event.target.closest("[data-slots-from]");
    if (!strip) return;
    const box = strip.getBoundingClientRect();
    const slot = Math.min(239, Math.max(0, Math.floor((event.clientX - box.left) / box.width * 240)));
    const at = new Date(Number(strip.dataset.slotsFrom) + slot * 15000).toISOString().replace(".000", "");
    location.assign(`${strip.dataset.slotsPath}?at=${at}#slot`);
  });

  // A click on the strip of a GPU opens the slot of that instant, and the hand over it reads which one that is. The
  // GPU's own link and the timeline's field for an instant do the same for the keyboard.
  const instantUnder = (strip, event) => {
    const box = strip.querySelector(".strip").getBoundingClientRect();
    const [from, to] = [Number(strip.dataset.spanFrom), Number(strip.dataset.spanTo)]; // slots of 15 s
    const slot = Math.floor(from + (to - from) * (event.clientX - box.left) / box.width);
    return new Date(Math.min(to - 1, Math.max(from, slot)) * 15000);
  };
  const spanned = (event) => event.target instanceof Element && event.target.closest(".strip")?.closest("[data-span-from]");
  document.addEventListener("click", (event) => {
    const strip = spanned(event);
    if (strip) location.assign(`${strip.dataset.spanPath}?at=${instantUnder(strip, event).toISOString().replace(".000", "")}#slot`);
  });
  document.addEventListener("pointermove", (event) => {
    const strip = event.pointerType === "mouse" && spanned(event);
    if (!strip) return;
    strip.dataset.tip = written(clocks.full, instantUnder(strip, event));
    showTip(strip);
  });

  // A tap on a bar of days opens the incidents of that day; the list below does the same for the keyboard.
  document.addEventListener("click", (event) => {
    const bars = event.target.closest("[data-days-from]");
    if (!bars) return;
    const box = bars.getBoundingClientRect();
    const days = bars.viewBox.baseVal.width / 10;
    const index = Math.min(days - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * days)));
    location.assign(bars.dataset.daysPath + new Date(Number(bars.dataset.daysFrom) + index * 864e5).toISOString().slice(0, 10));
  });

  // Copy buttons.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    const text = source.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2500);
  });

  document.addEventListener("DOMContentLoaded", () => {
    document.body.append(tip);
    showTheme();
    bringIntoView();
    arrive();
  });
})();
