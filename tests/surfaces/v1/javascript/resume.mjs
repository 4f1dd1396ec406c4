// Follows a session from behind an event, cuts the stream after two events, and goes on behind the last one that it has seen.
import { client, collectTurn, given } from "./client.mjs";

const follow = (id) => client.beta.sessions.events.stream(given.session, {}, { headers: { "Last-Event-ID": id } });

const cut = await follow(given.after);
const first = [];
for await (const event of cut) {
  first.push(event.id);
  if (first.length === 2) break;
}
cut.controller.abort();
const resumed = await follow(first.at(-1));
const rest = await collectTurn(resumed[Symbol.asyncIterator]());
resumed.controller.abort();

console.log(JSON.stringify([...first, ...rest.map((event) => event.id)]));
