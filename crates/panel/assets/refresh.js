// Keeps the element with `data-refresh` (an id and seconds) like the one of a fresh copy of this page, until the fresh
// one has no `data-refresh` any more.

const MAX_FAILURES = 5;

async function fetchFresh(id) {
  const response = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
  if (!response.ok) throw new Error(`status ${response.status}`);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return page.getElementById(id);
}

function isBusy(element) {
  return document.hidden || element.contains(document.activeElement);
}

async function refresh(element) {
  let failures = 0;
  while (element?.dataset.refresh && failures < MAX_FAILURES) {
    await new Promise((resolve) => setTimeout(resolve, Number(element.dataset.refresh) * 1000));
    if (isBusy(element)) continue;
    try {
      const fresh = await fetchFresh(element.id);
      failures = 0;
      if (!fresh) return;
      if (fresh.outerHTML === element.outerHTML || isBusy(element)) continue;
      const adopted = document.adoptNode(fresh);
      element.replaceWith(adopted);
      element = adopted;
    } catch {
      failures += 1;
    }
  }
}

for (const element of document.querySelectorAll("[id][data-refresh]")) refresh(element);
