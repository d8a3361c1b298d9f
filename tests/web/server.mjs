// One origin, as cloud_server is one: the tab's files under /app/, the tests' under /test/, goldens under /golden/, a report
// that a page posts, and a cloud behind everything else. Or that cloud's own /app/, in a frame of the tests' page. The tensor
// library's page is under /app/ops/; under /spoilt/ with another value among its goldens, and under /empty/ without them.
import http from 'node:http';
import {readdirSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {gunzipSync} from 'node:zlib';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const types = {js: 'text/javascript', html: 'text/html', css: 'text/css', wasm: 'application/wasm', svg: 'image/svg+xml'};

// Behind gpu.js: the device of the tab is lost when the page says so.
const kLosing = `
const make = globalThis.GPUAdapter?.prototype.requestDevice;
if (make) GPUAdapter.prototype.requestDevice = async function (...wanted) {
  const device = await make.apply(this, wanted);
  new BroadcastChannel('lose').onmessage = () => device.destroy();
  return device;
};`;

// `built`: build-web; `own`: whether /app/ is the tab's files, bare, or the cloud's. Resolves to {url, report: the next one that
// comes, cloud: set it to where the cloud is, close}. /weights says how many bytes of weights it has given.
export async function serve(built, own = true) {
  const state = {cloud: null};
  let weights = 0;
  const packed = readdirSync(join(built, 'app'));
  const wasm = (kind) => gunzipSync(readFileSync(join(built, 'app', packed.find((name) => new RegExp(`^${kind}-[0-9a-f]{16}\\.wasm`).test(name)))));
  const folders = {...(own ? {'/app/': here('../../edge_client/web/page')} : {}), '/test/': here('page'), '/golden/': here('../golden/models')};
  const ops = (path, own) => {
    if (own === 'empty' && path.startsWith('goldens/u')) throw new Error('no goldens');
    const bytes = readFileSync(join(built, 'ops', path || 'index.html'));
    if (own === 'spoilt' && path === 'goldens/unary.safetensors') {
      const head = Number(bytes.readBigUInt64LE(0)), [begin] = JSON.parse(bytes.subarray(8, 8 + head))['unary.tanh.3/out.0'].data_offsets;
      bytes[8 + head + begin + 2] ^= 8;  // a bit of the first number's mantissa
    }
    return bytes;
  };
  const file = (path) => {
    const [, own, rest] = /^\/(app\/ops|spoilt|empty)\/(.*)$/.exec(path) ?? [];
    if (own) return ops(rest, own);
    if (path === '/weights') return String(weights);
    if (path === '/app/edge.wasm') return wasm('edge');
    if (path === '/app/edge-plain.wasm') return wasm('edge-plain');
    if (path === '/app/gpu.js' && folders['/app/']) return readFileSync(here('../../edge_client/web/page/gpu.js')) + kLosing;
    if (path === '/app/kernels.js') return process.env.KERNELS_JS && readFileSync(process.env.KERNELS_JS);
    if (path === '/app/events.js') return readFileSync(here('../../edge_client/server/page/events.js'));
    if (path === '/test/web_tests.wasm') return readFileSync(join(built, 'bin/web_tests.wasm'));
    const folder = Object.keys(folders).find((name) => path.startsWith(name));
    return folder && readFileSync(join(folders[folder], path.slice(folder.length)));
  };
  const server = http.createServer((request, response) => {
    const path = new URL(request.url, 'http://x').pathname;
    if (path === '/report') {
      let body = '';
      request.on('data', (part) => { body += part; }).on('end', () => {
        response.end();
        state.reported?.(JSON.parse(body));
      });
      return;
    }
    try {
      const bytes = file(path);
      if (bytes) {
        response.writeHead(200, {'Content-Type': types[path.endsWith('/') ? 'html' : path.split('.').pop()] ?? 'text/plain'});
        return response.end(bytes);
      }
    } catch (error) {
      response.writeHead(404);
      return response.end(String(error));
    }
    if (!state.cloud) return response.destroy();
    const {hostname, port} = new URL(state.cloud);
    const up = http.request({hostname, port, method: request.method, path: request.url, headers: request.headers}, (reply) => {
      const policy = reply.headers['content-security-policy'];
      if (policy) reply.headers['content-security-policy'] = policy.replace("frame-ancestors 'none'", "frame-ancestors 'self'");
      if (path.includes('/blobs/')) reply.on('data', (bytes) => { weights += bytes.length; });
      response.writeHead(reply.statusCode, reply.headers);
      reply.pipe(response);
    });
    up.on('error', () => response.destroy());
    response.on('close', () => up.destroy());
    request.pipe(up);
  });
  await new Promise((listens) => server.listen(0, '127.0.0.1', listens));
  state.url = `http://localhost:${server.address().port}`;
  state.report = () => new Promise((reported) => { state.reported = reported; });
  state.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return state;
}
