// The genomes tab: read FASTA, estimate where each sequence starts, write FASTA. Loaded when the tab is first opened.

import { computing, download as fetchFile } from "./app.js";
import { connectHandle, paintCircle, placeHandle } from "./circle.js";
import { oriented, readFasta, toFasta } from "./sequences.js";
import { $ } from "./state.js";
import { certainty, estimateTitle } from "./words.js";

const MEGABYTES = 10, SHOWN = 60, REST = 300;
const number = new Intl.NumberFormat("en");
/** Truncate, do not round: 99.96% is not 100%. */
const percent = (share) => `${(Math.floor(1000 * share) / 10).toFixed(1)}%`;
const strand = (turn) => (turn ? "−" : "+");

/** The state: records are { header, name, text, estimate, start, turn }; the estimate is the network's. */
const state = { records: [], chosen: 0 };
let about = null, newest = 0, busy = false, announcing = 0;

const record = () => state.records[state.chosen];
const byHand = ({ estimate, start, turn }) => estimate.start !== start || estimate.turn !== turn;

function note(text, bad = false) {
  $("fasta-note").textContent = text;
  $("fasta-note").classList.toggle("bad", bad);
}

// --- read -----------------------------------------------------------------------------------------

/** Read a text file, gzipped or not, up to the limit. */
async function textOf(file) {
  const first = new Uint8Array(await file.slice(0, 2).arrayBuffer()), packed = first[0] === 0x1f && first[1] === 0x8b;
  const stream = packed ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
  const decoder = new TextDecoder(), reader = stream.getReader(), parts = [];
  let length = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    length += part.value.length;
    if (length > MEGABYTES * 1e6) throw new Error(`it is larger than ${MEGABYTES} MB; \`unshift restore\` reads files of any size`);
    parts.push(decoder.decode(part.value, { stream: true }));
  }
  return parts.join("") + decoder.decode();
}

/** Read FASTA and estimate the start of each sequence. `source` names the input in messages. */
async function load(read, source) {
  const mine = ++newest;
  busy = true;
  const report = (text) => { if (mine === newest) note(text); };
  try {
    report(`Reading ${source}…`);
    const [content, { engine, manifest }] = await Promise.all([read(), computing()]);
    if (mine !== newest) return;
    about = manifest.genomes;
    if (content.length > MEGABYTES * 1e6) throw new Error(`it is larger than ${MEGABYTES} MB; \`unshift restore\` reads files of any size`);
    const records = readFasta(content, about);
    report("Loading the network…");
    await engine.ask("load", { models: [about.model] });
    for (const [i, one] of records.entries()) {
      report(records.length > 1 ? `Scoring ${i + 1} of ${records.length} sequences…` : "Scoring the sequence…");
      one.estimate = await engine.ask("locate", { text: one.text, about });
      if (mine !== newest) return;
      reset(one);
    }
    Object.assign(state, { records, chosen: 0 });
    const other = records.filter(({ turn }) => turn).length;
    report(`${records.length === 1 ? "One sequence" : `${number.format(records.length)} sequences`} rotated to the start, ${other} of them from the other strand.`);
    listRecords();
    show();
  } catch (error) {
    if (mine !== newest) return;
    Object.assign(state, { records: [], chosen: 0 });
    note(`${source} cannot be used: ${error.message}.`, true);
    listRecords();
    show();
  } finally {
    if (mine === newest) busy = false;
  }
}

const loadFile = (file) => file && load(async () => {
  const content = await textOf(file).catch((error) => { throw error instanceof TypeError ? new Error("the gzip file is damaged") : error; });
  $("fasta").value = content;
  return content;
}, file.name);

const loadSample = () => load(async () => {
  const { manifest } = await computing();
  return ($("fasta").value = await (await fetchFile(manifest.genomes.sample)).text());
}, "The sample");

// --- show -----------------------------------------------------------------------------------------

function reset(one) {
  Object.assign(one, { start: one.estimate.start, turn: one.estimate.turn });
}

function listRecords() {
  $("genome-rows").replaceChildren(...state.records.map((_, i) => {
    const row = document.createElement("tr");
    for (let k = 0; k < 5; k++) row.appendChild(document.createElement("td"));
    const button = row.firstChild.appendChild(document.createElement("button"));
    button.type = "button";
    button.onclick = () => { state.chosen = i; show(); };
    return row;
  }));
  state.records.forEach((_, i) => showRow(i));
}

