// The pages tab: drop a scan, see the scores of its four turns, download it upright. Loaded when the tab is first opened.

import { computing } from "./app.js";
import { quarter } from "./scans.js";
import { $ } from "./state.js";
import { grey, openImage } from "./upload.js";
import { certainty, confidenceWords, estimateTitle } from "./words.js";

const PREVIEW = 360, TURNS = ["upright", "a quarter to the right", "upside down", "a quarter to the left"];
let engine = null, about = null, newest = 0, busy = false, shown = null;

function note(text, bad = false) {
  $("page-note").textContent = text;
  $("page-note").classList.toggle("bad", bad);
}

/** Draw an image on a canvas of its own, on white, scaled. */
function drawn(image, scale = 1) {
  const [width, height] = [image.width, image.height].map((n) => Math.max(1, Math.round(n * scale)));
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  return canvas;
}

const pixels = (canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;

/** Show a canvas turned clockwise by some quarters: the same pixels in other places. */
function turned(from, turn, canvas = document.createElement("canvas")) {
  let size = [from.height, from.width], values = new Uint32Array(pixels(from).buffer);
  for (let k = 0; k < turn; k++) [values, size] = [quarter(values, size), size.toReversed()];
  [canvas.height, canvas.width] = size;
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(values.buffer), size[1]), 0, 0);
  return canvas;
}

/** Open an image, judge it and show it. */
async function load(open, name) {
  const mine = ++newest;
  busy = true;
  try {
    note(`Reading ${name}…`);
    const [{ image, notes }, ready] = await Promise.all([open(), computing()]);
    [engine, about] = [ready.engine, ready.manifest.pages];
    const given = drawn(image), rgba = pixels(given), greys = new Float32Array(rgba.length / 4);
    for (let i = 0; i < greys.length; i++) greys[i] = grey(rgba, 4 * i);
    await engine.ask("load", { models: [about.model] });
    const judged = await engine.ask("judge", { image: greys, size: [given.height, given.width], about });
    if (mine !== newest) return;
    shown = { ...judged, name, given, kept: judged.confidence < about.least };
    show();
    note([`${name}: ${given.width}x${given.height} pixels`, ...notes].join("; ") + ".");
  } catch (error) {
    if (mine === newest) note(`${name} cannot be used: ${error.message}.`, true);
  } finally {
    if (mine === newest) busy = false;
  }
}

function show() {
  const { given, scores, turn, confidence, tied, kept } = shown, back = kept ? 0 : turn;
  const small = drawn(given, Math.min(1, PREVIEW / Math.max(given.width, given.height)));
  $("page-turns").replaceChildren(...scores.map((score, k) => {
    const figure = document.createElement("figure");
    figure.dataset.chosen = k === turn;
    figure.append(turned(small, k), Object.assign(document.createElement("figcaption"), { textContent: (score * about.unit).toFixed(2) }));
    return figure;
  }));
  turned(small, back, $("page-upright"));
  Object.assign($("page-estimate").dataset, { turn: back, certainty: certainty(confidence) });
  $("page-title").textContent = estimateTitle(confidence);
  $("page-turn").textContent = kept ? "left as it is" : `it lay ${TURNS[(4 - turn) % 4]}`;
  $("page-about").textContent = `${confidenceWords(confidence, tied)}${kept ? `; pages below ${Math.round(100 * about.least)}% stay as they are` : ""}`;
  $("page-download").disabled = false;
}

function download() {
  turned(shown.given, shown.kept ? 0 : shown.turn).toBlob((blob) => {
    const url = URL.createObjectURL(blob), name = shown.name.replace(/\.\w+$/, "");
    Object.assign(document.createElement("a"), { href: url, download: `${name}-upright.png` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60e3);
  });
}

/** A page of words, turned at random. */
function sample() {
  const canvas = Object.assign(document.createElement("canvas"), { width: 850, height: 1100 }), context = canvas.getContext("2d");
  const words = "the quick brown fox jumps over a lazy dog while seven wizards boxed up five dozen jugs of liquid for his majesty".split(" ");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, 850, 1100);
  context.fillStyle = "#222";
  context.font = "bold 34px serif";
  context.fillText("A page that lies the wrong way", 90, 130);
  context.font = "19px serif";
  for (let y = 190, line = ""; y < 960;) {
    line += `${words[Math.floor(Math.random() * words.length)]} `;
    if (context.measureText(line).width < 640 && Math.random() > 0.01) continue;
    context.fillText(line, 90, y);
    y += line.length > 60 ? 27 : 50;
    line = "";
  }
  return { image: turned(canvas, 1 + Math.floor(3 * Math.random())), notes: [] };
}

const loadFile = (file) => file && load(() => openImage(file), file.name);

export function open() {
  $("page-file").onchange = ({ target }) => {
    loadFile(target.files[0]);
    target.value = ""; // so that the same file can be chosen again
  };
  $("page-sample").onclick = () => load(async () => sample(), "Sample");
  $("page-download").onclick = download;
  window.unshift.pages = { busy: () => busy, shown: () => shown, pixels: () => Array.from(pixels(turned(shown.given, shown.kept ? 0 : shown.turn))) }; // for tests
  $("page-sample").onclick();
}

/** Read a file that was dropped on the page. */
export const drop = loadFile;
