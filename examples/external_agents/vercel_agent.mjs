import { ToolLoopAgent, tool } from "ai";
import { z } from "zod";

export async function run(model, guard, refund, prompt, conversation) {
  const { approval, execute } = guard("refund", refund, conversation);
  const inputSchema = z.object({ order: z.string(), euro: z.number() });
  const tools = { refund: tool({ description: "Pays money back for an order", inputSchema, execute }) };
  const agent = new ToolLoopAgent({ model, tools, toolApproval: { refund: approval } });
  return (await agent.generate({ prompt })).text;
}
