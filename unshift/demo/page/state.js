// The state of the page: everything that is shown follows from it.

import { roll, rotate } from "./pixels.js";

export const $ = (id) => document.getElementById(id);
export const number = new Intl.NumberFormat("en");

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

/** What computes, and how far it is. */
export const work = {
  engine: null,
  manifest: null,
  loaded: new Set(), // models, by their addresses
  waiting: [], // for the engine
  drawing: null, // the pad to draw on
  busy: false,
  dirty: false, // the state has changed since
  held: false, // the visitor holds the image
  touched: 0, // when the state changed
};

/** What can be done to an image, and what is said of it. */
export const MODES = {
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

export const shape = () => [state.entry.channels, ...state.entry.size];
export const turning = () => state.mode === "rotate";
export const posing = () => state.mode === "pose";
export const large = () => [1, ...state.entry.rotation.size];
export const can = (entry, mode) => mode === "shift" || Boolean({ rotate: entry.rotation, pose: entry.pose, draw: entry.drawn }[mode]);
export const turned = (image, size, angle) => rotate(image, size, angle, work.manifest.waves);

/** What is on the stage now: { data, shape, models }. Turned first, then shifted, as unshift's coordinates move images. */
export function stage() {
  const { entry, image, shift, angle } = state;
  if (turning()) return { data: turned(state.large, large()[1], angle), shape: large(), models: entry.rotation.models };
  if (!posing()) return { data: roll(image, shape(), shift), shape: shape(), models: entry.models };
  return { data: roll(turned(image, entry.size[0], angle), shape(), shift), shape: shape(), models: entry.pose.models };
}
