// A table in, the same table with labels out: the file is read here, asked about in portions, and can be stopped.

"use strict";

// What a table can be given: predictions, or for models without a task the similarity to a text.
function tableTask(model) {
  return { id: "table", title: model.can.includes("predict") ? "Label a table" : "Compare a table" };
}

class Labelling {
  constructor(column) {
    this.column = column;
    this.model = column.model;
    this.labels = this.model.can.includes("predict");
    this.fields = this.labels ? predictFields(this.model.task) : [{ name: "text", label: "Text" }];
    this.input = element("input", { type: "file", accept: ".csv,.tsv,.txt", id: freshId("file"), onchange: () => this.read(this.input.files[0]) });
    const drop = element("div.drop", {
      ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); },
      ondragleave: () => drop.classList.remove("over"),
      ondrop: (event) => {
        event.preventDefault();
        drop.classList.remove("over");
        this.read(event.dataTransfer.files[0]);
      },
    }, element("label", { for: this.input.id }, "A table with a heading (CSV or TSV)"), this.input,
    element("p.quiet.small", {}, page.client instanceof WorkerClient ? "It is read in this page and goes nowhere." : "Its texts are sent to this server."));
    this.setup = element("div.asking", {});
    this.found = element("div.asking", {});
    this.node = element("div.asking", {}, element("div.card", {}, drop), this.setup, this.found);
  }

  stop() { this.abort?.abort(); }

  async read(file) {
    this.stop();
    this.found.replaceChildren();
    if (!file) return;
    try {
      this.table = await readTable(file);
    } catch (error) {
      this.setup.replaceChildren(element("p.failed", { role: "alert" }, `${file.name}: ${error.message}`));
      return;
    }
    const { heads, rows } = this.table;
    this.columns = new Map();
    const longest = heads.map((_, place) => rows.slice(0, 50).reduce((sum, row) => sum + row[place].length, 0));
    const usual = longest.indexOf(Math.max(...longest));
    const choices = this.fields.map((one, number) => {
      const same = heads.findIndex((head) => head.toLowerCase() === one.name.toLowerCase());
      const options = this.fields.length > 1 || one.list ? [element("option", { value: "" }, "(none)")] : [];
      const select = element("select", {}, options, heads.map((head, place) => element("option", { value: place }, head)));
      select.value = same >= 0 ? same : this.fields.length === 1 ? usual : heads[number] !== undefined ? number : "";
      this.columns.set(one.name, select);
      return field(`Column for ${one.label.toLowerCase() === one.name.toLowerCase() ? one.name : one.label.toLowerCase()}`, select,
        one.list ? "options separated by |" : "");
    });
    this.query = this.labels ? null : element("textarea", { rows: 2, value: "Where is my parcel?" });
    this.start = element("button.button.main", { type: "button", onclick: () => this.run() }, `Label ${rows.length.toLocaleString("en")} rows`);
    if (!this.labels) this.start.textContent = `Compare ${rows.length.toLocaleString("en")} rows`;
    this.stopper = element("button.button", { type: "button", disabled: true, onclick: () => this.stop() }, "Stop");
    this.bar = element("progress", { max: rows.length, "aria-label": "Rows done" });
    this.bar.value = 0;
    this.bar.hidden = true;
    this.say = element("p.quiet.small", { role: "status" });
    const most = this.labels ? this.model.task.max_tokens : this.model.max_tokens;
    const depth = new Dial(this.model, this.column.dial.depth, () => {});
    this.dial = depth;
    this.setup.replaceChildren(element("div.card.asking", {},
      element("p", {}, element("b", {}, this.table.name), ` — ${rows.length.toLocaleString("en")} rows, ${heads.length} columns. `,
        element("span.quiet.small", {}, `Of longer texts the first ${most} tokens are read.`)),
      element("div.grid", {}, choices, this.query ? field("Similarity to", this.query) : null, depth.node),
      element("div.row", {}, this.start, this.stopper), this.bar, this.say));
    this.preview([], rows.slice(0, 5));
  }

  // The item of a row, as POST /predict takes it.
  itemOf(row) {
    const values = Object.fromEntries(this.fields.map((one) => {
      const place = this.columns.get(one.name).value;
      const cell = place === "" ? "" : row[Number(place)];
      return [one.name, one.list ? cell.split("|").map((option) => option.trim()).filter(Boolean) : cell];
    }));
    return this.labels ? itemOf(values, this.model.task, this.fields) : values.text;
  }

  // The new columns: their names, and their cells from a result.
  get added() {
    if (!this.labels) return { heads: ["similarity"], cells: (result) => [result.toFixed(4)] };
    const { kind, labels } = this.model.task;
    const share = (one) => one.toFixed(6);
    if (kind === "regress") return { heads: ["label"], cells: (result) => [String(result.label)] };
    if (kind === "multilabel") return { heads: ["label", ...labels], cells: (result) => [result.label.join(";"), ...labels.map((name) => share(result.probabilities[name]))] };
    if (kind === "classify") return { heads: ["label", "probability", ...labels], cells: (result) => [result.label, share(result.probability), ...labels.map((name) => share(result.probabilities[name]))] };
    return { heads: ["label", "probability"], cells: (result) => [result.label, share(result.probability)] };
  }

  async portion(rows, signal) {
    const depth = this.model.any_depth ? this.dial.depth : undefined;
    const shared = { model: this.model.name, depth, truncate: true };
    const items = rows.map((row) => this.itemOf(row));
    if (this.labels) return (await page.client.send("/predict", { ...shared, inputs: items }, signal)).results;
    const found = await page.client.send("/v1/embeddings", { ...shared, input: [this.query.value, ...items] }, signal);
    const [query, ...rest] = found.data.map((one) => one.embedding);
    return rest.map((vector) => cosine(query, vector));
  }

  async run() {
    const { rows } = this.table;
    const { signal } = this.abort = new AbortController();
    const done = new Array(rows.length);
    const begun = performance.now();
    let [next, count] = [0, 0];
    this.busy(true);
    const worker = async () => {
      while (next < rows.length && !signal.aborted) {
        const first = next;
        next += page.client.portion;
        const some = rows.slice(first, first + page.client.portion);
        const found = await this.portion(some, signal);
        found.forEach((result, place) => { done[first + place] = result; });
        count += some.length;
        this.bar.value = count;
        const seconds = (performance.now() - begun) / 1000;
        const left = (rows.length - count) * (seconds / count);
        this.say.textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows, ${(count / seconds).toFixed(0)} a second${left > 2 ? `, ${left.toFixed(0)} s left` : ""}`;
      }
    };
    let failure = null;
    await Promise.all(Array.from({ length: page.client.parallel }, worker)).catch((error) => {
      failure = signal.aborted ? null : error;
      this.stop();
    });
    this.busy(false);
    if (failure) this.say.textContent = `Stopped: ${failure.message}`;
    else if (signal.aborted) this.say.textContent = `Stopped after ${count.toLocaleString("en")} rows; those are below.`;
    else this.say.textContent = `${count.toLocaleString("en")} rows in ${((performance.now() - begun) / 1000).toFixed(1)} s.`;
    if (count) this.finish(done);
  }

  busy(busy) {
    this.start.disabled = busy;
    this.stopper.disabled = !busy;
    this.bar.hidden = !busy;
    if (busy) this.stopper.focus();
    else this.start.focus();
  }

  // What was found, to look at and to keep; rows that were not reached have empty cells.
  finish(done) {
    const { heads, cells } = this.added;
    const names = heads.map((head) => {
      let name = head;
      while (this.table.heads.includes(name)) name = `predicted ${name}`;
      return name;
    });
    const rows = this.table.rows.map((row, place) => [...row, ...(done[place] === undefined ? names.map(() => "") : cells(done[place]))]);
    const reached = rows.filter((_, place) => done[place] !== undefined);
    this.preview(names, reached.slice(0, 50), [[...this.table.heads, ...names], ...rows]);
  }

  preview(names, rows, whole = null) {
    const few = Math.min(names.length, this.labels ? 2 : 1);
    const width = this.table.heads.length;
    const heads = [...this.table.heads, ...names.slice(0, few)].map((name, place) => element(place >= width ? "th.new" : "th", {}, name));
    const body = rows.map((row) => element("tr", {}, row.slice(0, width + few).map((cell, place) =>
      element(place >= width ? "td.cell.new" : "td.cell", {}, cell.length > 160 ? `${cell.slice(0, 160)} …` : cell))));
    const parts = [table(heads, body)];
    if (whole) {
      const text = writeRows(whole, this.table.separator);
      const link = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
      const name = this.table.name.replace(/(\.\w+)?$/, "-labelled$1");
      parts.unshift(element("div.row", {}, element("a.button.main", { href: link, download: name, style: null }, `Save ${name}`),
        rows.length < whole.length - 1 ? element("span.quiet.small", {}, `the first ${rows.length} rows are shown`) : null));
    }
    this.found.replaceChildren(...parts);
  }
}
