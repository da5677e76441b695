// What is shown: the image at once, and what is found in it as soon as that is computed.

import { startSweep } from "./maps.js";
import { paint, same, signed } from "./pixels.js";
import { $, number, posing, stage, state, turning, work } from "./state.js";
import { clearVerdict, paintRing, paintScores, showVerdict } from "./view.js";
import { judge, moveWords, sentence, turnWords } from "./words.js";

const argmax = (values) => values.indexOf(Math.max(...values));
const times = [];
let stamp = null; // of the visitor's event
let groups = new Map(), allSame = true; // restored images that must be the same, by what they have in common
let restoredNow = [];

export const restored = () => Array.from(restoredNow);

/** The state has changed: show the image at once, the rest as soon as it is computed. */
export function refresh(event) {
  if (!state.image) return;
  work.touched = performance.now();
  stamp = event?.timeStamp ?? null;
  showInput();
  startSweep();
  work.dirty = true;
  pump();
}

export function hold(on) {
  work.held = on;
}

function showInput() {
  const { data, shape } = stage(), blank = state.mode === "draw" && work.drawing.empty;
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
  if (work.busy || !work.engine) return;
  work.busy = true;
  $("bench").dataset.busy = "true";
  while (work.dirty) {
    work.dirty = false;
    if (state.mode === "draw" && work.drawing.empty) continue;
    const asked = { ...state, shift: [...state.shift], stamp }, { data, shape, models } = stage();
    try {
      if (!work.loaded.has(models.restorer)) { // chosen for the first time
        $("words").textContent = "Loading the models…";
        await work.engine.ask("load", { models: Object.values(models) });
        Object.values(models).forEach((url) => work.loaded.add(url));
        [work.dirty, stamp] = [true, null];
        continue;
      }
      const found = await work.engine.run(models, data, 1, shape);
      ready(); // even if it was not, before
      if (asked.entry !== state.entry || asked.mode !== state.mode) continue;
      show(asked, found, shape);
    } catch (error) {
      fail(`This image could not be computed: ${error.message}`);
      break;
    }
  }
  work.busy = false;
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

/** Count restored images from the start. */
export function forget() {
  [groups, allSame] = [new Map(), true];
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

/** Other models take another time: count from the start. */
export function untime() {
  times.length = 0;
  $("timing").textContent = "";
}

export function ready() {
  document.documentElement.dataset.state = "ready";
  $("retry").hidden = true;
}

export function fail(text) {
  work.waiting.splice(0).forEach(({ reject }) => reject(new Error(text.replace(/\.$/, ""))));
  clearTimeout(telling);
  document.documentElement.dataset.state = "failed";
  $("words").textContent = $("live").textContent = text;
  $("retry").hidden = false;
}
