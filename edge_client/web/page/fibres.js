// The module's threads: each is a call of fibre_main whose stack the browser suspends (JSPI) while
// it waits for a key, which is an address, or for a time. One runs at a time, to its next wait.
const kLongestTimer = 2 ** 31 - 1;  // ms: a longer one would end at once

export const suspends = () => 'Suspending' in WebAssembly && 'promising' in WebAssembly;

export class Fibres {
  #main;
  #waiting = new Map();  // key -> the fibres that wait for it, in their order
  #timers = 0;
  #running = 0;  // fibres that run or are about to
  #turns = [];   // fibres that only yielded
  #channel = new MessageChannel();
  #onIdle;
  #onTrap;

  // `onIdle`: no fibre runs, and none will by itself. `onTrap`: one ended by an error, and the
  // module is lost.
  constructor({onIdle, onTrap}) {
    this.#onIdle = onIdle;
    this.#onTrap = onTrap;
    // A message, not a timer: browsers stretch timers that follow one another to 4 ms.
    this.#channel.port1.onmessage = () => this.#turns.shift()();
  }

  get imports() {
    return {
      block: new WebAssembly.Suspending((key, until) => new Promise((go) => this.#block(key, until, go))),
      now: () => performance.now(),
      wake: (key, all) => this.wake(key, all !== 0),
      start: (fibre, top) => this.#start(fibre, top),
    };
  }

  attach(exports) { this.#main = WebAssembly.promising(exports.fibre_main); }

  wake(key, all = true) {
    const waiting = this.#waiting.get(key);
    if (!waiting) return;
    for (const one of [...waiting].slice(0, all ? waiting.size : 1)) one(1);
  }

  #start(fibre, top) {
    ++this.#running;
    queueMicrotask(() => this.#main(fibre, top).then(() => this.#left(), this.#onTrap));
  }

  #block(key, until, go) {
    if (key === 0 && until === 0) {
      this.#turns.push(() => go(0));
      this.#channel.port2.postMessage(0);
      return;
    }
    let timer;
    const end = (woken) => {
      if (timer !== undefined) {
        clearTimeout(timer);
        --this.#timers;
      }
      const waiting = this.#waiting.get(key);
      waiting.delete(end);
      if (waiting.size === 0) this.#waiting.delete(key);
      ++this.#running;
      go(woken);
    };
    if (!this.#waiting.has(key)) this.#waiting.set(key, new Set());
    this.#waiting.get(key).add(end);
    if (until >= 0) {
      ++this.#timers;
      timer = setTimeout(() => end(0), Math.min(kLongestTimer, Math.max(0, until - performance.now())));
    }
    this.#left();
  }

  #left() {
    if (--this.#running === 0 && this.#timers === 0) this.#onIdle();
  }
}
