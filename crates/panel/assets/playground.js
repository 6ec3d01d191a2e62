// The playground: shows the answer of a model while it comes. Without this the form gets a page with the whole answer.

const form = document.querySelector("[data-playground]");

if (form) {
  const messages = form.querySelector(".messages");
  const status = form.querySelector(".chat-status");
  const prompt = form.elements.prompt;
  const stop = form.querySelector("[data-stop]");
  const send = form.querySelector("[data-send]");
  let history = JSON.parse(form.elements.history.value || "[]");
  let running = null;

  const add = (kind, speaker, text) => {
    messages.querySelector(".messages-empty")?.remove();
    const item = document.createElement("li");
    const name = document.createElement("b");
    const body = document.createElement("div");
    item.className = `message ${kind}`;
    name.textContent = speaker;
    body.className = "message-text";
    body.textContent = text;
    item.append(name, body);
    messages.append(item);
    messages.scrollTop = messages.scrollHeight;
    return body;
  };

  const say = (text, isProblem, link) => {
    const line = document.createElement("p");
    line.className = isProblem ? "problem" : "hint";
    if (isProblem) line.setAttribute("role", "alert");
    line.textContent = text;
    if (link) {
      const anchor = document.createElement("a");
      anchor.href = link;
      anchor.textContent = "See the call";
      line.append(text ? " · " : "", anchor);
    }
    status.replaceChildren(line);
  };

  // The page of a call, by the header of its response.
  const callLink = (response) => {
    const id = response.headers.get("x-estrade-call");
    const workspace = form.elements.target.value.split(".")[1];
    if (!id || !/^[0-9a-f]{24}$/.test(id) || !/^[0-9a-f]{24}$/.test(workspace ?? "")) return "";
    const calls = new URL(form.dataset.calls, location.href);
    calls.pathname += `/${workspace}/${id}`;
    return calls.href;
  };

  // Server-sent events: lines that begin with `data:`, until an empty one.
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const parts = rest.split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
        if (data && data !== "[DONE]") yield JSON.parse(data);
      }
    }
  }

  async function call() {
    const fields = new URLSearchParams(new FormData(form));
    const question = prompt.value;
    const started = performance.now();
    running = new AbortController();
    send.disabled = true;
    stop.hidden = false;
    status.replaceChildren();
    let answer = null;
    let text = "";
    let link = "";
    try {
      const response = await fetch(form.action, { method: "POST", body: fields, headers: { accept: "text/event-stream" }, signal: running.signal });
      link = callLink(response);
      if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
        const body = await response.json().catch(() => null);
        throw new Error(body?.error?.message ?? (response.status === 401 ? "Your session has ended: sign in again." : `The call was refused (${response.status}).`));
      }
      add("user", "You", question);
      answer = add("assistant", "Model", "");
      answer.setAttribute("aria-busy", "true");
      prompt.value = "";
      let usage = null;
      for await (const event of events(response)) {
        if (event.error) throw new Error(event.error.message ?? "The provider broke off.");
        text += event.choices?.[0]?.delta?.content ?? "";
        answer.textContent = text;
        messages.scrollTop = messages.scrollHeight;
        usage = event.usage ?? usage;
      }
      const took = `${Math.round(performance.now() - started).toLocaleString("en")} ms`;
      say(usage ? `${usage.total_tokens.toLocaleString("en")} tokens · ${took}` : took, false, link);
    } catch (error) {
      if (error.name === "AbortError") say("Stopped.", false, link);
      else say(error.message, true, link);
    } finally {
      answer?.removeAttribute("aria-busy");
      if (answer && text) {
        history = [...history, { role: "user", content: question }, { role: "assistant", content: text }];
        form.elements.history.value = JSON.stringify(history);
      }
      running = null;
      send.disabled = false;
      stop.hidden = true;
      delete form.dataset.sent;
      form.removeAttribute("aria-busy");
      prompt.focus();
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) call();
  }, { capture: true });
  stop.addEventListener("click", () => running?.abort());
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });

  // Only the models that the chosen key may use.
  const models = form.elements.model;
  const all = [...models.options];
  const narrow = () => {
    const allowed = form.elements.target.selectedOptions[0]?.dataset.models;
    const ids = allowed ? JSON.parse(allowed) : null;
    const chosen = models.value;
    const offered = all.filter((option) => !ids || ids.includes(option.value));
    models.replaceChildren(...offered);
    if (offered.some((option) => option.value === chosen)) models.value = chosen;
  };
  form.elements.target.addEventListener("change", narrow);
  narrow();
  messages.scrollTop = messages.scrollHeight;
}
