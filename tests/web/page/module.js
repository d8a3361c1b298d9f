// The tests' module over the page's own fibres: each call begins a fibre, which tells how it went.
import {Fibres} from '/app/fibres.js';
import {Memory} from '/app/memory.js';

const none = new Proxy({}, {get: () => () => 0});

export async function open() {
  const memory = new Memory();
  let told, failed, why = '';
  const fibres = new Fibres({
    onIdle: () => failed?.(new Error('idle')),
    onTrap: (error) => failed?.(new Error(why || String(error))),
  });
  const module = await WebAssembly.compileStreaming(fetch('/test/web_tests.wasm'));
  const given = {
    fibres: fibres.imports,
    page: {
      told: (at, size) => told(memory.text(at, size)),
      fail: (at, size) => { why = memory.text(at, size); },
    },
    wasi_snapshot_preview1: {
      clock_time_get(clock, precision, at) {
        memory.view().setBigUint64(at >>> 0, BigInt(Math.round(performance.now() * 1e6)), true);
        return 0;
      },
    },
  };
  const imports = {};
  for (const {module: from, name} of WebAssembly.Module.imports(module)) {
    (imports[from] ??= {})[name] = given[from]?.[name] ?? none[name];
  }
  const {exports} = await WebAssembly.instantiate(module, imports);
  memory.attach(exports.memory);
  fibres.attach(exports);
  exports._initialize();
  return {
    tests: exports.tests(),
    call: (name, ...given) => new Promise((resolve, reject) => {
      told = resolve;
      failed = reject;
      exports[name](...given);
    }),
  };
}
