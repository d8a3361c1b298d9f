// The module's memory as its imports need it. Growing it takes every view away, so none is kept; and
// addresses above 2 GiB come as negative numbers.
export class Memory {
  #memory;
  attach(memory) { this.#memory = memory; }
  get size() { return this.#memory.buffer.byteLength; }
  bytes(at, size) { return new Uint8Array(this.#memory.buffer, at >>> 0, size >>> 0); }
  numbers(at, count) { return new Float64Array(this.#memory.buffer, at >>> 0, count); }
  view() { return new DataView(this.#memory.buffer); }
  text(at, size) { return new TextDecoder().decode(this.bytes(at, size).slice()); }
  // Up to its zero.
  line(at) {
    const bytes = this.bytes(at, this.size - (at >>> 0));
    return this.text(at, bytes.indexOf(0));
  }
  // Copies as much as there is room for; returns how many bytes there were.
  put(at, room, bytes) {
    const part = bytes.subarray(0, room >>> 0);
    this.bytes(at, part.length).set(part);
    return bytes.length;
  }
}
