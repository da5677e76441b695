// Show the state: the image immediately, the estimate and the predictions once they are computed.

import { startSweep } from "./maps.js";
import { paint, same, signed } from "./pixels.js";
import { $, number, posing, stage, state, turning, work } from "./state.js";
import { clearPrediction, paintRing, paintScores, showPrediction } from "./view.js";
import { certainty, confidenceWords, estimateTitle, moveWords, outcome, sentence, turnWords } from "./words.js";

const argmax = (values) => values.indexOf(Math.max(...values));
const times = [];
let stamp = null; // the time of the visitor's event
let groups = new Map(), allSame = true; // restored images that must be equal, by angle
let restoredNow = [];

export const restored = () => Array.from(restoredNow);

/** Show a changed state: the image immediately, the rest once it is computed. */
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
  if (signed(Number($("angle").value) + state.angle, 360)) $("angle").value = -state.angle; // both ends of the slider are half a turn
  $("angle-value").textContent = state.angle ? `${Math.abs(state.angle)}° ${state.angle > 0 ? "left" : "right"}` : "0°";
  $("hint").textContent = blank ? "Draw a large digit here" : "";
  const done = [!turning() && `shifted by ${moveWords(state.shift)}`, (turning() || posing()) && `turned by ${turnWords(state.angle)}`];
  $("stage").setAttribute("aria-label", `The image, ${done.filter(Boolean).join(" and ")}`);
  for (const mark of document.querySelectorAll(".here")) {
    mark.hidden = turning();
    mark.style.left = `${(100 * (signed(right, width) + width / 2)) / width}%`;
    mark.style.top = `${(100 * (signed(down, height) + height / 2)) / height}%`;
  }
  if (blank) {
    for (const section of [$("alone"), $("with")]) clearPrediction(section);
    paint($("restored"), data, shape);
    paintScores($("scores"), data, state.entry.size);
    $("peak").hidden = true;
    $("estimated-shift").textContent = "–";
    $("estimate-title").textContent = "Estimate";
    delete $("estimate").dataset.certainty;
    $("estimate-note").textContent = $("same").textContent = "";
    announce("Draw a digit, about two thirds as tall as the square, anywhere in it.");
  }
}

/** Compute and show until the state no longer changes. */
async function pump() {
  if (work.busy || !work.engine) return;
  work.busy = true;
  $("bench").dataset.busy = "true";
  while (work.dirty) {
    work.dirty = false;
    if (state.mode === "draw" && work.drawing.empty) continue;
    const asked = { ...state, shift: [...state.shift], stamp }, { data, shape, models } = stage();
    try {
      if (!work.loaded.has(models.restorer)) { // the first image of this kind
        $("words").textContent = "Loading the models…";
        await work.engine.ask("load", { models: Object.values(models) });
        Object.values(models).forEach((url) => work.loaded.add(url));
        [work.dirty, stamp] = [true, null];
        continue;
      }
      const result = await work.engine.run(models, data, 1, shape);
      ready(); // also after an earlier failure
      if (asked.entry !== state.entry || asked.mode !== state.mode) continue;
      show(asked, result, shape);
    } catch (error) {
      fail(`This image could not be computed: ${error.message}`);
      break;
    }
  }
  work.busy = false;
  $("bench").dataset.busy = "false";
}

