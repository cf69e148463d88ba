// Who answers: a server, or a worker in this page. Both take the requests of docs/serve.md and give their answers.

"use strict";

class RequestFailed extends Error {
  constructor({ message, code = "failed", index = null }) {
    super(message);
    this.code = code;
    this.index = index;
  }
}

class ServerClient {
  constructor() {
    this.key = "";
    this.place = "this server";
    this.parallel = 2; // requests in flight while a table is labelled
    this.portion = 16; // texts of one request
  }

  async start() {
    this.info = await this.send("/info");
    this.models = this.info.models;
    this.portion = Math.min(this.portion, this.info.limits?.texts ?? this.portion);
  }

  async send(route, body, signal) {
    const headers = { ...(body ? { "Content-Type": "application/json" } : {}), ...(this.key ? { Authorization: `Bearer ${this.key}` } : {}) };
    let reply;
    try {
      reply = await fetch(`.${route}`, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new RequestFailed({ message: "the server does not answer", code: "unreachable" });
    }
    if (reply.status === 429) { // the queue is full
      await new Promise((resolve) => setTimeout(resolve, 1000 * Number(reply.headers.get("Retry-After") ?? 1)));
      signal?.throwIfAborted();
      return this.send(route, body, signal);
    }
    const found = await reply.json().catch(() => ({}));
    if (!reply.ok) throw new RequestFailed(found.error ?? { message: `the server answers ${reply.status}` });
    const timing = Object.fromEntries(Array.from((reply.headers.get("Server-Timing") ?? "").matchAll(/([\w-]+);dur=([\d.]+)/g),
      ([, name, time]) => [name, Number(time)]));
    return { ...found, timing };
  }
}

class WorkerClient {
  constructor() {
    this.place = "your browser";
    this.parallel = 1;
    this.portion = 4;
    this.waiting = new Map();
    this.count = 0;
  }

  async start(report) {
    const text = (id) => {
      const holder = document.getElementById(id);
      const found = holder.textContent;
      holder.remove(); // tens of megabytes that nobody needs again
      return found;
    };
    const source = new Blob([text("worker")], { type: "text/javascript" });
    this.worker = new Worker(URL.createObjectURL(source));
    this.worker.onmessage = ({ data: { id, found, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error) reject(new RequestFailed(error));
      else resolve(found);
    };
    this.worker.onerror = (event) => {
      for (const { reject } of this.waiting.values()) reject(new RequestFailed({ message: `the worker stopped: ${event.message}` }));
      this.waiting.clear();
    };
    const described = JSON.parse(text("models"));
    const parts = { script: bytesOf(text("runtime-script")), wasm: bytesOf(text("runtime-wasm")) };
    const started = this.post("start", parts, Object.values(parts).map((one) => one.buffer));
    const loads = described.map((about, number) => {
      report(`Unpacking ${about.info.name} …`);
      const files = { graph: bytesOf(text(`graph-${number}`)), tokenizer: bytesOf(text(`tokenizer-${number}`)) };
      return this.post("load", { about, ...files }, Object.values(files).map((one) => one.buffer));
    });
    await Promise.all([started, ...loads]);
    this.models = described.map((about) => ({ ...about.info, megabytes: about.megabytes, bits: about.bits }));
  }

  post(order, more, transfer = []) {
    const id = this.count++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, order, ...more }, transfer);
    });
  }

  async send(route, body, signal) {
    signal?.throwIfAborted();
    return this.post("request", { route, body });
  }
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  return bytes;
}

// Asks; where a text is too long, asks again for what fits and says so.
async function ask(client, route, body, signal) {
  try {
    return await client.send(route, body, signal);
  } catch (error) {
    if (error.code !== "text_too_long") throw error;
    return { ...await client.send(route, { ...body, truncate: true }, signal), cut: true };
  }
}
