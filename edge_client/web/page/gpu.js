// The tab's GPU (common/device/webgpu/gpu.h). A program is a list of dispatches whose pipelines and bind groups are made once; a
// step replays the lists of its programs in one submission and waits once, for its result; while it waits, the commands of the next
// step are made. Whatever goes wrong is kept as a line, which the module asks for after each wait.
import {functions, kernels} from './kernels.js';

const kLost = 1, kReady = 2;
const {STORAGE, COPY_DST, COPY_SRC, MAP_READ} = globalThis.GPUBufferUsage ?? {STORAGE: 128, COPY_DST: 8, COPY_SRC: 4, MAP_READ: 1};
const kCompute = 4;  // GPUShaderStage.COMPUTE

// Functions and constants by name, each with the text that declares it; of kernels.symbols too.
const known = new Map((kernels.symbols + functions).split(/^(?=fn |const |override |@group)/m)
  .map((text) => [/^(?:fn|const|override|@group.*>) ?(\w+)/.exec(text)?.[1], text]).filter(([name]) => name));

// Writes loops out: "#each i N", lines, "#end" gives the lines N times, with 0, 1, ... for $i; N is a number or a constant.
function written_out(code) {
  const count = (name) => +name || +new RegExp(`const ${name} = (\\d+)u`).exec(code)[1];
  const once = (text) => text.replace(/^#each (\w) (\w+)\n((?:(?!#each).*\n)*?)#end\n/gm,
    (_, index, name, lines) => Array.from({length: count(name)}, (_, i) => lines.replaceAll(`$${index}`, i)).join(''));
  while (/^#each/m.test(code)) code = once(code);
  return code;
}
// The text of a kernel, behind all that it calls. `bases`: names of kernels whose texts stand behind it.
export function assembled({text = '', bases = []}) {
  const own = written_out(text + bases.map((name) => kernels[name]).join('')), wanted = new Set();
  const add = (part) => {
    for (const [word] of part.matchAll(/\b[A-Za-z_]\w*/g)) {
      if (!known.has(word) || wanted.has(word) || new RegExp(`(override|const|fn) ${word}\\b`).test(own)) continue;
      wanted.add(word);
      add(known.get(word));
    }
  };
  add(own);
  return [...known].filter(([name]) => wanted.has(name)).map(([, declared]) => declared).join('') + own;
}
// The overrides of those that a text has.
export const constantsOf = (code, numbers) => Object.fromEntries(Object.entries(numbers).filter(([name]) => new RegExp(`override ${name}\\b`).test(code)));

export class Gpu {
  #memory;
  #wake;
  #gpu;
  #device = null;
  #state = 0;  // kLost, kReady
  #failure = '';
  #name = '';
  #software = false;  // computes on the processor
  #buffers = new Map();    // number -> GPUBuffer
  #programs = new Map();   // number -> its dispatches
  #pipelines = new Map();  // by text, overrides and accesses
  #layouts = new Map();    // by accesses
  #making = 0;             // pipelines that are being made
  #spare = [];          // buffers that results are read through
  #read = new Map();    // key -> bytes of its result
  #next = null;         // the commands of the next step, if that is like the last one
  #generation = 0;      // of devices
  #opening = null;      // while a device is asked for
  #ended = Promise.withResolvers();  // resolves once this device is lost
  #last = 0;

  // `gpu`: navigator.gpu.
  constructor(memory, wake, gpu) {
    this.#memory = memory;
    this.#wake = wake;
    this.#gpu = gpu;
  }

  get imports() {
    return {
      present: () => (this.#gpu ? 1 : 0),
      open: (key) => {
        this.#opening ??= this.#open().catch((error) => this.#fail(error)).finally(() => { this.#opening = null; });
        this.#opening.then(() => this.#wake(key));
      },
      generation: () => (this.#state === kReady ? this.#generation : 0),
      software: () => (this.#software ? 1 : 0),
      name: (out, room) => this.#memory.put(out, room, new TextEncoder().encode(this.#name)),
      failure: (out, room) => this.#memory.put(out, room, new TextEncoder().encode(this.#failure)),
      make_buffer: (bytes) => this.#number(this.#buffers, this.#guard(() => this.#device.createBuffer({size: bytes >>> 0, usage: STORAGE | COPY_DST | COPY_SRC}))),
      drop_buffer: (id) => {
        this.#buffers.get(id)?.destroy();
        this.#buffers.delete(id);
      },
      // Those of a device that was lost are gone.
      write: (id, offset, from, size) => this.#buffers.has(id) && this.#guard(() => this.#device.queue.writeBuffer(this.#buffers.get(id), offset >>> 0, this.#memory.bytes(from, size))),
      read: (key, id, offset, size) => this.#wait(key, () => this.#get(key, this.#copied(this.#device.createCommandEncoder(), id, offset, size), size)),
      take: (key, out, size) => {
        const bytes = this.#read.get(key);
        this.#read.delete(key);
        if (bytes) this.#memory.put(out, size, bytes);
      },
      make_program: (json, size) => this.#number(this.#programs, this.#guard(() => JSON.parse(this.#memory.text(json, size)).map((one) => this.#dispatch(one)))),
      drop_program: (id) => this.#programs.delete(id),
      settle: (key) => this.#wait(key, () => this.#settled()),
      settled: () => (this.#making === 0 ? 1 : 0),
      run: (key, programs, count, rows, outRows, result, offset, size) => this.#wait(key, () => this.#run(key,
        [...new Int32Array(this.#memory.bytes(programs, 4 * count).slice().buffer)], rows, outRows, result, offset, size)),
    };
  }

  #number(map, value) {
    map.set(++this.#last, value);
    return this.#last;
  }
  #fail(error) {
    this.#failure ||= String(error?.message ?? error).split('\n')[0];
    this.#state = kLost;
    this.#ended.resolve();
  }
  #guard(work) {
    if (this.#state !== kReady) return undefined;
    try {
      return work();
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  }
  // Does what gives a promise, and wakes the key when it has come about or failed.
  #wait(key, work) {
    (async () => { if (this.#state === kReady) await work(); })().catch((error) => this.#fail(error)).finally(() => this.#wake(key));
  }

  async #open() {
    this.#device?.destroy();
    for (const map of [this.#buffers, this.#programs, this.#pipelines, this.#layouts]) map.clear();
    [this.#state, this.#failure, this.#device, this.#spare, this.#next] = [0, '', null, [], null];
    const adapter = await this.#gpu?.requestAdapter({powerPreference: 'high-performance'});
    if (!adapter) throw new Error('this browser gives no adapter');
    const {vendor, architecture, description} = adapter.info ?? {};
    this.#name = description || [vendor, architecture].filter(Boolean).join(' ') || 'unknown adapter';
    this.#software = adapter.info?.isFallbackAdapter === true || /swiftshader|llvmpipe/i.test(this.#name);
    const device = await adapter.requestDevice();
    this.#device = device;
    device.lost.then(({message}) => { if (this.#device === device) this.#fail(`the device was lost: ${message || 'no reason given'}`); });
    device.onuncapturederror = ({error}) => { if (this.#device === device) this.#fail(error); };
    this.#ended = Promise.withResolvers();
    ++this.#generation;
    this.#state = kReady;
  }

  // One dispatch of a list, as gpu.h describes it, ready to be replayed.
  #dispatch({kernel, numbers, buffers, ...counts}) {
    const accesses = buffers.map(({written}) => (written ? 'w' : 'r')).join(''), one = {...counts};
    const layout = this.#layout(accesses);
    const entries = buffers.map(({id, size}, binding) => ({binding, resource: {buffer: this.#buffers.get(id), size}}));
    one.group = this.#device.createBindGroup({layout, entries});
    this.#pipeline(kernel, numbers, accesses, layout).then((made) => { one.pipeline = made; }, () => {});
    return one;
  }
  #layout(accesses) {
    if (!this.#layouts.has(accesses)) {
      const entries = [...accesses].map((access, binding) => ({binding, visibility: kCompute, buffer: {type: access === 'w' ? 'storage' : 'read-only-storage'}}));
      this.#layouts.set(accesses, this.#device.createBindGroupLayout({entries}));
    }
    return this.#layouts.get(accesses);
  }
  #pipeline(kernel, numbers, accesses, layout) {
    const key = JSON.stringify([kernel, numbers, accesses]);
    if (!this.#pipelines.has(key)) {
      ++this.#making;
      const code = assembled(kernel);
      const made = this.#device.createComputePipelineAsync({
        layout: this.#device.createPipelineLayout({bindGroupLayouts: [layout]}),
        compute: {module: this.#device.createShaderModule({code}), entryPoint: 'main', constants: constantsOf(code, numbers)},
      });
      this.#pipelines.set(key, made);
      made.catch((error) => this.#fail(`a kernel does not compile: ${error.message}`)).finally(() => { --this.#making; });
    }
    return this.#pipelines.get(key);
  }
  // Waits for pipelines, and for the errors of what was made before, which come in order.
  async #settled() {
    await Promise.race([Promise.all(this.#pipelines.values()), this.#ended.promise]);
    if (this.#state !== kReady) return;
    this.#device.pushErrorScope('validation');
    await this.#device.popErrorScope();
  }

  #run(key, programs, rows, outRows, result, offset, size) {
    const as = [...programs, rows, outRows, result, offset, size].join();
    const encode = () => {
      const encoder = this.#device.createCommandEncoder(), pass = encoder.beginComputePass();
      for (const id of programs) this.#replay(pass, this.#programs.get(id), rows, outRows);
      pass.end();
      return {as, ...this.#copied(encoder, result, offset, size)};
    };
    let step = this.#next;
    this.#next = null;
    if (step?.as !== as) {
      if (step) this.#spare.push(step.staging);
      step = encode();
    }
    return this.#get(key, step, size, () => { this.#next = encode(); });
  }
  #replay(pass, program, rows, outRows) {
    for (const {pipeline, group, by, per, x, y, from, to} of program) {
      const count = by === 'out' ? outRows : rows;
      if (count < from || count > to) continue;
      const groups = Math.ceil(count / per);
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      if (x) pass.dispatchWorkgroups(x, groups); else pass.dispatchWorkgroups(groups, y);
    }
  }
  // Ends commands with a copy of `size` bytes of a buffer, to be read.
  #copied(encoder, id, offset, size) {
    if (size === 0) return {commands: encoder.finish()};
    let staging = this.#spare.pop();
    if (!staging || staging.size < size) {
      staging?.destroy();
      staging = this.#device.createBuffer({size, usage: COPY_DST | MAP_READ});
    }
    encoder.copyBufferToBuffer(this.#buffers.get(id), offset >>> 0, staging, 0, size);
    return {commands: encoder.finish(), staging};
  }
  // Submits, and resolves once the bytes are here. Calls `meanwhile` once the commands have left.
  async #get(key, {commands, staging}, size, meanwhile) {
    this.#device.queue.submit([commands]);
    if (size === 0) return;
    const mapped = staging.mapAsync(1, 0, size);
    await null;
    meanwhile?.();
    await mapped;
    this.#read.set(key, new Uint8Array(staging.getMappedRange(0, size).slice(0)));
    staging.unmap();
    this.#spare.push(staging);
  }
}
