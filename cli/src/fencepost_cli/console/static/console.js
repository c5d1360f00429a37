// Keys, the help, and what a user sees when the console does not answer.
"use strict";

const links = () => [...document.querySelectorAll("a.pick")].filter((link) => link.offsetParent !== null);
const help = () => document.getElementById("help");

function move(step) {
  const all = links();
  if (all.length === 0) return;
  const at = all.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1);
  all[next].focus();
  all[next].closest("tr, li")?.scrollIntoView({ block: "nearest" });
  if (next === all.length - 1) document.querySelector("a.more")?.click();
}

const KEYS = {
  "/": () => document.querySelector("input[type=search]")?.focus(),
  "?": () => help().showModal(),
  j: () => move(1),
  k: () => move(-1),
  u: () => document.querySelector("a.brand").click(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && typing) {
    event.target.blur();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || help().open) return;
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

document.getElementById("help-button").addEventListener("click", () => help().showModal());

// What did not change stays, with what is selected in it.
const answers = new WeakMap();
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, serverResponse, xhr } = event.detail;
  if (xhr.status === 200 && answers.get(target) === serverResponse) event.detail.shouldSwap = false;
  answers.set(target, serverResponse);
});

// A refreshed list has new elements: the focus stays on the same pipeline.
let focused = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  const at = document.activeElement;
  focused = event.detail.target.contains(at) && at.matches("a") ? at.getAttribute("href") : null;
});
document.addEventListener("htmx:afterSwap", () => {
  if (focused) [...document.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
  focused = null;
});

function lost(text) {
  const line = document.getElementById("lost");
  line.textContent = text;
  line.hidden = text === "";
}

document.addEventListener("htmx:sendError", () =>
  lost("The console does not answer. What you see is old. Start `fencepost console` again."));
document.addEventListener("htmx:responseError", (event) =>
  lost(event.detail.xhr.status === 401 ? event.detail.xhr.responseText : `The console answered ${event.detail.xhr.status}.`));
document.addEventListener("htmx:afterOnLoad", (event) => {
  if (event.detail.xhr.status < 400) lost("");
});

// A page in the background asks for nothing.
document.addEventListener("htmx:beforeRequest", (event) => {
  const trigger = event.detail.requestConfig.triggeringEvent;
  if (document.hidden && !trigger) event.preventDefault();
});
