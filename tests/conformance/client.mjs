// The client in TypeScript against a server of ours: lists the tools, calls two, and answers a question.
import { createRequire } from "node:module";

const [programs, mode, ...target] = process.argv.slice(2);
const require = createRequire(`${programs}/`);
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const transport = target[0].startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(target[0]))
  : new StdioClientTransport({ command: target[0], args: target.slice(1) });
const client = new Client(
  { name: "typescript", version: "1.0.0" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: mode === "legacy" ? "legacy" : { pin: mode } },
  },
);
client.setRequestHandler("elicitation/create", async () => ({ action: "accept", content: { answer: "cool" } }));

await client.connect(transport);
const { tools } = await client.listTools();
const echoed = await client.callTool({ name: "echo", arguments: { text: "hello" } });
const chosen = await client.callTool({ name: "choose", arguments: {} });
console.log(
  JSON.stringify({
    revision: client.getNegotiatedProtocolVersion(),
    tools: tools.map((tool) => tool.name),
    echoed: echoed.content[0].text,
    structured: echoed.structuredContent,
    chosen: chosen.content[0].text,
  }),
);
await client.close();
