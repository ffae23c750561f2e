// Passkeys: joins our forms to django-allauth's functions. Forms carry data-passkey="login", "use" or "add".
// Browsers know passkeys on HTTPS and on http://localhost only, and never for a bare address.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const isName = !/^[\d.]+$|^\[/.test(location.hostname);
  const isKnown = Boolean(window.PublicKeyCredential) && window.isSecureContext && isName;
  document.querySelectorAll("[data-passkey-link]").forEach((link) => { link.hidden = !isKnown; });
  document.querySelectorAll("[data-passkey-missing]").forEach((text) => { text.hidden = isKnown; });
  const form = document.querySelector("form[data-passkey]");
  if (!form) return;
  form.hidden = !isKnown;
  if (!isKnown) return;
  const forms = window.allauth.webauthn.forms;
  const credential = form.querySelector("[name=credential]");
  const ids = { credential: credential.id, data: "passkey_data" };
  if (form.dataset.passkey === "login") forms.loginForm({ ids: { login: "passkey_button", credential: credential.id } });
  if (form.dataset.passkey === "use") forms.authenticateForm({ ids: { ...ids, authenticate: "passkey_button" } });
  if (form.dataset.passkey === "add") forms.addForm({ ids: { ...ids, add: "passkey_button", passwordless: "id_passwordless" } });
  document.addEventListener("allauth.error", (event) => {
    event.preventDefault();
    const told = form.querySelector("[role=alert]");
    told.textContent = event.detail.exception?.name === "NotAllowedError"
      ? "Nothing was chosen, or it took too long. Try again."
      : `That did not work: ${event.detail.exception?.message || "unknown reason"}`;
    told.hidden = false;
  });
});
