// The steps of a tokenizer that come before its vocabulary: normalisers and splitting, as a tokenizer.json names them.
//
// A text is a row of characters (code points), each with the range of the original text that it stands for; every step
// keeps those ranges, so an answer can be cut out of the text that was given. Places count code points, as in Python.

"use strict";

class Row {
  // `chars` one code point each, `from` and `to` where each comes from in the original text.
  constructor(chars, from, to) {
    this.chars = chars;
    this.from = from;
    this.to = to;
  }

  static of(text) {
    const chars = Array.from(text);
    return new Row(chars, chars.map((_, place) => place), chars.map((_, place) => place + 1));
  }

  get length() { return this.chars.length; }

  get text() { return this.chars.join(""); }

  slice(begin, end) {
    return new Row(this.chars.slice(begin, end), this.from.slice(begin, end), this.to.slice(begin, end));
  }

  // Every character becomes what `change` gives for it: a string of any length, or null where it stays.
  map(change) {
    const row = new Row([], [], []);
    for (let place = 0; place < this.length; place++) {
      const changed = change(this.chars[place]);
      if (changed === null) row.push(this.chars[place], this.from[place], this.to[place]);
      else for (const char of changed) row.push(char, this.from[place], this.to[place]);
    }
    return row;
  }

  push(char, from, to) {
    this.chars.push(char);
    this.from.push(from);
    this.to.push(to);
  }

  // Pieces of the text become others: `pieces` are [begin, end, text, joined] in characters, in order.
  replace(pieces) {
    const row = new Row([], [], []);
    let at = 0;
    const keep = (end) => {
      for (; at < end; at++) row.push(this.chars[at], this.from[at], this.to[at]);
    };
    for (const [begin, end, text, joined] of pieces) {
      keep(begin);
      // Where it is from: the last character that goes, or the one behind; of joined ones the first, as the library has it.
      const place = joined ? begin : Math.min(end > begin ? end - 1 : begin, this.length - 1);
      for (const char of text) row.push(char, this.from[place], this.to[place]);
      at = end;
    }
    keep(this.length);
    return row;
  }

  // Every character that is `wanted`, as [begin, end].
  where(wanted) {
    return this.chars.flatMap((char, place) => (wanted(char) ? [[place, place + 1]] : []));
  }

  // Where a regular expression matches, as [begin, end] in characters.
  matches(pattern) {
    const text = this.text;
    if (text.length === this.length) {
      return Array.from(text.matchAll(pattern), (match) => [match.index, match.index + match[0].length])
        .filter(([begin, end]) => end > begin);
    }
    const places = new Map();
    let unit = 0;
    this.chars.forEach((char, place) => { places.set(unit, place); unit += char.length; });
    places.set(unit, this.length);
    return Array.from(text.matchAll(pattern), (match) => [match.index, match.index + match[0].length])
      .filter(([begin, end]) => end > begin)
      .map(([begin, end]) => [places.get(begin), places.get(end)]);
  }
}

const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");

function patternOf(pattern) {
  return new RegExp(pattern.String !== undefined ? escaped(pattern.String) : pattern.Regex, "gu");
}

// Characters by the ranges in `text`: the lengths of gaps and runs in turns, in base 36 (pages/characters.py).
function characterSet(text) {
  const bounds = [];
  let at = 0;
  for (const word of text.split(" ")) bounds.push(at += parseInt(word, 36));
  return (char) => {
    const code = char.codePointAt(0);
    let low = 0;
    let high = bounds.length; // the number of bounds at or below the code: odd inside a run
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bounds[middle] <= code) low = middle + 1;
      else high = middle;
    }
    return low % 2 === 1;
  };
}

// --- Normalisers: a row in, a row out. `sets` has the characters that a step asks for, by the name of the set.

const SPACE = /\p{White_Space}/u;
// What may change or join the character before it: marks, Hangul vowels and finals, half-width voicing marks.
const JOINS = /[\p{M}\u1160-\u11ff\uff9e\uff9f]/u;

function unicodeForm(form, sets) {
  const changes = sets[form];
  const one = (char) => (changes(char) || JOINS.test(char) ? char.normalize(form) : char);
  return (row) => {
    if (row.text.normalize(form) === row.text) return row;
    const pieces = [];
    for (let begin = 0; begin < row.length;) {
      let end = begin + 1;
      while (end < row.length && JOINS.test(row.chars[end])) end++;
      const chars = row.chars.slice(begin, end);
      const apart = chars.map(one);
      const known = chars.every((char, place) => apart[place] !== char || char.normalize(form) === char);
      const text = known ? chars.join("").normalize(form) : apart.join("");
      if (text === apart.join("")) {
        apart.forEach((changed, place) => {
          if (changed !== chars[place]) pieces.push([begin + place, begin + place + 1, changed]);
        });
      } else pieces.push([begin, end, text, true]); // characters joined or changed places
      begin = end;
    }
    return row.replace(pieces);
  };
}

