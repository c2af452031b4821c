// Shows notifications and opens their cards. It caches nothing and answers no request.
"use strict";

const address = (card) => new URL(card ? `/cards/${encodeURIComponent(card)}` : "/", self.location.origin).href;

function read(data) {
  try {
    const { card, text, ended } = data.json();
    return { card: String(card || ""), text: String(text || "Signoff"), ended: ended === true };
  } catch {
    return { card: "", text: "Signoff", ended: false };
  }
}

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { card, text, ended } = read(event.data);
  const options = { tag: card || "list", renotify: !ended, silent: ended, icon: "/static/icon-192.png", data: { card } };
  event.waitUntil(self.registration.showNotification(text, options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow(address((event.notification.data || {}).card)));
});
