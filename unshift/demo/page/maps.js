// The maps of all moves at once: each is classified, alone and restored, while the visitor rests.

import { roll } from "./pixels.js";
import { $, large, number, posing, shape, state, turned, turning, work } from "./state.js";
import { Sweep, TURNS } from "./sweep.js";
import { paintMap, paintTurns } from "./view.js";

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const sweeps = new WeakMap();
let sweep = null;

/** Wait until the visitor has rested for a moment, or has no use for the sweep any more. */
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
  const started = sweep = new Sweep(work.engine, plan, idle, showSweep);
  started.run().then(() => { if (started.done) kept[key] = started; }, (error) => {
    started.stop(); // the next move starts it again
    if (sweep === started) $("sweep-more").textContent = `Stopped: ${error.message}`;
  });
  showSweep();
}

export function showSweep() {
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

/** Stop: its engine is gone. */
export const stopSweep = () => sweep?.stop();
