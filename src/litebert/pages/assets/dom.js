// Making elements. Text only ever becomes text: nothing here, or in any other part, parses HTML.

"use strict";

let names = 0;
const freshId = (stem) => `${stem}-${++names}`;

// element("p.quiet.small", { title: "..." }, "text", child): strings become text, null is left out.
function element(kind, settings = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag);
  made.classList.add(...classes);
  for (const [name, value] of Object.entries(settings)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else if (name === "value" || name === "checked" || name === "disabled") made[name] = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

// A field with its label; `control` gets the id that the label points to.
function field(label, control, hint = "") {
  control.id ||= freshId("field");
  return element("div", {}, element("label", { for: control.id }, label, hint ? element("span.quiet", {}, ` ${hint}`) : null), control);
}

const percent = (share) => (share >= 0.9995 && share < 1 ? ">99.9%" : `${(100 * share).toFixed(1)}%`);
const milliseconds = (time) => (time < 9.95 ? time.toFixed(1) : time.toFixed(0));

// Bars for [{ name, share, shown }], shares from 0 to 1; `best` says which are set off.
function bars(rows, best = (row, place) => place === 0) {
  return element("ol.bars", {}, rows.map((row, place) => element(best(row, place) ? "li.best" : "li", {},
    element("span.name", {}, row.name),
    element("span.share", {}, row.shown ?? percent(row.share)),
    element("span.track", { "aria-hidden": "true" }, element("i", { "--share": `${100 * Math.max(0, Math.min(1, row.share))}%` })))));
}

function table(heads, rows) {
  return element("div.wide", { tabindex: "0", role: "region", "aria-label": "Table" }, element("table", {},
    element("thead", {}, element("tr", {}, heads)), element("tbody", {}, rows)));
}
