// The scenes tab: a digit anywhere in a scene larger than the classifier's image. Loaded when the tab is first opened.

import { computing } from "./app.js";
import { mod, paint, resize, roll, same } from "./pixels.js";
import { $ } from "./state.js";
import { makeBars, paintScores, showPrediction } from "./view.js";
import { certainty, confidenceWords, estimateTitle, estimateWords, outcome } from "./words.js";

const PIECES = 6, PIECE = 8, REST = 400;
const number = new Intl.NumberFormat("en");
const any = (size) => Math.floor(Math.random() * size);
const argmax = (values) => values.indexOf(Math.max(...values));

/** The state: the digit, the place of its image, the clutter, and the shift of the whole scene. */
const state = { sample: 0, place: [0, 0], clutter: null, roll: [0, 0] };
let entry = null, engine = null, busy = false, dirty = false, restoredNow = [], announcing = 0;
let first = null, tried = new Set(), allSame = true; // the windows of one scene at all its shifts

const size = () => entry.scene.size;
const window_ = () => entry.scene.window;
const room = () => size().map((n, axis) => n - window_()[axis]);

/** Paste part of an image into a scene. The brighter pixel wins. */
function paste(scene, image, [top, left], [tall, wide], [row, column]) {
  const across = size()[1], own = window_()[1];
  for (let y = 0; y < tall; y++) {
    for (let x = 0; x < wide; x++) {
      const at = (row + y) * across + column + x;
      scene[at] = Math.max(scene[at], image[(top + y) * own + left + x]);
    }
  }
}

/** Scatter pieces of other digits. */
function scatter() {
  const [height, width] = window_(), scene = new Float32Array(size()[0] * size()[1]);
  for (let piece = 0; piece < PIECES; piece++) {
    const other = entry.pictures[mod(state.sample + 1 + any(entry.pictures.length - 1), entry.pictures.length)];
    const corner = [height, width].map((n) => n / 4 - PIECE / 2 + any(n / 2 + 1));
    paste(scene, other, corner, [PIECE, PIECE], size().map((n) => any(n - PIECE + 1)));
  }
  state.clutter = scene;
}

/** The scene as it is now. */
function scene() {
  const whole = state.clutter.slice();
  paste(whole, entry.pictures[state.sample], [0, 0], window_(), state.place);
  return roll(whole, [1, ...size()], state.roll);
}

/** Show and compute a changed scene; `rolled` if it is the same scene shifted. */
function change(rolled = false) {
  if (!rolled) {
    state.roll = [0, 0];
    [first, tried, allSame] = [null, new Set(), true];
  }
  paint($("scene-input"), scene(), [1, ...size()]);
  dirty = true;
  pump();
}

function move(place) {
  state.place = place.map((n, axis) => Math.min(Math.max(Math.round(n), 0), room()[axis]));
  change();
}

function choose(sample) {
  state.sample = sample;
  [...$("scene-strip").children].forEach((button, i) => {
    button.setAttribute("aria-checked", i === sample);
    button.tabIndex = i === sample ? 0 : -1;
  });
  scatter();
  change();
}

async function pump() {
  if (busy || !engine) return;
  busy = true;
  while (dirty) {
    dirty = false;
    const data = scene(), dims = [1, 1, ...size()], own = window_(), rolled = state.roll;
    try {
      const small = { data: resize(data, size(), own), dims: [1, 1, ...own] };
      const result = await engine.ask("run", { models: entry.scene.models, data, dims, alone: small });
      if (!dirty) show(result, rolled);
    } catch (error) {
      $("scene-words").textContent = `This scene could not be computed: ${error.message}`;
    }
  }
  busy = false;
}

