// Drawing: bars, scores, and the maps of all shifts. Colours come from the style sheet.

import { mod } from "./pixels.js";

const RAMP = [[11, 16, 38], [37, 45, 104], [108, 52, 131], [205, 83, 91], [250, 179, 92], [255, 248, 214]];

function heat(t) {
  const at = Math.min(Math.max(t, 0), 1) * (RAMP.length - 1), low = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[low].map((value, i) => Math.round(value + (RAMP[low + 1][i] - value) * (at - low)));
}

function normalised(scores) {
  // A judge scores a few places again; the others then lie 2^52 below, and are shown darker.
  const values = Array.from(scores, Number), judged = (value) => value > -(2 ** 51);
  const groups = [values.filter((value) => !judged(value)), values.filter(judged)];
  const ends = groups.map((group) => [Math.min(...group), Math.max(...group)]), both = groups.every((group) => group.length);
  return values.map((value) => {
    const [low, high] = ends[Number(judged(value))], share = (high > low ? (value - low) / (high - low) : 0) ** 1.6;
    return both ? (judged(value) ? 0.8 + 0.2 * share : 0.6 * share) : share;
  });
}

/** Paint scores (height, width) with no shift in the middle; `origin` is the position of no shift in the scores. */
export function paintScores(canvas, scores, [height, width], [row, column] = [0, 0]) {
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), pixels = context.createImageData(width, height);
  const values = normalised(scores);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const value = values[mod(y + row + height / 2, height) * width + mod(x + column + width / 2, width)];
      pixels.data.set([...heat(value), 255], 4 * (y * width + x));
    }
  }
  context.putImageData(pixels, 0, 0);
}

/** Trace sector k of n of a ring, counter-clockwise from the top. */
function sector(context, size, k, n, inner, outer) {
  const middle = -Math.PI / 2 - (2 * Math.PI * k) / n, half = Math.PI / n;
  context.beginPath();
  context.arc(size / 2, size / 2, outer * size, middle - half, middle + half);
  context.arc(size / 2, size / 2, inner * size, middle + half, middle - half, true);
  context.closePath();
}

/** Paint the scores of a rotation as a ring; its peak points to where the top of the image was turned. */
export function paintRing(canvas, scores, peak) {
  const size = 448, context = canvas.getContext("2d"), values = normalised(scores);
  Object.assign(canvas, { width: size, height: size });
  context.fillStyle = `rgb(${RAMP[0]})`;
  context.fillRect(0, 0, size, size);
  values.forEach((value, k) => {
    sector(context, size, k, values.length, 0.24, 0.26 + 0.2 * value);
    context.fillStyle = `rgb(${heat(0.15 + 0.85 * value)})`;
    context.fill();
  });
  sector(context, size, peak, values.length, 0.22, 0.48);
  for (const [width, line] of [[11, `rgb(${RAMP[0]})`], [4, "#fff"]]) {
    context.lineWidth = width;
    context.strokeStyle = line;
    context.stroke();
  }
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function fillCell(context, state, trace, step) {
  context.fillStyle = colour(state === undefined ? "--cell-open" : state ? "--cell-right" : "--cell-wrong");
  trace();
  context.fill();
  if (state !== false) return;
  context.save(); // hatched: colour alone is not accessible
  context.clip();
  context.strokeStyle = colour("--cell-hatch");
  context.lineWidth = step / 7;
  context.beginPath();
  const { width, height } = context.canvas;
  for (let x = -height; x < width; x += step / 2) {
    context.moveTo(x, height);
    context.lineTo(x + height, 0);
  }
  context.stroke();
  context.restore();
}

/** Paint the map of all shifts: cells[down * width + right] is true, false or undefined; no shift in the middle. */
export function paintMap(canvas, cells, [height, width]) {
  const context = canvas.getContext("2d"), step = canvas.width / width;
  const colours = ["--cell-open", "--cell-wrong", "--cell-right", "--cell-hatch"].map(colour);
  context.lineWidth = step / 6;
  context.strokeStyle = colours[3];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const state = cells[mod(y + height / 2, height) * width + mod(x + width / 2, width)];
      const [left, top] = [x * step, y * step];
      context.fillStyle = colours[state === undefined ? 0 : state ? 2 : 1];
      context.fillRect(left, top, step, step);
      if (state !== false) continue;
      context.beginPath(); // hatched: colour alone is not accessible
      context.moveTo(left, top + step);
      context.lineTo(left + step, top);
      context.stroke();
    }
  }
}

/** Paint the map of all turns as a ring. */
export function paintTurns(canvas, cells) {
  const context = canvas.getContext("2d"), size = canvas.width;
  context.clearRect(0, 0, size, size);
  cells.forEach((state, k) => {
    fillCell(context, state, () => sector(context, size, k, cells.length, 0.2, 0.48), 22);
  });
}

/** Create one bar per class. */
export function makeBars(section, classes) {
  section.querySelector(".bars").classList.toggle("short", classes.every((name) => name.length === 1));
  section.querySelector(".bars").replaceChildren(...classes.map((name) => {
    const row = document.createElement("li");
    for (const [kind, text] of [["name", name], ["track", ""], ["value", ""]]) {
      const part = row.appendChild(document.createElement("span"));
      part.className = kind;
      part.textContent = text;
    }
    row.querySelector(".track").appendChild(document.createElement("i"));
    return row;
  }));
}

export function softmax(logits) {
  const top = Math.max(...logits), powers = Array.from(logits, (value) => Math.exp(value - top));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / total);
}

/** Show one prediction: the class, whether it is right, and the bars. */
export function showPrediction(section, logits, prediction, truth, [state, words], classes) {
  const shares = softmax(logits), predicted = section.querySelector(".predicted"), badge = section.querySelector(".badge");
  section.dataset.state = state;
  section.dataset.prediction = prediction;
  predicted.textContent = classes[prediction];
  badge.textContent = words;
  [...section.querySelectorAll(".bars li")].forEach((row, i) => {
    row.classList.toggle("win", i === prediction);
    row.classList.toggle("true", i === truth);
    row.querySelector("i").style.transform = `scaleX(${shares[i].toFixed(4)})`;
    row.querySelector(".value").textContent = `${Math.round(100 * shares[i])}%`;
  });
}

/** Clear a prediction. */
export function clearPrediction(section) {
  section.dataset.state = "open";
  delete section.dataset.prediction;
  section.querySelector(".predicted").textContent = "–";
  section.querySelector(".badge").textContent = "";
  for (const row of section.querySelectorAll(".bars li")) {
    row.classList.remove("win", "true");
    row.querySelector("i").style.transform = "scaleX(0)";
    row.querySelector(".value").textContent = "";
  }
}
