// The page itself: starts who answers, then lets people ask, with one model and depth or with two side by side.

"use strict";

const page = {
  client: document.getElementById("models") ? new WorkerClient() : new ServerClient(),
  panel: document.getElementById("panel"),
  status: document.getElementById("status"),
};

function say(text, mood = "") {
  page.status.textContent = text;
  page.status.className = mood;
}

// Whether a model can be asked the question of a task; of predictions only those of the same kind compare.
function able(model, task) {
  return tasksOf(model).some((one) => one.id === task.id && one.kind === task.kind);
}

// --- A column: a model at a depth, and its answers

class Column {
  constructor(model, depth, change) {
    this.change = change;
    this.exits = false;
    this.node = element("article.card.column", {});
    this.answer = element("div.answer", {});
    this.time = element("p.time", { "aria-live": "polite" });
    this.every = element("div.every", {});
    this.use(model, depth);
  }

  use(model, depth = model.layers) {
    this.model = model;
    this.dial = new Dial(model, depth, () => this.change(this));
    const choose = page.client.models.length > 1 ? element("select", {
      id: freshId("model"),
      onchange: (event) => {
        this.use(page.client.models.find((one) => one.name === event.target.value));
        this.change(this, true);
      },
    }, page.client.models.map((one) => element("option", { value: one.name }, one.name))) : null;
    if (choose) choose.value = model.name;
    const exits = model.exits ? element("label.check", {}, element("input", {
      type: "checkbox",
      checked: this.exits,
      onchange: (event) => {
        this.exits = event.target.checked;
        this.dial.rest(this.exits || !model.any_depth);
        this.change(this);
      },
    }), "Stop as soon as the answer is clear") : null;
    if (!model.exits) this.exits = false;
    this.dial.rest(this.exits || !model.any_depth);
    const asking = element("div", {},
      choose ? field("Model", choose) : null,
      this.dial.node, exits, this.time);
    this.node.replaceChildren(asking, this.answer, this.every);
  }

  clear(text) {
    this.node.classList.remove("stale");
    this.answer.replaceChildren(element("p.quiet", {}, text));
    this.time.textContent = "";
    this.every.replaceChildren();
    this.dial.forget();
  }

  async ask(task, values, signal) {
    if (!able(this.model, task)) return this.clear(`${this.model.name} cannot answer this.`);
    const asked = task.request(values, this.model);
    if (!asked) return this.clear(task.fields.length > 1 ? "Fill in the texts to see an answer." : "Type a text to see an answer.");
    this.node.classList.add("stale");
    const about = JSON.stringify([asked.route, asked.body]);
    if (about !== this.about) { // times and answers of another text
      this.dial.forget();
      this.every.replaceChildren();
    }
    this.about = about;
    try {
      const setting = this.exits && task.id === "predict" ? { exits: true } : { depth: this.model.any_depth ? this.dial.depth : undefined };
      const found = await ask(page.client, asked.route, { ...asked.body, model: this.model.name, ...setting }, signal);
      signal.throwIfAborted();
      this.show(task, values, found);
      return { ...asked, body: { ...asked.body, truncate: found.cut } };
    } catch (error) {
      if (signal.aborted) return null;
      this.clear("");
      this.answer.replaceChildren(element("p.failed", { role: "alert" }, error.message));
      return null;
    } finally {
      if (!signal.aborted) this.node.classList.remove("stale");
    }
  }

  show(task, values, found) {
    const { text, share } = task.brief(found, values);
    const early = this.exits && task.id === "predict";
    const stopped = found.results?.[0]?.depth;
    if (!early) this.dial.took(this.dial.depth, found.timing.total);
    this.answer.replaceChildren(task.full(found, values));
    if (found.cut) this.answer.append(element("p.notice", {}, "The text is longer than the model reads; only its beginning was read."));
    const where = early ? (stopped ? `stopped at depth ${stopped}` : "with early exit") : `depth ${this.dial.depth}`;
    const sure = share === null || share === undefined ? "" : ` (${task.id === "likeness" ? share.toFixed(3) : percent(share)})`;
    this.time.replaceChildren(element("b", {}, `${milliseconds(found.timing.total)} ms`), ` · ${where} · ${text}${sure}`);
  }

