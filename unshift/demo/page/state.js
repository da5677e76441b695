// The state of the page. Everything on it follows from the state.

import { roll, rotate } from "./pixels.js";

export const $ = (id) => document.getElementById(id);
export const number = new Intl.NumberFormat("en");

export const state = {
  entry: null, // of the manifest
  mode: "shift", // of MODES
  image: null, // Float32Array of the entry's shape
  large: null, // the same image at the size of the rotation restorer
  label: null, // the true class, if known
  sample: -1, // the number of the sample, or -1
  shift: [0, 0],
  angle: 0, // degrees counter-clockwise
};

/** The engine and its progress. */
export const work = {
  engine: null,
  manifest: null,
  loaded: new Set(), // URLs of the loaded models
  waiting: [], // promises for the engine
  drawing: null, // the Drawing, if there is one
  busy: false,
  dirty: false, // whether the state changed since the last computation
  held: false, // whether the visitor holds the image
  touched: 0, // the time of the last change
};

/** The modes, with their captions and help. */
export const MODES = {
  shift: {
    input: "You shift it",
    scores: "The network scores every shift",
    restored: "Restored",
    help: "Arrow keys move it by one pixel, with Shift by five; Home puts it back.",
  },
  rotate: {
    input: "You turn it",
    scores: "The network scores every turn",
    restored: "Restored",
    help: "Left and right arrow turn it by one degree, with Shift by fifteen; Home puts it back.",
  },
  pose: {
    input: "You shift and turn it",
    scores: "The network scores every centre",
    restored: "Restored",
    help: "Arrow keys move it by one pixel, with Shift by five; the slider turns it; Home puts it back, upright.",
  },
  draw: {
    input: "You draw it",
    scores: "The network scores every shift",
    restored: "Restored",
    help: "Arrow keys move the pen, space lowers and lifts it, Delete clears.",
  },
};

export const shape = () => [state.entry.channels, ...state.entry.size];
export const turning = () => state.mode === "rotate";
export const posing = () => state.mode === "pose";
export const large = () => [1, ...state.entry.rotation.size];
export const can = (entry, mode) => mode === "shift" || Boolean({ rotate: entry.rotation, pose: entry.pose, draw: entry.drawn }[mode]);
export const turned = (image, size, angle) => rotate(image, size, angle, work.manifest.waves);

/** The image as the visitor moved it: { data, shape, models }. Turned first, then shifted, as in unshift.coordinates. */
export function stage() {
  const { entry, image, shift, angle } = state;
  if (turning()) return { data: turned(state.large, large()[1], angle), shape: large(), models: entry.rotation.models };
  if (!posing()) return { data: roll(image, shape(), shift), shape: shape(), models: entry.models };
  return { data: roll(turned(image, entry.size[0], angle), shape(), shift), shape: shape(), models: entry.pose.models };
}
