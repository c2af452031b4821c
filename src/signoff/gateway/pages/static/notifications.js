// Switches notifications on and off in this browser. The gateway stores the subscription.
"use strict";

(() => {
  const form = document.getElementById("notify");
  const bytes = (words) => Uint8Array.from(atob(words.replace(/-/g, "+").replace(/_/g, "/")), (each) => each.charCodeAt(0));
  const words = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

  async function current() {
    const registration = "serviceWorker" in navigator && (await navigator.serviceWorker.getRegistration("/"));
    return registration && registration.pushManager ? registration.pushManager.getSubscription() : null;
  }

  async function subscribe() {
    await navigator.serviceWorker.register("/service-worker.js", { scope: "/" });
    const registration = await navigator.serviceWorker.ready;
    if ((await Notification.requestPermission()) !== "granted") throw new Error("no permission");
    const key = bytes(form.dataset.key);
    const earlier = await registration.pushManager.getSubscription();
    // A browser keeps one subscription, and refuses a second one with another key.
    if (earlier && words(earlier.options.applicationServerKey) !== form.dataset.key) await earlier.unsubscribe();
    return registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  }

  async function mark() {
    const subscription = await current();
    if (!subscription) return;
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(subscription.endpoint));
    const id = Array.from(new Uint8Array(digest), (each) => each.toString(16).padStart(2, "0")).join("");
    const row = document.querySelector(`[data-browser="${id}"]`);
    if (!row) return;
    row.querySelector(".this").hidden = false;
    form.hidden = true;
    row.querySelector("form").addEventListener("submit", () => void subscription.unsubscribe());
  }

  let ready = false;
  form.addEventListener("submit", async (event) => {
    if (ready) return;
    event.preventDefault();
    const note = form.querySelector(".notify-note");
    note.textContent = "";
    try {
      const subscription = await subscribe();
      form.elements.endpoint.value = subscription.endpoint;
      form.elements.p256dh.value = words(subscription.getKey("p256dh"));
      form.elements.auth.value = words(subscription.getKey("auth"));
      ready = true;
      form.requestSubmit();
    } catch {
      note.textContent = form.dataset.failed;
    } finally {
      ready = false;
    }
  });
  // Without permission, or in a private window, a browser may refuse even this question.
  mark().catch(() => {});
})();