function showRow(i) {
  const one = state.records[i], row = $("genome-rows").children[i], [name, ...cells] = row.children;
  name.firstChild.textContent = one.name || "unnamed";
  name.firstChild.title = one.header;
  name.firstChild.setAttribute("aria-pressed", i === state.chosen);
  const confidence = byHand(one) ? "by hand" : `${percent(one.estimate.confidence)}${one.estimate.tied ? ", tied" : ""}`;
  [number.format(one.text.length), number.format(one.start + 1), strand(one.turn), confidence].forEach((text, k) => { cells[k].textContent = text; });
}

function show() {
  const one = record();
  $("genomes").dataset.state = one ? "there" : "empty";
  for (const id of ["download", "turn-strand", "reset-start"]) $(id).disabled = !one;
  $("handle").hidden = !one;
  $("genome-estimate").dataset.state = !one ? "empty" : byHand(one) ? "by-hand" : "estimated";
  if (!one) return $("circle").getContext("2d").clearRect(0, 0, $("circle").width, $("circle").height);
  const { text, estimate, start, turn } = one, angle = (2 * Math.PI * start) / text.length, hand = byHand(one);
  paintCircle($("circle"), estimate.bins, angle);
  placeHandle($("handle"), angle);
  const handle = { valuemin: 1, valuemax: text.length, valuenow: start + 1, valuetext: `base ${start + 1} of ${text.length}, strand ${turn ? "minus" : "plus"}` };
  for (const [key, value] of Object.entries(handle)) $("handle").setAttribute(`aria-${key}`, value);
  $("circle").setAttribute("aria-label", `Scores around the circle of ${one.name}; highest at base ${estimate.start + 1}`);
  $("genome-name").textContent = one.name || "unnamed";
  $("genome-length").textContent = `${number.format(text.length)} bases`;
  $("genome-start").textContent = `base ${number.format(start + 1)}, ${strand(turn)} strand`;
  const confidence = `confidence ${percent(estimate.confidence)}${estimate.tied ? "; several positions tied, the tie rule chose one" : ""}`;
  $("genome-estimate").dataset.certainty = certainty(estimate.confidence);
  $("genome-title").textContent = hand ? "Chosen start" : estimateTitle(estimate.confidence);
  $("genome-note").textContent = hand ? `chosen by hand; the estimate was base ${number.format(estimate.start + 1)}, ${strand(estimate.turn)} strand, ${confidence}` : confidence;
  $("reset-start").disabled = !hand;
  $("genome-text").textContent = `${oriented(text, one, about).slice(0, SHOWN)}…`;
  [...$("genome-rows").children].forEach((_, i) => showRow(i));
  clearTimeout(announcing);
  announcing = setTimeout(() => { $("genome-live").textContent = `${$("genome-name").textContent}: ${$("genome-title").textContent} ${$("genome-start").textContent}; ${$("genome-note").textContent}`; }, REST);
}

/** Choose a start by hand. */
function move(start, turn = record().turn) {
  const one = record(), { length } = one.text;
  Object.assign(one, { start: ((start % length) + length) % length, turn });
  show();
}

/** The FASTA to download: all sequences in their order, under their headers. */
const result = () => toFasta(state.records.map((one) => ({ header: one.header, text: oriented(one.text, one, about) })));

function download() {
  const url = URL.createObjectURL(new Blob([result()], { type: "text/plain" }));
  Object.assign(document.createElement("a"), { href: url, download: "oriented.fa" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60e3);
}

// --- start ----------------------------------------------------------------------------------------

export function open() {
  let typing = 0;
  $("fasta").oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(() => load(async () => $("fasta").value, "The text"), REST);
  };
  $("fasta-file").onchange = ({ target }) => {
    loadFile(target.files[0]);
    target.value = ""; // so that the same file can be chosen again
  };
  $("fasta-sample").onclick = loadSample;
  $("download").onclick = download;
  $("turn-strand").onclick = () => move(record().start, 1 - record().turn);
  const home = () => { reset(record()); show(); };
  $("reset-start").onclick = home;
  const turned = (angle) => move(Math.floor((angle / (2 * Math.PI)) * record().text.length));
  connectHandle($("handle"), turned, (step) => move(record().start + step), home);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  window.unshift.genomes = { state, result, busy: () => busy }; // for tests
  loadSample();
}

/** Read a file that was dropped on the page. */
export const drop = loadFile;
