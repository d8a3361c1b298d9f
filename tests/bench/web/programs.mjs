// Programs that bench.sh web starts, models that it makes, and a browser.
import {spawn, spawnSync} from 'node:child_process';
import {cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync} from 'node:fs';
import http from 'node:http';
import {createReadStream} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';

export const root = fileURLToPath(new URL('../../..', import.meta.url));
export const [bin, folder] = process.argv.slice(2);
const caches = mkdtempSync(join(tmpdir(), 'split-bench-'));
const running = new Set();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
  rmSync(caches, {recursive: true, force: true});
});

// Resolves to {url, stop} once the program says where it listens and then what `until` looks for.
export function start(program, args, until = /listening on (http:\S+)/) {
  const child = spawn(join(bin, program), args, {env: {...process.env, XDG_CACHE_HOME: caches}, stdio: ['ignore', 'ignore', 'pipe']});
  running.add(child);
  const ended = new Promise((gone) => child.on('exit', gone));
  return new Promise((resolve, reject) => {
    let said = '';
    child.on('exit', (code) => reject(new Error(`${program} ended with ${code}: ${said}`)));
    child.stderr.on('data', (bytes) => {
      said += bytes;
      const url = /listening on (http:\S+)/.exec(said)?.[1];
      if (url && until.test(said)) resolve({url, stop: () => { child.kill('SIGKILL'); running.delete(child); return ended; }});
    });
  });
}
export const line_to = ({url}, ...flags) => start('split_link', ['--to', new URL(url).host, ...flags]);
export const cloud_of = (model, ...more) => start('cloud_server', ['--port', '0', '--device', 'cpu', '--threads', '1', '--model', `bench=${model}`, ...more]);

function python(script, ...args) {
  const {status} = spawnSync('/usr/bin/python3', [join(root, script), ...args], {stdio: ['ignore', 'ignore', 'inherit']});
  if (status !== 0) throw new Error(`${script}: exit code ${status}`);
}
// A model of random weights as a folder, and as a GGUF file; made when first wanted.
export function model(arch, size, dtype, ...more) {
  const out = join(folder, `${size}-${dtype}`);
  if (!existsSync(join(out, 'model.safetensors')))
    python('scripts/make_random_model.py', '--arch', arch, '--size', size, '--dtype', dtype, '--out', out, ...more);
  return out;
}
export function gguf(dir, type) {
  const out = join(dir, `${type}.gguf`);
  if (!existsSync(out)) python('tests/support/make_gguf.py', dir, out, '--type', type.toUpperCase(), '--head-type', type.toUpperCase(), '--made-up-tokens');
  return out;
}
// The bundled model with a tokenizer.json of so many bytes.
export function with_tokenizer(bytes) {
  const out = join(folder, 'long-tokenizer');
  mkdirSync(out, {recursive: true});
  cpSync(join(root, 'weights/demo'), out, {recursive: true});
  const text = readFileSync(join(out, 'tokenizer.json'), 'utf8');
  writeFileSync(join(out, 'tokenizer.json'), text + ' '.repeat(Math.max(0, bytes - text.length)));
  return out;
}

const kTypes = {html: 'text/html', js: 'text/javascript', mjs: 'text/javascript', wasm: 'application/wasm'};
// A server of files for the others' pages, isolated so that their threads may be; paths are looked up in `places` by their prefix.
export async function serve_files(places) {
  const server = http.createServer((request, response) => {
    const path = decodeURI(new URL(request.url, 'http://x').pathname), prefix = Object.keys(places).find((one) => path.startsWith(one));
    response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
    response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
    if (!prefix) return response.writeHead(200, {'Content-Type': 'text/html'}).end('<!doctype html><title>bench</title>');
    const file = join(places[prefix], path.slice(prefix.length));
    if (!existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, {'Content-Type': kTypes[file.split('.').pop()] ?? 'application/octet-stream', 'Content-Length': statSync(file).size});
    if (request.method === 'HEAD') return response.end();
    createReadStream(file).pipe(response);
  });
  await new Promise((listens) => server.listen(0, '127.0.0.1', listens));
  return {url: `http://127.0.0.1:${server.address().port}`, stop: () => { server.closeAllConnections(); server.close(); }};
}

export const launch = () => createRequire(join(folder, 'x.js'))('playwright-core').chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'],
});
