// The edge of a browser's tab under Node, with WebGPU by npm's Dawn: the page's own worker.js, with doubles of what only a browser
// has. Environment: MODULES (npm's packages), PAGE (the page's files and kernels.js), WASM (folder of edge.wasm).
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';

const {MODULES, PAGE, WASM} = process.env;
const {create, globals} = createRequire(`${MODULES}/`)('webgpu');
Object.assign(globalThis, globals);
export const gpu = create([]);  // kept: what it made ends with it

// Starts the edge. `options`: edge_client's long flags; `onLog`: hears its lines; `change`: another text for a kernel's.
export async function startTab(options, {onLog = () => {}, withGpu = gpu} = {}) {
  let opened, failed;
  const answered = new Promise((resolve, reject) => { opened = resolve; failed = reject; });
  const {fetch: web} = globalThis;
  Object.defineProperty(globalThis, 'navigator', {value: {gpu: withGpu, storage: undefined}, configurable: true});
  Object.assign(globalThis, {
    self: globalThis,
    close: () => {},
    postMessage: ({type, line, message}) => {
      if (type === 'log') onLog(line);
      if (type === 'opened') opened();
      if (type === 'failed') failed(new Error(message));
    },
    fetch: (url, init) => {
      const name = /\/(edge(?:-plain)?)\.wasm$/.exec(url)?.[1];
      return name ? Promise.resolve(new Response(readFileSync(join(WASM, `${name}.wasm`)), {headers: {'Content-Type': 'application/wasm'}})) : web(url, init);
    },
  });
  await import(pathToFileURL(join(PAGE, 'worker.js')));
  self.onmessage({data: {open: {modules: ['http://x/edge.wasm', 'http://x/edge-plain.wasm'], options}}});
  await answered;
  // Resolves to {status, events}, JSON each.
  const ask = (method, path, body = '') => new Promise((resolve, reject) => {
    const {port1, port2} = new MessageChannel(), events = [];
    let status;
    port1.onmessage = ({data}) => {
      if (data.status) status = data.status;
      if (data.json) events.push(JSON.parse(data.json));
      if (data.ended) {
        port1.close();
        resolve({status, events});
      }
    };
    self.onmessage({data: {ask: {method, path, body: typeof body === 'string' ? body : JSON.stringify(body)}}, ports: [port2]});
    answered.catch(reject);
  });
  return {ask};
}