function show(result, rolled) {
  const [height, width] = size(), own = window_(), truth = entry.labels[state.sample], { classes } = entry;
  restoredNow = result.restored;
  paint($("scene-restored"), restoredNow, [1, ...own]);
  paintScores($("scene-scores"), result.scores, size(), size().map((n, axis) => -(n + own[axis]) / 2));
  const place = Array.from(result.shift, Number), alone = argmax([...result.alone]), with_ = argmax([...result.with]);
  $("scene-estimate").dataset.shift = place.join(" ");
  const at = { top: place[0] / height, left: place[1] / width, height: own[0] / height, width: own[1] / width };
  for (const [side, share] of Object.entries(at)) $("scene-box").style[side] = `${100 * share}%`;
  $("scene-box").hidden = $("scene-peak").hidden = false;
  $("scene-peak").style.top = `${(100 * mod(place[0] + own[0] / 2 + 0.5, height)) / height}%`;
  $("scene-peak").style.left = `${(100 * mod(place[1] + own[1] / 2 + 0.5, width)) / width}%`;
  $("scene-place").textContent = `row ${place[0]}, column ${place[1]}`;
  const confidence = result.confidence[0];
  $("scene-estimate").dataset.certainty = certainty(confidence);
  $("scene-title").textContent = estimateTitle(confidence);
  $("scene-note").textContent = confidenceWords(confidence, result.tied[0]);
  showPrediction($("scene-alone"), result.alone, alone, truth, outcome(alone, truth, classes), classes);
  showPrediction($("scene-with"), result.with, with_, truth, outcome(with_, truth, classes), classes);
  first ??= restoredNow;
  tried.add(rolled.join());
  allSame &&= same(first, restoredNow);
  Object.assign($("scene-same").dataset, { same: allSame, count: tried.size });
  $("scene-same").textContent = !allSame ? "The window has changed. This is a bug."
    : tried.size > 1 ? `The same window, bit for bit, at all ${number.format(tried.size)} shifts of the scene.`
    : "Shift the scene: this window stays the same, bit for bit.";
  const off = Math.max(...place.map((n, axis) => Math.abs(mod(n - rolled[axis] - state.place[axis] + size()[axis] / 2, size()[axis]) - size()[axis] / 2)));
  const place_ = estimateWords(confidence, off, `row ${place[0]}, column ${place[1]}`);
  const text = `The place is ${place_}; for its window the classifier predicts ${classes[with_]}. For the whole scene, scaled down, it predicts ${classes[alone]}.`;
  $("scene-words").textContent = text;
  clearTimeout(announcing);
  announcing = setTimeout(() => { $("scene-live").textContent = text; }, REST);
}

function connectStage() {
  const stage = $("scene-stage");
  const drop = (event) => {
    const box = stage.getBoundingClientRect(), [height, width] = size(), own = window_();
    move([((event.clientY - box.top) / box.height) * height - own[0] / 2, ((event.clientX - box.left) / box.width) * width - own[1] / 2]);
  };
  stage.addEventListener("pointerdown", (event) => { stage.setPointerCapture(event.pointerId); drop(event); });
  stage.addEventListener("pointermove", (event) => { if (stage.hasPointerCapture(event.pointerId)) drop(event); });
  stage.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    move(state.place.map((n, axis) => n + step[axis] * (event.shiftKey ? 5 : 1)));
  });
}

function connectStrip() {
  $("scene-strip").replaceChildren(...entry.pictures.map((picture, i) => {
    const button = Object.assign(document.createElement("button"), { type: "button", onclick: () => choose(i) });
    button.setAttribute("role", "radio");
    button.setAttribute("aria-label", `${entry.noun} ${entry.classes[entry.labels[i]]}`);
    paint(button.appendChild(document.createElement("canvas")), picture, [1, ...window_()]);
    return button;
  }));
  $("scene-strip").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(mod(state.sample + step, entry.pictures.length));
    $("scene-strip").children[state.sample].focus();
  });
}

export async function open() {
  const { engine: ready, manifest } = await computing();
  entry = manifest.entries.find(({ scene }) => scene);
  $("scene-words").textContent = "Loading the models…";
  await ready.ask("load", { models: Object.values(entry.scene.models) });
  engine = ready;
  for (const id of ["scene-alone", "scene-with"]) makeBars($(id), entry.classes);
  connectStage();
  connectStrip();
  $("scene-clutter").onclick = () => { scatter(); change(); };
  $("scene-random").onclick = () => move(room().map((n) => any(n + 1)));
  $("scene-roll").onclick = () => { state.roll = size().map(any); change(true); };
  window.unshift.scenes = { state, input: () => Array.from(scene()), restored: () => Array.from(restoredNow), busy: () => busy || dirty }; // for tests
  state.place = entry.scene.start;
  choose(entry.first);
}
