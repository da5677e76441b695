// Pages as the restorer of quarter turns sees them: reduced, turned, scored. `about` is the pages entry of the manifest.

import { confidence } from "./sequences.js";

/** The pixels of each box along an axis, for each placement: unshift.coordinates.boxes. */
function boxes(n, width) {
  if (n === 1) return [new Array(width).fill(0)];
  const placements = n % 2 && width % 2 === 0 ? 2 : 1, rest = n - placements + 1;
  let count = Math.ceil(rest / width);
  count += (count * width - rest) % 2;
  const before = (count * width - rest) / 2, clamp = (at) => Math.min(Math.max(at, 0), rest - 1);
  return Array.from({ length: placements }, (_, first) => Array.from({ length: count * width }, (_, at) => clamp(at - before) + first));
}

/** Reduce greys (0 to 255) so that the longer side has at most `longest` pixels: { image, size }, values from 0 to 1. */
export function reduced(greys, [height, width], longest) {
  const by = Math.ceil(Math.max(height, width) / longest), down = boxes(height, by), right = boxes(width, by);
  const size = [down[0].length / by, right[0].length / by], sums = new Float64Array(size[0] * size[1]);
  for (const rows of down) {
    rows.forEach((row, i) => {
      const to = Math.floor(i / by) * size[1], from = row * width;
      for (const columns of right) for (let j = 0; j < columns.length; j++) sums[to + Math.floor(j / by)] += greys[from + columns[j]];
    });
  }
  const count = 255 * by * by * down.length * right.length;
  return { image: Float32Array.from(sums, (sum) => sum / count), size };
}

/** Turn an image clockwise by a quarter. */
export function quarter(image, [height, width]) {
  const turned = new image.constructor(image.length);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) turned[x * height + height - 1 - y] = image[y * width + x];
  return turned;
}

/** Score a page turned clockwise by 0 to 3 quarters: { scores, turn, confidence, tied }. `run` runs the graph. */
export async function judge(greys, given, about, run) {
  let { image, size } = reduced(greys, given, about.longest);
  if (Math.min(...size) < about.reach) throw new Error(`its shorter side has ${Math.min(...size)} pixels as the network sees it; it needs ${about.reach}`);
  const scores = [];
  for (let turn = 0; turn < 4; turn++) {
    const sums = await run(image, [1, 1, ...size]);
    scores.push(Math.floor((sums.reduce((total, value) => total + value, 0) * about.fraction) / sums.length));
    [image, size] = [quarter(image, size), size.toReversed()];
  }
  const best = Math.max(...scores), turn = scores.indexOf(best);
  return { scores, turn, confidence: confidence([scores], best, about), tied: scores.lastIndexOf(best) !== turn };
}
