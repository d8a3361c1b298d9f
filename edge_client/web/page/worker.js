// The worker that holds the edge: the module, with the imports that it asks for, behind messages of
// tab.js.
import {Fibres} from './fibres.js';
import {Memory} from './memory.js';
import {Net} from './net.js';
import {OpfsStore} from './opfs.js';
import {roundsOnce} from './start.js';
import {Files, MemoryStore} from './store.js';

const kNoSuchCall = 52;  // wasi-libc's ENOSYS
const kShareOfDisk = 0.95;

const memory = new Memory();
const asked = new Map();  // number -> the port of a running request
let last = 0, files, exports, edge, opened, why = '';

const tell = (type, more = {}) => postMessage({type, ...more});
const say = (line) => tell('log', {line: line.trimEnd()});
function fail(error) {
  tell('failed', {message: why || String(error?.message ?? error), stack: String(error?.stack ?? '')});
  close();
}

const fibres = new Fibres({
  onTrap: fail,
  onIdle() {
    if (asked.size > 0 && net.open === 0 && files.open === 0) fail('a request waits for what nobody will do (deadlock)');
  },
});
const wake = (key) => fibres.wake(key);
const net = new Net(memory, wake);

// Pages that this browser gives a memory, to some 16 MB; a memory that is tried costs nothing until it is written to.
function mostPages() {
  let most = 0;
  for (let step = 1 << 16; step >= 1 << 8; step >>= 1) {
    if (most + step > 1 << 16) continue;
    try {
      new WebAssembly.Memory({initial: most + step});
      most += step;
    } catch { /* less, then */ }
  }
  return most;
}

const page = {
  say: (line, size) => say(memory.text(line, size)),
  fail: (line, size) => { why = memory.text(line, size); },
  room: mostPages,
  opened: (handle, error) => opened({handle, error: memory.line(error)}),
  status: (id, status) => asked.get(id).postMessage({status}),
  event: (id, json, size) => asked.get(id).postMessage({json: memory.text(json, size)}),
  ended: (id) => {
    asked.get(id).postMessage({ended: true});
    asked.get(id).close();
    asked.delete(id);
  },
};

const environment = new TextEncoder().encode('XDG_CACHE_HOME=/\0');

const wasi = {
  clock_time_get(clock, precision, at) {
    const ms = clock === 0 ? performance.timeOrigin + performance.now() : performance.now();
    memory.view().setBigUint64(at >>> 0, BigInt(Math.round(ms * 1e6)), true);
    return 0;
  },
  random_get(at, size) {
    crypto.getRandomValues(memory.bytes(at, size));
    return 0;
  },
  fd_write(fd, pieces, count, written) {
    const view = memory.view();
    let all = 0;
    for (let i = 0; i < count; ++i) {
      const at = view.getUint32((pieces >>> 0) + 8 * i, true), size = view.getUint32((pieces >>> 0) + 8 * i + 4, true);
      say(memory.text(at, size));
      all += size;
    }
    view.setUint32(written >>> 0, all, true);
    return 0;
  },
  // The log asks whether a line would wait: a console never does. Tells an event of the first one asked for.
  poll_oneoff(asked, events, count, told) {
    const view = memory.view(), kWritable = 2;
    view.setBigUint64(events >>> 0, view.getBigUint64(asked >>> 0, true), true);
    view.setUint16((events >>> 0) + 8, 0, true);
    view.setUint8((events >>> 0) + 10, kWritable);
    view.setBigUint64((events >>> 0) + 16, 1n, true);
    view.setUint16((events >>> 0) + 24, 0, true);
    view.setUint32(told >>> 0, 1, true);
    return 0;
  },
  environ_sizes_get(count, size) {
    memory.view().setUint32(count >>> 0, 1, true);
    memory.view().setUint32(size >>> 0, environment.length, true);
    return 0;
  },
  environ_get(places, text) {
    memory.view().setUint32(places >>> 0, text, true);
    memory.put(text, environment.length, environment);
    return 0;
  },
  fd_prestat_get: () => 8,  // EBADF: no folder is open
  proc_exit(code) { throw new Error(`exit ${code}`); },
};

// Calls an export with texts of the page's, each with a zero behind it, between other numbers.
function call(name, ...given) {
  const taken = [];
  exports[name](...given.map((one) => {
    if (typeof one !== 'string') return one;
    const bytes = new TextEncoder().encode(one + '\0');
    const at = exports.web_take(bytes.length);
    memory.put(at, bytes.length, bytes);
    taken.push(at);
    return at;
  }));
  taken.forEach((at) => exports.web_give(at));
}

// A disk where the browser grants one, and how many bytes weights may have of it: older ones make room.
async function openStore() {
  try {
    let full = false;
    const store = await OpfsStore.open(() => {
      if (!full) tell('full');
      full = true;
    });
    return [store, 'disk', Math.floor(kShareOfDisk * (await navigator.storage.estimate()).quota)];
  } catch {
    return [new MemoryStore(), 'memory'];
  }
}

async function open({modules, options}) {
  const plain = !(await roundsOnce());
  const compiling = WebAssembly.compileStreaming(fetch(modules.find((url) => plain === url.includes('edge-plain'))));
  const [store, kind, limit] = await openStore();
  files = new Files(memory, wake, store);
  const compiled = await compiling;
  // With what it needs of kernels, in files that a browser without a GPU does not load.
  const gpu = navigator.gpu && await import('./gpu.js').then(({Gpu}) => new Gpu(memory, wake, navigator.gpu).imports, (error) => say(`no GPU: ${error.message}`));
  const imports = {fibres: fibres.imports, net: net.imports, store: files.imports, page, gpu: gpu ?? {},
    wasi_snapshot_preview1: {}};
  for (const {module: from, name} of WebAssembly.Module.imports(compiled)) {
    if (from === 'wasi_snapshot_preview1') imports[from][name] = wasi[name] ?? (() => kNoSuchCall);
    if (from === 'gpu') imports[from][name] ??= () => 0;
  }
  ({exports} = await WebAssembly.instantiate(compiled, imports));
  memory.attach(exports.memory);
  fibres.attach(exports);
  exports._initialize();
  const {handle, error} = await new Promise((done) => {
    opened = done;
    call('web_open', JSON.stringify({...(limit ? {'cache-limit': limit} : {}), ...options}));
  });
  if (handle === 0) return fail(error);
  edge = handle;
  tell('opened', {store: kind});
}

function ask({method, path, body}, port) {
  const id = ++last;
  asked.set(id, port);
  port.onmessage = ({data}) => { if (data === 'cancel') exports.web_cancel(id); };
  call('web_ask', id, edge, method, path, body, new TextEncoder().encode(body).length);
}

let opening;
self.onmessage = async ({data, ports}) => {
  if (data.open) opening = open(data.open).catch(fail);
  if (data.ask) {
    await opening;
    ask(data.ask, ports[0]);
  }
};
