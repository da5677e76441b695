// Pointer, keys, buttons and files: the visitor's input.

import { chooseOwn, chooseSample, drawing, note, setMode, setTruth } from "./choose.js";
import { mod, signed } from "./pixels.js";
import { hold, refresh } from "./show.js";
import { $, shape, state } from "./state.js";
import { readUpload } from "./upload.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const wrap = (shift) => shift.map((value, axis) => signed(value, state.entry.size[axis]));
const round = (angle) => { const turned = mod(Math.round(angle) + 180, 360) - 180; return turned === -180 ? 180 : turned; };
const tab = () => document.documentElement.dataset.tab;
let gliding = 0, pen = null, newest = null;
const opened = new Map(); // the loaded tabs, by name

function move(shift, event) {
  const next = wrap(shift);
  if (next.join() === state.shift.join()) return;
  state.shift = next;
  refresh(event);
}

function turn(angle, event) {
  const next = round(angle);
  if (next === state.angle) return;
  state.angle = next;
  refresh(event);
}

/** Animate to a shift and an angle, or jump there if the visitor prefers reduced motion. */
function glide(to, angle = state.angle) {
  cancelAnimationFrame(gliding);
  const from = [...state.shift, state.angle], goal = [...to, angle], started = performance.now();
  const go = (eased) => {
    const [down, right, turned] = goal.map((value, i) => Math.round(from[i] + (value - from[i]) * eased));
    turn(turned);
    move([down, right]);
  };
  if (still.matches) return go(1);
  const step = (now) => {
    const t = Math.min(1, Math.max(0, (now - started) / 420));
    go(1 - (1 - t) ** 3);
    if (t < 1) gliding = requestAnimationFrame(step);
  };
  gliding = requestAnimationFrame(step);
}

/** Undo the shift, and the angle in the mode that has both. */
function home(event) {
  if (state.mode === "pose") turn(0, event);
  move([0, 0], event);
}

// --- the stage ------------------------------------------------------------------------------------

function connectStage() {
  const stage = $("stage");
  let start = null;
  const place = (event) => {
    const box = stage.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  const bearing = ([x, y]) => (Math.atan2(0.5 - y, x - 0.5) * 180) / Math.PI;
  const draw = (event) => {
    const [x, y] = place(event), [, height, width] = shape();
    drawing().to([x * width, y * height]);
    chooseOwn(drawing().image(), state.sample < 0 ? state.label : null, event);
  };
  stage.addEventListener("pointerdown", (event) => {
    if (!state.image || !event.isPrimary || (event.pointerType === "mouse" && event.button !== 0)) return;
    cancelAnimationFrame(gliding);
    stage.setPointerCapture(event.pointerId);
    start = { id: event.pointerId, place: place(event), shift: [...state.shift], angle: state.angle };
    stage.classList.add("held");
    hold(true);
    if (state.mode === "draw") draw(event);
  });
  stage.addEventListener("pointermove", (event) => {
    if (!start || event.pointerId !== start.id) return;
    const at = place(event);
    if (state.mode === "draw") draw(event);
    else if (state.mode === "rotate") turn(start.angle + bearing(at) - bearing(start.place), event);
    else move([1, 0].map((axis, i) => start.shift[i] + Math.round((at[axis] - start.place[axis]) * state.entry.size[i])), event);
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    stage.addEventListener(kind, (event) => {
      if (!start || event.pointerId !== start.id) return;
      start = null;
      drawing()?.lift();
      stage.classList.remove("held");
      hold(false);
    });
  }
  stage.addEventListener("keydown", (event) => {
    if (!state.image || event.ctrlKey || event.metaKey || event.altKey) return;
    const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (state.mode === "draw") {
      if (!penKey(event, way)) return;
    } else if (state.mode === "rotate") {
      const by = event.shiftKey ? 15 : 1;
      if (event.key === "Home") turn(0, event);
      else if (way) turn(state.angle - by * (way[1] - way[0]), event);
      else return;
    } else if (event.key === "Home") home(event);
    else if (way) move(way.map((step, axis) => state.shift[axis] + step * (event.shiftKey ? 5 : 1)), event);
    else return;
    cancelAnimationFrame(gliding);
    event.preventDefault();
  });
}

/** Draw by keyboard: arrows move the pen, space lowers and lifts it. */
function penKey(event, way) {
  const [, height, width] = shape();
  pen ??= { at: [width / 2, height / 4], down: false };
  if (way) pen.at = [Math.min(width - 1, Math.max(1, pen.at[0] + way[1])), Math.min(height - 1, Math.max(1, pen.at[1] + way[0]))];
  else if (event.key === " ") pen.down = !pen.down;
  else if (event.key === "Delete" || event.key === "Backspace") clear();
  else return false;
  if (pen?.down) drawing().to(pen.at);
  else drawing().lift();
  showPen();
  chooseOwn(drawing().image(), state.sample < 0 ? state.label : null, event);
  return true;
}

function showPen() {
  const [, height, width] = shape();
  $("pen").hidden = !pen || state.mode !== "draw";
  if (!pen) return;
  $("pen").classList.toggle("down", pen.down);
  $("pen").style.left = `${(100 * pen.at[0]) / width}%`;
  $("pen").style.top = `${(100 * pen.at[1]) / height}%`;
}

function clear() {
  drawing()?.clear();
  pen = null;
  showPen();
  chooseOwn(new Float32Array(shape()[1] * shape()[2]));
}

// --- everything else ------------------------------------------------------------------------------

function chooseMode(mode) {
  if (mode === state.mode) return;
  cancelAnimationFrame(gliding); // else the animation would move the drawing
  setMode(mode);
  showPen();
  note("");
  if (mode === "draw") chooseOwn(drawing().image());
  else refresh();
}

async function upload(file) {
  const { entry } = state;
  if (!file || !entry) return;
  newest = file;
  note(`Reading ${file.name}…`);
  try {
    const { image, notes } = await readUpload(file, shape());
    if (file !== newest) return;
    if (state.entry !== entry) return upload(file); // another dataset was chosen meanwhile: it needs another shape
    if (state.mode === "draw") setMode("shift");
    chooseOwn(image);
    note([`${file.name}: centre square, scaled to ${shape()[2]}x${shape()[1]}`, ...notes].join("; ") + ".");
  } catch (error) {
    if (file === newest) note(`${file.name} cannot be used: ${error.message}.`, true);
  }
}

function connectFiles() {
  $("upload").onchange = ({ target }) => {
    upload(target.files[0]);
    target.value = ""; // so that the same file can be chosen again
  };
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (tab() === "images") upload(file);
    else opened.get(tab())?.then(({ drop }) => drop?.(file));
  });
}

