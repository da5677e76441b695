// The page: what is chosen, what is done to it, and what follows from that.

import { connect, connectTabs } from "./controls.js";
import { Drawing } from "./drawing.js";
import { Engine } from "./engine.js";
import { paint, resize, roll, rotate, same, signed } from "./pixels.js";
import { Sweep, TURNS } from "./sweep.js";
import { clearVerdict, makeBars, paintMap, paintRing, paintScores, paintTurns, showVerdict } from "./view.js";
import { judge, moveWords, sentence, turnWords } from "./words.js";

export const $ = (id) => document.getElementById(id);
const argmax = (values) => values.indexOf(Math.max(...values));
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const number = new Intl.NumberFormat("en");

/** The state: everything that is shown follows from it. */
export const state = {
  entry: null, // of the manifest
  mode: "shift", // of MODES
  image: null, // Float32Array of the entry's shape
  large: null, // the same for rotations, at their size
  label: null, // what it is, where that is known
  sample: -1, // which sample it is, or -1
  shift: [0, 0],
  angle: 0, // degrees counter-clockwise
};

/** What can be done to an image, and what is said of it. */
const MODES = {
  shift: {
    input: "You shift it",
    scores: "The network scores every shift",
    restored: "Undone, exactly",
    help: "Arrow keys move it by one pixel, with Shift by five; Home puts it back.",
  },
  rotate: {
    input: "You turn it",
    scores: "The network scores every turn",
    restored: "Turned back",
    help: "Left and right arrow turn it by one degree, with Shift by fifteen; Home puts it back.",
  },
  pose: {
    input: "You move it",
    scores: "The first network scores every centre",
    restored: "Centred, upright",
    help: "Arrow keys move it by one pixel, with Shift by five; the slider turns it; Home puts it back, upright.",
  },
  draw: {
    input: "You draw it",
    scores: "The network scores every shift",
    restored: "Undone, exactly",
    help: "Arrow keys move the pen, space puts it down and lifts it, Delete clears.",
  },
};

let engine = null, manifest = null, sweep = null, loaded = new Set();
let busy = false, dirty = false, stamp = null, touched = 0, held = false;
let groups = new Map(), allSame = true; // restored images that must be the same, by what they have in common
let drawing = null, restoredNow = [];
const waiting = []; // for the engine
const times = [], sweeps = new WeakMap();

export const shape = () => [state.entry.channels, ...state.entry.size];
const turning = () => state.mode === "rotate";
const posing = () => state.mode === "pose";
const large = () => [1, ...state.entry.rotation.size];
const can = (entry, mode) => mode === "shift" || Boolean({ rotate: entry.rotation, pose: entry.pose, draw: entry.drawn }[mode]);
const turned = (image, size, angle) => rotate(image, size, angle, manifest.waves);

/** What is on the stage now: { data, shape, models }. Turned first, then shifted, as unshift's coordinates move images. */
function stage() {
  const { entry, image, shift, angle } = state;
  if (turning()) return { data: turned(state.large, large()[1], angle), shape: large(), models: entry.rotation.models };
  if (!posing()) return { data: roll(image, shape(), shift), shape: shape(), models: entry.models };
  return { data: roll(turned(image, entry.size[0], angle), shape(), shift), shape: shape(), models: entry.pose.models };
}

// --- choose ---------------------------------------------------------------------------------------

export function chooseEntry(entry, sample) {
  state.entry = entry;
  drawing = null;
  if (state.mode === "draw" || !can(entry, state.mode)) setMode("shift");
  untime();
  for (const button of $("datasets").children) button.setAttribute("aria-pressed", button.dataset.name === entry.name);
  for (const section of [$("alone"), $("with")]) makeBars(section, entry.classes);
  $("truth").replaceChildren(new Option("not said", ""), ...entry.classes.map((name, i) => new Option(name, i)));
  for (const button of $("modes").children) {
    button.disabled = !can(entry, button.dataset.mode);
    button.title = button.disabled ? "for digits only" : "";
  }
  $("about").textContent = `Both verdicts are by the same classifier, ${entry.classifier}. It was trained on images that were not moved, and is frozen.`;
  makeStrip(entry);
  chooseSample(sample ?? entry.first);
}

function makeStrip(entry) {
  $("strip").replaceChildren(...entry.pictures.map((picture, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("role", "radio");
    button.setAttribute("aria-label", `${entry.classes[entry.labels[i]]}, number ${Math.floor(i / entry.classes.length) + 1}`);
    paint(button.appendChild(document.createElement("canvas")), picture, shape());
    button.onclick = () => chooseSample(i);
    return button;
  }));
}

