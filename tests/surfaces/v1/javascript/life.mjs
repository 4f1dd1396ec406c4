// The whole life of an agent: prints what happened, and every object that the SDK returned with the name of its type.
import { BadRequestError, NotFoundError, all, client, collectTurn, errorOf, given } from "./client.mjs";

const { agents, environments, files, memoryStores, sessions } = client.beta;
const objects = [];
const keep = (type, object) => (objects.push([type, object]), object);

const environment = keep("Environment", await environments.create({ name: "Sandbox", config: { type: "cloud" } }));
const agent = keep("Agent", await agents.create({ name: "Helper", model: given.model, tools: given.tools }));
const file = keep("File", await files.upload({ file: new File(["Sales rose.\n"], "report.txt", { type: "text/plain" }) }));
const store = keep("MemoryStore", await memoryStores.create({ name: "Team notes" }));
const memory = keep("Memory", await memoryStores.memories.create(store.id, { path: "/style.md", content: "Short.\n" }));
const session = keep(
  "Session",
  await sessions.create({
    agent: { type: "agent", id: agent.id, version: 1 },
    environment_id: environment.id,
    title: "From JavaScript",
    metadata: { team: "a" },
    resources: [
      { type: "file", file_id: file.id, mount_path: "/workspace/report.txt" },
      { type: "memory_store", memory_store_id: store.id, access: "read_write" },
    ],
  }),
);

const stream = await sessions.events.stream(session.id);
const events = stream[Symbol.asyncIterator]();
await sessions.events.send(session.id, { events: [given.message] });
const asked = await collectTurn(events);
const waiting = asked.at(-1).stop_reason.event_ids;
const answers = waiting.map((id) => {
  const use = asked.find((event) => event.id === id);
  return use.type === "agent.custom_tool_use"
    ? { type: "user.custom_tool_result", custom_tool_use_id: id, content: [{ type: "text", text: "Deployed." }] }
    : { type: "user.tool_confirmation", tool_use_id: id, result: "allow" };
});
await sessions.events.send(session.id, { events: answers });
let done = [];
do done = [...done, ...(await collectTurn(events))];
while (done.at(-1).stop_reason.type === "requires_action");
const outcome = { type: "user.define_outcome", description: "A summary.", rubric: { type: "text", content: "- It is there" } };
await sessions.events.send(session.id, { events: [outcome] });
const evaluated = await collectTurn(events);
stream.controller.abort();

const listed = await all(sessions.events.list(session.id, { limit: 5 }));
for (const event of [...asked, ...done, ...evaluated, ...listed]) keep("Event", event);
keep("Session", await sessions.retrieve(session.id));
const bytes = await (await files.download(file.id)).text();
keep("Agent", await agents.update(agent.id, { version: 1, system: "Be brief." }));
for (const found of await all(agents.versions.list(agent.id))) keep("Agent", found);
for (const found of await all(sessions.resources.list(session.id))) keep("Resource", found);
for (const found of await all(sessions.threads.list(session.id))) keep("Thread", found);
for (const found of await all(memoryStores.memories.list(store.id))) keep("ListedMemory", found);
keep("Session", await sessions.archive(session.id));
const refused = await errorOf(sessions.events.send(session.id, { events: [given.message] }));
keep("DeletedSession", await sessions.delete(session.id));
const missing = await errorOf(sessions.retrieve(session.id));
keep("DeletedMemory", await memoryStores.memories.delete(memory.id, { memory_store_id: store.id }));
keep("DeletedMemoryStore", await memoryStores.delete(store.id));
keep("DeletedFile", await files.delete(file.id));
keep("DeletedEnvironment", await environments.delete(environment.id));
keep("Agent", await agents.archive(agent.id));

console.log(
  JSON.stringify({
    objects,
    bytes,
    waiting: waiting.map((id) => asked.find((event) => event.id === id).name),
    results: done.filter((event) => event.type === "agent.tool_result").map((event) => event.content[0].text),
    messages: done.filter((event) => event.type === "agent.message").map((event) => event.content[0].text),
    outcome: evaluated.filter((event) => event.type === "span.outcome_evaluation_end").map((event) => event.result),
    streamed: [...asked, ...done, ...evaluated].map((event) => event.id),
    listed: listed.map((event) => event.id),
    refused: [refused instanceof BadRequestError, refused.message],
    missing: [missing instanceof NotFoundError, missing.status, missing.requestID === missing.error.request_id],
  }),
);
