// A tokenizer.json in plain JavaScript: the same ids as the `tokenizers` library, with the place of each token in the text.
// The steps before the vocabulary are in text_steps.js.

"use strict";

// --- Models: a row in, tokens [id, begin, end] in characters of the row out

const byteTokens = (chars, ids) => {
  const bytes = Array.from(new TextEncoder().encode(chars.join("")), (byte) =>
    ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`));
  return bytes.includes(undefined) ? null : bytes;
};

function unigram(settings, ids) {
  const scores = settings.vocab.map(([, score]) => score);
  const unknown = settings.unk_id;
  const unknownScore = scores.reduce((least, score) => Math.min(least, score), Infinity) - 10;
  const longest = settings.vocab.reduce((most, [piece]) => Math.max(most, piece.length), 0);
  return (row) => {
    const count = row.length;
    const best = new Float64Array(count + 1);
    const start = new Int32Array(count + 1).fill(-1);
    const chosen = new Int32Array(count + 1);
    const offer = (begin, end, id, score) => {
      if (start[end] < 0 || score > best[end]) {
        best[end] = score;
        start[end] = begin;
        chosen[end] = id;
      }
    };
    for (let begin = 0; begin < count; begin++) {
      let piece = "";
      let single = false;
      for (let end = begin + 1; end <= count; end++) {
        piece += row.chars[end - 1];
        if (piece.length > longest) break;
        const id = ids.get(piece);
        if (id === undefined || id >= scores.length) continue;
        offer(begin, end, id, scores[id] + best[begin]);
        single ||= end === begin + 1;
      }
      if (!single) {
        if (unknown === null || unknown === undefined) throw new Error("this vocabulary has no unknown token");
        offer(begin, begin + 1, unknown, unknownScore + best[begin]);
      }
    }
    const tokens = [];
    for (let end = count; end > 0; end = start[end]) {
      const last = tokens[tokens.length - 1];
      if (chosen[end] === unknown && last && last[0] === unknown) last[1] = start[end]; // neighbours become one
      else tokens.push([chosen[end], start[end], end]);
    }
    tokens.reverse();
    if (!settings.byte_fallback) return tokens;
    return tokens.flatMap(([id, begin, end]) => {
      const bytes = id === unknown ? byteTokens(row.chars.slice(begin, end), ids) : null;
      return bytes ? bytes.map((byte) => [byte, begin, end]) : [[id, begin, end]];
    });
  };
}

function wordPiece(settings, ids) {
  const unknown = ids.get(settings.unk_token);
  const prefix = settings.continuing_subword_prefix;
  return (row) => {
    if (row.length > settings.max_input_chars_per_word) return [[unknown, 0, row.length]];
    const tokens = [];
    for (let begin = 0; begin < row.length;) {
      let end = row.length;
      let id;
      for (; end > begin; end--) {
        id = ids.get((begin ? prefix : "") + row.chars.slice(begin, end).join(""));
        if (id !== undefined) break;
      }
      if (id === undefined) return [[unknown, 0, row.length]];
      tokens.push([id, begin, end]);
      begin = end;
    }
    return tokens;
  };
}

function bytePairs(settings, ids) {
  const ranks = new Map(settings.merges.map((pair, rank) => [typeof pair === "string" ? pair : pair.join(" "), rank]));
  const unknown = settings.unk_token === null ? undefined : ids.get(settings.unk_token);
  const prefix = settings.continuing_subword_prefix ?? "";
  const suffix = settings.end_of_word_suffix ?? "";
  return (row) => {
    const whole = settings.ignore_merges ? ids.get(row.text) : undefined;
    if (whole !== undefined) return [[whole, 0, row.length]];
    const parts = row.chars.map((char, place) => [
      (place ? prefix : "") + char + (place === row.length - 1 ? suffix : ""), place, place + 1]);
    const unmerged = [];
    for (const part of parts) { // what the vocabulary lacks takes no part in merging
      if (ids.has(part[0])) unmerged.push(part);
      else {
        const bytes = settings.byte_fallback ? byteTokens([part[0]], ids) : null;
        const last = unmerged[unmerged.length - 1];
        if (bytes) unmerged.push(...bytes.map((id) => [id, part[1], part[2]]));
        else if (unknown !== undefined) {
          if (settings.fuse_unk && last && last[0] === unknown) last[2] = part[2];
          else unmerged.push([unknown, part[1], part[2]]);
        }
      }
    }
    for (;;) {
      let best = Infinity;
      let at = -1;
      for (let place = 0; place + 1 < unmerged.length; place++) {
        const rank = ranks.get(`${unmerged[place][0]} ${unmerged[place + 1][0]}`);
        if (rank !== undefined && rank < best) [best, at] = [rank, place];
      }
      if (at < 0) break;
      const [[left, begin], [right, , end]] = [unmerged[at], unmerged[at + 1]];
      unmerged.splice(at, 2, [left + right.slice(prefix.length), begin, end]);
    }
    return unmerged.map(([piece, begin, end]) => [typeof piece === "number" ? piece : ids.get(piece), begin, end]);
  };
}

function modelOf(settings, ids) {
  switch (settings.type) {
    case "Unigram": return unigram(settings, ids);
    case "WordPiece": return wordPiece(settings, ids);
    case "BPE": return bytePairs(settings, ids);
    case "WordLevel": return (row) => [[ids.get(row.text) ?? ids.get(settings.unk_token), 0, row.length]]
      .filter(([id]) => id !== undefined);
    default: throw new Error(`this page does not know vocabularies of the type ${settings.type}`);
  }
}

// --- All of it

class Tokenizer {
  // `settings` is a tokenizer.json; `about` has the ids of special tokens and the layout of one text and of two.
  constructor(settings, about) {
    const { vocab } = settings.model;
    const pairs = Array.isArray(vocab) ? vocab.map(([piece], id) => [piece, id]) : Object.entries(vocab);
    this.about = about;
    this.ids = new Map(pairs);
    this.model = modelOf(settings.model, new Map(this.ids));
    this.added = settings.added_tokens;
    for (const token of this.added) this.ids.set(token.content, token.id);
    this.pieces = new Map(Array.from(this.ids, ([piece, id]) => [id, piece]));
    this.special = new Set(this.added.filter((token) => token.special).map((token) => token.id));
    const sets = Object.fromEntries(Object.entries(about.characters).map(([name, text]) => [name, characterSet(text)]));
    this.normalise = normaliser(settings.normalizer, sets);
    this.split = preTokenizer(settings.pre_tokenizer, sets);
    const normalised = (token) => (token.normalized ? this.normalise(Row.of(token.content)).text : token.content);
    const finder = (tokens) => {
      const byText = new Map(tokens.map((token) => [normalised(token), token]));
      const texts = Array.from(byText.keys()).sort((one, other) => other.length - one.length); // the longest first
      return texts.length ? { byText, pattern: new RegExp(texts.map(escaped).join("|"), "gu") } : null;
    };
    this.finders = [false, true].map((kind) => finder(this.added.filter((token) => token.normalized === kind)));
  }

  // [id, from, to] of every token, from and to in code points of the text, without special tokens around it.
  tokens(text) {
    const found = [];
    const words = (row) => {
      for (const word of this.split(row, row.from[0] === 0)) {
        if (!word.length) continue;
        for (const [id, begin, end] of this.model(word)) {
          found.push([id, word.from[begin], word.to[end - 1]]);
        }
      }
    };
    const known = (token, row, begin, end) => found.push([token.id, row.from[begin], row.to[end - 1]]);
    this.cut(Row.of(text.toWellFormed?.() ?? text), this.finders[0], known, (row) => {
      const normal = this.normalise(row);
      if (normal.length) this.cut(normal, this.finders[1], known, words);
    });
    return found;
  }

  // Added tokens are cut out of a row; what lies between them is given to `rest`.
  cut(row, finder, known, rest) {
    let at = 0;
    if (finder) {
      for (let [begin, end] of row.matches(finder.pattern)) {
        const token = finder.byText.get(row.chars.slice(begin, end).join(""));
        const wordy = (char) => char !== undefined && /[\p{L}\p{M}\p{N}\p{Pc}]/u.test(char);
        if (begin < at || (token.single_word && (wordy(row.chars[begin - 1]) || wordy(row.chars[end])))) continue;
        while (token.lstrip && begin > at && SPACE.test(row.chars[begin - 1])) begin--;
        while (token.rstrip && end < row.length && SPACE.test(row.chars[end])) end++;
        if (begin > at) rest(row.slice(at, begin));
        known(token, row, begin, end);
        at = end;
      }
    }
    if (at < row.length) rest(at ? row.slice(at, row.length) : row);
  }

  textIds(text) { return this.tokens(text).map(([id]) => id); }

  // The ids and segments of one input from the ids of one text or two, of at most `limit` tokens; `cut`: it was longer.
  layOut(first, second = null, limit = Infinity) {
    const slots = second === null ? this.about.single : this.about.pair;
    const room = limit - slots.filter(([part]) => part === "cls" || part === "sep").length;
    const [keep, keepSecond] = cutPair(first.length, second?.length ?? 0, room);
    const parts = { A: first.slice(0, keep), B: (second ?? []).slice(0, keepSecond), cls: [this.about.cls], sep: [this.about.sep] };
    const ids = slots.flatMap(([part]) => parts[part]);
    const segments = slots.flatMap(([part, segment]) => parts[part].map(() => segment));
    return { ids, segments, cut: keep + keepSecond < first.length + (second?.length ?? 0) };
  }

  get marking() {
    return this.about.marking;
  }

  // Text from ids without special tokens, as it reads.
  decode(ids) {
    const pieces = ids.filter((id) => !this.special.has(id)).map((id) => this.pieces.get(id) ?? "");
    if (this.marking === "wordpiece") {
      return pieces.map((piece, place) => tidied(place && piece.startsWith("##") ? piece.slice(2) : (place ? " " : "") + piece))
        .join("");
    }
    if (this.marking === "byte-level") {
      const bytes = new Map(BYTE_LETTERS.map((letter, byte) => [letter, byte]));
      const row = Array.from(pieces.join(""), (letter) => bytes.get(letter) ?? 63);
      return new TextDecoder().decode(Uint8Array.from(row));
    }
    if (this.marking === "whole") return pieces.join("");
    return pieces.join("").replaceAll("▁", " ").replace(/^ /, "");
  }

  startsWord(id) {
    const piece = this.pieces.get(id) ?? "";
    if (this.special.has(id) || this.marking === "whole") return true;
    if (this.marking === "byte-level") return /^[ĠĊĉ]/u.test(piece);
    if (this.marking === "wordpiece") return !(piece.startsWith("##") && piece.length > 2) || isUnspaced(piece.slice(2));
    return piece.startsWith("▁") || isUnspaced(piece);
  }
}

// Spaces before marks go, as the library's decoder has it.
function tidied(piece) {
  const marks = [" .", " ?", " !", " ,", " n't", " 'm", " 's", " 've", " 're"];
  return marks.reduce((text, mark) => text.replaceAll(mark, mark.trim()), piece.replaceAll(" ' ", "'"))
    .replaceAll(" do not", " don't");
}

// Scripts without spaces between words, where every piece begins a word (Thai to Khmer, Han, Kana).
function isUnspaced(text) {
  return /^[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\u{20000}-\u{3ffff}]/u.test(text);
}

// How many tokens of two texts to keep in `room`: the longer one is cut until they are equal.
function cutPair(first, second, room) {
  if (first + second <= room) return [first, second];
  let short = Math.min(first, second);
  let long = room - short;
  if (2 * short > room) [short, long] = [Math.floor(room / 2), room - Math.floor(room / 2)];
  return first > second ? [long, short] : [short, long];
}
