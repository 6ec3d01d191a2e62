// Follows a log: lines that come are added to the <pre> that the server rendered. What a line says is only ever set as
// text.

const MAX_LINES = 3000;

for (const card of document.querySelectorAll("[data-tail]")) follow(card);

function follow(card) {
  const log = card.querySelector("pre.log");
  const state = card.querySelector("[data-state]");
  const pause = card.querySelector("[data-pause]");
  const filter = card.querySelector("input[data-filter]");
  const placeholder = card.querySelector("[data-placeholder]");
  const waiting = [];
  let paused = false;
  let scheduled = false;

  const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const say = (kind, text) => {
    state.hidden = false;
    state.className = `badge ${kind}`;
    state.textContent = text;
  };
  const wanted = (line) => !filter || filter.value === "" || line.textContent.toLowerCase().includes(filter.value.toLowerCase());

  function span(name, text) {
    const part = document.createElement("span");
    part.className = name;
    part.textContent = text;
    return part;
  }

  function render({ at, instance, text, isError }) {
    const line = document.createElement("span");
    line.className = isError ? "line err" : "line";
    if (at) line.append(span("t", at), " ");
    if (instance) line.append(span("g", instance), " ");
    line.append(text, "\n");
    line.hidden = !wanted(line);
    return line;
  }

  function flush() {
    scheduled = false;
    if (paused || waiting.length === 0) return;
    const stick = isAtEnd();
    if (placeholder) placeholder.hidden = true;
    log.hidden = false;
    log.append(...waiting.splice(0).slice(-MAX_LINES).map(render));
    while (log.childElementCount > MAX_LINES) log.firstElementChild.remove();
    if (stick) log.scrollTop = log.scrollHeight;
  }

  function schedule() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(flush);
  }

  const source = new EventSource(card.dataset.tail);
  source.addEventListener("open", () => say("ok", paused ? "Paused" : "Live"));
  source.addEventListener("error", () => say("warn", source.readyState === EventSource.CLOSED ? "Ended" : "Reconnecting"));
  source.addEventListener("line", (event) => {
    waiting.push(JSON.parse(event.data));
    if (waiting.length > MAX_LINES) waiting.splice(0, waiting.length - MAX_LINES);
    if (!paused) schedule();
  });
  source.addEventListener("state", (event) => say("busy", event.data));
  source.addEventListener("end", () => {
    source.close();
    flush();
    // The page knows what to do next: roll back, see why, open the site.
    location.reload();
  });
  addEventListener("pagehide", () => source.close());

  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.textContent = paused ? "Resume" : "Pause";
      pause.setAttribute("aria-pressed", String(paused));
      say(paused ? "off" : "ok", paused ? "Paused" : "Live");
      schedule();
    });
  }
  if (filter) {
    filter.addEventListener("input", () => {
      for (const line of log.querySelectorAll(".line")) line.hidden = !wanted(line);
    });
  }
  log.scrollTop = log.scrollHeight;
}
