// Keyboard, times in the person's zone, and the title. Everything but these and live updates works without this file.
(() => {
  const choices = () => [...document.querySelectorAll("[data-question], [data-row]")];
  const chosen = () => document.querySelector("[data-chosen]");

  const choose = (step) => {
    const all = choices();
    if (!all.length) return;
    const at = all.indexOf(chosen());
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    all.forEach((element) => element.removeAttribute("data-chosen"));
    next.setAttribute("data-chosen", "");
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  // Options of the chosen question, or of the only question.
  const options = () => {
    const questions = document.querySelectorAll("[data-question]");
    const question = chosen() ?? (questions.length === 1 ? questions[0] : null);
    return question ? [...question.querySelectorAll("[data-option]")] : [];
  };
  const press = (names) => options().find((button) => names.includes(button.dataset.option))?.click();

  const actions = {
    j: () => choose(1),
    k: () => choose(-1),
    a: () => press(["allow", "yes", "approve"]),
    d: () => press(["deny", "no", "refuse"]),
    x: () => chosen()?.querySelector("[data-pick]")?.click(),
    "?": () => document.getElementById("keys")?.showModal(),
    "/": () => {
      const field = document.querySelector("input[type=search]");
      if (field) field.focus();
      else location.assign("/search");
    },
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select, button, summary, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = actions[event.key] ?? (/^[1-9]$/.test(event.key) ? () => options()[event.key - 1]?.click() : null);
    if (!action) return;
    event.preventDefault();
    action();
  });

  // The moment in the zone of this browser.
  const localize = () => {
    for (const element of document.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.dateTime);
      if (!Number.isNaN(moment.valueOf())) element.title = moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
    }
  };

  // An event may arrive while the page is being replaced: it reads itself again until it shows the newest position.
  const stream = document.getElementById("stream");
  let newest = 0;
  stream?.addEventListener("changed", (event) => { newest = Math.max(newest, Number(event.detail?.id ?? 0)); });
  const catchUp = () => {
    if (stream && Number(document.getElementById("state")?.dataset.position ?? 0) < newest) htmx.trigger(stream, "changed", { id: newest });
  };
  document.addEventListener("htmx:error", () => setTimeout(catchUp, 1000));
  // A connection that is lost is made again by the extension; a first one that failed is not.
  stream?.addEventListener("htmx:finally:request", () => {
    if (!stream._htmx?.sse) setTimeout(() => htmx.trigger(stream, "connect"), 2000);
  });

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
  const centre = (area) => {
    if (centred.has(area) || area.scrollWidth <= area.clientWidth) return;
    centred.add(area);
    const box = (area.querySelector(".current") ?? area.querySelector(".start") ?? area).getBoundingClientRect();
    area.scrollLeft += box.left + box.width / 2 - area.getBoundingClientRect().left - area.clientWidth / 2;
  };
  const showDrawings = () => {
    for (const drawing of document.querySelectorAll("[data-drawing]")) {
      drawing.querySelector("[data-zoom]").hidden = false;
      const picture = drawing.querySelector("svg");
      picture.style.width = picture.style.maxWidth = "";
      const fitted = picture.getBoundingClientRect().width;
      if (zoom !== 1) Object.assign(picture.style, { width: `${zoom * fitted}px`, maxWidth: "none" });
      centre(drawing.querySelector(".drawing"));
    }
  };
  let dragging = null;
  let dragged = false;
  document.addEventListener("click", (event) => {
    const by = event.target.closest?.("[data-zoom-by]")?.dataset.zoomBy;
    if (by !== undefined) {
      zoom = Number(by) ? Math.min(6, Math.max(0.25, zoom * Number(by))) : 1;
      showDrawings();
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

  const update = () => {
    localize();
    showDrawings();
    catchUp();
    showNotifyButton();
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
  update();
})();
