// Images as Float32Array (channel, height, width): shift, resize, rotate, paint. Results equal Python's bit for bit: every
// sum is rounded to float32 where PyTorch rounds it.

const f = Math.fround;

/** Return n modulo size, in [0, size). */
export const mod = (n, size) => ((n % size) + size) % size;

/** Return n modulo size, in [-size/2, size/2). */
export const signed = (n, size) => mod(n + size / 2, size) - size / 2;

/** Shift circularly: out[y, x] = image[y - down, x - right], as unshift.apply. */
export function roll(image, [channels, height, width], [down, right]) {
  const out = new Float32Array(image.length);
  for (let c = 0; c < channels; c++) {
    for (let y = 0; y < height; y++) {
      const from = (c * height + mod(y - down, height)) * width, to = (c * height + y) * width;
      const cut = mod(right, width);
      out.set(image.subarray(from, from + width - cut), to + cut);
      out.set(image.subarray(from + width - cut, from + width), to);
    }
  }
  return out;
}

/** Resize one channel bilinearly, corners not aligned, as unshift.data.resize. */
export function resize(image, [height, width], [tall, wide]) {
  const axis = (from, to) => Array.from({ length: to }, (_, i) => {
    const at = Math.max(0, f(f(f(i + 0.5) * f(from / to)) - 0.5)), low = Math.min(Math.floor(at), from - 1);
    return [low, Math.min(low + 1, from - 1), f(at - low)];
  });
  const out = new Float32Array(tall * wide), columns = axis(width, wide);
  axis(height, tall).forEach(([top, bottom, lower], y) => {
    columns.forEach(([left, right, further], x) => {
      const nearer = f(1 - further), upper = f(1 - lower);
      const above = f(f(image[top * width + left] * nearer) + f(image[top * width + right] * further));
      const below = f(f(image[bottom * width + left] * nearer) + f(image[bottom * width + right] * further));
      out[y * wide + x] = f(f(above * upper) + f(below * lower));
    });
  });
  return out;
}

/**
 * Rotate one square channel counter-clockwise by whole degrees, as unshift.coordinates.rotate: quarter turns move pixels,
 * the rest is bilinear. `waves` are cos and sin of 0 to 45 degrees from the manifest: browsers' values may differ.
 */
export function rotate(image, size, degrees, waves) {
  const rest = mod(degrees + 45, 90) - 45;
  let turned = image;
  for (let quarter = mod(Math.round((degrees - rest) / 90), 4); quarter > 0; quarter--) {
    const from = turned;
    turned = new Float32Array(from.length);
    for (let y = 0; y < size; y++) for (let x = 0; x < size; x++) turned[y * size + x] = from[x * size + size - 1 - y];
  }
  if (rest === 0) return turned;
  const wide = size + 3, padded = new Float32Array(wide * wide);
  for (let y = 0; y < size; y++) padded.set(turned.subarray(y * size, (y + 1) * size), (y + 1) * wide + 1);
  const cos = waves[0][Math.abs(rest)], sin = Math.sign(rest) * waves[1][Math.abs(rest)], middle = (size - 1) / 2;
  const clamp = (value) => Math.min(Math.max(value, 0), size + 1), out = new Float32Array(size * size);
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const right = x - middle, up = middle - y;
      const row = clamp(middle + 1 + (right * sin - up * cos)), column = clamp(middle + 1 + (right * cos + up * sin));
      const top = Math.floor(row), left = Math.floor(column), at = top * wide + left;
      const lower = f(row - top), further = f(column - left), upper = f(1 - lower), nearer = f(1 - further);
      const above = f(f(padded[at] * nearer) + f(padded[at + 1] * further));
      const below = f(f(padded[at + wide] * nearer) + f(padded[at + wide + 1] * further));
      out[y * size + x] = f(f(above * upper) + f(below * lower));
    }
  }
  return out;
}

/** Paint an image onto a canvas, one canvas pixel per image pixel. */
export function paint(canvas, image, [channels, height, width]) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), pixels = context.createImageData(width, height), plane = height * width;
  for (let i = 0; i < plane; i++) {
    for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = Math.round(255 * image[(channels === 3 ? c : 0) * plane + i]);
    pixels.data[4 * i + 3] = 255;
  }
  context.putImageData(pixels, 0, 0);
}

/** Return whether two images are equal bit for bit. */
export function same(a, b) {
  const x = new Uint32Array(a.buffer, a.byteOffset, a.length), y = new Uint32Array(b.buffer, b.byteOffset, b.length);
  return x.length === y.length && x.every((bits, i) => bits === y[i]);
}
