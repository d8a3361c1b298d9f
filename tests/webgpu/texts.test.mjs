// Kernels in WGSL, those of print_rows, print_tapes, print_products and print_kernels: each compiles without a message, and makes of numbers what the CPU
// makes of them.
import test from 'node:test';
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const { TEXTS, MODULES, PAGE } = process.env;
const { create, globals } = createRequire(`${MODULES}/`)('webgpu');
Object.assign(globalThis, globals);
const { assembled, constantsOf } = await import(`${PAGE}/gpu.js`);
const gpu = create([]);
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice();
const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;

const words = (name) => {
  const bytes = readFileSync(`${TEXTS}/${name}`);
  return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
};
const buffers = new Map();
function input(name) {
  if (!buffers.has(name)) {
    const data = words(name);
    const buffer = device.createBuffer({ size: data.byteLength, usage: STORAGE | COPY_DST });
    device.queue.writeBuffer(buffer, 0, data);
    buffers.set(name, buffer);
  }
  return buffers.get(name);
}

// Resolves to the messages of the compiler, or to what the kernel wrote, by binding.
async function run(kernel) {
  const code = assembled(kernel.kernel), module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  if (messages.length > 0) {
    const line = (m) => code.split('\n')[m.lineNum - 1];
    return { messages: messages.map((m) => `${m.lineNum}: ${m.message}: ${line(m)}`) };
  }
  const used = kernel.buffers.map((buffer, binding) => [buffer, binding]).filter(([buffer]) => buffer);
  const layout = device.createBindGroupLayout({
    entries: used.map(([{ file }, binding]) => ({
      binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: file ? 'read-only-storage' : 'storage' },
    })),
  });
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: 'main', constants: constantsOf(code, kernel.overrides ?? {}) },
  });
  const results = [];
  const entries = used.map(([{ file, result, begins, halves }, binding]) => {
    if (file) return { binding, resource: { buffer: input(file) } };
    const size = words(result).byteLength;
    const buffer = device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
    if (begins) device.queue.writeBuffer(buffer, 0, words(begins));
    results.push({ name: result, halves, size, buffer, read: device.createBuffer({ size, usage: MAP_READ | COPY_DST }) });
    return { binding, resource: { buffer } };
  });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({ layout, entries }));
  pass.dispatchWorkgroups(...kernel.groups);
  pass.end();
  for (const { buffer, read, size } of results) encoder.copyBufferToBuffer(buffer, 0, read, 0, size);
  device.queue.submit([encoder.finish()]);
  for (const result of results) {
    await result.read.mapAsync(GPUMapMode.READ);
    result.got = new Uint32Array(result.read.getMappedRange().slice(0));
  }
  return { messages: [], results };
}

// Compares within the op tests' bounds, or of sums by their `size`. WGSL says nothing of NaN, and a device may take subnormal numbers for 0.
const kTiny = 1.1754944e-38;
const half = (bits) => (bits & 0x8000 ? -1 : 1) * (bits & 0x7c00 ? (1 + (bits & 1023) / 1024) * 2 ** ((bits >> 10 & 31) - 15) : (bits & 1023) * 2 ** -24);
const flushed = (x) => (Math.abs(x) < kTiny ? 0 : x);
function agrees(got, expected, size, halves) {
  if (halves) return Math.abs(got - expected) <= 1e-6 + Math.abs(expected) / 1000;
  if (size) return Math.abs(got - expected) <= 1e-6 * size;
  if (Number.isNaN(expected)) return true;
  if (Math.abs(expected) > 3.4028e38) return Math.abs(got) > 3.402e38 && Math.sign(got) === Math.sign(expected);
  return Math.abs(flushed(got) - flushed(expected)) <= Math.max(1e-6, 1e-5 * Math.abs(expected));
}

// Before the tests: node:test does not run what Dawn's promises wait for.
const lists = { 'rows.json': 88, 'tapes.json': 40, 'products.json': 24, 'kernels.json': 17 };
const kernels = [];
for (const [list, least] of Object.entries(lists)) {
  const all = JSON.parse(readFileSync(`${TEXTS}/${list}`));
  test(`${list} has all kernels`, () => assert.ok(all.length >= least, `${all.length} kernels`));
  for (const kernel of all) kernels.push({ kernel, ...await run(kernel) });
}
device.destroy();

for (const { kernel, messages, results } of kernels) {
  test(kernel.name, () => {
    assert.deepEqual(messages, []);
    for (const { name, halves, got } of results) {
      const numbers = (bits) => (halves ? Array.from(new Uint16Array(bits.buffer, bits.byteOffset, 2 * bits.length), half) : kernel.whole ? new Int32Array(bits.buffer, bits.byteOffset, bits.length)
        : new Float32Array(bits.buffer, bits.byteOffset, bits.length));
      const [ours, theirs] = [numbers(got), numbers(words(name))];
      let wrong = 0, first = '';
      for (let i = 0; i < ours.length; i += 1) {
        if (kernel.whole ? ours[i] === theirs[i] : agrees(ours[i], theirs[i], kernel.size, halves)) continue;
        if (wrong++ === 0) first = `${name}[${i}]: got ${ours[i]}, expected ${theirs[i]}`;
      }
      assert.equal(wrong, 0, first);
    }
  });
}
