// The five kinds of task: an input of POST /predict becomes inputs of the network, the scores of its head an answer.
// The same as litebert/tasks/kinds in Python; a kind is { encode(item, tokenizer, task), decode(item, inputs, scores, task) }.

"use strict";

class BadRequest extends Error {
  constructor(code, message, index = null) {
    super(message);
    this.code = code;
    this.index = index;
  }
}

function softmax(row) {
  const most = row.reduce((found, one) => Math.max(found, one), -Infinity);
  const away = Array.from(row, (one) => Math.exp(one - most));
  const total = away.reduce((sum, one) => sum + one, 0);
  return away.map((one) => one / total);
}

function largest(row) {
  let found = 0;
  row.forEach((one, place) => { if (one > row[found]) found = place; });
  return found;
}

const sigmoid = (score) => 1 / (1 + Math.exp(-score));
const isText = (value) => typeof value === "string";

// --- One text or two

function textsOf(item, task) {
  if (isText(item)) {
    if (task.pairs) throw new BadRequest("bad_field", "this model reads pairs of texts; give two");
    return [item, null];
  }
  if (Array.isArray(item) && item.length === 2 && item.every(isText)) {
    if (task.text.length && !task.pairs) throw new BadRequest("bad_field", "this model reads single texts; give one");
    return item;
  }
  if (item && typeof item === "object" && !Array.isArray(item) && task.text.length) {
    const joined = task.text.map((part) => part.split("+").map((name) => {
      if (!Object.hasOwn(item, name)) throw new BadRequest("bad_field", `there is no ${name}, which this model was trained on`);
      return String(item[name] ?? "").trim();
    }).filter(Boolean).join("\n"));
    return [joined[0], joined[1] ?? null];
  }
  throw new BadRequest("bad_field", "an input must be a text, two texts, or the columns this model was trained on");
}

function encodeTexts(item, tokenizer, task) {
  const [first, second] = textsOf(item, task);
  return [tokenizer.layOut(tokenizer.textIds(first), second === null ? null : tokenizer.textIds(second), task.length)];
}

function chosen(names, shares) {
  const best = largest(shares);
  return { label: names[best], probability: shares[best], probabilities: Object.fromEntries(names.map((name, place) => [name, shares[place]])) };
}

const classify = {
  encode: encodeTexts,
  decode: (item, inputs, scores, task) => chosen(task.labels, softmax(scores[0].logits)),
};

const multilabel = {
  encode: encodeTexts,
  decode(item, inputs, scores, task) {
    const shares = Array.from(scores[0].logits, sigmoid);
    return {
      label: task.labels.filter((_, place) => shares[place] > 0.5),
      probabilities: Object.fromEntries(task.labels.map((name, place) => [name, shares[place]])),
    };
  },
};

const regress = {
  encode: encodeTexts,
  decode: (item, inputs, scores) => ({ label: scores[0].logits[0] }),
};

// --- One of several options

const choice = {
  encode(item, tokenizer, task) {
    const passage = item?.passage ?? "";
    if (!isText(item?.question) || !isText(passage) || !Array.isArray(item.options) || item.options.length < 2) {
      throw new BadRequest("bad_field", "an input must have a question and two options or more");
    }
    return item.options.map(String).map((option) => {
      let both = [passage, `${item.question} ${option}`];
      if (!passage.trim()) both = [item.question, option];
      else if (item.question.includes("_")) both = [passage, item.question.replaceAll("_", () => option)];
      return tokenizer.layOut(tokenizer.textIds(both[0]), tokenizer.textIds(both[1]), task.length);
    });
  },
  decode: (item, inputs, scores) => chosen(item.options.map(String), softmax(scores.map((one) => one.logits[0]))),
};

// --- A stretch of a passage

const BEST = 20; // stretches that are kept, and tokens that one may begin or end with
const MOST_TOKENS = 30; // of an answer
const QUESTION = 64; // tokens of a question
const OUTSIDE = -1;
const NULL = -2; // the token that stands for no answer

function windows(tokens, room, stride) {
  if (room < 1) throw new BadRequest("text_too_long", "the question leaves no room for the text; shorten it");
  const step = Math.min(stride, room);
  const found = [[0, Math.min(room, tokens)]];
  while (found[found.length - 1][1] < tokens) {
    const begin = found[found.length - 1][0] + step;
    found.push([begin, Math.min(begin + room, tokens)]);
  }
  return found;
}

function withoutSpace(chars, from, to) {
  while (from < to && /\s/u.test(chars[from])) from++;
  while (from < to && /\s/u.test(chars[to - 1])) to--;
  return [from, to];
}

// Places of the largest scores among these places, the largest first and the earlier of equal ones.
function bestPlaces(scores, places) {
  return [...places].sort((one, other) => scores[other] - scores[one] || one - other).slice(0, BEST);
}

const span = {
  encode(item, tokenizer, task) {
    if (!isText(item?.question) || !isText(item?.context)) {
      throw new BadRequest("bad_field", "an input must have a question and a context");
    }
    const question = tokenizer.textIds(item.question).slice(0, QUESTION);
    const chars = Array.from(item.context);
    const tokens = tokenizer.tokens(item.context);
    const marks = tokenizer.layOut(question.map(() => -1), [-2]).ids;
    const before = marks.indexOf(-2);
    return windows(tokens.length, task.length - marks.length + 1, task.stride).map(([begin, end]) => {
      const input = tokenizer.layOut(question, tokens.slice(begin, end).map(([id]) => id));
      input.places = input.ids.map(() => [OUTSIDE, OUTSIDE]);
      tokens.slice(begin, end).forEach(([, from, to], place) => { input.places[before + place] = withoutSpace(chars, from, to); });
      input.places[marks[0] === tokenizer.about.cls ? 0 : input.ids.length - 1] = [NULL, NULL];
      return input;
    });
  },

  decode(item, inputs, scores, task) {
    const chars = Array.from(item.context);
    const found = new Map();
    let none = Infinity;
    inputs.forEach(({ places }, row) => {
      const { start, end } = scores[row];
      const nowhere = places.findIndex(([from]) => from === NULL);
      none = Math.min(none, start[nowhere] + end[nowhere]);
      const inside = places.flatMap(([from], place) => (from >= 0 ? [place] : []));
      const pairs = bestPlaces(start, inside).flatMap((first) => bestPlaces(end, inside)
        .filter((last) => last >= first && last - first < MOST_TOKENS)
        .map((last) => [start[first] + end[last], places[first][0], places[last][1]]));
      pairs.sort((one, other) => other[0] - one[0]);
      for (const [score, from, to] of pairs.slice(0, BEST)) {
        const text = chars.slice(from, to).join("");
        if (!found.has(text) || score > found.get(text)[0]) found.set(text, [score, from, to]);
      }
    });
    const best = Array.from(found.entries()).sort((one, other) => other[1][0] - one[1][0]).slice(0, BEST);
    let odds = best.length ? none - best[0][1][0] : Infinity;
    if (scores[0].answerable) odds -= Math.max(...scores.map((one) => one.answerable[0]));
    const share = best.length ? softmax(best.map(([, [score]]) => score))[0] : 0;
    const absent = task.has_null ? sigmoid(Math.max(-500, Math.min(500, odds))) : 0;
    if (!best.length || (task.has_null && odds > task.null_threshold)) {
      return { label: "", probability: task.has_null ? absent : share };
    }
    const [text, [, from, to]] = best[0];
    return { label: text, probability: share * (1 - absent), start: from, end: to };
  },
};

const KINDS = { classify, multilabel, regress, choice, span };
