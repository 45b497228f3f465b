// Adds keys, live updates and links to pages that work without it.
"use strict";
const $ = (query) => document.querySelector(query);
const all = (query) => [...document.querySelectorAll(query)];
const stream = $("#stream");
const quick = matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth";

function say(text) {
  const place = $("#said");
  place.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { place.textContent = ""; }, 2500);
}

// -- where the reader is ------------------------------------------------------

let here = null;
let mark = null;

function go(item) {
  if (!item) return;
  here?.classList.remove("here");
  here = item;
  for (let fold = item.parentElement?.closest("details"); fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  item.classList.add("here");
  item.focus({ preventScroll: true });
  item.scrollIntoView({ block: "start", behavior: quick });
}

function move(query, step) {
  const items = all(query).filter((item) => item.checkVisibility());
  const top = 80;
  let index = here && here.isConnected ? items.indexOf(here) : -1;
  if (index < 0) {
    // From a place that is not in the list: the nearest one in this direction.
    const from = here?.isConnected ? here.getBoundingClientRect().top : top;
    const after = items.findIndex((item) => item.getBoundingClientRect().top > from + (here ? 1 : -1));
    index = step > 0 ? (after < 0 ? items.length : after) - 1 : after < 0 ? items.length : after;
    if (step < 0 && !here) index = items.findIndex((item) => item.getBoundingClientRect().top >= top);
  }
  go(items[Math.max(0, Math.min(items.length - 1, index + step))]);
}

// `#e17` or `#e17-e25`: open what it is in, or load the page that has it.
function follow() {
  const found = /^#e(\d+)(?:-e(\d+))?$/.exec(location.hash);
  all(".picked").forEach((item) => item.classList.remove("picked"));
  if (!found) return;
  const [first, last] = [Number(found[1]), Number(found[2] ?? found[1])];
  const item = document.getElementById(`e${first}`);
  if (!item) {
    if (stream?.dataset.firsts) {
      // Pages without a server: the last one has the session's name, the others a number.
      const firsts = stream.dataset.firsts.split(" ").map(Number);
      const page = firsts.findLastIndex((one) => one <= first);
      const name = location.pathname.replace(/\+\d+\.html$|\.html$/, "");
      const file = page === firsts.length - 1 ? `${name}.html` : `${name}+${page + 1}.html`;
      if (file !== location.pathname) location.assign(file + location.hash);
      return;
    }
    if (stream && stream.dataset.around !== found[1]) {
      const place = new URL(location.href);
      for (const name of ["before", "after", "role", "tool", "focus"]) place.searchParams.delete(name);
      place.searchParams.set("around", found[1]);
      location.replace(place);
    }
    return;
  }
  for (let fold = item.closest("details"); fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  for (const one of all(".item[data-seq]")) {
    const seq = Number(one.dataset.seq);
    if (found[2] && seq >= first && seq <= last) one.classList.add("picked");
  }
  here = item.closest(".item") ?? here;
  item.scrollIntoView({ block: "start", behavior: "instant" });
}
addEventListener("hashchange", follow);

async function copy() {
  if (!stream || !here) return say("Choose a message with j and k first");
  const ends = [mark ?? here, here].map((item) => Number(item.dataset.seq)).sort((a, b) => a - b);
  const place = new URL(location.pathname, location.href);
  place.searchParams.set("id", stream.dataset.id);
  place.searchParams.set("around", ends[0]);
  place.hash = ends[0] === ends[1] ? `e${ends[0]}` : `e${ends[0]}-e${ends[1]}`;
  mark = null;
  try {
    await navigator.clipboard.writeText(place.href);
    say(`Copied a link to ${place.hash}`);
  } catch {
    history.replaceState(null, "", place);
    follow();
    say("The address bar has the link");
  }
}

function fold() {
  const parts = here ? [...here.querySelectorAll(".part")] : all("#stream .part, #stream .run");
  const open = !parts.some((part) => part.open);
  for (const part of parts) part.open = open;
}

// The keyboard reaches what scrolls inside the page.
function reach() {
  for (const one of all("pre, table")) {
    if (one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1) one.tabIndex = 0;
  }
}
for (const name of ["toggle", "resize"]) addEventListener(name, reach, true);
reach();

const help = $("#help");
const keys = {
  j: () => move(".item", 1),
  k: () => move(".item", -1),
  n: () => move(".prompt", 1),
  p: () => move(".prompt", -1),
  g: () => go(all(".item")[0]),
  G: () => go(all(".item").at(-1)),
  f: fold,
  v: () => { mark = here; if (here) say(`The range begins at ${here.dataset.seq}`); },
  c: copy,
  t: () => {
    const link = $("#time-link");
    if (!link) return;
    const place = new URL(link.href);
    if (here) place.searchParams.set("at", here.dataset.seq);
    location.assign(place);
  },
  "/": () => ($(".inside input[type=search]") ?? $("#search"))?.focus(),
  "?": () => help.showModal(),
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
$("#keys").hidden = false;
$("#keys").addEventListener("click", () => help.showModal());
for (const form of all("form[data-auto]")) {
  form.addEventListener("change", () => form.requestSubmit());
  form.querySelector("button").hidden = true;
}

// A page, or null: it may be left while it is fetched.
async function fetched(place) {
  try {
    const answer = await fetch(place);
    return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  } catch { return null; }
}

// A fork or a subagent's session opens where it began. Its seqs are those of another session.
addEventListener("toggle", async ({ target: branch }) => {
  const place = branch.lastElementChild;
  if (!branch.dataset?.src || !branch.open || place.childElementCount) return;
  const made = await fetched(branch.dataset.src);
  if (!made) return;
  made.querySelectorAll("[id]").forEach((item) => item.removeAttribute("id"));
  made.querySelectorAll(".item").forEach((item) => item.classList.remove("item", "prompt"));
  place.replaceChildren(...made.body.children);
}, true);

// -- time ---------------------------------------------------------------------

const scrub = $("#scrub");
if (scrub) {
  const range = scrub.querySelector("input[type=range]");
  const shown = scrub.querySelector("output b");
  const play = $("#play");
  range.addEventListener("input", () => { shown.textContent = range.value; });
  range.addEventListener("change", () => scrub.requestSubmit());
  scrub.querySelector("button").hidden = true;
  play.hidden = false;
  const speed = $("#speed");
  speed.hidden = false;
  speed.value = sessionStorage.getItem("speed") ?? "4";
  speed.addEventListener("change", () => sessionStorage.setItem("speed", speed.value));
  const clock = $("#clock");
  const [from, now, to] = [clock.dataset.from, clock.dataset.now, clock.dataset.to].map(Date.parse);
  clock.closest("label").hidden = to - from < 1000;
  clock.value = Math.round((1000 * (now - from)) / Math.max(to - from, 1));
  clock.addEventListener("change", () => {
    const place = new URL(location.href);
    const at = from + ((to - from) * clock.value) / 1000;
    // The last millisecond is cut off: its events are wanted too.
    place.searchParams.set("at", new Date(Math.min(at, to) + 1).toISOString());
    location.assign(place);
  });
  const next = () => {
    if (Number(range.value) >= Number(range.max)) { sessionStorage.removeItem("play"); play.textContent = "Play"; return; }
    range.value = Number(range.value) + 1;
    scrub.requestSubmit();
  };
  let timer = null;
  const begin = () => {
    sessionStorage.setItem("play", "1");
    play.textContent = "Pause";
    // As it was, but neither faster than the eye nor longer than a reader waits.
    timer = setTimeout(next, Math.min(Math.max((1000 * scrub.dataset.wait) / speed.value, 250), 3000));
  };
  play.addEventListener("click", () => {
    if (timer === null) return begin();
    clearTimeout(timer);
    timer = null;
    sessionStorage.removeItem("play");
    play.textContent = "Play";
  });
  if (sessionStorage.getItem("play")) begin();
}

// -- live ---------------------------------------------------------------------

let busy = false;
let wanted = 0;
let known = Number(stream?.dataset.last ?? 0);
const key = (item) => item.id || item.dataset.src || item.dataset.seq || item.textContent;
const same = (one, other) => one.dataset.src || one.textContent === other.textContent;
const folds = (item) => [item, ...item.querySelectorAll("details")];
const most = 250;

// Bring the stream to what a newer page of it shows. What is the same stays, with its folds; what is before
// the newer page stays too. Return whether something was added; null if the two have nothing in common.
function merge(newest) {
  const old = new Map([...stream.children].map((item) => [key(item), item]));
  const fresh = [...newest.children].filter((item) => !item.matches(".pager"));
  const joint = fresh.findIndex((item) => old.has(key(item)));
  if (joint < 0) return null;
  let next = old.get(key(fresh[joint]));
  let added = false;
  for (const item of fresh.slice(joint)) {
    const twin = old.get(key(item));
    if (twin && twin === next && same(twin, item)) {
      do next = next.nextElementSibling; while (next?.matches(".unread"));
      continue;
    }
    if (twin) folds(twin).forEach((fold, n) => { if (fold.open && folds(item)[n]) folds(item)[n].open = true; });
    added ||= !twin;
    stream.insertBefore(item, next);
    if (twin === next) next = next.nextElementSibling;
    twin?.remove();
  }
  while (next) {
    const last = next;
    next = next.nextElementSibling;
    last.remove();
  }
  return added;
}

async function update(seq) {
  wanted = Math.max(wanted, seq);
  if (busy) return;
  busy = true;
  try {
    while (known < wanted) {
      const asked = wanted;
      const low = innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
      const answer = await fetch(stream.dataset.newest);
      if (!answer.ok) return problem(`The session cannot be read (${answer.status}). Load the page again.`);
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      const newest = made.querySelector("#stream");
      let added = low && all("#stream .item").length > most ? null : merge(newest);
      if (low && added === null) {
        stream.replaceChildren(...newest.children);
      } else if (added === null) {
        // The reader is elsewhere, and more came than a page shows.
        $("#pill").onclick = () => location.assign(stream.dataset.newest);
        added = true;
      }
      for (const part of ["#about", ".head .facts"]) $(part).replaceChildren(...made.querySelector(part).childNodes);
      if (here && !here.isConnected) here = document.getElementById(here.id);
      here?.classList.add("here");
      known = asked;
      reach();
      if (low) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
      else if (added) $("#pill").hidden = false;
    }
    problem("");
    seen();
  } finally {
    busy = false;
  }
}

function problem(text) {
  const place = $("#problem");
  place.textContent = text;
  place.hidden = !text;
}

if (stream?.dataset.live) {
  const news = new EventSource(stream.dataset.live);
  news.addEventListener("message", (event) => {
    const said = JSON.parse(event.data);
    if (said.problem) problem(said.problem);
    else if (said.seq < known) location.reload();
    else update(said.seq).catch(() => problem("The server does not answer."));
  });
  news.addEventListener("error", () => problem("The server does not answer; trying again."));
  news.addEventListener("open", () => problem(""));
  addEventListener("pagehide", () => news.close());
  $("#pill").onclick = () => {
    $("#pill").hidden = true;
    scrollTo({ top: document.documentElement.scrollHeight, behavior: quick });
  };
}

// The list shows again what the server lists, unless the reader works in it.
const list = $("#list[data-live]");
if (list) {
  const news = new EventSource(list.dataset.live);
  // The first message too: something may have changed since the page was made.
  news.addEventListener("message", async () => {
    const made = await fetched(location.href);
    if (!made || list.contains(document.activeElement)) return;
    const fresh = made.querySelector("#list");
    if (fresh.innerHTML !== list.innerHTML) list.replaceChildren(...fresh.children);
    $("#count").textContent = made.querySelector("#count").textContent;
  });
  addEventListener("pagehide", () => news.close());
}

// -- what is new since the last visit -----------------------------------------

function seen() {
  try { localStorage.setItem(`seen ${stream.dataset.id}`, String(known)); } catch { /* storage is off */ }
}

if (stream?.dataset.live) {
  let before = 0;
  try { before = Number(localStorage.getItem(`seen ${stream.dataset.id}`) ?? 0); } catch { /* storage is off */ }
  const fresh = before && before < known ? all("#stream .item").find((item) => Number(item.dataset.seq) > before) : null;
  if (fresh) {
    const line = document.createElement("p");
    line.className = "unread";
    line.textContent = "New since your last visit";
    fresh.before(line);
  }
  seen();
  if (!location.hash) {
    if (fresh) fresh.scrollIntoView({ block: "center", behavior: "instant" });
    else scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  }
}
follow();
