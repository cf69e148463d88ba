// Answers the requests of `litebert serve` (docs/serve.md) inside a browser: a worker that runs exported models with
// onnxruntime-web, one input at a time and without padding, as litebert's runtime does.

"use strict";

const whole = (numbers, dims = [numbers.length]) => [BigInt64Array.from(numbers, BigInt), dims];
const NEVER = { confidence: 2, patience: 1 << 30 }; // what no answer reaches: the exits are off

class Model {
  // `about` is what pages/described.py says of an exported folder.
  constructor(session, tokenizer, about) {
    this.session = session;
    this.tokenizer = tokenizer;
    this.about = about;
    this.info = about.info;
  }

  // The outputs of these names for one input, as typed arrays.
  async run(names, input, { depth, rule = {}, positions = [] }) {
    const { Tensor } = self.ort;
    const most = this.info.task ? Infinity : this.about.max_positions ?? Infinity;
    if (input.ids.length > most) throw new BadRequest("text_too_long", `a text has ${input.ids.length} tokens but the model reads ${most}`);
    const given = {
      input_ids: whole(input.ids),
      segments: whole(input.segments),
      depth: whole([depth ?? this.info.layers], []),
      positions: whole(positions),
      confidence: [Float32Array.of(rule.confidence ?? NEVER.confidence), []],
      patience: whole([rule.patience ?? NEVER.patience], []),
    };
    const fed = {};
    for (const name of this.session.inputNames) {
      const [data, dims] = given[name];
      fed[name] = new Tensor(data instanceof Float32Array ? "float32" : "int64", data, dims);
    }
    const found = await this.session.run(fed, names);
    return Object.fromEntries(names.map((name) => [name, found[name].data]));
  }

  can(request) {
    if (!this.info.can.includes(request)) throw new BadRequest("not_able", `${this.info.name} cannot answer ${request}`);
  }

  // Refuses an input that was cut unless that was asked for.
  checked(input, body, index) {
    if (input.cut && !body.truncate) throw new BadRequest("text_too_long", `inputs[${index}] is longer than the model reads`, index);
    return input;
  }

  lowered(text) { return this.about.sentence.lower_case ? text.toLowerCase() : text; }

  // --- The requests: each returns the inputs it needs and how their outputs become results

  async predict(body, clock) {
    this.can("predict");
    const { task } = this.about;
    const rule = this.rule(body);
    const names = task.kind === "span" ? ["start", "end", ...(this.about.answerable ? ["answerable"] : [])]
      : [...(rule ? ["exit_logits", "exit_depth"] : ["logits"])];
    const results = [];
    for (const [index, item] of listed(body.inputs).entries()) {
      const inputs = clock("tokenize", () => KINDS[task.kind].encode(item, this.tokenizer, task));
      const scores = [];
      for (const input of inputs) {
        const found = await this.run(names, this.checked(input, body, index), { depth: body.depth, rule: rule ?? {} });
        scores.push(rule ? { logits: found.exit_logits } : found);
        if (rule) scores[scores.length - 1].depth = Number(found.exit_depth[0]);
        clock.count(input.ids.length);
      }
      results.push(KINDS[task.kind].decode(item, inputs, scores, task));
      if (rule) results[results.length - 1].depth = scores[0].depth;
    }
    return results;
  }

  rule(body) {
    if (body.exits === undefined || body.exits === false) return null;
    const stored = this.about.exits;
    if (!stored) throw new BadRequest("not_able", `${this.info.name} has no early exits`);
    if (body.depth != null) throw new BadRequest("bad_field", "exits and depth cannot be combined");
    if (body.exits === true) return stored.rule === "depth" ? {} : { [stored.rule]: stored.value };
    return { [body.exits < 1 ? "confidence" : "patience"]: body.exits };
  }

  async fill(body, clock) {
    this.can("fill");
    const results = [];
    const top = body.top ?? 5;
    for (const [index, text] of listed(body.inputs).entries()) {
      const input = clock("tokenize", () => this.tokenizer.layOut(this.tokenizer.textIds(text), null, this.info.max_tokens));
      const gaps = this.checked(input, body, index).ids.flatMap((id, place) => (id === this.about.tokenizer.mask ? [place] : []));
      if (!gaps.length) throw new BadRequest("bad_field", `there is no ${this.info.mask_token} in inputs[${index}]; put one where a word is missing`, index);
      const { tokens } = await this.run(["tokens"], input, { depth: body.depth, positions: gaps });
      clock.count(input.ids.length);
      const size = tokens.length / gaps.length;
      results.push({
        masks: gaps.map((place, row) => likeliest(softmax(tokens.subarray(row * size, (row + 1) * size)), top)
          .map(([id, probability]) => this.guess(input.ids, place, id, probability))),
      });
    }
    return results;
  }

  guess(ids, place, id, probability) {
    const token = this.tokenizer.decode([id]) || this.tokenizer.pieces.get(id);
    return { token, id, probability, word: this.word(ids, place, id) || token };
  }

  // The whole word that a piece is part of in this place; … where its beginning is not known.
  word(ids, place, id) {
    const { tokenizer } = this;
    const letters = (one) => /[\p{L}\p{N}]/u.test(tokenizer.decode([one]));
    if (!letters(id)) return "";
    const begins = (at) => tokenizer.startsWord(at === place ? id : ids[at]);
    let [first, last] = [place, place + 1];
    while (!begins(first) && letters(ids[first - 1])) first--;
    while (last < ids.length && !begins(last) && letters(ids[last])) last++;
    const word = tokenizer.decode([...ids.slice(first, place), id, ...ids.slice(place + 1, last)]);
    return begins(first) || (tokenizer.marking === "byte-level" && first === 1) ? word : `…${word.replace(/^##/, "")}`;
  }

