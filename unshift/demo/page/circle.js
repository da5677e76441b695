// The circle of a genome: the scores of both strands around it, and a movable handle at the start.

const TURN = 2 * Math.PI, RIM = 0.38, DEEP = 0.08, GRIP = 0.475; // in parts of the canvas: radius, length of the highest bar, radius of the handle

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const point = (size, angle, radius) => [size * (0.5 + radius * Math.sin(angle)), size * (0.5 - radius * Math.cos(angle))];

/** Paint the scores clockwise from base 1 at the top: the given strand outwards, the other strand inwards. */
export function paintCircle(canvas, bins, angle) {
  const size = 1024, context = canvas.getContext("2d"), all = bins.flatMap((map) => [...map]);
  const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
  Object.assign(canvas, { width: size, height: size });
  const stroke = (name, width, ...points) => {
    context.strokeStyle = colour(name);
    context.lineWidth = width;
    context.beginPath();
    points.forEach((at, i) => context[i ? "lineTo" : "moveTo"](...at));
    context.stroke();
  };
  stroke("--bad", 3, point(size, angle, RIM), point(size, angle, GRIP)); // first, so that it hides no bar
  bins.forEach((map, turn) => map.forEach((value, i) => {
    const share = high > low ? ((value - low) / (high - low)) ** 2 : 0, at = (TURN * (i + 0.5)) / map.length;
    const radius = RIM + (turn ? -1 : 1) * (0.004 + DEEP * share), width = value === high ? 9 : Math.max(1.5, (0.8 * TURN * RIM * size) / map.length);
    stroke(turn ? "--soft" : "--cell-right", width, point(size, at, RIM), point(size, at, radius));
  }));
  context.strokeStyle = colour("--ink");
  context.lineWidth = 3;
  context.beginPath();
  context.arc(size / 2, size / 2, RIM * size, 0, TURN);
  context.stroke();
  stroke("--ink", 5, point(size, 0, RIM - 0.012), point(size, 0, RIM + 0.012));
}

/** Place the handle at the start. */
export function placeHandle(handle, angle) {
  const [x, y] = point(100, angle, GRIP);
  handle.style.left = `${x}%`;
  handle.style.top = `${y}%`;
}

/** Connect the handle: dragging calls `turned` with an angle from 0 to 2 pi, keys call `stepped` with a number of bases. */
export function connectHandle(handle, turned, stepped, home) {
  let held = null;
  handle.addEventListener("pointerdown", (event) => {
    if (!event.isPrimary || (event.pointerType === "mouse" && event.button !== 0)) return;
    held = event.pointerId;
    handle.setPointerCapture(held);
  });
  handle.addEventListener("pointermove", (event) => {
    if (event.pointerId !== held) return;
    const box = handle.parentElement.getBoundingClientRect();
    const angle = Math.atan2(event.clientX - box.left - box.width / 2, box.top + box.height / 2 - event.clientY);
    turned((angle + TURN) % TURN);
  });
  for (const kind of ["pointerup", "pointercancel"]) handle.addEventListener(kind, (event) => { if (event.pointerId === held) held = null; });
  handle.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 100, PageDown: -100 }[event.key];
    if (event.key === "Home") home();
    else if (step) stepped(event.shiftKey ? 10 * step : step);
    else return;
    event.preventDefault();
  });
}
