// http::Client's requests by fetch (common/http/web/fetch.cpp). Bodies come in order and are kept until
// they are read, a little ahead of whoever reads.
const kAhead = 1 << 20;  // bytes
const kWait = -1, kFailed = -2;

export class Net {
  #memory;
  #wake;
  #asked = new Map();
  #last = 0;
  open = 0;  // requests that something may still come of

  constructor(memory, wake) {
    this.#memory = memory;
    this.#wake = wake;
  }

  get imports() {
    const text = (at, size) => this.#memory.text(at, size);
    return {
      send: (key, method, methodSize, url, urlSize, headers, headersSize, body, bodySize) => this.#send(
        key, text(url, urlSize), {
          method: text(method, methodSize),
          headers: text(headers, headersSize).split('\n').filter(Boolean).map((line) => {
            const colon = line.indexOf(': ');
            return [line.slice(0, colon), line.slice(colon + 2)];
          }),
          body: bodySize ? this.#memory.bytes(body, bodySize).slice() : undefined,
        }),
      status: (id) => this.#asked.get(id).status,
      headers: (id, out, room) => this.#memory.put(out, room, this.#asked.get(id).headers),
      read: (id, out, room) => this.#read(this.#asked.get(id), out, room),
      close: (id) => {
        const one = this.#asked.get(id);
        this.#asked.delete(id);
        one.closed = true;
        one.taken?.();
        one.control.abort();
      },
    };
  }

  #send(key, url, options) {
    const one = {key, status: 0, chunks: [], held: 0, state: kWait, control: new AbortController()};
    this.#asked.set(++this.#last, one);
    ++this.open;
    this.#run(one, url, options).catch(() => {
      if (one.status === 0) one.status = kFailed;
      one.state = kFailed;
    }).finally(() => {
      --this.open;
      if (!one.closed) this.#wake(key);
    });
    return this.#last;
  }

  async #run(one, url, options) {
    const reply = await fetch(url, {...options, signal: one.control.signal, cache: 'no-store', redirect: 'error'});
    one.headers = new TextEncoder().encode([...reply.headers].map(([name, value]) => `${name}: ${value}\n`).join(''));
    one.status = reply.status;
    this.#wake(one.key);
    const reader = reply.body?.getReader();
    for (;;) {
      const {done, value} = reader ? await reader.read() : {done: true};
      if (done || one.closed) break;
      one.chunks.push(value);
      one.held += value.length;
      this.#wake(one.key);
      if (one.held > kAhead) await new Promise((taken) => { one.taken = taken; });
    }
    one.state = 0;
  }

  #read(one, out, room) {
    if (one.chunks.length === 0) return one.state;
    const part = one.chunks[0].subarray(0, room);
    this.#memory.put(out, room, part);
    if (part.length === one.chunks[0].length) one.chunks.shift();
    else one.chunks[0] = one.chunks[0].subarray(part.length);
    one.held -= part.length;
    if (one.held <= kAhead) one.taken?.();
    return part.length;
  }
}
