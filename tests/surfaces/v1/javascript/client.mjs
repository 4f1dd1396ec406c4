// The official SDK with the key and the address of a test, and the arguments of the test.
import { createRequire } from "node:module";

export const given = JSON.parse(process.argv[2]);
const require = createRequire(`${given.sdk}/`);
const Anthropic = require("@anthropic-ai/sdk").default;

export const client = new Anthropic({ baseURL: given.url, apiKey: given.key, maxRetries: 0 });
export const { NotFoundError, BadRequestError } = Anthropic;

// Items of a list over all its pages.
export async function all(pages) {
  const found = [];
  for await (const item of await pages) found.push(item);
  return found;
}

// The events of an iterator up to the next `session.status_idle`. The iterator can go on afterwards.
export async function collectTurn(iterator) {
  const found = [];
  for (;;) {
    const { value, done } = await iterator.next();
    if (done) throw new Error(`The stream ended after ${found.map((event) => event.type)}.`);
    found.push(value);
    if (value.type === "session.status_idle") return found;
  }
}

// The error of a promise that has to fail.
export async function errorOf(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("There was no error.");
}