  async order(body, clock) {
    this.can("order");
    const results = [];
    for (const [index, [first, second]] of body.inputs.entries()) {
      const shares = [];
      for (const pair of [[first, second], [second, first]]) {
        const input = clock("tokenize", () => this.laidOut(...pair));
        const { order } = await this.run(["order"], this.checked(input, body, index), { depth: body.depth });
        clock.count(input.ids.length);
        shares.push(softmax(order)[0]);
      }
      results.push({ in_order: (shares[0] + 1 - shares[1]) / 2 });
    }
    return results;
  }

  laidOut(first, second = null) {
    const ids = (text) => this.tokenizer.textIds(this.lowered(text));
    return this.tokenizer.layOut(ids(first), second === null ? null : ids(second), this.info.max_tokens);
  }

  async embeddings(body, clock) {
    this.can("embeddings");
    const output = { mean: "mean", first: "first", pooler: "pooled" }[body.pooling ?? this.info.pooling];
    const data = [];
    for (const [index, text] of listed(body.input).entries()) {
      const input = clock("tokenize", () => this.laidOut(text));
      const found = await this.run([output], this.checked(input, body, index), { depth: body.depth });
      clock.count(input.ids.length);
      const vector = Array.from(found[output]);
      const length = Math.max(Math.hypot(...vector), 1e-12);
      const scaled = body.normalize ?? this.info.normalize;
      data.push({ object: "embedding", index, embedding: scaled ? vector.map((one) => one / length) : vector });
    }
    return data;
  }

  tokenize(body) {
    return listed(body.inputs).map((given) => {
      const [first, second] = isText(given) ? [given, null] : given;
      const ids = this.tokenizer.layOut(this.tokenizer.textIds(first), second === null ? null : this.tokenizer.textIds(second));
      return { ids: ids.ids, tokens: ids.ids.map((id) => this.tokenizer.pieces.get(id)), segments: ids.segments };
    });
  }
}

const listed = (inputs) => (Array.isArray(inputs) ? inputs : [inputs]);

// [place, share] of the largest shares, the largest first and the earlier of equal ones.
function likeliest(shares, top) {
  const found = [];
  shares.forEach((share, place) => {
    if (found.length === top && share <= found[top - 1][1]) return;
    let at = found.length;
    while (at && found[at - 1][1] < share) at--;
    found.splice(at, 0, [place, share]);
    if (found.length > top) found.pop();
  });
  return found;
}

const REQUESTS = { "/predict": "predict", "/fill": "fill", "/order": "order", "/v1/embeddings": "embeddings", "/tokenize": "tokenize" };
const models = new Map();

async function answer(route, body) {
  if (route === "/info") return { models: Array.from(models.values(), (model) => model.info) };
  const name = body.model ?? models.keys().next().value;
  const model = models.get(name);
  if (!model) throw new BadRequest("no_such_model", `there is no model '${name}'`);
  if (body.depth != null && !(model.info.any_depth && Number.isInteger(body.depth) && body.depth >= 1 && body.depth <= model.info.layers)) {
    throw new BadRequest("bad_field", `depth is ${body.depth} but must be 1 to ${model.info.layers}, where the model takes one`);
  }
  const begun = performance.now();
  let [tokenizing, tokens] = [0, 0];
  const clock = (_, work) => {
    const start = performance.now();
    try {
      return work();
    } finally {
      tokenizing += performance.now() - start;
    }
  };
  clock.count = (more) => { tokens += more; };
  const results = await model[REQUESTS[route]](body, clock);
  const total = performance.now() - begun;
  const timing = { tokenize: tokenizing, model: total - tokenizing, total };
  const usage = { tokens };
  return route === "/v1/embeddings" ? { object: "list", model: name, data: results, usage, timing } : { model: name, results, usage, timing };
}

// --- What the page sends

async function unpacked(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

async function start({ script, wasm }) {
  const source = await unpacked(script);
  self.ort = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  // Threads need a page that is isolated from others, which a file cannot be.
  Object.assign(self.ort.env.wasm, { numThreads: 1, proxy: false, wasmBinary: await unpacked(wasm) });
}

async function load({ about, graph, tokenizer }) {
  const [bytes, words] = await Promise.all([unpacked(graph), unpacked(tokenizer)]);
  const session = await self.ort.InferenceSession.create(new Uint8Array(bytes), {
    executionProviders: ["wasm"], enableMemPattern: false, logSeverityLevel: 3,
  });
  const model = new Model(session, new Tokenizer(JSON.parse(new TextDecoder().decode(words)), about.tokenizer), about);
  models.set(about.info.name, model);
  // Once before anybody waits: the first run allocates, and WebAssembly is compiled better when it has run.
  await model.run(["mean"], model.laidOut("once"), { depth: 1 });
}

const ORDERS = { start, load, request: ({ route, body }) => answer(route, body) };
let last = Promise.resolve();

self.onmessage = ({ data: { id, order, ...rest } }) => {
  last = last.then(async () => {
    try {
      self.postMessage({ id, found: await ORDERS[order](rest) });
    } catch (error) {
      const { code = "failed", index = null, message = String(error) } = error ?? {};
      self.postMessage({ id, error: { code, index, message } });
    }
  });
};
