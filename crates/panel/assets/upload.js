// Deploys a folder or an archive that is dropped or picked, with a progress bar. Of a folder only those files are sent
// that the server does not have: it is told their BLAKE3 hashes first, and answers which ones it misses.

const SKIPPED_FOLDERS = new Set([".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"]);
const SKIPPED_FILES = new Set([".DS_Store", "Thumbs.db"]);
const MAX_FILES = 20000;
const PARALLEL_UPLOADS = 4;
const MAX_ROUNDS = 3;

const area = document.querySelector("[data-upload]");
if (area) start(area);

function start(area) {
  const { blobs, release, archive, blake3, page } = area.dataset;
  const csrf = document.body.dataset.csrf;
  const drop = area.querySelector(".drop");
  const picker = area.querySelector("input[data-folder]");
  const archives = area.querySelector("input[data-archive]");
  const bar = area.querySelector("progress");
  const status = area.querySelector("[data-status]");
  const problem = area.querySelector("[data-problem]");
  const message = area.querySelector("input[name=message]");
  let busy = false;

  area.hidden = false;
  // What it takes, this area takes, too.
  for (const form of document.querySelectorAll("[data-without-upload]")) form.hidden = true;

  const say = (text) => { status.textContent = text; };
  const show = (done, total) => {
    bar.hidden = false;
    bar.max = Math.max(1, total);
    bar.value = done;
  };

  async function deploy(work) {
    if (busy) return;
    busy = true;
    problem.hidden = true;
    drop.setAttribute("aria-busy", "true");
    addEventListener("beforeunload", warn);
    try {
      const id = await work();
      removeEventListener("beforeunload", warn);
      say("Done. Opening the release…");
      location.assign(page.replace("RELEASE", id));
    } catch (error) {
      removeEventListener("beforeunload", warn);
      bar.hidden = true;
      say("");
      problem.textContent = error.message;
      problem.hidden = false;
      problem.focus();
      busy = false;
      drop.removeAttribute("aria-busy");
    }
  }

  async function deployFolder(files) {
    if (files.length === 0) throw new Error("This folder has no files.");
    if (files.length > MAX_FILES) throw new Error(`This folder has more than ${MAX_FILES} files. Drop what is built, not its sources and packages.`);
    const total = files.reduce((sum, { file }) => sum + file.size, 0);
    const { hashFile } = await import(blake3);
    const manifest = [];
    const byDigest = new Map();
    let hashed = 0;
    for (const { path, file } of files) {
      const digest = await hashFile(file, (bytes) => {
        hashed += bytes;
        show(hashed, total);
        say(`Reading ${count(files.length, "file")}, ${size(total)}`);
      });
      manifest.push({ path, digest, size: file.size });
      byDigest.set(digest, file);
    }
    const body = JSON.stringify({ files: manifest, message: message.value || undefined });
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const reply = await fetch(release, {
        method: "POST",
        body,
        headers: { "content-type": "application/json", accept: "application/json", "x-csrf-token": csrf },
      });
      const answer = await read(reply.status, await reply.text());
      if (answer.releaseID) return answer.releaseID;
      await sendMissing(answer.data.files, byDigest);
    }
    throw new Error("The server still misses files. Try again in a moment.");
  }

  async function sendMissing(missing, byDigest) {
    const queue = missing.map(({ digest, path }) => {
      const file = byDigest.get(digest);
      if (!file) throw new Error(`${path} changed while it was read. Try again.`);
      return { digest, file };
    });
    const total = queue.reduce((sum, { file }) => sum + file.size, 0);
    const sent = new Map();
    let done = 0;
    const progress = (digest, bytes) => {
      done += bytes - (sent.get(digest) ?? 0);
      sent.set(digest, bytes);
      show(done, total);
    };
    show(0, total);
    say(`Sending ${count(queue.length, "changed file")}, ${size(total)}`);
    const sender = async () => {
      for (let next = queue.shift(); next; next = queue.shift()) {
        const { digest, file } = next;
        await send("PUT", blobs.replace("DIGEST", digest), file, (bytes) => progress(digest, bytes));
        progress(digest, file.size);
      }
    };
    await Promise.all(Array.from({ length: PARALLEL_UPLOADS }, sender));
    say("Creating the release…");
  }

  async function deployArchive(file) {
    const form = new FormData();
    form.append("csrf", csrf);
    form.append("message", message.value);
    form.append("file", file);
    say(`Sending ${file.name}, ${size(file.size)}`);
    const answer = await send("POST", archive, form, (bytes) => show(Math.min(bytes, file.size), file.size));
    return answer.releaseID;
  }

  // XMLHttpRequest and not fetch, which does not tell how much was sent.
  function send(method, url, body, seen) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open(method, url);
      request.setRequestHeader("accept", "application/json");
      request.setRequestHeader("x-csrf-token", csrf);
      if (body instanceof Blob) request.setRequestHeader("content-type", "application/octet-stream");
      request.upload.addEventListener("progress", (event) => seen(event.loaded));
      request.addEventListener("load", () => read(request.status, request.responseText).then(resolve, reject));
      request.addEventListener("error", () => reject(new Error("The connection was lost. What was sent is kept: try again.")));
      request.send(body);
    });
  }

  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const [first] = event.dataTransfer.files;
    deploy(async () => {
      if (entries.length === 1 && entries[0].isFile && isArchive(first.name)) return deployArchive(first);
      return deployFolder(await readEntries(entries));
    });
  });
  picker.addEventListener("change", () => {
    const files = [...picker.files].map((file) => {
      // The first segment is the name of the folder itself.
      const path = file.webkitRelativePath.split("/").slice(1).join("/") || file.name;
      return { path, file };
    });
    deploy(() => deployFolder(files.filter(({ path }) => isWanted(path))));
  });
  archives.addEventListener("change", () => {
    if (archives.files.length > 0) deploy(() => deployArchive(archives.files[0]));
  });
}

function warn(event) {
  event.preventDefault();
}

const isArchive = (name) => /\.(zip|tgz|tar\.gz)$/i.test(name);

function isWanted(path) {
  const segments = path.split("/");
  const name = segments.pop();
  return !SKIPPED_FILES.has(name) && !segments.some((folder) => SKIPPED_FOLDERS.has(folder));
}

// Everything in what was dropped. The name of a single folder is not part of the paths.
async function readEntries(entries) {
  const root = entries.length === 1 && entries[0].isDirectory ? entries[0].fullPath.length + 1 : 1;
  const files = [];
  const waiting = [...entries];
  while (waiting.length > 0) {
    const entry = waiting.shift();
    const path = entry.fullPath.slice(root);
    if (entry.isFile) {
      if (!isWanted(path)) continue;
      files.push({ path, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
      if (files.length > MAX_FILES) break;
    } else if (!SKIPPED_FOLDERS.has(entry.name)) {
      const reader = entry.createReader();
      // Each call returns only some of them.
      for (;;) {
        const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
        if (some.length === 0) break;
        waiting.push(...some);
      }
    }
  }
  return files;
}

// The answer as JSON; an error says what the server says.
async function read(status, text) {
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    if (status === 401) throw new Error("Your session has ended. Sign in in another tab, then try again.");
    throw new Error(`The server answered with status ${status}. Try again in a moment.`);
  }
  if (status < 400 || answer.data?.code === "missing_files") return answer;
  throw new Error(answer.message);
}

const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit++) bytes /= 1024;
  return `${bytes.toFixed(unit === 0 || bytes >= 100 ? 0 : 1)} ${units[unit]}`;
}