export function chooseSample(index) {
  if (state.mode === "draw") setMode("shift");
  const { entry } = state, native = entry.natives?.[index];
  choose(entry.pictures[index], entry.labels[index], index);
  if (native) state.large = resize(native, entry.rotation.native, entry.rotation.size);
  note("");
  refresh();
}

/** Take an image of the visitor's own. */
export function chooseOwn(image, label = null, event = undefined) {
  choose(image, label, -1);
  refresh(event);
}

function choose(image, label, sample) {
  Object.assign(state, { image, label, sample });
  if (state.entry.rotation) state.large = resize(image, state.entry.size, state.entry.rotation.size);
  [...$("strip").children].forEach((button, i) => {
    const chosen = i === sample;
    button.setAttribute("aria-checked", chosen);
    button.tabIndex = chosen || (sample < 0 && i === 0) ? 0 : -1;
    if (chosen) reveal(button);
  });
  $("truth-row").hidden = sample >= 0;
  $("truth").value = label ?? "";
  forget();
}

/** Scroll the strip, and nothing but the strip, until a button of it is seen. */
function reveal(button) {
  const strip = $("strip"), left = button.offsetLeft, room = strip.clientWidth - button.offsetWidth;
  if (left < strip.scrollLeft + 8 || left > strip.scrollLeft + room - 8) strip.scrollLeft = left - room / 2;
}

/** Start to count restored images anew. */
function forget() {
  [groups, allSame] = [new Map(), true];
}

export function setMode(mode) {
  state.mode = mode;
  untime();
  for (const button of $("modes").children) button.setAttribute("aria-pressed", button.dataset.mode === mode);
  $("bench").dataset.mode = mode;
  for (const panel of ["input", "scores", "restored"]) $(`${panel}-title`).textContent = MODES[mode][panel];
  $("stage-help").textContent = MODES[mode].help;
  $("random").textContent = mode === "pose" ? "Random pose" : "Random shift";
  if (mode === "draw") {
    drawing ??= new Drawing(shape());
    state.shift = [0, 0];
  }
  forget();
}

export const pad = () => drawing;

export function setTruth(label) {
  state.label = label;
  showSweep();
  refresh();
}

/** Say something about the chosen image: what was done to it, or why it was not taken. */
export function note(text, bad = false) {
  $("note").textContent = text;
  $("note").classList.toggle("bad", bad);
}

// --- show -----------------------------------------------------------------------------------------

/** The state has changed: show the image at once, the rest as soon as it is computed. */
export function refresh(event) {
  if (!state.image) return;
  touched = performance.now();
  stamp = event?.timeStamp ?? null;
  showInput();
  startSweep();
  dirty = true;
  pump();
}

export function hold(on) {
  held = on;
}

function showInput() {
  const { data, shape } = stage(), blank = state.mode === "draw" && drawing.empty;
  paint($("input"), data, shape);
  const [height, width] = state.entry.size, [down, right] = state.shift, moved = !turning() && (down || right);
  $("seam-down").hidden = $("seam-right").hidden = !moved;
  $("seam-down").style.top = `${(100 * signed(down, height) + (down < 0 ? 100 * height : 0)) / height}%`;
  $("seam-right").style.left = `${(100 * signed(right, width) + (right < 0 ? 100 * width : 0)) / width}%`;
  if (signed(Number($("angle").value) + state.angle, 360)) $("angle").value = -state.angle; // both ends are half a turn
  $("angle-value").textContent = state.angle ? `${Math.abs(state.angle)}° ${state.angle > 0 ? "left" : "right"}` : "0°";
  $("hint").textContent = blank ? "Draw a digit here, anywhere, about two thirds as tall as this square" : "";
  const done = [!turning() && `shifted by ${moveWords(state.shift)}`, (turning() || posing()) && `turned by ${turnWords(state.angle)}`];
  $("stage").setAttribute("aria-label", `The image, ${done.filter(Boolean).join(" and ")}`);
  for (const mark of document.querySelectorAll(".here")) {
    mark.hidden = turning();
    mark.style.left = `${(100 * (signed(right, width) + width / 2)) / width}%`;
    mark.style.top = `${(100 * (signed(down, height) + height / 2)) / height}%`;
  }
  if (blank) {
    for (const section of [$("alone"), $("with")]) clearVerdict(section);
    paint($("restored"), data, shape);
    paintScores($("scores"), data, state.entry.size);
    $("peak").hidden = true;
    $("found-shift").textContent = "–";
    $("found-more").textContent = $("same").textContent = "";
    say("Draw a digit: off the middle, if you like.");
  }
}

