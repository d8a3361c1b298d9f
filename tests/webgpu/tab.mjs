// tab.mjs JSON: the edge of a browser's tab under Node, with WebGPU by npm's Dawn: the page's own worker.js, with doubles of what
// only a browser has. Sends its parent {lines, answers}. Members of the argument:
//   options  edge_client's long flags
//   asks     [[method, path, body]], one after the other, or a list of them at once; an answer is {status, events}. Without: each
//            line of stdin is one, and its answer a line
//   adapter  null: the browser has none; {isFallbackAdapter}: what its info says beside its name
//   spoil    [from, to]: a text in all shaders, and what stands in its place
//   short    the device has memory for so many buffers
//   forget   the cloud forgets its session in front of each step whose number this divides
//   lose     after so many steps the device is lost; a second number: how often
// Environment: MODULES (npm's packages), PAGE (the page's files and kernels.js), WASM (folder of edge.wasm).
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {pathToFileURL} from 'node:url';

const {MODULES, PAGE, WASM} = process.env;
const {options, asks, adapter = {}, spoil, short = Infinity, lose = [0, 0], forget = 0} = JSON.parse(process.argv[2]);
const {create, globals} = createRequire(`${MODULES}/`)('webgpu');
Object.assign(globalThis, globals);
const dawn = create([]), lines = [], answers = [];
let steps = 0, losses = 0, buffers = 0, rows = 0;

const gpu = {
  async requestAdapter(wanted) {
    const found = adapter ? await dawn.requestAdapter(wanted) : null;
    return found && {
      info: {description: 'test adapter', ...adapter},
      async requestDevice(description) {
        // Dawn gives a device the limits that every adapter has, and holds kernels to them.
        if (description?.requiredFeatures || description?.requiredLimits) throw new Error('asks for more than every adapter has');
        const device = await found.requestDevice(description);
        const allot = device.createBuffer.bind(device);
        device.createBuffer = (wanted) => {
          if (++buffers > short) queueMicrotask(() => device.onuncapturederror({error: new Error('out of memory')}));
          return allot(wanted);
        };
        const make = device.createShaderModule.bind(device);
        if (spoil) device.createShaderModule = ({code}) => make({code: code.replaceAll(...spoil)});
        const encode = device.createCommandEncoder.bind(device);
        device.createCommandEncoder = () => {
          if (++steps % lose[0] === 0 && losses < lose[1]) {
            ++losses;
            device.destroy();
          }
          return encode();
        };
        return device;
      },
    };
  },
};
let opened, failed;
const opening = new Promise((resolve, reject) => { opened = resolve; failed = reject; });
const web = globalThis.fetch;
Object.defineProperty(globalThis, 'navigator', {value: {gpu}, configurable: true});
Object.assign(globalThis, {
  self: globalThis,
  close: () => {},
  postMessage({type, line, message}) {
    if (type === 'log') lines.push(line);
    if (type === 'opened') opened();
    if (type === 'failed') failed(new Error(message));
  },
  async fetch(url, init) {
    const session = /^(.*\/sessions\/[^/]+)\/forward$/.exec(url)?.[1];
    if (session && ++rows % forget === 0) await web(session, {method: 'DELETE'});
    const name = /\/(edge(?:-plain)?)\.wasm$/.exec(url)?.[1];
    return name ? new Response(readFileSync(join(WASM, `${name}.wasm`)), {headers: {'Content-Type': 'application/wasm'}}) : web(url, init);
  },
});

function ask(method, path, body = '') {
  return new Promise((resolve, reject) => {
    const {port1, port2} = new MessageChannel(), answer = {events: [], at: []};
    opening.catch(reject);
    port1.onmessage = ({data}) => {
      if (data.status) answer.status = data.status;
      if (data.json) {
        answer.events.push(JSON.parse(data.json));
        answer.at.push(Math.round(performance.now()));
      }
      if (data.ended) {
        port1.close();
        resolve(answer);
      }
    };
    self.onmessage({data: {ask: {method, path, body: typeof body === 'string' ? body : JSON.stringify(body)}}, ports: [port2]});
  });
}

await import(pathToFileURL(join(PAGE, 'worker.js')));
self.onmessage({data: {open: {modules: ['http://tab/edge.wasm', 'http://tab/edge-plain.wasm'], options}}});
await opening;
if (!asks) {
  for await (const line of createInterface({input: process.stdin})) process.stdout.write(`${JSON.stringify(await ask(...JSON.parse(line)))}\n`);
  process.exit(0);
}
for (const one of asks) answers.push(...Array.isArray(one[0]) ? await Promise.all(one.map((each) => ask(...each))) : [await ask(...one)]);
process.send({lines, answers}, () => process.exit(0));
