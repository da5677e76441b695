// The choice of a dataset, of an image and of a mode.

import { Drawing } from "./drawing.js";
import { showSweep } from "./maps.js";
import { paint, resize } from "./pixels.js";
import { refresh, resetComparison, resetTimings } from "./show.js";
import { $, MODES, can, shape, state, work } from "./state.js";
import { makeBars } from "./view.js";

export function chooseEntry(entry, sample) {
  state.entry = entry;
  work.drawing = null;
  if (state.mode === "draw" || !can(entry, state.mode)) setMode("shift");
  resetTimings();
  for (const button of $("datasets").children) button.setAttribute("aria-pressed", button.dataset.name === entry.name);
  for (const section of [$("alone"), $("with")]) makeBars(section, entry.classes);
  $("truth").replaceChildren(new Option("unknown", ""), ...entry.classes.map((name, i) => new Option(name, i)));
  for (const button of $("modes").children) {
    button.disabled = !can(entry, button.dataset.mode);
    button.title = button.disabled ? "for digits only" : "";
  }
  $("about").textContent = `Both predictions are by the same frozen classifier, ${entry.classifier}, which was trained on unshifted images.`;
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

/** Choose an uploaded or drawn image. */
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
  resetComparison();
}

/** Scroll the strip, and only the strip, until a button is visible. */
function reveal(button) {
  const strip = $("strip"), left = button.offsetLeft, room = strip.clientWidth - button.offsetWidth;
  if (left < strip.scrollLeft + 8 || left > strip.scrollLeft + room - 8) strip.scrollLeft = left - room / 2;
}

export function setMode(mode) {
  state.mode = mode;
  resetTimings();
  for (const button of $("modes").children) button.setAttribute("aria-pressed", button.dataset.mode === mode);
  $("bench").dataset.mode = mode;
  for (const panel of ["input", "scores", "restored"]) $(`${panel}-title`).textContent = MODES[mode][panel];
  $("stage-help").textContent = MODES[mode].help;
  $("random").textContent = mode === "pose" ? "Random pose" : "Random shift";
  if (mode === "draw") {
    work.drawing ??= new Drawing(shape());
    state.shift = [0, 0];
  }
  resetComparison();
}

export const drawing = () => work.drawing;

export function setTruth(label) {
  state.label = label;
  showSweep();
  refresh();
}

/** Show a note about the chosen image: how it was changed, or why it was rejected. */
export function note(text, bad = false) {
  $("note").textContent = text;
  $("note").classList.toggle("bad", bad);
}
