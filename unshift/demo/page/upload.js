// Uploaded images: inspected before decoding, decoded by the browser, cropped and scaled.

const MEGABYTES = 10, PIXELS = 40e6, SMALLEST = 8;

const text = (bytes, at, length) => String.fromCharCode(...bytes.subarray(at, at + length));

/** Read a JPEG's frame header: [width, height, components]. */
function jpegFrame(bytes) {
  const view = new DataView(bytes.buffer);
  for (let at = 2; at + 9 < bytes.length && bytes[at] === 0xff;) {
    const marker = bytes[at + 1];
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      return [view.getUint16(at + 7), view.getUint16(at + 5), bytes[at + 9]];
    }
    at += marker === 0xff ? 1 : 2 + view.getUint16(at + 2);
  }
  return null;
}

/** Count a GIF's frames, up to two. */
function gifFrames(bytes) {
  const skip = (at) => { while (at < bytes.length && bytes[at]) at += 1 + bytes[at]; return at + 1; };
  const table = (flags) => (flags & 0x80 ? 3 << ((flags & 7) + 1) : 0);
  let at = 13 + table(bytes[10]), frames = 0;
  while (at < bytes.length && frames < 2) {
    if (bytes[at] === 0x21) at = skip(at + 2);
    else if (bytes[at] === 0x2c) { frames++; at = skip(at + 11 + table(bytes[at + 9])); }
    else break;
  }
  return frames;
}

/** Return the size of an image file, and notes about it, from its first bytes; null for an unknown format. */
export function inspect(bytes) {
  const view = new DataView(bytes.buffer), notes = [];
  let size = null;
  if (bytes.length > 24 && text(bytes, 1, 3) === "PNG") {
    size = [view.getUint32(16), view.getUint32(20)];
    if (text(bytes, 0, Math.min(bytes.length, 4096)).includes("acTL")) notes.push("animation, only its first frame is used");
  } else if (bytes[0] === 0xff && bytes[1] === 0xd8) {
    const frame = jpegFrame(bytes);
    if (frame) size = frame.slice(0, 2);
    if (frame?.[2] === 4) notes.push("CMYK JPEG, converted to RGB by the browser");
  } else if (bytes.length > 13 && text(bytes, 0, 3) === "GIF") {
    size = [view.getUint16(6, true), view.getUint16(8, true)];
    if (gifFrames(bytes) > 1) notes.push("animation, only its first frame is used");
  }
  return { size, notes };
}

const megabytes = (count) => `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)} MB`;

function checkSize([width, height]) {
  if (Math.min(width, height) < SMALLEST) throw new Error(`it is ${width}x${height} pixels; the minimum is ${SMALLEST}x${SMALLEST}`);
  if (width * height > PIXELS) throw new Error(`it is ${width}x${height} pixels; the maximum is 40 million`);
}

/** Decode an image file: { image, notes }. Throw an Error with the reason if it is invalid. */
export async function openImage(file) {
  if (file.size === 0) throw new Error("it is empty");
  if (file.size > MEGABYTES * 1e6) throw new Error(`it is ${megabytes(file.size)}; the maximum is ${MEGABYTES} MB`);
  const { size, notes } = inspect(new Uint8Array(await file.arrayBuffer()));
  if (size) checkSize(size);
  let image;
  try {
    image = await createImageBitmap(file);
  } catch {
    throw new Error("it is not an image that this browser can read");
  }
  checkSize([image.width, image.height]);
  return { image, notes };
}

/** The grey of a pixel, 0 to 255, as Pillow computes it. */
export const grey = (rgba, at) => (rgba[at] * 19595 + rgba[at + 1] * 38470 + rgba[at + 2] * 7471 + 32768) >> 16;

/** Read a file as an image [channels, height, width]: { image, notes }. */
export async function readUpload(file, [channels, height, width]) {
  const { image: bitmap, notes } = await openImage(file);
  const side = Math.min(bitmap.width, bitmap.height);
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff"; // the background of transparent images
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, (bitmap.width - side) / 2, (bitmap.height - side) / 2, side, side, 0, 0, width, height);
  bitmap.close();
  const pixels = context.getImageData(0, 0, width, height).data, plane = width * height;
  const image = new Float32Array(channels * plane);
  for (let i = 0; i < plane; i++) {
    if (channels === 3) pixels.subarray(4 * i, 4 * i + 3).forEach((value, c) => { image[c * plane + i] = value / 255; });
    else image[i] = grey(pixels, 4 * i) / 255;
  }
  if (channels === 1 && edge(image, height, width) > 0.5) {
    image.forEach((value, i) => { image[i] = 1 - value; });
    notes.push("inverted, because the classifier was trained on light on dark");
  }
  return { image, notes };
}

/** The mean of the pixels at the edge of an image of one channel. */
function edge(image, height, width) {
  let total = 0, count = 0;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x += y === 0 || y === height - 1 ? 1 : width - 1, count++) total += image[y * width + x];
  }
  return total / count;
}
