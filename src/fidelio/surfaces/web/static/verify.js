// Verifies the chain that this file holds, with nothing but the browser. Each hash is computed from the one before.
(async () => {
  const element = document.getElementById("verdict");
  const say = (text, good) => { element.textContent = text; element.className = good ? "good" : "bad"; };
  const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const hash = async (bytes) => hex(await crypto.subtle.digest("SHA-256", bytes));
  const utf8 = (text) => new TextEncoder().encode(text);
  // As the ledger writes it: no spaces, everything outside ASCII escaped.
  const quote = (text) => JSON.stringify(text).replace(/[\u0080-\uffff]/g, (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));

  const digestOf = (event) => {
    const salt = Uint8Array.from(atob(event.salt), (sign) => sign.charCodeAt(0));
    const body = utf8(event.raw);
    const both = new Uint8Array(salt.length + body.length);
    both.set(salt);
    both.set(body, salt.length);
    return hash(both);
  };

  // What is wrong with the chain, and the head that was computed.
  const readChain = async (chain) => {
    const broken = (problem) => ({ problem, head: "" });
    let head = await hash(utf8(`fidelio.session.v1:${chain.session}`));
    let seq = 0;
    for (const event of chain.events) {
      seq += 1;
      if (event.seq !== seq) return broken(`Event ${seq} is missing.`);
      if (event.raw !== null && (event.salt === null || (await digestOf(event)) !== event.digest)) return broken(`The content of event ${seq} was changed.`);
      const fields = [quote("fidelio.event.v1"), quote(head), quote(chain.session), event.seq, quote(event.id), quote(event.type), quote(event.actor), event.time, quote(event.digest)];
      head = await hash(utf8(`[${fields.join(",")}]`));
      if (head !== event.hash) return broken(`Event ${seq} does not follow from the one before it, or was changed.`);
    }
    return { problem: head === chain.head ? "" : "The end of the chain is not the head that this file names.", head };
  };

  // What the page shows may differ from the chain that it holds: the contents of events, and every other text of it.
  const isSame = (shown, raw) => {
    try {
      // The ledger notes the digests of its tables beside the content.
      const { ledger: _, ...content } = JSON.parse(raw);
      return JSON.stringify(JSON.parse(shown)) === JSON.stringify(content);
    } catch {
      return false;
    }
  };
  // Elements, attributes and texts, as the server has read them: something hidden is a change too. Scripts and styles are in the policy.
  const describe = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.nodeType !== Node.ELEMENT_NODE) return "";
    const attributes = [...node.attributes].map(({ name, value }) => ` ${name}=${value}`).sort().join("");
    const inside = ["verdict", "chain"].includes(node.id) ? "" : [...node.childNodes].map(describe).join("");
    return `<${node.localName}${attributes}>${inside}`;
  };
  const findOtherText = async (chain) => {
    const shown = new Map([...document.querySelectorAll("pre[data-seq]")].map((element) => [Number(element.dataset.seq), element.textContent]));
    const other = chain.events.find((event) => event.raw !== null && shown.has(event.seq) && !isSame(shown.get(event.seq), event.raw));
    if (other) return `What is shown for event ${other.seq} is not what the chain holds.`;
    const policies = [...document.querySelectorAll("meta[http-equiv]")].map((meta) => meta.content);
    const page = [...policies, document.title, describe(document.body)].join("").replace(/[ \t\r\n]+/g, "");
    return (await hash(utf8(page))) === chain.page ? "" : "The page around the events was changed after this file was made.";
  };

  if (!globalThis.crypto?.subtle) {
    say("This browser verifies only pages of https or of this machine. Open the file from your disk, or use fidelio verify.", false);
    return;
  }
  if (document.readyState === "loading") await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  const chain = JSON.parse(document.getElementById("chain").textContent);
  const { problem, head } = await readChain(chain);
  const other = problem ? "" : await findOtherText(chain);
  document.getElementById("head").textContent = head || "none: the chain is broken";
  if (problem) say(`The chain is broken. ${problem}`, false);
  else if (other) say(`The chain holds, but this page was changed. ${other}`, false);
  else say(`The chain holds: ${chain.events.length} events, verified in this browser just now.`, true);
})();