  // The same question at every depth, one after the other, the lowest row first.
  async askEvery(task, values, asked, signal) {
    const cosines = task.id === "likeness";
    const heads = [element("th.number", {}, "depth"), element("th", {}, "answer"), element("th.share", {}),
      element("th.number", {}, cosines ? "cosine" : "probability"), element("th.number", {}, "ms")];
    const body = table(heads, []);
    this.every.replaceChildren(element("h2", {}, "The same at every depth"), body);
    for (let depth = 1; depth <= this.model.layers; depth++) {
      const found = await ask(page.client, asked.route, { ...asked.body, model: this.model.name, depth }, signal);
      signal.throwIfAborted();
      this.dial.took(depth, found.timing.total);
      if (depth === this.dial.depth) this.time.firstChild.textContent = `${milliseconds(this.dial.times.get(depth))} ms`;
      const { text, share } = task.brief(found, values);
      body.querySelector("tbody").prepend(element(depth === this.dial.depth ? "tr.now" : "tr", {},
        element("td.number", {}, depth),
        element("td.cell", {}, text),
        element("td.share", {}, share === null ? null : element("span.track", { "aria-hidden": "true" },
          element("i", { "--share": `${100 * Math.max(0, share)}%` }))),
        element("td.number", {}, share === null ? "" : cosines ? share.toFixed(3) : percent(share)),
        element("td.number", {}, milliseconds(this.dial.times.get(depth)))));
    }
  }
}

// --- Asking

class Asking {
  constructor(task, columns) {
    this.task = task;
    this.columns = columns;
    this.abort = new AbortController();
    this.every = page.client instanceof WorkerClient; // a server may have better things to do
    this.values = Object.fromEntries(task.fields.map((one) => [one.name, one.list ? [] : ""]));
    Object.assign(this.values, task.examples[0] ?? {});
    this.tokens = element("ul.tokens", { "aria-label": "Tokens" });
    this.holder = element("div.columns", {});
    this.compare = element("button.button", { type: "button", "aria-pressed": "false", onclick: () => this.toggle() },
      "Compare two");
    const everyBox = element("label.check", {}, element("input", {
      type: "checkbox", checked: this.every, onchange: (event) => { this.every = event.target.checked; this.run(0); },
    }), "Every depth");
    const anyDepth = page.client.models.some((one) => one.any_depth);
    this.fields = element("div.fields", {});
    this.draw();
    this.node = element("div", {},
      element("form.card.asking", { onsubmit: (event) => { event.preventDefault(); this.run(0); } },
        this.fields,
        element("div.row.between", {}, this.examples(),
          element("div.row", {}, anyDepth ? everyBox : null, anyDepth || page.client.models.length > 1 ? this.compare : null)),
        element("div", {}, element("p.label", {}, "Tokens"), this.tokens)),
      this.holder);
    this.place();
    this.run(0);
  }

  // A control for each field, with what it holds now.
  draw() {
    const controls = this.task.fields.map((one) => {
      const control = element("textarea", {
        name: one.name, rows: one.rows, spellcheck: "false", autocomplete: "off",
        value: one.list ? this.values[one.name].join("\n") : this.values[one.name],
        oninput: () => {
          this.values[one.name] = one.list ? control.value.split("\n").map((line) => line.trim()).filter(Boolean) : control.value;
          this.run(160);
        },
      });
      const whole = field(one.label, control, one.hint);
      if (one.insert) {
        whole.append(element("button.link.small", {
          type: "button",
          onclick: () => {
            control.setRangeText(one.insert, control.selectionStart, control.selectionEnd, "end");
            control.focus();
            control.dispatchEvent(new Event("input"));
          },
        }, `Insert ${one.insert}`));
      }
      return whole;
    });
    this.fields.replaceChildren(...controls);
  }

  examples() {
    const row = element("div.row.small", {}, element("span.quiet", {}, this.task.examples.length > 1 ? "Try" : this.task.about));
    if (this.task.examples.length > 1) {
      this.task.examples.forEach((values, place) => row.append(element("button.link", {
        type: "button", onclick: () => { Object.assign(this.values, values); this.draw(); this.run(0); },
      }, values.text ?? `example ${place + 1}`)));
    }
    return row;
  }

  // Opens or closes the second column: another model where there is one, else half the depth.
  toggle() {
    if (this.columns.length > 1) this.columns.pop();
    else {
      const [{ model }] = this.columns;
      const other = page.client.models.find((one) => one.name !== model.name && able(one, this.task));
      const column = new Column(other ?? model, other ? other.layers : Math.ceil(model.layers / 2), (...change) => this.changed(...change));
      column.node.classList.add("other");
      this.columns.push(column);
    }
    this.place();
    this.run(0);
  }

  place() {
    const two = this.columns.length > 1;
    for (const column of this.columns) column.change = (...change) => this.changed(...change);
    this.compare.setAttribute("aria-pressed", String(two));
    this.holder.classList.toggle("two", two);
    this.holder.replaceChildren(...this.columns.map((column) => column.node));
  }

  changed(column, model = false) {
    if (model && column === this.columns[0]) openTask(this.task.id, column); // its fields may be others
    else this.run(0);
  }

  run(delay) {
    this.abort.abort();
    this.abort = new AbortController();
    clearTimeout(this.timer);
    this.holder.setAttribute("aria-busy", "true");
    this.timer = setTimeout(() => this.answer(this.abort.signal), delay);
  }

