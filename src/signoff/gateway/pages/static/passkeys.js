// Asks the person's authenticator before a form with `data-passkey` or `data-register` is sent.
"use strict";

(() => {
  const bytes = (words) => Uint8Array.from(atob(words.replace(/-/g, "+").replace(/_/g, "/")), (each) => each.charCodeAt(0));
  const words = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const listed = (credentials) => credentials.map((each) => ({ ...each, id: bytes(each.id) }));

  async function asked(address, form, button) {
    const fields = new URLSearchParams(new FormData(form));
    if (button && button.name) fields.append(button.name, button.value);
    const answer = await fetch(address, { method: "POST", body: fields });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.problem || body.message);
    return body;
  }

  async function assertion(options, nonce) {
    const made = await navigator.credentials.get({
      publicKey: { ...options, challenge: bytes(options.challenge), allowCredentials: listed(options.allowCredentials) },
    });
    const { authenticatorData, clientDataJSON, signature } = made.response;
    return JSON.stringify({
      credential: made.id,
      nonce,
      authenticator_data: words(authenticatorData),
      client_data: words(clientDataJSON),
      signature: words(signature),
    });
  }

  async function creation(options) {
    const made = await navigator.credentials.create({
      publicKey: {
        ...options,
        challenge: bytes(options.challenge),
        user: { ...options.user, id: bytes(options.user.id) },
        excludeCredentials: listed(options.excludeCredentials),
      },
    });
    const { attestationObject, clientDataJSON } = made.response;
    const response = { attestationObject: words(attestationObject), clientDataJSON: words(clientDataJSON) };
    return JSON.stringify({ id: made.id, rawId: made.id, type: made.type, response });
  }

  async function prove(form, button) {
    const { nonce, public_key: options } = await asked(form.dataset.passkey, form, button);
    form.elements.passkey.value = await assertion(options, nonce);
  }

  async function register(form, button) {
    const { nonce, create, earlier } = await asked(form.dataset.register, form, button);
    if (earlier) form.elements.earlier.value = await assertion(earlier, nonce);
    form.elements.created.value = await creation(create);
    form.elements.nonce.value = nonce;
  }

  let busy = false;
  let ready = false;
  document.addEventListener(
    "submit",
    async (event) => {
      const form = event.target;
      const { passkey, register: begin } = form.dataset;
      const button = event.submitter;
      if ((!passkey && !begin) || ready || (button && "plain" in button.dataset)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      if (busy) return;
      busy = true;
      const note = form.querySelector(".passkey-note");
      note.textContent = "";
      try {
        await (passkey ? prove : register)(form, button);
        ready = true;
        form.requestSubmit(button);
      } catch (error) {
        // The browser's own errors: the person refused, or the sign-in has ended and the answer is a page.
        const own = error instanceof DOMException || error instanceof SyntaxError;
        note.textContent = own ? form.dataset.failed : error.message;
      } finally {
        busy = false;
        ready = false;
      }
    },
    true,
  );
})();
