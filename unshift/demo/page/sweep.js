// All shifts (or turns) of one image, classified while the visitor is idle, in batches.

import { mod, same } from "./pixels.js";

export const TURNS = 120; // sectors of the ring
const GOAL = 14; // milliseconds per batch

/** All shifts, from the middle outwards. */
function outwards([, height, width]) {
  const shifts = [];
  for (let y = -height / 2; y < height / 2; y++) for (let x = -width / 2; x < width / 2; x++) shifts.push([y, x]);
  return shifts.sort((a, b) => a[0] ** 2 + a[1] ** 2 - (b[0] ** 2 + b[1] ** 2));
}

/** All turns, outwards from no turn. */
const turns = () => Array.from({ length: TURNS }, (_, i) => (i % 2 ? (i + 1) / 2 : TURNS - i / 2) % TURNS);

const argmax = (values, from, count) => {
  let best = 0;
  for (let i = 1; i < count; i++) if (values[from + i] > values[from + best]) best = i;
  return best;
};

export class Sweep {
  /**
   * plan: { key, source, ring, shape, models, classes, moved }, where moved(place) is the image at a shift or, in a ring,
   * at a turn. idle(sweep) resolves when the visitor is idle; changed() is called after each batch.
   */
  constructor(engine, plan, idle, changed) {
    Object.assign(this, { engine, plan, idle, changed });
    this.places = plan.ring ? turns() : outwards(plan.shape);
    this.alone = new Array(this.places.length).fill(undefined); // predictions, by place
    this.with = new Array(this.places.length).fill(undefined);
    this.tried = this.different = 0;
    this.stopped = false;
  }

  /** The index of a place in `alone` and `with`. */
  cell(place) {
    if (this.plan.ring) return place;
    const [, height, width] = this.plan.shape;
    return mod(place[0], height) * width + mod(place[1], width);
  }

  get done() {
    return this.tried === this.places.length;
  }

  async run() {
    const { models, shape, classes, moved } = this.plan, pixels = shape[0] * shape[1] * shape[2];
    let batch = 1, first = null;
    while (!this.done && !this.stopped) {
      await this.idle(this);
      if (this.stopped) return;
      const places = this.places.slice(this.tried, this.tried + batch), data = new Float32Array(places.length * pixels);
      places.forEach((place, i) => data.set(moved(place), i * pixels));
      const started = performance.now();
      const result = await this.engine.run(models, data, places.length, shape);
      const took = performance.now() - started;
      places.forEach((place, i) => {
        this.alone[this.cell(place)] = argmax(result.alone, i * classes, classes);
        this.with[this.cell(place)] = argmax(result.with, i * classes, classes);
        const image = result.restored.slice(i * pixels, (i + 1) * pixels);
        first ??= image;
        if (!same(first, image)) this.different++;
      });
      this.tried += places.length;
      batch = Math.max(1, Math.min(64, batch * 2, Math.floor((batch * GOAL) / took)));
      this.changed();
    }
  }

  stop() {
    this.stopped = true;
  }
}