function connectStrip() {
  $("strip").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const buttons = [...$("strip").children], at = buttons.indexOf(document.activeElement);
    const next = mod(at + step, buttons.length);
    chooseSample(next);
    buttons[next].focus();
    buttons[next].scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}

function connectMaps() {
  for (const id of ["sweep-alone", "sweep-with"]) {
    $(id).addEventListener("click", (event) => {
      if (!state.image || state.mode === "draw") return;
      const box = $(id).getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
      if (state.mode === "rotate") turn((Math.atan2(0.5 - x, 0.5 - y) * 180) / Math.PI, event);
      else glide([Math.floor(y * state.entry.size[0]) - state.entry.size[0] / 2, Math.floor(x * state.entry.size[1]) - state.entry.size[1] / 2]);
    });
  }
}

/** Open a tab. The scripts of the other tabs are loaded when first opened. */
async function openTab(name) {
  document.documentElement.dataset.tab = name;
  for (const button of $("tabs").children) button.setAttribute("aria-pressed", button.dataset.tab === name);
  history.replaceState(null, "", name === "images" ? location.pathname + location.search : `#${name}`);
  if (name === "images" || opened.has(name)) return;
  try {
    opened.set(name, import(`./${name}.js`));
    await (await opened.get(name)).open();
  } catch (error) {
    opened.delete(name); // so that the next click tries again
    $({ scenes: "scene-words", genomes: "fasta-note", pages: "page-note" }[name]).textContent = `A part of this page could not be loaded (${error.message}).`;
  }
}

/** Show these tabs beside the images tab. */
export function connectTabs(others) {
  $("tabs").classList.toggle("visible", others.length > 0);
  for (const button of $("tabs").children) {
    button.hidden = button.dataset.tab !== "images" && !others.includes(button.dataset.tab);
    button.onclick = () => openTab(button.dataset.tab);
  }
  if (others.includes(location.hash.slice(1))) openTab(location.hash.slice(1));
}

export function connect() {
  connectStage();
  connectFiles();
  connectStrip();
  connectMaps();
  for (const button of $("modes").children) button.onclick = () => state.image && chooseMode(button.dataset.mode);
  const any = (size) => Math.floor(Math.random() * size) - size / 2;
  const posing = () => state.mode === "pose";
  $("random").onclick = () => state.image && glide(state.entry.size.map(any), posing() ? any(360) : state.angle);
  $("home").onclick = () => state.image && glide([0, 0], posing() ? 0 : state.angle);
  $("angle").oninput = (event) => { cancelAnimationFrame(gliding); if (state.image) turn(-Number(event.target.value), event); };
  $("clear").onclick = () => state.image && clear();
  $("drawn").onclick = () => state.image && chooseMode("shift");
  $("truth").onchange = ({ target }) => setTruth(target.value === "" ? null : Number(target.value));
}
