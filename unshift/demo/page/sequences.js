// Circular sequences, as unshift.data.sequences handles them: FASTA, strands, the choice of a start. `about` is the genomes
// entry of the manifest: the bases that each letter stands for, the complements, the width of the filters.

const BINS = 720, WINDOW = 1 << 16, WIDTH = 80;

const encoder = new TextEncoder(), decoder = new TextDecoder();

/** Return the problem with a sequence, or null. */
function fault(text, about) {
  if (!text) return "is empty";
  const letters = new Set(text), known = (letter) => letter.toUpperCase() in about.letters;
  const strange = [...letters].filter((letter) => !known(letter)).sort();
  if (strange.length) {
    const hint = strange.includes("-") ? "remove the gaps" : "is it a protein?";
    return `is not a nucleotide sequence: it contains ${strange.slice(0, 5).map((letter) => `'${letter}'`).join(", ")}; ${hint}`;
  }
  if (/t/i.test(text) && /u/i.test(text)) return "contains both T and U: it must be DNA or RNA";
  if (text.length < about.taps) return `has ${text.length} bases; the network needs at least ${about.taps}`;
  return null;
}

/** Parse FASTA: [{ header, name, text }]. Throw an Error with the reason if it is invalid. */
export function readFasta(content, about) {
  const records = [];
  for (const line of content.split(/\r\n?|\n/).map((line) => line.trim())) {
    if (!line || line[0] === "#") continue;
    if (line[0] === ">") records.push({ header: line.slice(1), lines: [] });
    else if (!records.length) throw new Error("this is not FASTA: each sequence needs a line with > and a name before it");
    else records.at(-1).lines.push(line);
  }
  if (!records.length) throw new Error("it contains no sequence");
  return records.map(({ header, lines }, i) => {
    const text = lines.join(""), name = header.trim().split(/\s+/)[0], wrong = fault(text, about);
    if (wrong) throw new Error(`sequence ${i + 1} (${name || "unnamed"}) ${wrong}`);
    return { header, name, text };
  });
}

export function toFasta(records) {
  const lines = [];
  for (const { header, text } of records) {
    lines.push(`>${header}`);
    for (let at = 0; at < text.length; at += WIDTH) lines.push(text.slice(at, at + WIDTH));
  }
  return lines.map((line) => `${line}\n`).join("");
}

/** The reverse complement. Case is kept, and RNA stays RNA. */
export function otherStrand(text, about) {
  const table = new Uint8Array(128), rna = /u/i.test(text);
  for (const [letter, complement] of Object.entries(about.complement)) {
    const other = rna && complement === "T" ? "U" : complement;
    table[letter.charCodeAt()] = other.charCodeAt();
    table[letter.toLowerCase().charCodeAt()] = other.toLowerCase().charCodeAt();
  }
  return decoder.decode(encoder.encode(text).reverse().map((code) => table[code]));
}

/** The text rotated to start at base `start`, counted from 0; with turn 1, on the other strand. */
export function oriented(text, { start, turn }, about) {
  const strand = turn ? otherStrand(text, about) : text, at = turn ? text.length - 1 - start : start;
  return strand.slice(at) + strand.slice(0, at);
}

/** Compare two rotations of texts of one length, letter by letter. */
function compare(a, i, b, j) {
  for (let k = 0; k < a.length; k++, i++, j++) {
    if (i === a.length) i = 0;
    if (j === b.length) j = 0;
    if (a[i] !== b[j]) return a[i] - b[j];
  }
  return 0;
}

/**
 * Choose among all positions of both strands: the highest score and, among ties, the largest text. No rotation of the
 * input changes this choice. unshift.exact.choice does the same in Python.
 */
export function choose(scores, strands) {
  let best = -Infinity, tied = 0, chosen = null;
  for (const map of scores) for (const score of map) best = Math.max(best, score);
  scores.forEach((map, turn) => {
    let largest = -1, repeats = false;
    for (let at = 0; at < map.length; at++) {
      if (map[at] !== best) continue;
      tied++;
      // Two equal rotations: the text is periodic, so the rest repeats.
      const order = largest < 0 ? 1 : repeats ? -1 : compare(strands[turn], at, strands[turn], largest);
      if (order > 0) largest = at;
      else if (order === 0) repeats = true;
    }
    if (largest >= 0 && (!chosen || compare(strands[turn], largest, strands[chosen.turn], chosen.at) > 0)) chosen = { turn, at: largest };
  });
  return { ...chosen, best, tied: tied > 1 };
}

/** The softmax of the highest score, in steps of 2^(1/1024) as in unshift.exact.confidence, calibrated. */
export function confidence(scores, best, { unit, knots }) {
  const step = (unit / Math.LN2) * 1024;
  let total = 0;
  for (const map of scores) for (const value of map) total += 2 ** (-Math.floor((best - value) * step) / 1024);
  const share = 1 / total, at = Math.max(1, knots.findIndex(([x]) => share <= x)), [[left, low], [right, high]] = knots.slice(at - 1, at + 1);
  return low + ((share - left) / (right - left)) * (high - low);
}

/** Score both strands window by window, in bounded memory. `run` runs the graph. */
async function score(strands, about, run) {
  const length = strands[0].length, { margin } = about, shares = new Float32Array(4 * 128);
  for (const [letter, row] of Object.entries(about.letters)) {
    for (const either of [letter, letter.toLowerCase()]) shares.set(row, 4 * either.charCodeAt());
  }
  const scores = strands.map(() => new Float32Array(length));
  for (let start = 0; start < length; start += WINDOW) {
    const inner = Math.min(WINDOW, length - start), width = inner + 2 * margin, data = new Float32Array(2 * 4 * width);
    strands.forEach((codes, copy) => {
      let at = (((start - margin) % length) + length) % length;
      for (let x = 0; x < width; x++, at++) {
        if (at === length) at = 0;
        for (let base = 0; base < 4; base++) data[(copy * 4 + base) * width + x] = shares[4 * codes[at] + base];
      }
    });
    const part = await run(data, [2, 4, width]);
    scores.forEach((map, copy) => map.set(part.subarray(copy * inner, (copy + 1) * inner), start));
  }
  return scores;
}

/** The highest score in each of BINS parts of the circle, for both strands, in the order of the input. */
function binned(scores) {
  const length = scores[0].length, count = Math.min(BINS, length);
  return scores.map((map, turn) => {
    const bins = new Float32Array(count).fill(-Infinity);
    for (let at = 0; at < length; at++) {
      const bin = Math.floor(((turn ? length - 1 - at : at) * count) / length);
      if (map[at] > bins[bin]) bins[bin] = map[at];
    }
    return bins;
  });
}

/** Estimate where a sequence starts: { start, turn, tied, confidence, bins }; start is a base of the text, from 0. */
export async function locate(text, about, run) {
  const strands = [text, otherStrand(text, about)].map((strand) => encoder.encode(strand));
  const scores = await score(strands, about, run), { turn, at, best, tied } = choose(scores, strands);
  return { start: turn ? text.length - 1 - at : at, turn, tied, confidence: confidence(scores, best, about), bins: binned(scores) };
}
