// Live updates, keys and local times. Nothing here is needed to decide.
"use strict";

const one = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Times in the reader's own zone; the server learns it for the next page.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) document.cookie = `signoff_zone=${zone};path=/;max-age=31536000;samesite=lax`;

// British English writes days and hours as the server does.
const locale = document.documentElement.lang === "en" ? "en-GB" : document.documentElement.lang;

function localTimes(within) {
  if (!zone || document.body.dataset.zone === zone) return;
  for (const time of all("time[datetime]", within)) {
    const at = new Date(time.dateTime);
    time.title = at.toLocaleString(locale, { dateStyle: "medium", timeStyle: "long" });
    if (!("clock" in time.dataset)) continue;
    const clock = at.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit", hour12: false });
    const day = at.toLocaleDateString(locale, { weekday: "short", day: "numeric", month: "short" });
    time.textContent = at.toDateString() === new Date().toDateString() ? clock : `${day}, ${clock}`;
  }
}

async function fetched(url, selector) {
  // Leaving the page breaks off a request.
  const answer = await fetch(url, { headers: { accept: "text/html" } }).catch(() => null);
  const text = answer?.ok ? await answer.text().catch(() => null) : null;
  if (text === null) return null;
  const page = new DOMParser().parseFromString(text, "text/html");
  const found = one(selector, page);
  if (found) localTimes(found);
  return found;
}

// Entries are matched by key, so that what is read, opened or focused stays where it is.
function merge(list, fresh) {
  const old = new Map(all(":scope > [data-key]", list).map((entry) => [entry.dataset.key, entry]));
  let before = null;
  for (const entry of all(":scope > [data-key]", fresh)) {
    let stays = old.get(entry.dataset.key);
    if (!stays) {
      stays = document.importNode(entry, true);
      stays.classList.add("arrived");
    } else if (stays.innerHTML !== entry.innerHTML && !stays.contains(document.activeElement)) {
      const open = all("details", stays).map((each) => each.open);
      stays.innerHTML = entry.innerHTML;
      all("details", stays).forEach((each, at) => { each.open = Boolean(open[at]); });
    }
    old.delete(entry.dataset.key);
    const place = before ? before.nextElementSibling : list.firstElementChild;
    if (stays !== place) list.insertBefore(stays, place);
    before = stays;
  }
  for (const gone of old.values()) gone.remove();
}

function say(count, more) {
  const badge = one("#count");
  badge.textContent = count + more;
  badge.hidden = !count;
  document.title = (count ? `(${count}${more}) ` : "") + document.title.replace(/^\(\d+\+?\) /, "");
  one("link[rel=icon]").href = `/icon.svg?n=${count}`;
}

async function freshList() {
  const url = new URL("/", location.href);
  url.search = location.pathname === "/" ? location.search : "";
  url.searchParams.set("part", "list");
  const fresh = await fetched(url, "#list");
  const list = one("#list");
  if (!fresh || !list) return;
  const selected = one("#card");
  const rows = one(".rows", list);
  const freshRows = one(".rows", fresh);
  if (selected && freshRows) {
    const link = all(".row", freshRows).find((row) => row.getAttribute("href").endsWith(encodeURIComponent(selected.dataset.approval)));
    if (link) link.setAttribute("aria-current", "true");
  }
  if (rows && freshRows) merge(rows, freshRows);
  else list.replaceChildren(...document.importNode(fresh, true).childNodes);
  document.body.classList.toggle("nothing", !freshRows && !("filtered" in fresh.dataset) && Boolean(one(".home")));
  if (list.dataset.version !== fresh.dataset.version) {
    one("#announce").textContent = document.body.dataset.changed.replace("{n}", fresh.dataset.count);
  }
  list.dataset.version = fresh.dataset.version;
  say(Number(fresh.dataset.count), "full" in fresh.dataset ? "+" : "");
}

async function freshCard() {
  const card = one("#card");
  const fresh = await fetched(`${location.pathname.replace(/\/(decide|withdraw|undo|ask)$/, "")}?part=card`, "#card");
  if (!fresh || fresh.dataset.version === card.dataset.version) return;
  // What somebody wrote or ticked stays.
  const fields = "#decide input:not([type=hidden]), #decide textarea, #decide select, #ask textarea";
  const written = all(fields, card).map((field) => [field.id, field.value, field.checked]);
  const opened = Boolean(one("#decide details[open]", card));
  const had = card.contains(document.activeElement) && document.activeElement.id;
  const there = document.importNode(fresh, true);
  card.replaceWith(there);
  for (const [id, value, checked] of written) {
    const field = one(`#${id}`, there);
    if (!field) continue;
    if ("checked" in field) field.checked = checked;
    if (!/^(checkbox|radio)$/.test(field.type)) field.value = value;
  }
  if (one("#decide details", there)) one("#decide details", there).open = opened;
  if (had && one(`#${had}`)) one(`#${had}`).focus();
  settle();
  one("#announce").textContent = (one(".receipt-who", there) || one(".card-kicker", there)).textContent.trim();
  confirmations();
  undos(there);
}