const lowercase = (row) => row.map((char) => char.toLowerCase());

function isChinese(char) {
  const code = char.codePointAt(0);
  return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf) || (code >= 0x20000 && code <= 0x2a6df)
    || (code >= 0x2a700 && code <= 0x2ceaf) || (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

function bertNormaliser(settings, sets) {
  const control = sets["bert control"];
  const clean = (char) => {
    if ("\t\n\r".includes(char)) return " ";
    if (char === "\0" || control(char) || /\p{Co}/u.test(char)) return "";
    return SPACE.test(char) ? " " : null;
  };
  const steps = [];
  if (settings.clean_text) steps.push((row) => row.map(clean));
  if (settings.handle_chinese_chars) steps.push((row) => row.map((char) => (isChinese(char) ? ` ${char} ` : null)));
  if (settings.strip_accents ?? settings.lowercase) {
    steps.push(unicodeForm("NFD", sets), (row) => row.map((char) => (sets["bert mark"](char) ? "" : null)));
  }
  if (settings.lowercase) steps.push(lowercase);
  return (row) => steps.reduce((found, step) => step(found), row);
}

// SentencePiece's table of replacements: a double array over bytes, then the texts it points into.
function precompiled(base64) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const units = new Uint32Array(bytes.buffer.slice(4, 4 + size));
  const texts = bytes.subarray(4 + size);
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  const offset = (unit) => (unit >>> 10) << ((unit & (1 << 9)) >>> 6);
  const found = (text) => {
    let place = offset(units[0]);
    for (const byte of encoder.encode(text)) {
      if (byte === 0) return null;
      place ^= byte;
      const unit = units[place];
      if ((unit & 0x800000ff) >>> 0 !== byte) return null;
      place ^= offset(unit);
      if ((unit >>> 8) & 1) {
        const begin = units[place] & 0x7fffffff;
        return decoder.decode(texts.subarray(begin, texts.indexOf(0, begin)));
      }
    }
    return null;
  };
  const graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
  return (row) => {
    const pieces = [];
    let place = 0;
    for (const { segment } of graphemes.segment(row.text)) {
      const chars = Array.from(segment);
      const whole = encoder.encode(segment).length < 6 ? found(segment) : null;
      if (whole !== null) pieces.push([place, place + chars.length, whole]);
      else {
        chars.forEach((char, index) => {
          const one = found(char);
          if (one !== null) pieces.push([place + index, place + index + 1, one]);
        });
      }
      place += chars.length;
    }
    return row.replace(pieces);
  };
}

function strip(row, left, right) {
  let begin = 0;
  let end = row.length;
  while (left && begin < end && SPACE.test(row.chars[begin])) begin++;
  while (right && end > begin && SPACE.test(row.chars[end - 1])) end--;
  return row.slice(begin, end);
}

function normaliser(settings, sets) {
  if (!settings) return (row) => row;
  switch (settings.type) {
    case "Sequence": {
      const steps = settings.normalizers.map((step) => normaliser(step, sets));
      return (row) => steps.reduce((found, step) => step(found), row);
    }
    case "NFC": case "NFD": case "NFKC": case "NFKD": return unicodeForm(settings.type, sets);
    case "Lowercase": return lowercase;
    case "StripAccents": return (row) => row.map((char) => (sets.mark(char) ? "" : null));
    case "BertNormalizer": return bertNormaliser(settings, sets);
    case "Precompiled": return precompiled(settings.precompiled_charsmap);
    case "Strip": return (row) => strip(row, settings.strip_left, settings.strip_right);
    case "Prepend": return (row) => (row.length ? row.replace([[0, 0, settings.prepend]]) : row);
    case "Replace": {
      const pattern = patternOf(settings.pattern);
      return (row) => row.replace(row.matches(pattern).map(([begin, end]) => [begin, end, settings.content]));
    }
    default: throw new Error(`this page does not know the normaliser ${settings.type}`);
  }
}

// --- Pre-tokenizers: a row in, rows out. `first` says whether the row begins the text.

// GPT-2's splitting, on a row where every character is written as what it is: a letter (those of contractions as they
// are, others x), a number (0), a space, other white space (a line end), or anything else (-, the apostrophe as it is).
const BYTE_SPLIT = /'s|'t|'re|'ve|'m|'ll|'d| ?[a-z]+| ?0+| ?[^\sa-z0]+|\s+(?!\S)|\s+/g;