function show(asked, result, shape) {
  const { entry, label } = asked, { classes, size } = entry, rotation = asked.mode === "rotate", pose = asked.mode === "pose";
  restoredNow = result.restored;
  paint($("restored"), restoredNow, shape);
  if (asked.stamp !== null) measure(asked.stamp);
  const alone = argmax([...result.alone]), restored = argmax([...result.with]);
  showPrediction($("alone"), result.alone, alone, label, outcome(alone, label, classes), classes);
  showPrediction($("with"), result.with, restored, label, outcome(restored, label, classes), classes);
  const shift = Array.from(result.shift, Number), angle = rotation || pose ? result.angle[0] : 0;
  const move = rotation ? [0, 0] : shift.map((value, axis) => signed(value, size[axis]));
  const offset = rotation ? [0, 0] : shift.map((value, axis) => signed(value - asked.shift[axis], size[axis]));
  if (rotation) paintRing($("scores"), result.scores, result.scores.indexOf(result.scores.reduce((a, b) => (b > a ? b : a))));
  else paintScores($("scores"), result.scores, size, pose ? entry.pose.origin : [0, 0]);
  $("peak").hidden = rotation;
  $("peak").style.left = `${(100 * (move[1] + size[1] / 2 + 0.5)) / size[1]}%`;
  $("peak").style.top = `${(100 * (move[0] + size[0] / 2 + 0.5)) / size[0]}%`;
  $("estimate").dataset.shift = shift.join(" ");
  $("estimate").dataset.angle = rotation || pose ? angle : "";
  $("estimated-shift").textContent = rotation ? turnWords(angle, 1) : moveWords(move);
  $("estimated-angle").textContent = turnWords(angle, 1);
  const confidence = result.confidence[0];
  for (const element of [$("estimate"), $("words")]) element.dataset.certainty = certainty(confidence);
  $("estimate").dataset.confidence = confidence;
  $("estimate-title").textContent = estimateTitle(confidence);
  $("estimate-note").textContent = confidenceWords(confidence, result.tied[0]);
  $("scores").setAttribute("aria-label", `Scores; highest at ${$("estimated-shift").textContent}`);
  if (asked.image === state.image) compare(asked, result.restored);
  const estimate = { shift: move, angle, confidence };
  announce(sentence({ ...asked, estimate, offset, alone, restored, truth: label, classes, noun: entry.noun }));
}

/**
 * Compare the restored image with the earlier ones, bit for bit. All shifts and quarter turns restore to one image. Other
 * angles are interpolated: there, all shifts at one angle restore to one image.
 */
function compare({ mode, shift, angle }, restored) {
  if (mode === "rotate" || mode === "draw") {
    $("same").textContent = mode === "rotate" ? "Quarter turns are undone exactly; other angles are interpolated." : "";
    return;
  }
  const between = mode === "pose" && angle % 90 !== 0, key = between ? angle : 0;
  if (!groups.has(key)) groups.set(key, { first: restored, tried: new Set() });
  const { first, tried } = groups.get(key), moves = mode === "shift" ? "shifts" : between ? `shifts at ${Math.abs(angle)}°` : "shifts and quarter turns";
  tried.add([...shift, mode === "pose" ? angle : 0].join());
  allSame &&= same(first, restored);
  const count = tried.size;
  if (!allSame) $("same").textContent = "The restored image has changed. This is a bug.";
  else if (count > 1) $("same").textContent = `The same image, bit for bit, at ${count === 2 ? "both" : `all ${number.format(count)}`} ${moves} you tried.`;
  else if (mode === "shift") $("same").textContent = "Move the input: this image stays the same, bit for bit.";
  else $("same").textContent = "Shifts and quarter turns are undone exactly, bit for bit; other angles are interpolated.";
  Object.assign($("same").dataset, { same: allSame, count });
}

/** Start a new comparison of restored images. */
export function resetComparison() {
  [groups, allSame] = [new Map(), true];
}

let announcing = 0;

/** Show the sentence immediately; announce it to screen readers once the visitor pauses. */
function announce(text) {
  $("words").textContent = text;
  clearTimeout(announcing);
  announcing = setTimeout(() => { if ($("live").textContent !== text) $("live").textContent = text; }, 400);
}

/** Measure the time from the visitor's event to the restored image. */
function measure(start) {
  const spent = performance.now() - start;
  performance.measure("unshift:drag-to-restored", { start, end: start + spent });
  times.push(spent);
  if (times.length > 200) times.shift();
  if (times.length < 10) return;
  const median = [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
  $("timing").textContent = `Median time from your move to the restored image: ${median < 10 ? median.toFixed(1) : Math.round(median)} ms.`;
}

/** Start a new measurement: other models take another time. */
export function resetTimings() {
  times.length = 0;
  $("timing").textContent = "";
}

export function ready() {
  document.documentElement.dataset.state = "ready";
  $("retry").hidden = true;
}

export function fail(text) {
  work.waiting.splice(0).forEach(({ reject }) => reject(new Error(text.replace(/\.$/, ""))));
  clearTimeout(announcing);
  document.documentElement.dataset.state = "failed";
  $("words").textContent = $("live").textContent = text;
  $("retry").hidden = false;
}