async function freshThread() {
  const thread = one("#thread");
  const fresh = await fetched(`${location.pathname.replace(/\/cancel$/, "")}?part=thread`, "#thread");
  if (!fresh || fresh.dataset.version === thread.dataset.version) return;
  thread.dataset.version = fresh.dataset.version;
  const old = one(".thread-state", thread);
  if (old.textContent !== one(".thread-state", fresh).textContent) {
    old.innerHTML = one(".thread-state", fresh).innerHTML;
    one("#announce").textContent = one(".badge", old).textContent;
  }
  merge(one(".said", thread), one(".said", fresh));
  const error = one(":scope > .note", fresh);
  if (error && !one(":scope > .note", thread)) thread.append(document.importNode(error, true));
}

function follow(url, name, changed) {
  const source = new EventSource(url);
  source.addEventListener(name, async (message) => {
    const body = JSON.parse(message.data);
    if (body.over) source.close();
    await changed(body);
  });
  window.addEventListener("pagehide", () => source.close());
}

// A card that has just opened takes no answer meant for the card before it: its buttons wait for this time, and until
// no key and no finger is down.
const DEAD_MS = 700;
const down = new Set();
let deadUntil = 0;

function settle() {
  deadUntil = performance.now() + DEAD_MS;
  wake();
}

function wake() {
  if (!deadUntil) return;
  const left = deadUntil - performance.now();
  const dead = left > 0 || down.size > 0;
  for (const button of all("button.choice, #sure [value=yes]")) button.disabled = dead;
  if (left > 0) setTimeout(wake, left);
  else if (!dead) deadUntil = 0;
}

for (const [name, pressed, released] of [["finger", "pointerdown", "pointerup"], ["key", "keydown", "keyup"]]) {
  document.addEventListener(pressed, () => down.add(name), true);
  document.addEventListener(released, () => { down.delete(name); wake(); }, true);
}
document.addEventListener("pointercancel", () => { down.delete("finger"); wake(); }, true);
// What goes up in another window is not reported here.
window.addEventListener("blur", () => { down.clear(); wake(); });
window.addEventListener("pageshow", settle);

// Keys: a letter never acts while somebody types, and never decides without a confirmation.
function move(step) {
  const rows = all(".rows .row");
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const from = at >= 0 ? at : rows.findIndex((row) => row.hasAttribute("aria-current"));
  const next = from < 0 ? (step > 0 ? 0 : rows.length - 1) : from + step;
  rows[Math.min(Math.max(next, 0), rows.length - 1)].focus();
}

function ask(verdict) {
  const dialog = one("#sure");
  const form = one("#decide");
  const button = form && one(`[value=${verdict}]`, form);
  if (!dialog || !button || dialog.open || button.disabled) return;
  // A card that is not whole, or needs a typed confirmation, is approved by its button alone.
  if ("byHand" in button.dataset) {
    (one("#typed", form) || button).focus();
    return;
  }
  const yes = one("[value=yes]", dialog);
  dialog.dataset.verdict = verdict;
  one("#sure-title").textContent = dialog.dataset[verdict];
  yes.textContent = yes.dataset[verdict];
  dialog.returnValue = "no";
  dialog.showModal();
}

function confirmations() {
  const dialog = one("#sure");
  const form = one("#decide");
  if (!dialog || !form) return;
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "yes") form.requestSubmit(one(`[value=${dialog.dataset.verdict}]`, form));
  });
  let sent = false;
  form.addEventListener("submit", (event) => {
    if (sent) event.preventDefault();
    sent = true;
  });
  window.addEventListener("pageshow", () => { sent = false; });
}

// The sum of the ticked requests of a batch, one for each currency; none if an amount is unknown.
function tally() {
  const line = one(".tally");
  const ticked = all(".batch input[name=pick]:checked").map((each) => each.dataset);
  const sums = new Map();
  for (const { amount, currency } of ticked) sums.set(currency, (sums.get(currency) || 0) + Number(amount));
  const written = [...sums].map(([currency, sum]) => `${sum.toLocaleString(locale, { minimumFractionDigits: 2, maximumFractionDigits: 8 })} ${currency}`.trim());
  const known = ticked.every((each) => each.amount);
  line.textContent = [line.dataset.words.replace("{n}", ticked.length), ...(known && ticked.length ? [written.join(", ")] : [])].join(" · ");
}

// The gateway decides until when a denial can be undone; the button only goes with that time.
function undos(within) {
  for (const form of all("form.undo", within)) setTimeout(() => form.remove(), 1000 * form.dataset.seconds);
}

document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
  if (event.target.closest("input, select, textarea")) return;
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    a: () => ask("approved"),
    d: () => ask("denied"),
    "?": () => one("#keys").showModal(),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

localTimes(document);
confirmations();
undos(document);
for (const box of all(".batch input[name=pick]")) box.addEventListener("change", tally);
window.addEventListener("pageshow", () => { if (one(".tally")) tally(); });
if (one("[data-live]")) {
  follow(one("[data-live]").dataset.live, "waiting", freshList);
  setInterval(freshList, 60000);
}
const card = one("[data-live-card]");
if (card && !/receipt/.test(document.body.className)) {
  follow(card.dataset.liveCard, "turn", freshCard);
  // An agent's answer changes no turn.
  setInterval(() => one("#card[data-asked]") && freshCard(), 3000);
}
if (one("[data-live-talk]")) {
  follow(one("[data-live-talk]").dataset.liveTalk, "turn", async (body) => {
    await freshThread();
    if (body.over) all(".while-live").forEach((form) => form.remove());
  });
}
