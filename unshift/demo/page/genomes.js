// The tab of genomes: FASTA in, where each sequence starts, FASTA out. Loaded when the tab is first opened.

import { bring, computing } from "./app.js";
import { connectHandle, paintCircle, placeHandle } from "./circle.js";
import { oriented, readFasta, toFasta } from "./sequences.js";
import { $ } from "./state.js";

const MEGABYTES = 10, SHOWN = 60, REST = 300;
const number = new Intl.NumberFormat("en");
/** Cut off, not rounded: what is not certain is never called so. */
const percent = (share) => `${(Math.floor(1000 * share) / 10).toFixed(1)}%`;
const strand = (turn) => (turn ? "−" : "+");

/** The state: records are { header, name, text, found, start, turn }; found is what the network says. */
const state = { records: [], chosen: 0 };
let about = null, newest = 0, busy = false, telling = 0;

const record = () => state.records[state.chosen];
const byHand = ({ found, start, turn }) => found.start !== start || found.turn !== turn;

function note(text, bad = false) {
  $("fasta-note").textContent = text;
  $("fasta-note").classList.toggle("bad", bad);
}

// --- read -----------------------------------------------------------------------------------------

/** Read a file, gzipped or not, up to the limit. */
async function textOf(file) {
  const first = new Uint8Array(await file.slice(0, 2).arrayBuffer()), packed = first[0] === 0x1f && first[1] === 0x8b;
  const stream = packed ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
  const decoder = new TextDecoder(), reader = stream.getReader(), parts = [];
  let length = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    length += part.value.length;
    if (length > MEGABYTES * 1e6) throw new Error(`it has more than ${MEGABYTES} MB; \`unshift restore\` takes files of any size`);
    parts.push(decoder.decode(part.value, { stream: true }));
  }
  return parts.join("") + decoder.decode();
}

/** Take FASTA: find where each of its sequences starts, one after another. `whose` says what it is called. */
async function take(read, whose) {
  const mine = ++newest;
  busy = true;
  const say = (what) => { if (mine === newest) note(what); };
  try {
    say(`Reading ${whose}…`);
    const [content, { engine, manifest }] = await Promise.all([read(), computing()]);
    if (mine !== newest) return;
    about = manifest.genomes;
    if (content.length > MEGABYTES * 1e6) throw new Error(`it has more than ${MEGABYTES} MB; \`unshift restore\` takes files of any size`);
    const records = readFasta(content, about);
    say("Loading the network…");
    await engine.ask("load", { models: [about.model] });
    for (const [i, one] of records.entries()) {
      say(records.length > 1 ? `Scoring ${i + 1} of ${records.length} sequences…` : "Scoring the sequence…");
      one.found = await engine.ask("locate", { text: one.text, about });
      if (mine !== newest) return;
      reset(one);
    }
    Object.assign(state, { records, chosen: 0 });
    const other = records.filter(({ turn }) => turn).length;
    say(`${records.length === 1 ? "One sequence" : `${number.format(records.length)} sequences`} turned to the start, ${other} of them from the other strand.`);
    listRecords();
    show();
  } catch (error) {
    if (mine !== newest) return;
    Object.assign(state, { records: [], chosen: 0 });
    note(`${whose} was not taken: ${error.message}.`, true);
    listRecords();
    show();
  } finally {
    if (mine === newest) busy = false;
  }
}

const takeFile = (file) => file && take(async () => {
  const content = await textOf(file).catch((error) => { throw error instanceof TypeError ? new Error("it is a damaged gzip file") : error; });
  $("fasta").value = content;
  return content;
}, file.name);

const takeSample = () => take(async () => {
  const { manifest } = await computing();
  return ($("fasta").value = await (await bring(manifest.genomes.sample)).text());
}, "The sample");

// --- show -----------------------------------------------------------------------------------------

function reset(one) {
  Object.assign(one, { start: one.found.start, turn: one.found.turn });
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
  name.firstChild.textContent = one.name || "without a name";
  name.firstChild.title = one.header;
  name.firstChild.setAttribute("aria-pressed", i === state.chosen);
  const sure = byHand(one) ? "by hand" : `${percent(one.found.confidence)}${one.found.tied ? ", tied" : ""}`;
  [number.format(one.text.length), number.format(one.start + 1), strand(one.turn), sure].forEach((text, k) => { cells[k].textContent = text; });
}

function show() {
  const one = record();
  $("genomes").dataset.state = one ? "there" : "empty";
  for (const id of ["download", "turn-strand", "found-start"]) $(id).disabled = !one;
  $("handle").hidden = !one;
  if (!one) return $("circle").getContext("2d").clearRect(0, 0, $("circle").width, $("circle").height);
  const { text, found, start, turn } = one, angle = (2 * Math.PI * start) / text.length, hand = byHand(one);
  paintCircle($("circle"), found.bins, angle);
  placeHandle($("handle"), angle);
  const handle = { valuemin: 1, valuemax: text.length, valuenow: start + 1, valuetext: `base ${start + 1} of ${text.length}, strand ${turn ? "minus" : "plus"}` };
  for (const [key, value] of Object.entries(handle)) $("handle").setAttribute(`aria-${key}`, value);
  $("circle").setAttribute("aria-label", `Scores round the circle of ${one.name}; highest at base ${found.start + 1}`);
  $("genome-name").textContent = one.name || "without a name";
  $("genome-length").textContent = `${number.format(text.length)} bases`;
  $("genome-start").textContent = `base ${number.format(start + 1)}, ${strand(turn)} strand`;
  const sure = `confidence ${percent(found.confidence)}${found.tied ? "; several tied, one chosen by rule" : ""}`;
  $("genome-more").textContent = hand ? `chosen by hand; found was base ${number.format(found.start + 1)}, ${strand(found.turn)} strand, ${sure}` : sure;
  $("found-start").disabled = !hand;
  $("genome-text").textContent = `${oriented(text, one, about).slice(0, SHOWN)}…`;
  [...$("genome-rows").children].forEach((_, i) => showRow(i));
  clearTimeout(telling);
  telling = setTimeout(() => { $("genome-live").textContent = `${$("genome-name").textContent} starts at ${$("genome-start").textContent}; ${$("genome-more").textContent}`; }, REST);
}

/** Choose a start by hand. */
function move(start, turn = record().turn) {
  const one = record(), { length } = one.text;
  Object.assign(one, { start: ((start % length) + length) % length, turn });
  show();
}

/** What is downloaded: all sequences, in their order, under their headers. */
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
    typing = setTimeout(() => take(async () => $("fasta").value, "The text"), REST);
  };
  $("fasta-file").onchange = ({ target }) => {
    takeFile(target.files[0]);
    target.value = ""; // so that the same file can be chosen again
  };
  $("fasta-sample").onclick = takeSample;
  $("download").onclick = download;
  $("turn-strand").onclick = () => move(record().start, 1 - record().turn);
  const home = () => { reset(record()); show(); };
  $("found-start").onclick = home;
  const turned = (angle) => move(Math.floor((angle / (2 * Math.PI)) * record().text.length));
  connectHandle($("handle"), turned, (step) => move(record().start + step), home);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  window.unshift.genomes = { state, result, busy: () => busy }; // for tests and the curious
  takeSample();
}

/** A file was dropped on the page. */
export const drop = takeFile;
