// Chooses between the two files for this browser. With relaxed-simd a product and a sum may be rounded
// once or twice, and a dot product of bytes is the engine's own: both are tried here, and where they
// are as every other machine computes them, this tab gives the same bits as a native edge.

// A module of one function, which leaves madd(a, b, c) and dot(a, b, c) of the vectors at 0, 16 and 32
// at 48 and 64.
const load = (at) => [0x41, 0, 0xfd, 0, 4, at];
const body = [0,
  0x41, 48, ...load(0), ...load(16), ...load(32), 0xfd, 0x85, 2, 0xfd, 11, 4, 0,
  0x41, 0xc0, 0, ...load(0), ...load(16), ...load(32), 0xfd, 0x93, 2, 0xfd, 11, 4, 0, 0x0b];
const module = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 5, 3, 1, 0, 1,
  7, 9, 2, 1, 0x6d, 2, 0, 1, 0x66, 0, 0, 10, body.length + 2, 1, body.length, ...body]);

const kTriples = 2000;

// Says what this browser lacks; null: nothing.
export function missing() {
  if (!('Suspending' in WebAssembly && 'promising' in WebAssembly)) return 'WebAssembly that waits (JSPI)';
  if (!('Exception' in WebAssembly)) return 'WebAssembly exceptions';
  const simd = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11];
  return WebAssembly.validate(new Uint8Array(simd)) ? null : 'WebAssembly SIMD';
}

// Whether the file with relaxed-simd gives the bits of every other machine here.
export async function roundsOnce() {
  if (!WebAssembly.validate(module)) return false;
  const {exports: {m, f}} = (await WebAssembly.instantiate(module)).instance;
  const floats = new Float32Array(m.buffer), bytes = new Int8Array(m.buffer), ints = new Int32Array(m.buffer);
  const madd = (a, b, c) => {
    floats.fill(a, 0, 4).fill(b, 4, 8).fill(c, 8, 12);
    f();
    return floats.slice(12, 16);
  };
  // 2^-24 where the product is not rounded before the sum; else 0.
  const one = 1 + 2 ** -12;
  if (madd(one, one, -(1 + 2 ** -11)).some((lane) => lane !== 2 ** -24)) return false;
  let seed = 1;
  const random = () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed;
  };
  const number = () => Math.fround((random() / 2 ** 31 - 1) * 2 ** (random() >>> 28));
  for (let i = 0; i < kTriples; ++i) {
    const [a, b, c] = [number(), number(), number()];
    const product = a * b, sum = product + c;  // the product is exact in 53 bits
    const part = sum - product, lost = (product - (sum - part)) + (c - part);
    if (lost === 0 && madd(a, b, c).some((lane) => lane !== Math.fround(sum))) return false;
  }
  for (let i = 0; i < kTriples; ++i) {
    for (let k = 0; k < 16; ++k) {
      bytes[k] = random() >>> 24;
      bytes[16 + k] = random() >>> 25;  // seven bits
    }
    for (let k = 8; k < 12; ++k) ints[k] = random() >>> 8;
    f();
    for (let k = 0; k < 4; ++k) {
      let sum = ints[8 + k];
      for (let j = 4 * k; j < 4 * k + 4; ++j) sum += bytes[j] * bytes[16 + j];
      if (ints[16 + k] !== sum) return false;
    }
  }
  return true;
}