/** Compute and show, again and again until what is shown is what is wanted. */
async function pump() {
  if (busy || !engine) return;
  busy = true;
  $("bench").dataset.busy = "true";
  while (dirty) {
    dirty = false;
    if (state.mode === "draw" && drawing.empty) continue;
    const asked = { ...state, shift: [...state.shift], stamp }, { data, shape, models } = stage();
    try {
      if (!loaded.has(models.restorer)) { // chosen for the first time
        $("words").textContent = "Loading the models…";
        await engine.ask("load", { models: Object.values(models) });
        Object.values(models).forEach((url) => loaded.add(url));
        [dirty, stamp] = [true, null];
        continue;
      }
      const found = await engine.run(models, data, 1, shape);
      ready(); // even if it was not, before
      if (asked.entry !== state.entry || asked.mode !== state.mode) continue;
      show(asked, found, shape);
    } catch (error) {
      fail(`This image could not be computed: ${error.message}`);
      break;
    }
  }
  busy = false;
  $("bench").dataset.busy = "false";
}

function show(asked, found, shape) {
  const { entry, label } = asked, { classes, size } = entry, rotation = asked.mode === "rotate", pose = asked.mode === "pose";
  restoredNow = found.restored;
  paint($("restored"), restoredNow, shape);
  if (asked.stamp !== null) time(asked.stamp);
  const alone = argmax([...found.alone]), restored = argmax([...found.with]);
  showVerdict($("alone"), found.alone, alone, label, judge(alone, label, classes), classes);
  showVerdict($("with"), found.with, restored, label, judge(restored, label, classes), classes);
  const shift = Array.from(found.shift, Number), angle = rotation || pose ? found.angle[0] : 0;
  const move = rotation ? [0, 0] : shift.map((value, axis) => signed(value, size[axis]));
  const offset = rotation ? [0, 0] : shift.map((value, axis) => signed(value - asked.shift[axis], size[axis]));
  if (rotation) paintRing($("scores"), found.scores, found.scores.indexOf(found.scores.reduce((a, b) => (b > a ? b : a))));
  else paintScores($("scores"), found.scores, size, pose ? entry.pose.origin : [0, 0]);
  $("peak").hidden = rotation;
  $("peak").style.left = `${(100 * (move[1] + size[1] / 2 + 0.5)) / size[1]}%`;
  $("peak").style.top = `${(100 * (move[0] + size[0] / 2 + 0.5)) / size[0]}%`;
  $("found").dataset.shift = shift.join(" ");
  $("found").dataset.angle = rotation || pose ? angle : "";
  $("found-shift").textContent = rotation ? turnWords(angle, 1) : move.some(Boolean) ? moveWords(move) : "no shift";
  $("found-angle").textContent = turnWords(angle, 1);
  $("found-more").textContent = `confidence ${Math.round(100 * found.confidence[0])}%${found.tied[0] ? "; several tied, one chosen by rule" : ""}`;
  $("scores").setAttribute("aria-label", `Scores; highest at ${$("found-shift").textContent}`);
  if (asked.image === state.image) compare(asked, found.restored);
  say(sentence({ ...asked, foundShift: move, foundAngle: angle, offset, alone, restored, truth: label, classes, noun: entry.noun }));
}

/**
 * Compare the restored image with those before, bit for bit. It is one for all shifts, and for quarter turns; an angle
 * between them is interpolated, so that there it is one for all shifts at that angle.
 */
function compare({ mode, shift, angle }, restored) {
  if (mode === "rotate" || mode === "draw") {
    $("same").textContent = mode === "rotate" ? "Quarter turns are undone exactly; the rest is interpolated." : "";
    return;
  }
  const between = mode === "pose" && angle % 90 !== 0, key = between ? angle : 0;
  if (!groups.has(key)) groups.set(key, { first: restored, tried: new Set() });
  const { first, tried } = groups.get(key), what = mode === "shift" ? "shifts" : between ? `shifts at ${Math.abs(angle)}°` : "shifts and quarter turns";
  tried.add([...shift, mode === "pose" ? angle : 0].join());
  allSame &&= same(first, restored);
  const count = tried.size;
  if (!allSame) $("same").textContent = "The restored image has changed: that should not happen.";
  else if (count > 1) $("same").textContent = `The same image, bit for bit, at ${count === 2 ? "both" : `all ${number.format(count)}`} ${what} you tried.`;
  else if (mode === "shift") $("same").textContent = "Move it: this image stays the same, bit for bit.";
  else $("same").textContent = "Shifts and quarter turns are undone exactly, bit for bit; angles between are interpolated.";
  $("same").dataset.same = allSame;
}

