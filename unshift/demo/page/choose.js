// What is chosen: a data set, an image of it or the visitor's own, and what is done to it.

import { Drawing } from "./drawing.js";
import { showSweep } from "./maps.js";
import { paint, resize } from "./pixels.js";
import { forget, refresh, untime } from "./show.js";
import { $, MODES, can, shape, state, work } from "./state.js";
import { makeBars } from "./view.js";

export function chooseEntry(entry, sample) {
  state.entry = entry;
  work.drawing = null;
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

export function setMode(mode) {
  state.mode = mode;
  untime();
  for (const button of $("modes").children) button.setAttribute("aria-pressed", button.dataset.mode === mode);
  $("bench").dataset.mode = mode;
  for (const panel of ["input", "scores", "restored"]) $(`${panel}-title`).textContent = MODES[mode][panel];
  $("stage-help").textContent = MODES[mode].help;
  $("random").textContent = mode === "pose" ? "Random pose" : "Random shift";
  if (mode === "draw") {
    work.drawing ??= new Drawing(shape());
    state.shift = [0, 0];
  }
  forget();
}

export const pad = () => work.drawing;

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
