// Runs the cases in a thread of its own: brings the module and the goldens, and tells the page what each case came to.

const decoder = new TextDecoder(), encoder = new TextEncoder();
let exports, memory, why = '';

const bytes = (at, size) => new Uint8Array(memory.buffer, at >>> 0, size >>> 0);
const text = (at, size) => decoder.decode(bytes(at, size));
const view = () => new DataView(memory.buffer);

async function file(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: the host answers ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

const given = {
  page: {
    told: (at, size) => postMessage(JSON.parse(text(at, size))),
    say: (at, size) => console.debug(text(at, size)),
    fail: (at, size) => { why = text(at, size); },
    room: () => 1 << 14,
  },
  fibres: {now: () => performance.now(), wake() {}},
  wasi_snapshot_preview1: {
    clock_time_get(clock, precision, at) {
      view().setBigUint64(at >>> 0, BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6)), true);
      return 0;
    },
    environ_sizes_get(count, size) {
      view().setUint32(count >>> 0, 0, true);
      view().setUint32(size >>> 0, 0, true);
      return 0;
    },
    environ_get: () => 0,
    random_get(at, size) {
      crypto.getRandomValues(bytes(at, size));
      return 0;
    },
    fd_prestat_get: () => 8,  // EBADF: no folder is open
    proc_exit(code) { throw new Error(`exit ${code}`); },
  },
};
const kNoSuchCall = 52;  // wasi-libc's ENOSYS
// What a case never asks for: files, waiting.
const otherwise = (module, name) => module === 'wasi_snapshot_preview1' ? () => kNoSuchCall : () => { throw new Error(`${name} in a case`); };

function put(content) {
  const at = exports.ops_take(content.length);
  bytes(at, content.length).set(content);
  return at;
}
function give(name, content) {
  const short = encoder.encode(name.replace('goldens/', ''));
  exports.ops_file(put(short), short.length, put(content), content.length);
}

async function start() {
  const [module, list, index] = await Promise.all(['ops.wasm', 'operations.def', 'goldens/index.json'].map(file));
  const compiled = await WebAssembly.compile(module), imports = {};
  for (const {module: from, name} of WebAssembly.Module.imports(compiled)) {
    (imports[from] ??= {})[name] = given[from]?.[name] ?? otherwise(from, name);
  }
  ({exports} = await WebAssembly.instantiate(compiled, imports));
  memory = exports.memory;
  exports._initialize();
  give('operations.def', list);
  give('index.json', index);
  const names = [...new Set(JSON.parse(decoder.decode(index)).cases.map((one) => `goldens/${one.file}`))];
  (await Promise.all(names.map(file))).forEach((content, i) => give(names[i], content));
  exports.ops_begin();
  const begun = performance.now();
  while (exports.ops_step());
  postMessage({ended: true, seconds: (performance.now() - begun) / 1000});
}

start().catch((error) => postMessage({broken: why || String(error?.message ?? error)}));
