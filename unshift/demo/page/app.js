// The page: load the manifest, the runtime and the models; connect the controls.

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
    return fail(`The runtime or a model could not be loaded (${error.message}).${state.image ? " You can move the image, but it is neither restored nor classified." : ""}`);
  }
  ready();
  work.waiting.splice(0).forEach(({ resolve }) => resolve({ engine: work.engine, manifest: work.manifest }));
  refresh();
}

/** Await { engine, manifest }. After a failure, try again. */
export function computing() {
  if (work.engine) return Promise.resolve({ engine: work.engine, manifest: work.manifest });
  const promise = new Promise((resolve, reject) => work.waiting.push({ resolve, reject }));
  if (document.documentElement.dataset.state === "failed") load();
  return promise;
}

export async function download(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  return response;
}

async function floats(url, each) {
  const all = new Float32Array(await (await download(url)).arrayBuffer());
  return Array.from({ length: all.length / each }, (_, i) => all.slice(i * each, (i + 1) * each));
}

async function loadManifest() {
  const manifest = await (await download("manifest.json")).json();
  for (const entry of manifest.entries) {
    entry.pictures = await floats(entry.samples, entry.channels * entry.size[0] * entry.size[1]);
    if (entry.rotation) entry.natives = await floats(entry.rotation.samples, entry.rotation.native[0] * entry.rotation.native[1]);
  }
  if (!manifest.entries.length) throw new Error("this page was written without a dataset");
  work.manifest = manifest;
  connectTabs([...(manifest.entries.some((entry) => entry.scene) ? ["scenes"] : []), ...(manifest.genomes ? ["genomes"] : []), ...(manifest.pages ? ["pages"] : [])]);
  $("modes").querySelector("[data-mode=pose]").hidden = !manifest.entries.some((entry) => entry.pose);
  $("datasets").replaceChildren(...manifest.entries.map((entry) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: entry.title });
    button.dataset.name = entry.name;
    button.onclick = () => { chooseEntry(entry); refresh(); };
    return button;
  }));
  $("credits").textContent = `${manifest.entries.map((e) => `${e.title}: ${e.name} test set (${e.licence}), ${e.classifier}`).join("; ")}. unshift ${manifest.unshift}, onnxruntime-web ${manifest.runtime} (MIT).`;
  state.shift = manifest.start;
  chooseEntry(manifest.entries[0]);
}

connect();
$("retry").onclick = load;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.entry && showSweep());
/** For tests. */
window.unshift = { state, input: () => Array.from(stage().data), restored, busy: () => work.busy || work.dirty };
load();