  stop() {
    clearTimeout(this.timer);
    this.abort.abort();
  }

  async answer(signal) {
    this.showTokens(signal);
    const values = structuredClone(this.values);
    const asked = [];
    for (const column of this.columns) {
      asked.push(await column.ask(this.task, values, signal));
      if (signal.aborted) return;
    }
    this.holder.setAttribute("aria-busy", "false");
    await new Promise((resolve) => setTimeout(resolve, 350)); // until nobody types
    for (const [place, column] of this.columns.entries()) {
      if (signal.aborted) return;
      if (!this.every || !asked[place] || !column.model.any_depth || column.exits) column.every.replaceChildren();
      else await column.askEvery(this.task, values, asked[place], signal).catch(() => null);
    }
  }

  async showTokens(signal) {
    const given = this.task.texts(this.values);
    const { model } = this.columns[0];
    try {
      const inputs = [given.length > 1 ? given : given[0]];
      const { results: [found] } = await page.client.send("/tokenize", { inputs, model: model.name }, signal);
      if (signal.aborted) return;
      const most = 160;
      const chips = found.tokens.slice(0, most).map((token, place) => {
        const special = /^(\[[A-Z]+\]|<[^<>\s]+>)$/.test(token) && token !== model.mask_token;
        const kind = token === model.mask_token ? "li.mask" : special ? "li.special" : found.segments[place] ? "li.second" : "li";
        return element(kind, { title: `id ${found.ids[place]}` }, token.replaceAll("▁", "·"));
      });
      const rest = found.tokens.length - most;
      this.tokens.replaceChildren(...chips, ...(rest > 0 ? [element("li.special", {}, `and ${rest} more`)] : []));
    } catch {
      if (!signal.aborted) this.tokens.replaceChildren();
    }
  }
}

// --- Tabs

let open = null;

function openTask(id, column) {
  open?.stop();
  const tasks = tasksOf(column.model);
  const tabs = [...tasks, tableTask(column.model)].filter(Boolean);
  const task = tabs.find((one) => one.id === id) ?? tabs[0];
  const list = document.getElementById("tabs");
  list.replaceChildren(...tabs.map((one) => element("button", {
    type: "button", role: "tab", id: `tab-${one.id}`, "aria-controls": "panel", "aria-selected": String(one === task),
    tabindex: one === task ? "0" : "-1", onclick: () => openTask(one.id, column),
  }, one.title)));
  page.panel.setAttribute("aria-labelledby", `tab-${task.id}`);
  open = task.id === "table" ? new Labelling(column) : new Asking(task, [column]);
  page.panel.replaceChildren(open.node);
}

document.getElementById("tabs").addEventListener("keydown", (event) => {
  const tabs = Array.from(event.currentTarget.children);
  const place = tabs.indexOf(document.activeElement);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined || place < 0) return;
  event.preventDefault();
  const { id } = tabs[(place + step + tabs.length) % tabs.length];
  document.getElementById(id).click();
  document.getElementById(id).focus();
});

// --- Start

function askForKey(again) {
  const input = element("input", { type: "password", autocomplete: "off" });
  const form = element("form.card.asking", {
    onsubmit: (event) => {
      event.preventDefault();
      page.client.key = input.value;
      start();
    },
  }, field("Key", input, "that this server asks for; it stays in this page"), element("div.row", {}, element("button.button.main", { type: "submit" }, "Open")));
  document.getElementById("main").hidden = false;
  page.panel.replaceChildren(form);
  say(again ? "That key is not right" : "This server asks for a key", again ? "bad" : "");
  input.focus();
}

async function start() {
  const begun = performance.now();
  say("Starting …", "busy");
  try {
    await page.client.start((text) => say(text, "busy"));
  } catch (error) {
    if (error.code === "bad_key") askForKey(page.client.key !== "");
    else say(`Cannot start: ${error.message}`, "bad");
    return;
  }
  const { models } = page.client;
  const local = page.client instanceof WorkerClient;
  document.getElementById("title").textContent = models.map((one) => one.name).join(" and ");
  document.title = models.map((one) => one.name).join(" and ");
  const sizes = models.map((one) => `${one.layers} layers${one.megabytes ? `, ${one.megabytes} MB` : ""}`);
  document.getElementById("facts").textContent = Array.from(new Set(sizes)).join(" · ");
  document.getElementById("footer").textContent = local
    ? "The model runs in this page. Nothing you type leaves it: its security policy allows no connections."
    : "Texts are sent to this server and to nobody else.";
  document.getElementById("main").hidden = false;
  openTask(null, new Column(models[0], models[0].layers, () => {}));
  say(local ? `Ready after ${((performance.now() - begun) / 1000).toFixed(1)} s, offline` : "Connected");
  page.ready = performance.now();
}

start();
