"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const text = (encoded) =>
    new TextDecoder().decode(Uint8Array.from(atob(encoded), (char) => char.charCodeAt(0)));
  setTimeout(() => {
    const target = document.querySelector("#content");
    const chunk = window.$page.chunk;
    if (!target || !chunk) return;
    const shown = JSON.parse(text(chunk));
    target.replaceChildren();
    if (shown.config) {
      const pre = document.createElement("pre");
      const code = document.createElement("code");
      code.className = "language-json";
      code.textContent = JSON.stringify(shown.config, null, 2);
      pre.append(code);
      target.append(pre);
    }
    if (shown.note) {
      const pre = document.createElement("pre");
      pre.textContent = shown.note;
      target.append(pre);
    }
    if (shown.bundle) {
      const link = document.createElement("a");
      link.href = shown.bundle;
      link.dataset.sha256 = shown.sha256;
      link.textContent = "Install bundle (.mcpb)";
      target.append(link);
    }
  }, 30);
});
