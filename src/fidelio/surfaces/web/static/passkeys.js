// Signing with passkeys: a form with data-signs asks for a challenge, lets the owner of the key touch it, and sends the signature.
(() => {
  const encode = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const decode = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));

  const read = async (address, options = {}) => {
    const response = await fetch(address, { headers: { Accept: "application/json" }, ...options });
    if (!response.ok) throw new Error("The server has no challenge for this. Load the page again.");
    return response.json();
  };

  const fill = (form, fields) => {
    for (const [name, value] of Object.entries(fields)) {
      const input = form.querySelector(`input[type=hidden][name="${name}"]`) ?? form.appendChild(document.createElement("input"));
      Object.assign(input, { type: "hidden", name, value });
    }
  };

  const create = async (form) => {
    const { nonce, challenge } = await read("/passkeys/registration");
    const name = form.elements.name.value.trim() || "passkey";
    const made = await navigator.credentials.create({
      publicKey: {
        challenge: decode(challenge),
        rp: { id: location.hostname, name: "Fidelio" },
        user: { id: crypto.getRandomValues(new Uint8Array(16)), name, displayName: name },
        pubKeyCredParams: [{ type: "public-key", alg: -7 }, { type: "public-key", alg: -8 }, { type: "public-key", alg: -257 }],
        authenticatorSelection: { userVerification: "required" },
        attestation: "none",
      },
    });
    return { nonce, client_data: encode(made.response.clientDataJSON), attestation: encode(made.response.attestationObject) };
  };

  const sign = async (address, options) => {
    const { nonce, challenge, keys } = await read(address, options);
    if (!keys.length) throw new Error("No passkey is registered. Register one first: the page Passkeys says how.");
    const signed = await navigator.credentials.get({
      publicKey: {
        challenge: decode(challenge),
        rpId: location.hostname,
        allowCredentials: keys.map((id) => ({ type: "public-key", id: decode(id) })),
        userVerification: "required",
      },
    });
    const { clientDataJSON, authenticatorData, signature } = signed.response;
    return { nonce, key: encode(signed.rawId), client_data: encode(clientDataJSON), authenticator_data: encode(authenticatorData), signature: encode(signature) };
  };

  const collect = (form, submitter) => {
    if (form.dataset.signs === "registration") return create(form);
    if (form.dataset.signs === "/passkeys/confirmation") return sign(`${form.dataset.signs}?${new URLSearchParams({ id: form.elements.id.value })}`);
    const fields = new URLSearchParams(new FormData(form));
    if (submitter?.name) fields.set(submitter.name, submitter.value);
    return sign(form.dataset.signs, { method: "POST", body: fields });
  };

  const explain = (error) => {
    if (error.name === "NotAllowedError") return "The key was not used. Try again.";
    if (error.name === "SecurityError" || !window.isSecureContext) return "Browsers use passkeys only under the name of a host, over https or at localhost. Open this page there.";
    return error.message;
  };

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.dataset.signs || event.submitter?.dataset.unsigned !== undefined) return;
    event.preventDefault();
    if (form.dataset.elsewhere) return location.assign(form.dataset.elsewhere);
    const problem = form.querySelector("[data-problem]");
    try {
      const { submitter } = event;
      fill(form, { ...(submitter?.name ? { [submitter.name]: submitter.value } : {}), ...(await collect(form, submitter)) });
      form.submit();
    } catch (error) {
      problem.textContent = explain(error);
      problem.hidden = false;
    }
  });
})();
