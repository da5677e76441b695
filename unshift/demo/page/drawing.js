// A drawn digit: strokes painted at FINE times the resolution and averaged, so that edges are soft like MNIST's.

const FINE = 8, PEN = 2.7;

export class Drawing {
  constructor([, height, width]) {
    this.size = [height, width];
    this.canvas = Object.assign(document.createElement("canvas"), { width: width * FINE, height: height * FINE });
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.clear();
  }

  clear() {
    this.empty = true;
    this.last = null;
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  /** Draw to a point in pixels, or start there. */
  to([x, y]) {
    const from = this.last ?? [x, y], context = this.context;
    context.strokeStyle = "#fff";
    context.lineWidth = PEN * FINE;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(from[0] * FINE, from[1] * FINE);
    context.lineTo(x * FINE + 0.01, y * FINE);
    context.stroke();
    this.last = [x, y];
    this.empty = false;
  }

  lift() {
    this.last = null;
  }

  image() {
    const [height, width] = this.size, image = new Float32Array(height * width);
    const pixels = this.context.getImageData(0, 0, width * FINE, height * FINE).data;
    for (let y = 0; y < height * FINE; y++) {
      for (let x = 0; x < width * FINE; x++) {
        image[Math.floor(y / FINE) * width + Math.floor(x / FINE)] += pixels[4 * (y * width * FINE + x)];
      }
    }
    return image.map((total) => total / (255 * FINE * FINE));
  }
}
