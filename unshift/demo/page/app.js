// The page: load what computes, and what there is to choose from; then connect the visitor.

import { chooseEntry } from "./choose.js";
import { connect, connectTabs } from "./controls.js";
import { Engine } from "./engine.js";
import { showSweep, stopSweep } from "./maps.js";
import { fail, ready, refresh, restored } from "./show.js";
import { $, stage, state, work } from "./state.js";

const megabytes = (count) => (count / 1e6).toFixed(1);

async function load() {
  document.documentElement.dataset.state = "loading";
  $("retry").hidden = true;
  $("progress").removeAttribute("value");
  work.engine?.stop();
  stopSweep();
  work.engine = null;
  try {
    if (!work.manifest) await loadManifest();
    $("words").textContent = "Loading the runtime…";
    const fresh = new Engine((length, total) => {
      if (total) $("progress").value = length / total;
      $("words").textContent = `Loading the runtime: ${megabytes(length)}${total ? ` of ${megabytes(total)}` : ""} MB`;
    });
    await fresh.ask("start");
    $("words").textContent = "Loading the models…";
    await fresh.ask("load", { models: Object.values(state.entry.models) });
    work.loaded = new Set(Object.values(state.entry.models));
    work.engine = fresh;
  } catch (error) {
    return fail(`The part that computes could not be loaded (${error.message}).${state.image ? " You can move the image, but nothing is found or classified." : ""}`);
  }
  ready();
  work.waiting.splice(0).forEach(({ resolve }) => resolve({ engine: work.engine, manifest: work.manifest }));
  refresh();
}

/** Await the part that computes: { engine, manifest }. Where it could not be loaded, try again. */
export function computing() {
  if (work.engine) return Promise.resolve({ engine: work.engine, manifest: work.manifest });
  const there = new Promise((resolve, reject) => work.waiting.push({ resolve, reject }));
  if (document.documentElement.dataset.state === "failed") load();
  return there;
}

export async function bring(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: the server says ${response.status}`);
  return response;
}

async function floats(url, each) {
  const all = new Float32Array(await (await bring(url)).arrayBuffer());
  return Array.from({ length: all.length / each }, (_, i) => all.slice(i * each, (i + 1) * each));
}

async function loadManifest() {
  const read = await (await bring("manifest.json")).json();
  for (const entry of read.entries) {
    entry.pictures = await floats(entry.samples, entry.channels * entry.size[0] * entry.size[1]);
    if (entry.rotation) entry.natives = await floats(entry.rotation.samples, entry.rotation.native[0] * entry.rotation.native[1]);
  }
  if (!read.entries.length) throw new Error("this page was written without any classifier");
  work.manifest = read;
  connectTabs([...(read.entries.some((entry) => entry.scene) ? ["scenes"] : []), ...(read.genomes ? ["genomes"] : [])]);
  $("modes").querySelector("[data-mode=pose]").hidden = !read.entries.some((entry) => entry.pose);
  $("datasets").replaceChildren(...read.entries.map((entry) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: entry.title });
    button.dataset.name = entry.name;
    button.onclick = () => { chooseEntry(entry); refresh(); };
    return button;
  }));
  $("credits").textContent = `${read.entries.map((e) => `${e.title}: ${e.name} test set (${e.licence}), ${e.classifier}`).join("; ")}. unshift ${read.unshift}, onnxruntime-web ${read.runtime} (MIT).`;
  state.shift = read.start;
  chooseEntry(read.entries[0]);
}

connect();
$("retry").onclick = load;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.entry && showSweep());
/** For tests and the curious: what the page works on. */
window.unshift = { state, input: () => Array.from(stage().data), restored, busy: () => work.busy || work.dirty };
load();
