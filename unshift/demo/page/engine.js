// The page's side of the worker: send a job, await the answer.

export class Engine {
  constructor(progress) {
    this.waiting = new Map();
    this.next = 0;
    this.worker = new Worker("worker.js", { type: "module" });
    this.worker.onmessage = ({ data }) => {
      if (data.progress) return progress(...data.progress);
      const { resolve, reject } = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      data.error === undefined ? resolve(data.value) : reject(new Error(data.error));
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      for (const { reject } of this.waiting.values()) reject(new Error(event.message || "worker.js could not be loaded"));
      this.waiting.clear();
    };
  }

  ask(job, given = {}) {
    return new Promise((resolve, reject) => {
      const id = this.next++;
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, job, ...given });
    });
  }

  /** Classify, restore and classify a batch (count, ...shape): the restorer's outputs, and the logits alone and with it. */
  run(models, data, count, shape) {
    return this.ask("run", { models, data, dims: [count, ...shape] });
  }

  stop() {
    this.worker.terminate();
  }
}