let telling = 0;

/** Show the sentence at once; read it out once the visitor rests. */
function say(text) {
  $("words").textContent = text;
  clearTimeout(telling);
  telling = setTimeout(() => { if ($("live").textContent !== text) $("live").textContent = text; }, 400);
}

/** Note how long it took from the visitor's event to here. */
function time(start) {
  const spent = performance.now() - start;
  performance.measure("unshift:drag-to-restored", { start, end: start + spent });
  times.push(spent);
  if (times.length > 200) times.shift();
  if (times.length < 10) return;
  const median = [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
  $("timing").textContent = `From your move to the restored image: ${median < 10 ? median.toFixed(1) : Math.round(median)} ms, the median here.`;
}

/** Other models take another time: count anew. */
function untime() {
  times.length = 0;
  $("timing").textContent = "";
}

// --- all shifts -----------------------------------------------------------------------------------

/** Wait until the visitor has rested for a moment, or has no use for the sweep any more. */
async function idle(sweep) {
  do await sleep(busy || dirty || held || document.hidden ? 60 : Math.max(0, 220 - (performance.now() - touched)));
  while (!sweep.stopped && (busy || dirty || held || document.hidden || performance.now() - touched < 200));
}

function startSweep() {
  if (!engine) return;
  const { image, entry, angle } = state, key = turning() ? "turns" : posing() ? `shifts at ${angle}` : "shifts";
  if (sweep && sweep.plan.source === image && sweep.plan.key === key && !sweep.stopped) return;
  sweep?.stop();
  sweep = null;
  if (state.mode === "draw") return showSweep();
  const kept = sweeps.get(image) ?? {};
  sweeps.set(image, kept);
  if (kept[key]?.done) {
    sweep = kept[key];
    return showSweep();
  }
  const plan = { key, source: image, ring: turning(), classes: entry.classes.length };
  if (turning()) {
    const big = state.large, own = large();
    Object.assign(plan, { shape: own, models: entry.rotation.models, moved: (place) => turned(big, own[1], (360 / TURNS) * place) });
  } else {
    const own = shape(), upright = posing() ? turned(image, entry.size[0], angle) : image;
    Object.assign(plan, { shape: own, models: (posing() ? entry.pose : entry).models, moved: (place) => roll(upright, own, place) });
  }
  const started = sweep = new Sweep(engine, plan, idle, showSweep);
  started.run().then(() => { if (started.done) kept[key] = started; }, (error) => {
    started.stop(); // the next move starts it anew
    if (sweep === started) $("sweep-more").textContent = `Stopped: ${error.message}`;
  });
  showSweep();
}

function showSweep() {
  const rotation = turning(), total = rotation ? TURNS : state.entry.size[0] * state.entry.size[1];
  const what = rotation ? "turns" : "shifts", label = state.label ?? sweep?.alone[0] ?? null;
  $("sweep-title").textContent = `Every ${rotation ? "turn" : "shift"} at once`;
  $("sweep-about").textContent = rotation
    ? "Each sector is one turn of this image; the top is no turn. Every one is classified, twice. Click a sector to go there."
    : `Each cell is one shift of this image${posing() ? ", turned as it is now" : ""}; the middle is no shift. Every one is classified, twice. Click a cell to go there.`;
  $("key-right").textContent = state.label !== null ? "verdict right" : posing() ? "the same verdict as not shifted" : "the same verdict as unmoved";
  $("key-wrong").textContent = state.label === null ? "another verdict" : "verdict wrong";
  for (const side of ["alone", "with"]) {
    const verdicts = sweep ? sweep[side] : new Array(total).fill(undefined);
    const cells = verdicts.map((verdict) => (verdict === undefined ? undefined : verdict === label));
    const good = cells.filter(Boolean).length, count = sweep?.tried ?? 0, canvas = $(`sweep-${side}`);
    if (rotation) paintTurns(canvas, cells);
    else paintMap(canvas, cells, state.entry.size);
    const share = count ? `${Math.floor((100 * good) / count)}%` : "–";
    $(`sweep-${side}-count`).textContent = share;
    canvas.dataset.good = good;
    canvas.dataset.tried = count;
    const right = state.label === null ? "the same" : "right";
    canvas.setAttribute("aria-label", `${side === "alone" ? "Alone" : "With unshift"}: ${right} at ${good} of ${count} ${what} tried`);
  }
  $("sweep-more").textContent = !sweep ? "" : !sweep.done
    ? `${number.format(sweep.tried)} of ${number.format(total)} ${what} tried`
    : rotation || sweep.different
      ? `All ${number.format(total)} ${what} tried.`
      : `All ${number.format(total)} shifts tried: restored to one and the same image, bit for bit.`;
}

// --- start ----------------------------------------------------------------------------------------

function ready() {
  document.documentElement.dataset.state = "ready";
  $("retry").hidden = true;
}

function fail(text) {
  waiting.splice(0).forEach(({ reject }) => reject(new Error(text.replace(/\.$/, ""))));
  clearTimeout(telling);
  document.documentElement.dataset.state = "failed";
  $("words").textContent = $("live").textContent = text;
  $("retry").hidden = false;
}

const megabytes = (count) => (count / 1e6).toFixed(1);

async function load() {
  document.documentElement.dataset.state = "loading";
  $("retry").hidden = true;
  $("progress").removeAttribute("value");
  engine?.stop();
  sweep?.stop(); // its engine is gone
  engine = null;
  try {
    if (!manifest) await loadManifest();
    $("words").textContent = "Loading the runtime…";
    const fresh = new Engine((length, total) => {
      if (total) $("progress").value = length / total;
      $("words").textContent = `Loading the runtime: ${megabytes(length)}${total ? ` of ${megabytes(total)}` : ""} MB`;
    });
    await fresh.ask("start");
    $("words").textContent = "Loading the models…";
    await fresh.ask("load", { models: Object.values(state.entry.models) });
    loaded = new Set(Object.values(state.entry.models));
    engine = fresh;
  } catch (error) {
    return fail(`The part that computes could not be loaded (${error.message}).${state.image ? " You can move the image, but nothing is found or classified." : ""}`);
  }
  ready();
  waiting.splice(0).forEach(({ resolve }) => resolve({ engine, manifest }));
  refresh();
}

/** Await the part that computes: { engine, manifest }. Where it could not be loaded, try again. */
export function computing() {
  if (engine) return Promise.resolve({ engine, manifest });
  const there = new Promise((resolve, reject) => waiting.push({ resolve, reject }));
  if (document.documentElement.dataset.state === "failed") load();
  return there;
}

export async function bring(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: the server says ${response.status}`);
  return response;
}

async function floats(url, each) {
  const all = new Float32Array(await (await bring(url)).arrayBuffer());
  return Array.from({ length: all.length / each }, (_, i) => all.slice(i * each, (i + 1) * each));
}

async function loadManifest() {
  const read = await (await bring("manifest.json")).json();
  for (const entry of read.entries) {
    entry.pictures = await floats(entry.samples, entry.channels * entry.size[0] * entry.size[1]);
    if (entry.rotation) entry.natives = await floats(entry.rotation.samples, entry.rotation.native[0] * entry.rotation.native[1]);
  }
  if (!read.entries.length) throw new Error("this page was written without any classifier");
  manifest = read;
  connectTabs([...(read.entries.some((entry) => entry.scene) ? ["scenes"] : []), ...(read.genomes ? ["genomes"] : [])]);
  $("modes").querySelector("[data-mode=pose]").hidden = !read.entries.some((entry) => entry.pose);
  $("datasets").replaceChildren(...read.entries.map((entry) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: entry.title });
    button.dataset.name = entry.name;
    button.onclick = () => { chooseEntry(entry); refresh(); };
    return button;
  }));
  $("credits").textContent = `${read.entries.map((e) => `${e.title}: ${e.name} test set (${e.licence}), ${e.classifier}`).join("; ")}. unshift ${read.unshift}, onnxruntime-web ${read.runtime} (MIT).`;
  state.shift = read.start;
  chooseEntry(read.entries[0]);
}

connect();
$("retry").onclick = load;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.entry && showSweep());
/** For tests and the curious: what the page works on. */
window.unshift = { state, input: () => Array.from(stage().data), restored: () => Array.from(restoredNow), busy: () => busy || dirty };
load();
