// Lists all sessions page by page.
import { client, given } from "./client.mjs";

const ids = [];
let pages = 0;
for await (const page of (await client.beta.sessions.list({ limit: given.limit })).iterPages()) {
  pages += 1;
  ids.push(...page.data.map((session) => session.id));
}
console.log(JSON.stringify({ ids, pages }));
