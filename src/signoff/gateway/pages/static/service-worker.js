// Shows notifications and opens their cards. Its only request denies: nothing here approves, caches or answers requests.
"use strict";

// In all, for a denial: browsers open no window long after a press.
const DENIAL_MS = 8000;
const address = (card) => new URL(card ? `/cards/${encodeURIComponent(card)}` : "/", self.location.origin).href;

function read(data) {
  try {
    const { card, text, deny, denied, ended } = data.json();
    const words = { card: String(card || ""), text: String(text || "Signoff"), deny: String(deny || "") };
    return { ...words, denied: String(denied || ""), ended: ended === true };
  } catch {
    return { card: "", text: "Signoff", deny: "", denied: "", ended: false };
  }
}

async function deny(card) {
  const path = `/cards/${encodeURIComponent(card)}/deny`;
  const options = { credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(DENIAL_MS) };
  const form = await fetch(path, options);
  if (!form.ok) throw new Error("no form");
  const body = new URLSearchParams(await form.json());
  const sent = await fetch(path, { ...options, method: "POST", body });
  if (!sent.ok) throw new Error("not denied");
}

// The notification stays until its result replaces it.
async function press({ title, tag, icon, data }) {
  const options = { tag, icon, data };
  const denied = await deny(data.card).then(() => true, () => false);
  if (denied) return self.registration.showNotification(data.denied || title, { ...options, silent: true });
  // The card asks for what the denial lacked, such as a reason or a sign-in. Browsers may refuse to open it.
  await self.registration.showNotification(title, { ...options, renotify: true });
  return self.clients.openWindow(address(data.card)).catch(() => {});
}

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { card, text, deny: label, denied, ended } = read(event.data);
  const options = { tag: card || "list", renotify: !ended, silent: ended, icon: "/static/icon-192.png" };
  const actions = card && label && !ended ? [{ action: "deny", title: label }] : [];
  event.waitUntil(self.registration.showNotification(text, { ...options, data: { card, denied }, actions }));
});

self.addEventListener("notificationclick", (event) => {
  const { card } = event.notification.data || {};
  if (event.action === "deny" && card) {
    event.waitUntil(press(event.notification));
    return;
  }
  event.notification.close();
  event.waitUntil(self.clients.openWindow(address(card)));
});
