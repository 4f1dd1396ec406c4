// Keyboard, times in the person's zone, and what is told while the page is open. Everything else works without this file.
(() => {
  const choices = () => [...document.querySelectorAll("[data-question], [data-row]")];
  const chosen = () => document.querySelector("[data-chosen]");

  const mark = (element) => {
    chosen()?.removeAttribute("data-chosen");
    element.setAttribute("data-chosen", "");
  };
  // What has the focus is what keys answer: by a click or Tab too.
  document.addEventListener("focusin", (event) => {
    const element = event.target.closest?.("[data-question], [data-row]");
    if (element) mark(element);
  });

  const choose = (step) => {
    const all = choices();
    if (!all.length) return;
    const at = all.indexOf(chosen());
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    mark(next);
    // A folded question is opened before it can be answered.
    next.querySelector("details[data-fold]")?.setAttribute("open", "");
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  // Options of the chosen question, or of the only question.
  const options = () => {
    const questions = document.querySelectorAll("[data-question]");
    const question = chosen() ?? (questions.length === 1 ? questions[0] : null);
    // What is folded was not read, so no key answers it.
    const isShown = (button) => !button.closest("details:not([open])");
    return question ? [...question.querySelectorAll("[data-option]")].filter(isShown) : [];
  };
  const press = (names) => options().find((button) => names.includes(button.dataset.option))?.click();

  // What has just come to where another question was is not read yet: for a moment no press answers it. So a second click, or a
  // question that is closed while the pointer is on its button, never answers the next one.
  const SETTLE_MS = 600;
  let movedAt = -SETTLE_MS;
  let settling = 0;
  const settle = () => {
    movedAt = performance.now();
    document.body.dataset.settling = "";
    clearTimeout(settling);
    settling = setTimeout(() => { delete document.body.dataset.settling; }, SETTLE_MS);
  };
  if (document.querySelector("[data-done]")) settle();
  const listPlaces = () =>
    [...document.querySelectorAll("[data-question]")].map((question) => `${question.id} ${Math.round(question.getBoundingClientRect().top + scrollY)}`);
  let places = listPlaces();
  const noteMove = () => {
    const now = listPlaces();
    if (now.some((place, index) => index < places.length && place !== places[index])) settle();
  };
  const moving = (change) => {
    places = listPlaces();
    change();
    noteMove();
  };
  const isTooSoon = (form) => form.closest("[data-question], #several") && performance.now() - movedAt < SETTLE_MS;
  // A form that was sent is not sent again by the second half of a double click. One that signs says itself when it is sent.
  const sent = new Set();
  window.addEventListener("submit", (event) => {
    if (!isTooSoon(event.target) && !sent.has(event.target)) return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
  window.addEventListener("submit", (event) => { if (!event.defaultPrevented && event.target.method === "post") sent.add(event.target); });
  window.addEventListener("pageshow", () => sent.clear());

  // Answers all marked permissions together.
  const decide = (decision) => {
    if (document.querySelector("[data-pick]:checked")) document.querySelector(`#several [value="${decision}"]`)?.click();
  };

  const actions = {
    j: () => choose(1),
    k: () => choose(-1),
    a: () => press(["allow", "yes", "approve"]),
    d: () => press(["deny", "no", "refuse"]),
    x: () => chosen()?.querySelector("[data-pick]")?.click(),
    A: () => decide("allow"),
    D: () => decide("deny"),
    "?": () => document.getElementById("keys")?.showModal(),
    "/": () => {
      const field = document.querySelector("input[type=search]");
      if (field) field.focus();
      else location.assign("/search");
    },
  };

  // A button, a folded part and a mark need only Enter and Space.
  const isTyping = (element) => element.closest("input:not([type=checkbox]), textarea, select, dialog");
  document.addEventListener("keydown", (event) => {
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    const isDigit = /^[1-9]$/.test(event.key);
    const action = actions[event.key] ?? (isDigit ? () => options()[event.key - 1]?.click() : null);
    if (!action) return;
    event.preventDefault();
    // A key that is held answers once; only going on is repeated.
    if (!event.repeat || "jk".includes(event.key)) action();
  });

  const showKeysButton = () => {
    const button = document.querySelector("[data-keys]");
    if (button) button.hidden = false;
  };
  document.addEventListener("click", (event) => { if (event.target.closest?.("[data-keys]")) actions["?"](); });

  // Times in the zone of this browser, in the words of the server, and current while the page is open. The clock of the server
  // counts: that of a phone may differ.
  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const REFRESH_MS = 5000;
  let ahead = 0;
  const describeDistance = (moment, now) => {
    const seconds = Math.floor(Math.abs(now - moment) / 1000);
    const [unit, size] = UNITS.find(([, size]) => seconds >= size) ?? UNITS.at(-1);
    const count = Math.floor(seconds / size);
    const words = `${count} ${unit}${count === 1 ? "" : "s"}`;
    return count ? (moment > now ? `in ${words}` : `${words} ago`) : "now";
  };
  const describeMoment = (moment, now) => {
    const isToday = moment.toDateString() === now.toDateString();
    return moment.toLocaleString(undefined, isToday ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
  };
  const DAY_MS = 86400000;
  const describeDuration = (moment, now) => {
    const ms = Math.max(0, now - moment);
    const [days, hours, minutes, seconds] = [ms / DAY_MS, (ms / 3600000) % 24, (ms / 60000) % 60, (ms / 1000) % 60].map(Math.floor);
    const parts = ms < 10000 ? [[(ms / 1000).toFixed(1), "s"]] : [[days, days === 1 ? "day" : "days"], [hours, "h"], [minutes, "min"], [seconds, "s"]];
    const first = parts.findIndex(([count]) => Number(count));
    // The largest unit and the next: nobody needs the seconds of a day.
    return parts.slice(Math.max(0, first)).slice(0, 2).filter(([count], index) => !index || count).map((part) => part.join(" ")).join(" ");
  };
  const TEXTS = {
    lasting: describeDuration,
    relative: describeDistance,
    absolute: describeMoment,
    both: (moment, now) => `${describeDistance(moment, now)} · ${describeMoment(moment, now)}`,
  };
  const showTimes = () => {
    const now = new Date(Date.now() + ahead);
    for (const element of document.querySelectorAll("time[data-time]")) {
      const moment = new Date(element.dateTime);
      const text = TEXTS[element.dataset.time](moment, now);
      if (element.textContent !== text) element.textContent = text;
      element.title = moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
    }
  };
  const showZone = () => {
    const zone = document.querySelector("[data-zone]");
    if (zone) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "your zone";
  };
  const readClock = () => {
    const now = Number(document.getElementById("state")?.dataset.now ?? 0);
    if (now) ahead = now - Date.now();
  };
  setInterval(() => { if (!document.hidden) showTimes(); }, REFRESH_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) showTimes(); });

  // An event may arrive while the page is being replaced: it reads itself again until it shows the newest position.
  const stream = document.getElementById("stream");
  let newest = 0;
  stream?.addEventListener("changed", (event) => { newest = Math.max(newest, Number(event.detail?.id ?? 0)); });
  const catchUp = () => {
    if (stream && Number(document.getElementById("state")?.dataset.position ?? 0) < newest) htmx.trigger(stream, "changed", { id: newest });
  };
  document.addEventListener("htmx:error", () => setTimeout(catchUp, 1000));
  // Whether this page is live, said where it can be seen. The server may be away, have too many pages, or want a new sign-in.
  const MOST_RETRY_MS = 30000;
  let retryMs = 2000;
  const offline = document.getElementById("offline");
  let isSignedOut = false;
  const tellOffline = (name) => moving(() => {
    for (const element of offline?.children ?? []) element.hidden = element.dataset.offline !== name;
    if (offline) offline.hidden = !name;
  });
  const noteStatus = (status) => {
    isSignedOut ||= status === 401;
    tellOffline(isSignedOut ? "signed-out" : status === 503 ? "full" : "away");
  };
  document.addEventListener("htmx:sse:after:connection", () => tellOffline(""));
  document.addEventListener("htmx:sse:error", (event) => noteStatus(event.detail.status));
  // Who is signed out asks no more.
  document.addEventListener("htmx:sse:before:connection", (event) => { if (isSignedOut) event.preventDefault(); });
  document.addEventListener("htmx:before:swap", (event) => {
    if (event.detail.ctx?.response?.status !== 401) return;
    event.preventDefault();
    noteStatus(401);
  });
  // A connection that is lost is made again by the extension; a first one that failed is not.
  stream?.addEventListener("htmx:response:error", (event) => noteStatus(event.detail.ctx?.response?.status));
  stream?.addEventListener("htmx:error", () => noteStatus());
  stream?.addEventListener("htmx:finally:request", () => {
    if (stream._htmx?.sse || isSignedOut) return;
    setTimeout(() => htmx.trigger(stream, "connect"), retryMs);
    retryMs = Math.min(2 * retryMs, MOST_RETRY_MS);
  });

  // A question that somebody else closes while this person has it in hand: the page says who did, and keeps what was written.
  const news = document.getElementById("news");
  let inHand = new Map();
  const readText = (question) => question.querySelector("textarea")?.value.trim() ?? "";
  const isInHand = (question) =>
    question.hasAttribute("data-chosen") || question.contains(document.activeElement) || question.querySelector("[data-pick]:checked") || readText(question);
  const tellClosed = async (id, text) => {
    const answered = await fetch(`/inbox/${encodeURIComponent(id)}`);
    const found = new DOMParser().parseFromString(await answered.text(), "text/html");
    const note = document.getElementById("closed-note").content.cloneNode(true);
    note.querySelector("[data-title]").textContent = found.querySelector(".question h2")?.textContent ?? "";
    // With its elements: a time among them is shown in the zone of the person.
    note.querySelector("[data-answer]").append(...(found.querySelector(".answer")?.childNodes ?? []));
    note.querySelector("a").href = `/inbox/${encodeURIComponent(id)}`;
    note.querySelector("[data-written]").hidden = !text;
    note.querySelector("[data-written] span").textContent = text;
    moving(() => news.append(note));
    showTimes();
  };
  document.addEventListener("htmx:before:swap", () => {
    places = listPlaces();
    inHand = new Map([...document.querySelectorAll("[data-question]")].filter(isInHand).map((question) => [question.id, readText(question)]));
  });
  document.addEventListener("htmx:after:swap", () => {
    noteMove();
    for (const [id, text] of inHand) if (!document.getElementById(id)?.querySelector("form")) tellClosed(id, text);
    inHand = new Map();
  });
  document.addEventListener("click", (event) => { event.target.closest?.("[data-dismiss]")?.closest("[data-note]").remove(); });

  // A notification of the desktop, if the person has asked this browser for them. It holds no text of an agent.
  const NOTIFY = "fidelio-notify";
  const canNotify = () => "Notification" in window && Notification.permission !== "denied";
  const wantsNotices = () => canNotify() && Notification.permission === "granted" && localStorage.getItem(NOTIFY) === "yes";
  const showNotifyButton = () => {
    const button = document.querySelector("[data-notify]");
    if (!button) return;
    button.hidden = !canNotify();
    button.textContent = wantsNotices() ? "Do not notify me any more" : "Notify me on this desktop";
  };
  document.addEventListener("click", async (event) => {
    if (!event.target.closest?.("[data-notify]")) return;
    if (wantsNotices()) localStorage.removeItem(NOTIFY);
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(NOTIFY, "yes");
    showNotifyButton();
  });
  let lastWaiting = null;
  const notify = (waiting) => {
    const isMore = lastWaiting !== null && waiting > lastWaiting;
    lastWaiting = waiting;
    if (!isMore || !document.hidden || !wantsNotices()) return;
    const notice = new Notification("Fidelio", { body: waiting === 1 ? "A question waits for you." : `${waiting} questions wait for you.`, tag: "fidelio" });
    notice.onclick = () => { window.focus(); location.assign("/inbox"); };
  };

  // The count in the icon of the tab.
  const icon = document.querySelector("link[rel=icon]");
  const plainIcon = icon?.href;
  const drawIcon = (waiting) => {
    if (!icon) return;
    const count = waiting > 99 ? "99" : String(waiting);
    const drawn = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="9" fill="#92500a"/><text x="16" y="23" font-family="sans-serif" font-weight="700" font-size="20" text-anchor="middle" fill="#fff">${count}</text></svg>`;
    icon.href = waiting ? `data:image/svg+xml,${encodeURIComponent(drawn)}` : plainIcon;
  };

  // Drawings: larger and smaller, and moved by dragging. An activity is a link, so it needs nothing of this.
  let zoom = 1;
  const centred = new WeakSet();
  // The part of each picture that is in the middle of its area, as fractions of the picture.
  const listMiddles = () => [...document.querySelectorAll(".drawing")].map((area) => {
    const [box, picture] = [area, area.querySelector("svg")].map((each) => each.getBoundingClientRect());
    return { x: (box.left + box.width / 2 - picture.left) / picture.width, y: (box.top + box.height / 2 - picture.top) / picture.height };
  });
  const moveTo = (area, { x, y }) => {
    const [box, picture] = [area, area.querySelector("svg")].map((each) => each.getBoundingClientRect());
    area.scrollLeft = Math.round(area.scrollLeft + picture.left + x * picture.width - box.left - box.width / 2);
    area.scrollTop = Math.round(area.scrollTop + picture.top + y * picture.height - box.top - box.height / 2);
  };
  const centre = (area) => {
    if (centred.has(area) || area.scrollWidth <= area.clientWidth) return;
    centred.add(area);
    const box = (area.querySelector(".current") ?? area.querySelector(".start") ?? area).getBoundingClientRect();
    area.scrollLeft += box.left + box.width / 2 - area.getBoundingClientRect().left - area.clientWidth / 2;
  };
  // `middles`: what stays in the middle of each area, while its picture gets another size or is replaced by an update.
  const showDrawings = (middles = []) => {
    for (const [index, drawing] of document.querySelectorAll("[data-drawing]").entries()) {
      drawing.querySelector("[data-zoom]").hidden = false;
      const picture = drawing.querySelector("svg");
      picture.style.width = picture.style.maxWidth = "";
      const fitted = picture.getBoundingClientRect().width;
      if (zoom !== 1) Object.assign(picture.style, { width: `${zoom * fitted}px`, maxWidth: "none" });
      const area = drawing.querySelector(".drawing");
      centre(area);
      if (middles[index]) moveTo(area, middles[index]);
    }
  };
  let dragging = null;
  let dragged = false;
  document.addEventListener("click", (event) => {
    const by = event.target.closest?.("[data-zoom-by]")?.dataset.zoomBy;
    if (by !== undefined) {
      const middles = listMiddles();
      zoom = Number(by) ? Math.min(6, Math.max(0.25, zoom * Number(by))) : 1;
      showDrawings(middles);
    }
    if (dragged && event.target.closest?.(".drawing")) event.preventDefault();
  });
  document.addEventListener("dragstart", (event) => { if (event.target.closest?.(".drawing")) event.preventDefault(); });
  document.addEventListener("pointerdown", (event) => {
    const area = event.target.closest?.(".drawing");
    dragged = false;
    if (area && event.pointerType === "mouse") dragging = { area, x: event.clientX, y: event.clientY, left: area.scrollLeft, top: area.scrollTop };
  });
  document.addEventListener("pointermove", (event) => {
    if (!dragging) return;
    dragged ||= Math.hypot(event.clientX - dragging.x, event.clientY - dragging.y) > 4;
    dragging.area.scrollLeft = dragging.left - (event.clientX - dragging.x);
    dragging.area.scrollTop = dragging.top - (event.clientY - dragging.y);
  });
  document.addEventListener("pointerup", () => { dragging = null; });

  let middles = [];
  document.addEventListener("htmx:before:swap", () => { middles = listMiddles(); });
  const update = () => {
    readClock();
    showTimes();
    showDrawings(middles);
    catchUp();
    showNotifyButton();
    showKeysButton();
    const waiting = Number(document.getElementById("state")?.dataset.waiting ?? 0);
    // Only the number changes: replacing the menu would take the focus of who walks through it with the keyboard.
    const count = document.querySelector("#menu .count");
    if (count) {
      count.hidden = !waiting;
      count.textContent = waiting;
      count.setAttribute("aria-label", `${waiting} waiting`);
    }
    drawIcon(waiting);
    notify(waiting);
    document.title = document.title.replace(/^\(\d+\) /, "");
    if (waiting) document.title = `(${waiting}) ${document.title}`;
  };

  document.addEventListener("htmx:after:swap", update);
  showZone();
  update();
})();