function byteWords(row, sets) {
  const written = row.chars.map((char) => {
    if (" 'stremvld".includes(char)) return char;
    if (SPACE.test(char)) return "\n";
    return sets.letter(char) ? "x" : sets.number(char) ? "0" : "-";
  });
  return Array.from(written.join("").matchAll(BYTE_SPLIT), (match) => row.slice(match.index, match.index + match[0].length));
}

function splitBy(row, matches, behaviour) {
  const parts = [];
  let at = 0;
  for (const [begin, end] of matches) {
    parts.push([at, begin, false], [begin, end, true]);
    at = end;
  }
  parts.push([at, row.length, false]);
  const kept = parts.filter(([begin, end]) => end > begin);
  if (behaviour === "Removed") return kept.filter(([, , matched]) => !matched).map(([begin, end]) => row.slice(begin, end));
  const joined = [];
  let matchedBefore = false;
  for (const [begin, end, matched] of kept) {
    const last = joined[joined.length - 1];
    const joins = last && ((behaviour === "MergedWithPrevious" && matched && !matchedBefore)
      || (behaviour === "MergedWithNext" && !matched && matchedBefore)
      || (behaviour === "Contiguous" && matched === matchedBefore));
    if (joins) last[1] = end;
    else joined.push([begin, end]);
    matchedBefore = matched;
  }
  return joined.map(([begin, end]) => row.slice(begin, end));
}

const BYTE_LETTERS = (() => {
  const letters = new Array(256);
  let extra = 0;
  for (let byte = 0; byte < 256; byte++) {
    const shown = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    letters[byte] = String.fromCodePoint(shown ? byte : 256 + extra++);
  }
  return letters;
})();

function metaspace(settings) {
  const mark = settings.replacement;
  const scheme = settings.prepend_scheme ?? (settings.add_prefix_space === false ? "never" : "always");
  return (row, first) => {
    let found = row.map((char) => (char === " " ? mark : null));
    const wanted = scheme === "always" || (scheme === "first" && first);
    if (wanted && found.chars[0] !== mark) found = found.replace([[0, 0, mark]]);
    if (settings.split === false) return [found];
    return splitBy(found, found.matches(new RegExp(escaped(mark), "gu")), "MergedWithNext");
  };
}

function preTokenizer(settings, sets) {
  if (!settings) return (row) => [row];
  switch (settings.type) {
    case "Sequence": {
      const steps = settings.pretokenizers.map((step) => preTokenizer(step, sets));
      return (row, first) => steps.reduce(
        (rows, step) => rows.flatMap((one) => step(one, first && one.from[0] === row.from[0])), [row]);
    }
    case "WhitespaceSplit": return (row) => splitBy(row, row.matches(/\p{White_Space}/gu), "Removed");
    case "Whitespace": return (row) => row.matches(/[\p{L}\p{M}\p{N}\p{Pc}\u200c\u200d]+|[^\p{L}\p{M}\p{N}\p{Pc}\p{White_Space}]+/gu)
      .map(([begin, end]) => row.slice(begin, end));
    case "BertPreTokenizer": return (row) => splitBy(row, row.matches(/\p{White_Space}/gu), "Removed")
      .flatMap((word) => splitBy(word, word.where(sets.punctuation), "Isolated"));
    case "Punctuation": return (row) => splitBy(row, row.where(sets.punctuation), settings.behavior);
    case "Digits": return (row) => splitBy(row, row.matches(settings.individual_digits ? /\p{N}/gu : /\p{N}+/gu),
      settings.individual_digits ? "Isolated" : "Contiguous");
    case "Metaspace": return metaspace(settings);
    case "ByteLevel": return (row) => {
      const whole = settings.add_prefix_space && row.chars[0] !== " " ? row.replace([[0, 0, " "]]) : row;
      const rows = settings.use_regex === false ? [whole] : byteWords(whole, sets);
      const encoder = new TextEncoder();
      return rows.map((one) => one.map((char) => Array.from(encoder.encode(char), (byte) => BYTE_LETTERS[byte])));
    };
    case "Split": {
      const pattern = patternOf(settings.pattern);
      return (row) => {
        if (!settings.invert) return splitBy(row, row.matches(pattern), settings.behavior);
        const matches = row.matches(pattern);
        const others = [];
        let at = 0;
        for (const [begin, end] of [...matches, [row.length, row.length]]) {
          if (begin > at) others.push([at, begin]);
          at = end;
        }
        return splitBy(row, others, settings.behavior);
      };
    }
    default: throw new Error(`this page does not know the splitting ${settings.type}`);
  }
}
