// The Vercel AI SDK with its mock model, which ends with what its calls were answered.
import { register } from "node:module";
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

// The examples stand where no packages are.
const HOOKS = `export const resolve = (name, context, next) =>
  next(name, /^(ai|zod)$/.test(name) ? { ...context, parentURL: ${JSON.stringify(import.meta.url)} } : context);`;
register(`data:text/javascript,${encodeURIComponent(HOOKS)}`);

const { MockLanguageModelV4 } = await import("ai/test");
const { gate } = await import("../../examples/external_agents/signoff.mjs");
const { run } = await import("../../examples/external_agents/vercel_agent.mjs");

const COUNT = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 };
const makeCall = ({ id, name, args }) => ({
  type: "tool-call", toolCallId: id, toolName: name, input: JSON.stringify(args),
});
const answer = (content, unified) => ({
  content, finishReason: { unified, raw: unified }, usage: { inputTokens: COUNT, outputTokens: COUNT }, warnings: [],
});

function makeModel(turns) {
  const left = [...turns];
  return new MockLanguageModelV4({
    doGenerate: async ({ prompt }) => {
      const calls = left.shift();
      if (calls) return answer(calls.map(makeCall), "tool-calls");
      const parts = prompt.flatMap(({ role, content }) => (role === "tool" ? content : []));
      const results = parts.filter(({ type }) => type === "tool-result");
      const told = results.map(({ output }) => output.reason ?? output.value);
      const text = told.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join(" | ");
      return answer([{ type: "text", text }], "stop");
    },
  });
}

const send = globalThis.fetch;

async function play({ url, token, turns, wait, tool, conversation, keys }) {
  // Says under which key each call is proposed.
  globalThis.fetch = (address, request = {}) => {
    const key = request.headers?.["idempotency-key"];
    if (key) appendFileSync(keys, `${JSON.stringify([key, JSON.parse(request.body).args])}\n`);
    return send(address, request);
  };
  const ran = [];
  const refund = async ({ order, euro }) => {
    ran.push([order, euro]);
    if (order === "closed") throw new Error("the bank is closed");
    return `refunded ${euro} EUR for ${order}`;
  };
  const ask = gate(url, token, { patience: 0, wait: wait ?? Infinity });
  const text = await run(makeModel(turns), (_, execute, id) => ask(tool, execute, id), refund, "refund it", conversation);
  return { text, ran };
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await play(JSON.parse(line))));
}
