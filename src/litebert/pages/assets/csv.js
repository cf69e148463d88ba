// Tables as text: commas, semicolons or tabs, quotes as in RFC 4180, read and written.

"use strict";

async function readTable(file) {
  const bytes = await file.arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    text = new TextDecoder("windows-1252").decode(bytes);
  }
  const separator = separatorOf(text, file.name);
  const rows = parseRows(text, separator).filter((row) => row.some((cell) => cell.trim()));
  if (rows.length < 2) throw new Error("the file has no rows below its heading");
  const width = rows[0].length;
  const seen = new Map();
  const heads = rows[0].map((name, place) => {
    const plain = name.trim() || `column ${place + 1}`;
    seen.set(plain, (seen.get(plain) ?? 0) + 1);
    return seen.get(plain) > 1 ? `${plain} ${seen.get(plain)}` : plain;
  });
  return { name: file.name, separator, heads, rows: rows.slice(1).map((row) => Array.from({ length: width }, (_, place) => row[place] ?? "")) };
}

// The separator that cuts the heading into the most columns.
function separatorOf(text, name) {
  if (/\.tsv$/i.test(name)) return "\t";
  const head = text.slice(0, 1 << 16);
  const widths = [",", ";", "\t"].map((separator) => [parseRows(head, separator)[0]?.length ?? 0, separator]);
  return widths.reduce((best, one) => (one[0] > best[0] ? one : best))[1];
}

function parseRows(text, separator) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  for (let place = 0; place < text.length; place++) {
    const char = text[place];
    if (quoted) {
      if (char !== '"') cell += char;
      else if (text[place + 1] === '"') { cell += '"'; place++; } else quoted = false;
    } else if (char === '"' && !cell.trim()) { quoted = true; cell = ""; } else if (char === separator) { row.push(cell); cell = ""; } else if (char === "\n") {
      row.push(cell.replace(/\r$/, ""));
      rows.push(row);
      [row, cell] = [[], ""];
    } else cell += char;
  }
  if (cell || row.length) rows.push([...row, cell.replace(/\r$/, "")]);
  return rows;
}

function writeRows(rows, separator) {
  const special = new RegExp(`["\\r\\n${separator}]`);
  const written = (cell) => (special.test(cell) || cell !== cell.trim() ? `"${cell.replaceAll('"', '""')}"` : cell);
  return rows.map((row) => `${row.map((cell) => written(String(cell))).join(separator)}\n`).join("");
}
