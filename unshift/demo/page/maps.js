// The maps of all moves: each is classified, alone and restored, while the visitor is idle.

import { roll } from "./pixels.js";
import { $, large, number, posing, shape, state, turned, turning, work } from "./state.js";
import { Sweep, TURNS } from "./sweep.js";
import { paintMap, paintTurns } from "./view.js";

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const sweeps = new WeakMap();
let sweep = null;

/** Wait until the visitor is idle or the sweep is stopped. */
async function idle(sweep) {
  do await sleep(work.busy || work.dirty || work.held || document.hidden ? 60 : Math.max(0, 220 - (performance.now() - work.touched)));
  while (!sweep.stopped && (work.busy || work.dirty || work.held || document.hidden || performance.now() - work.touched < 200));
}

export function startSweep() {
  if (!work.engine) return;
  const { image, entry, angle } = state, key = turning() ? "turns" : posing() ? `shifts at ${angle}` : "shifts";
  if (sweep && sweep.plan.source === image && sweep.plan.key === key && !sweep.stopped) return;
  sweep?.stop();
  sweep = null;
  if (state.mode === "draw") return showSweep();
  const finished = sweeps.get(image) ?? {};
  sweeps.set(image, finished);
  if (finished[key]) {
    sweep = finished[key];
    return showSweep();
  }
  const plan = { key, source: image, ring: turning(), classes: entry.classes.length };
  if (turning()) {
    const image = state.large, size = large();
    Object.assign(plan, { shape: size, models: entry.rotation.models, moved: (place) => turned(image, size[1], (360 / TURNS) * place) });
  } else {
    const size = shape(), start = posing() ? turned(image, entry.size[0], angle) : image;
    Object.assign(plan, { shape: size, models: (posing() ? entry.pose : entry).models, moved: (place) => roll(start, size, place) });
  }
  const started = sweep = new Sweep(work.engine, plan, idle, showSweep);
  started.run().then(() => { if (started.done) finished[key] = started; }, (error) => {
    started.stop(); // the next move restarts it
    if (sweep === started) $("sweep-note").textContent = `Stopped: ${error.message}`;
  });
  showSweep();
}

export function showSweep() {
  const rotation = turning(), total = rotation ? TURNS : state.entry.size[0] * state.entry.size[1];
  const moves = rotation ? "turns" : "shifts", label = state.label ?? sweep?.alone[0] ?? null;
  $("sweep-title").textContent = `All ${rotation ? "turns" : "shifts"}`;
  $("sweep-about").textContent = rotation
    ? "Each sector is one turn of this image, with no turn at the top; each is classified without and with unshift. Click a sector to apply it."
    : `Each cell is one shift of this image${posing() ? " at its present angle" : ""}, with no shift in the middle; each is classified without and with unshift. Click a cell to apply it.`;
  $("key-right").textContent = state.label !== null ? "right" : "same as unmoved";
  $("key-wrong").textContent = state.label === null ? "different" : "wrong";
  for (const side of ["alone", "with"]) {
    const predictions = sweep ? sweep[side] : new Array(total).fill(undefined);
    const cells = predictions.map((prediction) => (prediction === undefined ? undefined : prediction === label));
    const good = cells.filter(Boolean).length, count = sweep?.tried ?? 0, canvas = $(`sweep-${side}`);
    if (rotation) paintTurns(canvas, cells);
    else paintMap(canvas, cells, state.entry.size);
    const share = count ? `${Math.floor((100 * good) / count)}%` : "–";
    $(`sweep-${side}-count`).textContent = share;
    canvas.dataset.good = good;
    canvas.dataset.tried = count;
    const right = state.label === null ? "the same" : "right";
    canvas.setAttribute("aria-label", `${side === "alone" ? "Alone" : "With unshift"}: ${right} at ${good} of ${count} ${moves} tried`);
  }
  $("sweep-note").dataset.different = sweep?.different ?? "";
  $("sweep-note").textContent = !sweep ? "" : !sweep.done
    ? `${number.format(sweep.tried)} of ${number.format(total)} ${moves} tried`
    : rotation || sweep.different
      ? `All ${number.format(total)} ${moves} tried.`
      : `All ${number.format(total)} shifts restore to the same image, bit for bit.`;
}

/** Stop the sweep: its engine is terminated. */
export const stopSweep = () => sweep?.stop();
