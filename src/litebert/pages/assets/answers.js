// How answers look, for each kind of question: in full, and in a few words for tables and for whoever listens.

"use strict";

const words = (label) => (Array.isArray(label) ? label.join(", ") || "none" : typeof label === "number" ? label.toPrecision(4) : label);

function shares(probabilities) {
  return Object.entries(probabilities).map(([name, share]) => ({ name, share })).sort((one, other) => other.share - one.share);
}

// For each kind of task: { full(result, item), brief(result): { text, share } }.
const PREDICTED = {
  classify: {
    full: (result) => bars(shares(result.probabilities).slice(0, 12)),
    brief: (result) => ({ text: result.label, share: result.probability }),
  },
  multilabel: {
    full: (result) => bars(shares(result.probabilities), (row) => result.label.includes(row.name)),
    brief: (result) => ({ text: words(result.label), share: Math.max(...Object.values(result.probabilities)) }),
  },
  regress: {
    full: (result) => element("p.big", {}, words(result.label)),
    brief: (result) => ({ text: words(result.label), share: null }),
  },
  choice: {
    full: (result) => bars(shares(result.probabilities)),
    brief: (result) => ({ text: result.label, share: result.probability }),
  },
  span: {
    full: (result, item) => element("div.answer", {},
      element("p.big", {}, result.label || "No answer in this text"),
      element("p.passage", {}, marked(item.context, result))),
    brief: (result) => ({ text: result.label || "no answer", share: result.probability }),
  },
};

// The passage with its answer marked; places count code points.
function marked(passage, { start, end }) {
  if (start === undefined || start === null) return passage;
  const chars = Array.from(passage);
  return [chars.slice(0, start).join(""), element("mark", {}, chars.slice(start, end).join("")), chars.slice(end).join("")];
}

function filled(result) {
  return element("div.answer", {}, result.masks.map((guesses, place) => element("div", {},
    result.masks.length > 1 ? element("h2", {}, `Gap ${place + 1}`) : null,
    bars(guesses.map((guess) => ({ name: guess.word || guess.token, share: guess.probability }))))));
}

function ordered(result, [first, second]) {
  const rows = [{ name: `${first} → ${second}`, share: result.in_order }, { name: `${second} → ${first}`, share: 1 - result.in_order }];
  return bars(rows, (row) => row.share >= 0.5);
}

function cosine(one, other) {
  let [product, first, second] = [0, 0, 0];
  one.forEach((value, place) => {
    product += value * other[place];
    first += value * value;
    second += other[place] * other[place];
  });
  return product / Math.max(Math.sqrt(first * second), 1e-12);
}

function likeness(data, others) {
  const [text, ...rest] = data.map((one) => one.embedding);
  return others.map((name, place) => ({ name, share: cosine(text, rest[place]) }))
    .map((row) => ({ ...row, shown: row.share.toFixed(3) })).sort((one, other) => other.share - one.share);
}
