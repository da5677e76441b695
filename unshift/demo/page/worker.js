// The worker: onnxruntime-web and its sessions. It answers messages in order, one at a time.

let ort, sessions = new Map();

async function download(url, report) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  // If the answer is compressed, its length is not that of the content.
  const total = response.headers.get("Content-Encoding") ? 0 : Number(response.headers.get("Content-Length"));
  const parts = [], reader = response.body.getReader();
  let length = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    length += part.value.length;
    report?.(length, total);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function start() {
  if (typeof WebAssembly !== "object") throw new Error("this browser has no WebAssembly");
  const binary = await download("runtime/ort.wasm", (length, total) => postMessage({ progress: [length, total] }));
  ort = await import("./runtime/ort.js");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = binary.buffer;
  ort.env.logLevel = "error";
}

function session(url) {
  if (!sessions.has(url)) {
    const made = download(url).then((model) => ort.InferenceSession.create(model, { executionProviders: ["wasm"] }));
    sessions.set(url, made);
    made.catch(() => sessions.delete(url));
  }
  return sessions.get(url);
}

const outputs = async (url, images) => {
  const made = await session(url);
  return made.run({ [made.inputNames[0]]: images });
};

/**
 * Classify images, restore them, and classify them again with the same classifier. `alone` replaces the images of the
 * first classification: scenes are larger than the classifier's images.
 */
async function run({ models, data, dims, alone: small }) {
  const images = new ort.Tensor("float32", data, dims), shown = small ? new ort.Tensor("float32", small.data, small.dims) : images;
  const alone = await outputs(models.classifier, shown), result = await outputs(models.restorer, images);
  const restored = await outputs(models.classifier, result.restored);
  return {
    alone: alone.logits.data,
    with: restored.logits.data,
    ...Object.fromEntries(Object.entries(result).map(([name, tensor]) => [name, tensor.data])),
  };
}

/** Estimate where a sequence starts. */
async function locate({ text, about }) {
  const sequences = await import("./sequences.js"); // loaded only when needed
  return sequences.locate(text, about, async (data, dims) => (await outputs(about.model, new ort.Tensor("float32", data, dims))).scores.data);
}

/** Estimate which way up a page is. */
async function judge({ image, size, about }) {
  const pages = await import("./scans.js");
  return pages.judge(image, size, about, async (data, dims) => (await outputs(about.model, new ort.Tensor("float32", data, dims))).scores.data);
}

const jobs = { start, locate, judge, load: async ({ models }) => { for (const url of models) await session(url); }, run };
let last = Promise.resolve();

onmessage = ({ data: { id, job, ...given } }) => {
  last = last.then(async () => {
    try {
      const value = await jobs[job](given);
      postMessage({ id, value });
    } catch (error) {
      postMessage({ id, error: String(error?.message ?? error) });
    }
  });
};
