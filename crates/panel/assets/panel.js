// Small comforts of every page. Everything here is optional: the panel works without it.

const toasts = document.getElementById("toasts");

function toast(text) {
  if (!toasts) return;
  const line = document.createElement("p");
  line.className = "toast";
  line.textContent = text;
  toasts.append(line);
  setTimeout(() => line.remove(), 6000);
}

for (const line of document.querySelectorAll(".toast")) setTimeout(() => line.remove(), 8000);

// On a phone the tabs are wider than the screen: show the one that is open.
function showOpenTab() {
  for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
    const bar = tab.closest(".tabs");
    bar.scrollLeft = tab.offsetLeft - bar.offsetLeft - (bar.clientWidth - tab.offsetWidth) / 2;
  }
}
showOpenTab();
addEventListener("resize", showOpenTab);

function select(source) {
  // What a text field holds is no part of the page's text.
  if (source.select) return source.select();
  const range = document.createRange();
  range.selectNodeContents(source);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}

// Copy buttons.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    const text = source.value ?? source.textContent;
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      // Without TLS there is no clipboard: select it, so that one key copies it.
      select(source);
      const copied = document.execCommand && document.execCommand("copy");
      toast(copied ? "Copied" : "Press Ctrl+C to copy");
    }
  });
}

// Dialogs: a link opens one instead of its page.
for (const link of document.querySelectorAll("[data-dialog]")) {
  link.addEventListener("click", (event) => {
    const dialog = document.getElementById(link.dataset.dialog);
    if (!dialog || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    dialog.showModal();
  });
}
for (const button of document.querySelectorAll("dialog [data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}

// Menus close with Escape and with a click elsewhere.
const menus = document.querySelectorAll("details.menu");
document.addEventListener("click", (event) => {
  for (const menu of menus) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of menus) {
    if (!menu.open) continue;
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// A form is sent once, and says that it is on its way.
for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", (event) => {
    if (event.defaultPrevented) return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "1";
    form.setAttribute("aria-busy", "true");
  });
}
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) {
    delete form.dataset.sent;
    form.removeAttribute("aria-busy");
  }
});

// Selects and switches that send their form at once.
for (const field of document.querySelectorAll("[data-submit]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}

// Offline.
const offline = document.getElementById("offline");
if (offline) {
  const show = () => { offline.hidden = navigator.onLine; };
  addEventListener("online", show);
  addEventListener("offline", show);
  show();
}

// Shortcuts.
const places = { p: document.body.dataset.projects, k: document.body.dataset.keys, u: document.body.dataset.usage };
let waiting = 0;
document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "?") {
    document.getElementById("shortcuts")?.showModal();
  } else if (event.key === "g") {
    waiting = Date.now();
    return;
  } else if (Date.now() - waiting < 1500 && places[event.key]) {
    location.assign(places[event.key]);
  }
  waiting = 0;
});

// The value under the pointer of a plot. Who has no pointer finds all of them in the table below it.
for (const figure of document.querySelectorAll("figure.plot[data-hover]")) {
  const texts = figure.dataset.hover.split("|");
  const area = figure.querySelector(".plot-area");
  if (!area || !figure.dataset.hover) continue;
  area.removeAttribute("title");
  const output = document.createElement("output");
  const mark = document.createElement("span");
  output.className = "plot-value";
  mark.className = "plot-mark";
  output.hidden = mark.hidden = true;
  area.append(mark, output);
  const show = (share) => {
    const isBars = figure.querySelector(".bar") !== null;
    const last = texts.length - 1;
    const index = isBars
      ? Math.min(last, Math.floor(share * texts.length))
      : Math.round(share * last);
    const at = isBars ? (index + 0.5) / texts.length : index / Math.max(1, last);
    output.textContent = texts[index];
    output.hidden = mark.hidden = false;
    mark.style.left = `${at * 100}%`;
    output.classList.toggle("right", at > 0.5);
    output.style.left = at > 0.5 ? "auto" : `${at * 100}%`;
    output.style.right = at > 0.5 ? `${(1 - at) * 100}%` : "auto";
  };
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    show(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  });
  area.addEventListener("pointerleave", () => { output.hidden = mark.hidden = true; });
}
