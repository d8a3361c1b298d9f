// Each row of the op table as WGSL: it compiles without a message, and makes of numbers what the CPU makes of them.
import test from 'node:test';
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const { ROWS, MODULES } = process.env;
const { create, globals } = createRequire(`${MODULES}/`)('webgpu');
Object.assign(globalThis, globals);
const gpu = create([]);
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice();

const words = (name) => {
  const bytes = readFileSync(`${ROWS}/${name}`);
  return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
};
const cache = new Map();
const input = (name) => {
  if (!cache.has(name)) {
    const data = words(name);
    const buffer = device.createBuffer({ size: data.byteLength, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST });
    device.queue.writeBuffer(buffer, 0, data);
    cache.set(name, { buffer, data });
  }
  return cache.get(name);
};

async function run(row, count) {
  const module = device.createShaderModule({ code: row.kernel });
  const { messages } = await module.getCompilationInfo();
  if (messages.length > 0) {
    return { messages: messages.map((m) => `${m.lineNum}: ${m.message}: ${row.kernel.split('\n')[m.lineNum - 1]}`) };
  }
  const types = ['read-only-storage', 'read-only-storage', 'read-only-storage', 'storage'];
  const layout = device.createBindGroupLayout({
    entries: types.map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } })),
  });
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }), compute: { module, entryPoint: 'main' },
  });
  const result = device.createBuffer({ size: 4 * count, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC });
  const read = device.createBuffer({ size: 4 * count, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({
    layout,
    entries: [...row.inputs.map((name) => input(name).buffer), result].map((buffer, binding) => ({ binding, resource: { buffer } })),
  }));
  pass.dispatchWorkgroups(Math.ceil(count / 64));
  pass.end();
  encoder.copyBufferToBuffer(result, 0, read, 0, 4 * count);
  device.queue.submit([encoder.finish()]);
  await read.mapAsync(GPUMapMode.READ);
  return { messages: [], got: new Uint32Array(read.getMappedRange().slice(0)) };
}

// Compares within the op tests' bounds. WGSL says nothing of NaN, and a device may take subnormal numbers for 0.
const kTiny = 1.1754944e-38;
const flushed = (x) => (Math.abs(x) < kTiny ? 0 : x);
function agrees(got, expected) {
  if (Number.isNaN(expected)) return true;
  if (Math.abs(expected) > 3.4028e38) return Math.abs(got) > 3.402e38 && Math.sign(got) === Math.sign(expected);
  return Math.abs(flushed(got) - flushed(expected)) <= Math.max(1e-6, 1e-5 * Math.abs(expected));
}

// Before the tests: node:test does not run what Dawn's promises wait for.
const rows = JSON.parse(readFileSync(`${ROWS}/rows.json`));
const results = [];
for (const row of rows) results.push(await run(row, words(row.result).length));
device.destroy();

test('every row is there', () => assert.ok(rows.length >= 88, `${rows.length} rows`));
for (const [at, row] of rows.entries()) {
  test(row.name, () => {
    const { messages, got } = results[at], expected = words(row.result);
    assert.deepEqual(messages, []);
    const numbers = (bits) => (row.type === 'f32' ? new Float32Array(bits.buffer, bits.byteOffset, bits.length) : new Int32Array(bits.buffer, bits.byteOffset, bits.length));
    const [ours, theirs] = [numbers(got), numbers(expected)];
    const of = (i) => row.inputs.map((name) => numbers(input(name).data)[i]).join(', ');
    let wrong = 0, first = '';
    for (let i = 0; i < ours.length; i += 1) {
      if (row.type === 'f32' ? agrees(ours[i], theirs[i]) : ours[i] === theirs[i]) continue;
      if (wrong++ === 0) first = `of ${of(i)}: got ${ours[i]}, expected ${theirs[i]}`;
    }
    assert.equal(wrong, 0, first);
  });
}
