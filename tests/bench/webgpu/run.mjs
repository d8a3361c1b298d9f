// `bench.sh webgpu`: the edge of a tab on WebGPU, by npm's Dawn under Node, beside edge_client's Vulkan on the same GPU: the same
// random weights, all layers here, in turn; medians are told.
//   run.mjs BIN FOLDER [--device vulkan:N] [--sizes LIST] [--formats LIST] [--runs N] [--json FILE]
// Environment: NODE, MODULES, PAGE and WASM as tests/webgpu/tab.mjs has them; VK_DRIVER_FILES chooses the driver of both.
import {spawn} from 'node:child_process';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {parseArgs} from 'node:util';

import {model, root, start} from '../web/programs.mjs';

const {values} = parseArgs({allowPositionals: true, options: {
  json: {type: 'string'}, runs: {type: 'string', default: '5'}, device: {type: 'string', default: 'vulkan:0'},
  sizes: {type: 'string', default: 'gpt2,llama-3.2-1b'}, formats: {type: 'string', default: 'f16,q4_0'},
}});
const runs = Number(values.runs), kTokens = 64, kPrompt = 512;
const rows = [];
function tell(name, value, unit, {bound, ...more} = {}) {
  const holds = bound === undefined ? undefined : value <= bound;
  rows.push({name, value, unit, ...(bound === undefined ? {} : {bound, holds}), ...more});
  if (values.json) writeFileSync(values.json, `${JSON.stringify(rows, null, 1)}\n`);
  const side = bound === undefined ? '' : `  (asked: at most ${bound}${holds ? '' : ', NOT HELD'})`;
  const rest = Object.entries(more).map(([key, one]) => `  ${key} ${typeof one === 'number' ? +one.toPrecision(3) : one}`).join('');
  console.log(`${name.padEnd(58)} ${String(+value.toPrecision(3)).padStart(8)} ${unit}${side}${rest}`);
}
const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];

// Resolves once the tab's worker has its engine. Its ask(method, path, body) resolves to the last event of the answer.
async function tab_of(options) {
  const child = spawn(process.env.NODE, [join(root, 'tests/webgpu/tab.mjs'), JSON.stringify({options})], {stdio: ['pipe', 'pipe', 'inherit']});
  const waiting = [];
  createInterface({input: child.stdout}).on('line', (line) => { if (line.startsWith('{"events')) waiting.shift()(JSON.parse(line)); });
  const ended = new Promise((_, failed) => child.on('exit', (code) => failed(new Error(`the tab ended with ${code}`))));
  ended.catch(() => {});
  return {
    ask: async (...one) => {
      const answer = new Promise((got) => waiting.push(got));
      child.stdin.write(`${JSON.stringify(one)}\n`);
      const {status, events} = await Promise.race([answer, ended]);
      if (status !== 200) throw new Error(`${one[1]}: ${status} ${JSON.stringify(events)}`);
      return events.at(-1);
    },
    close: () => child.kill(),
  };
}
async function edge_of(flags) {
  const edge = await start('edge_client', flags, /(^| )ready$/m);
  return {
    ask: async (method, path, body) => {
      const response = await fetch(edge.url + path, {method, headers: {'Content-Type': 'application/json'}, ...(body ? {body: JSON.stringify(body)} : {})});
      if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
      return response.json();
    },
    close: edge.stop,
  };
}

// Times of a text, in ms: of a token behind the first, of the first.
async function timed(side, prompt, count, seed) {
  const ids = Array.from({length: prompt}, (_, i) => (i * 37 + 101 * seed) % 500 + 3);
  const {usage} = await side.ask('POST', '/v1/completions', {prompt: ids, max_tokens: count, temperature: 0, ignore_eos: true});
  const {token_ms, first_token_ms} = usage.splitcompute.plan.actual;
  return {token: token_ms, first: first_token_ms};
}

async function compare(size, format) {
  const dir = model(size.startsWith('gpt2') ? 'gpt2' : size.startsWith('qwen2') ? 'qwen2' : 'llama', size, 'f16', '--n-ctx', '1024');
  const cloud = await start('cloud_server', ['--port', '0', '--device', 'cpu', '--threads', '4', '--model', `bench=${dir}`]);
  const options = {server: cloud.url, cut: '0', format, draft: 'off', context: '1024'};
  const begun = performance.now();
  const tab = await tab_of({...options, device: 'webgpu'});
  await timed(tab, 6, 2, 0);
  const loaded = (performance.now() - begun) / 1000, {device, stages} = await tab.ask('GET', '/split/status');
  const edge = await edge_of([...Object.entries({...options, device: values.device}).flatMap(([flag, value]) => [`--${flag}`, value]), '--serve', '127.0.0.1:0']);
  await timed(edge, 6, 2, 0);
  const name = `${size}, ${format}`, took = {tab: {token: [], first: []}, edge: {token: [], first: []}};
  for (let run = 0; run <= runs; ++run) {
    for (const [side, one] of [['tab', tab], ['edge', edge]]) {
      const {token} = await timed(one, 6, kTokens, run + 1), {first} = await timed(one, kPrompt, 2, 50 + run);
      if (run > 0) took[side].token.push(token), took[side].first.push(first);  // the first one touches everything
    }
  }
  const told = (what, bound, label) => {
    const here = median(took.tab[what]), there = median(took.edge[what]);
    tell(`${name}: ${label}, ${values.device} = 1`, here / there, '', {...(bound ? {bound} : {}), webgpu_ms: here, vulkan_ms: there});
  };
  told('token', size.startsWith('gpt2') ? 1.5 : 1.35, 'a token');
  told('first', size.startsWith('gpt2') ? undefined : 3, `a prompt of ${kPrompt}`);
  tell(`${name}: loaded, tested and begun`, loaded, 's', {device: device.name, mb: stages.reduce((sum, {bytes}) => sum + bytes, 0) / 1e6});
  tab.close();
  await edge.close();
  await cloud.stop();
}

for (const size of values.sizes.split(',')) for (const format of values.formats.split(',')) await compare(size, format);
process.exit(0);
