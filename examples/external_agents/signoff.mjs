// A tool of the AI SDK before a Signoff gateway: asked about before it runs, run once as approved, and reported.
// `conversation` is your own id of the conversation: a model's id of a call is unique in one answer at best.
export const gate = (url, token, { wait = Infinity, patience = 60 } = {}) => (tool, run, conversation) => {
  if (!conversation) throw new Error("pass the conversation's id: without it calls of two conversations are mixed up");

  // Before the answer with this call the messages are the same for `approval`, `execute` and a later run.
  async function key({ toolCallId, messages }) {
    const has = (message, type) => Array.isArray(message.content)
      && message.content.some((part) => part.type === type && part.toolCallId === toolCallId);
    const made = messages.findLastIndex((each) => each.role === "assistant" && has(each, "tool-call"));
    const isOpen = made >= 0 && !messages.slice(made).some((each) => has(each, "tool-result"));
    const place = JSON.stringify([conversation, tool, toolCallId, isOpen ? messages.slice(0, made) : messages]);
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(place));
    return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  async function ask(path, body, key = "") {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", "idempotency-key": key };
    const request = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
    for (const began = Date.now(); ; await new Promise((resolve) => setTimeout(resolve, 2_000))) {
      const answer = await fetch(`${url}/v1/calls${path}`, request).catch((error) => error);
      if (answer.ok || (answer.status >= 400 && answer.status < 429)) return answer.json();
      const problem = `Signoff gave no answer (${answer.status ?? answer.message})`;
      if (Date.now() - began >= patience * 1_000) throw new Error(problem);
    }
  }

  function explain({ state, source, by, reason, message }) {
    const sources = { policy: "a rule denies it", timeout: "nobody answered in time", cancelled: "it was withdrawn" };
    const denied = `${sources[source] ?? `it was denied by ${by ?? "people before"}`}: ${reason}`;
    return `Not run: ${state === "denied" ? denied : message ?? `it is ${state}`}`;
  }

  async function approval(args, options) {
    try {
      const until = Date.now() + wait * 1_000;
      let call = await ask("", { tool, args }, await key(options));
      while (["waiting", "running"].includes(call.state)) {
        const left = Math.min(30, (until - Date.now()) / 1_000);
        if (left <= 0) return { type: "user-approval", reason: `${call.code} waits for a person's approval` };
        call = await ask(`/${call.id}?wait=${left}`);
      }
      if (call.state === "permitted" || (call.state === "ended" && call.code === "ok")) return "approved";
      return { type: "denied", reason: explain(call) };
    } catch (error) {
      return { type: "denied", reason: `Not run: ${error.message}` };
    }
  }

  async function execute(args, options) {
    const call = await ask("", { tool, args, use: crypto.randomUUID() }, await key(options));
    if (call.state === "ended" && call.code === "ok") return call.result;
    if (call.state !== "used" || !call.args) throw new Error(explain(call));
    const report = (code, result) => ask(`/${call.id}/outcome`, { code, result }).catch(console.error);
    try {
      const result = await run(call.args);
      await report("ok", result);
      return call.note ? { result, note: call.note } : result;
    } catch (error) {
      await report("execution_failed", String(error));
      throw error;
    }
  }
  return { approval, execute };
};
