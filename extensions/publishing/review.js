// The page of `toolmill review`. Third-party text is only ever set as text content.
"use strict";
const token = new URLSearchParams(location.search).get("token") || "";
const byId = (id) => document.getElementById(id);
let state = { labels: [], next: 0 };
let place = 0;
let busy = false;

async function ask(path, body) {
  const options = { headers: { "X-Review-Token": token } };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.status);
  return found;
}

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function pairs(entries) {
  const list = element("dl");
  for (const [name, value] of entries) list.append(element("dt", name, "mono"), element("dd", value));
  return list;
}

const said = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1));

function toolView(tool) {
  const box = element("div", null, "call");
  box.append(element("strong", tool.name, "mono"));
  box.append(element("p", tool.description === null ? "Not in the present snapshot." : tool.description, "about"));
  const listed = (tool.parameters || []).map((one) => [one.name + (one.required ? " *" : ""), one.says]);
  if (listed.length) box.append(pairs(listed));
  return box;
}

function callView(call) {
  const box = element("div", null, "call");
  box.append(element("strong", call.tool, "mono"));
  const entries = Object.entries(call.arguments);
  box.append(entries.length ? pairs(entries.map(([k, v]) => [k, said(v)])) : element("div", "without arguments", "soft"));
  return box;
}

function turnView(message) {
  const box = element("div", null, "turn");
  box.append(element("b", message.role));
  if (message.content) box.append(element("span", said(message.content)));
  for (const call of message.tool_calls || []) {
    const made = call.function || {};
    box.append(element("div", `${made.name}(${made.arguments})`, "mono"));
  }
  return box;
}

function showProgress() {
  const done = state.labels.filter((one) => one !== null).length;
  byId("count").textContent = `${done} of ${state.labels.length} labelled`;
  byId("where").textContent = state.stage === "before" ? "written pairs" : "accepted pairs";
  byId("bar").replaceChildren(...state.labels.map((label, at) =>
    element("i", null, [label || "", at === place ? "here" : ""].join(" ").trim())));
}

async function show(at) {
  place = Math.max(0, Math.min(at, state.labels.length));
  const over = place >= state.labels.length;
  byId("item").hidden = over;
  byId("done").hidden = !over;
  byId("foot").hidden = false;
  showProgress();
  if (over) return;
  const row = await ask(`/api/rows/${place}`);
  byId("instruction").textContent = row.instruction;
  const calls = row.calls.map(callView);
  const kind = element("div", null, "kind");
  kind.append(element("span", row.task.replace("_", " "), "chip"), element("span", row.server, "chip"));
  byId("calls").replaceChildren(...(calls.length ? calls : [element("div", "No call. The assistant asks back or answers by itself.")]), kind);
  byId("messages").replaceChildren(...row.messages.map(turnView));
  byId("talk").hidden = !row.messages.length;
  byId("talk").open = row.messages.length > 2;
  byId("tool").replaceChildren(toolView(row.tool));
  byId("others").replaceChildren(...row.others.map(toolView));
  byId("beside").hidden = !row.others.length;
  byId("note").value = row.given.note;
  for (const button of document.querySelectorAll("[data-label]"))
    button.classList.toggle("given", button.dataset.label === row.given.label);
  scrollTo(0, 0);
}

async function guarded(work) {
  if (busy) return;
  busy = true;
  byId("error").textContent = "";
  try { await work(); } catch (error) { byId("error").textContent = String(error.message || error); }
  busy = false;
}

const label = (name) => guarded(async () => {
  if (place >= state.labels.length) return;
  state = await ask("/api/labels", { place, label: name, note: byId("note").value });
  document.activeElement.blur();
  await show(place + 1);
});

const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(0)}%`);
const between = (one) => `${percent(one.low)} to ${percent(one.high)} · n = ${one.n}`;

function figure(title, value, under) {
  const box = element("div", null, "card");
  box.append(element("div", title, "soft"), element("div", value, "big"), element("div", under, "soft"));
  return box;
}

function showReport(found) {
  for (const id of ["item", "done", "foot", "finish"]) byId(id).hidden = true;
  const box = byId("report");
  const all = found.filters_and_judge;
  const figures = element("div", null, "figures");
  const kappa = all.kappa === null ? "–" : all.kappa.toFixed(2);
  figures.append(
    figure("Good by your labels", percent(found.good_share.value), between(found.good_share)),
    figure("Filters and judge agree with you", percent(all.accuracy.value), between(all.accuracy)),
    figure("Cohen's kappa", kappa, all.kappa === null ? "not defined here" :
      `${all.kappa_low.toFixed(2)} to ${all.kappa_high.toFixed(2)} · n = ${all.n}`),
    figure("Bad rows they refused", percent(all.catch.value), between(all.catch)),
    figure("Good rows they refused", percent(all.false_alarms.value), between(all.false_alarms)),
    figure("The judge alone agrees", percent(found.judge.accuracy.value), between(found.judge.accuracy)));
  box.replaceChildren(element("h2", "Agreement, with 95% intervals"), figures);
  box.append(element("p", `Judge: ${found.judges.join(", ") || "none"}. Your labels are in ${found.file}.`, "soft"));
  if (found.disagreements.length) box.append(element("h2", "Where you differ"));
  for (const one of found.disagreements) {
    const card = element("div", null, "card");
    card.append(element("div", one.instruction));
    card.append(pairs([["you", one.label + (one.note ? `: ${one.note}` : "")],
      ["they", [one.verdict, one.score === null ? "" : `score ${one.score}`, one.flaws.join(", "), one.reasons || ""].filter(Boolean).join(" · ")]]));
    box.append(card, element("p"));
  }
  box.append(element("p", "The command has ended; this page can be closed.", "soft"));
  box.hidden = false;
  scrollTo(0, 0);
}

const finish = () => guarded(async () => showReport(await ask("/api/finish", {})));
const go = (at) => guarded(() => show(at));

for (const button of document.querySelectorAll("[data-label]"))
  button.addEventListener("click", () => label(button.dataset.label));
byId("back").addEventListener("click", () => go(place - 1));
byId("next").addEventListener("click", () => go(place + 1));
byId("finish").addEventListener("click", finish);
addEventListener("keydown", (event) => {
  if (event.target === byId("note")) {
    if (event.key === "Escape") byId("note").blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || byId("foot").hidden) return;
  const named = { g: "good", b: "bad", s: "skip" }[event.key];
  if (named) { event.preventDefault(); label(named); }
  else if (event.key === "n") { event.preventDefault(); byId("note").focus(); }
  else if (event.key === "ArrowLeft") go(place - 1);
  else if (event.key === "ArrowRight") go(place + 1);
});

guarded(async () => { state = await ask("/api/state"); await show(state.next); });
