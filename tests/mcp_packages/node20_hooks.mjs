const FS = `export * from "node:fs"; export { default } from "node:fs";
export const globSync = () => { throw new Error("this needs Node 22"); };`;

export async function resolve(specifier, context, next) {
  const isSuite = context.parentURL?.includes("/@modelcontextprotocol/conformance/");
  if (specifier === "fs" && isSuite) {
    return { url: `data:text/javascript,${encodeURIComponent(FS)}`, shortCircuit: true };
  }
  return next(specifier, context);
}
