// Lets the conformance suite start on Node 20: its command that compares files needs `globSync` of Node 22, its suites do not.
import { register } from "node:module";

register("./node20_hooks.mjs", import.meta.url);
