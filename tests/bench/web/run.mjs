// `bench.sh web`: the edge in a tab of headless Chromium, against its requirements; against the same edge compiled natively;
// and against wllama and ONNX Runtime Web on the same random weights. Timings of two sides are taken in turn, and medians told.
//   run.mjs BIN FOLDER [--json FILE] [--runs N] [--only page,native,peers,qwen,words]
import {readdirSync, readFileSync, statSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {parseArgs} from 'node:util';

import {ours, peers, streamed} from './sides.mjs';
import {cloud_of, gguf, launch, line_to, model, root, serve_files, start, with_tokenizer, folder} from './programs.mjs';

const {values} = parseArgs({allowPositionals: true, options: {
  json: {type: 'string'}, runs: {type: 'string', default: '5'}, only: {type: 'string', default: 'page,native,peers,qwen,words'},
}});
const runs = Number(values.runs), wanted = values.only.split(',');
const rows = [];
// `bound`: what edge_client/web is asked for, at most, or at least where `least`.
function tell(name, value, unit, {bound, least = false, ...more} = {}) {
  const holds = bound === undefined ? undefined : least ? value >= bound : value <= bound;
  rows.push({name, value, unit, ...(bound === undefined ? {} : {bound, holds}), ...more});
  if (values.json) writeFileSync(values.json, `${JSON.stringify(rows, null, 1)}\n`);  // also where a later row fails
  const side = bound === undefined ? '' : `  (asked: at ${least ? 'least' : 'most'} ${bound}${holds ? '' : ', NOT HELD'})`;
  const rest = Object.entries(more).map(([key, one]) => `  ${key} ${typeof one === 'number' ? +one.toPrecision(4) : one}`).join('');
  console.log(`${name.padEnd(58)} ${String(+value.toPrecision(4)).padStart(9)} ${unit}${side}${rest}`);
}
const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];
const at_share = (numbers, share) => numbers.toSorted((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(share * numbers.length))];
const pause = (ms) => new Promise((go) => { setTimeout(go, ms); });
const browser = await launch();
const kIds = Array.from({length: 32}, (_, i) => (i * 7919 + 13) % 4000);
const kPrompt = 'Once upon a time';

function files() {
  const packed = join(root, 'build-web/app');
  for (const name of readdirSync(packed)) tell(`bytes of ${name.replace(/-[0-9a-f]{16}.*/, '')}.wasm, gzip`, statSync(join(packed, name)).size / 1000, 'kB', {bound: 800});
  const kinds = /\.(js|css|html)$/, dirs = ['edge_client/server/page', 'edge_client/web/page'].map((dir) => join(root, dir));
  const own = dirs.flatMap((dir) => readdirSync(dir).filter((name) => kinds.test(name)).map((name) => readFileSync(join(dir, name)).length));
  tell('bytes of JS, HTML and CSS, raw', own.reduce((sum, one) => sum + one, 0) / 1000, 'kB', {bound: 115});
}

async function first_word(page) {
  await page.fill('#prompt', kPrompt);
  return page.evaluate(async () => {
    document.getElementById('max-tokens').value = 32;
    const begun = performance.now();
    document.getElementById('generate').click();
    while (!(document.querySelector('#text .answer')?.textContent.length > 0)) await new Promise(requestAnimationFrame);
    return performance.now() - begun;
  });
}
// On an empty cache, `wait` ms after the page began to load.
async function first_words(name, dir, rate, wait, bound) {
  const cloud = await cloud_of(dir), times = [];
  for (let run = 0; run < runs; ++run) {
    const line = await line_to(cloud, '--rate', rate, '--rtt', '40ms'), context = await browser.newContext(), page = await context.newPage();
    const begun = performance.now();
    await page.goto(`${line.url}/app/`, {waitUntil: 'commit'});
    await page.locator('#generate').waitFor();
    await pause(wait - (performance.now() - begun));
    const asked = performance.now();
    await page.locator('#generate:enabled').waitFor();
    times.push(performance.now() - asked + await first_word(page));
    await context.close();
    await line.stop();
  }
  tell(name, median(times) / 1000, 's', {bound, worst: Math.max(...times) / 1000});
  await cloud.stop();
}

async function visits() {
  const cloud = await cloud_of(join(root, 'weights/demo')), context = await browser.newContext();
  let weights = 0;
  context.on('response', (reply) => { if (reply.url().includes('/blobs/')) weights += Number(reply.headers()['content-length']); });
  const local = (page) => page.waitForFunction(() => document.body.dataset.state === 'local');
  const open = async () => {
    const page = await context.newPage();
    await page.goto(`${cloud.url}/app/`);
    await page.locator('#generate:enabled').waitFor();
    return page;
  };
  await local(await open());
  const model = weights, times = [];
  for (let run = 0; run < runs; ++run) {
    const page = await open();
    times.push(await first_word(page));
    await local(page);
    await page.close();
  }
  tell('weight bytes of a second start', weights - model, 'B', {bound: 0, first: model});
  tell('text of a second start', median(times) / 1000, 's', {bound: 0.5, worst: Math.max(...times) / 1000});
  const page = await open();
  const ms = await page.evaluate(async () => {
    const {modules} = await import('./modules.js'), bytes = await (await fetch(modules.find((name) => !name.includes('plain')))).arrayBuffer();
    const begun = performance.now(), compiled = await WebAssembly.compile(bytes), imports = {};
    for (const {module, name} of WebAssembly.Module.imports(compiled)) (imports[module] ??= {})[name] = () => 0;
    await WebAssembly.instantiate(compiled, imports);
    return performance.now() - begun;
  });
  tell('compile and instantiate', ms, 'ms', {bound: 100});
  await context.close();
  await cloud.stop();
}

// A cloud that sends 25 tokens/s: how late each comes to the page, by the beat that the earliest ones keep, until the text goes on
// here. Over a line that is full, a token waits behind the weights that were asked for before it, too.
async function lateness(words, ...rate) {
  const cloud = await cloud_of(join(root, 'weights/demo'));
  const line = await line_to(cloud, ...rate, '--rtt', '10ms', '--events-per-s', '25');
  const late = ({times, moves}) => {
    const offsets = times.slice(0, moves[0]?.at).map((time, i) => time - 40 * i), beat = Math.min(...offsets);
    return offsets.map((offset) => offset - beat);
  };
  const landing = [], still = [];
  for (let run = 0; run < runs; ++run) {
    const side = await ours(browser, line, {cut: 'auto', goal: 'offload', pace: 1e6});
    const before = (await side.status()).bytes_downloaded;
    landing.push(...late(await side.ask({prompt: kPrompt, max_tokens: 100}, true)).slice(2));
    if ((await side.status()).bytes_downloaded === before) throw new Error('nothing landed while the text ran');
    await side.all_here();
    await side.put_cut('cloud');
    still.push(...late(await side.ask({prompt: kPrompt, max_tokens: 100}, true)).slice(2));
    await side.close();
  }
  const more = (share) => at_share(landing, share) - at_share(still, share);
  tell(`a streamed token while layers land ${words}, later than without: p50`, more(0.5), 'ms');
  tell('the same, p95', more(0.95), 'ms', {bound: 16, landing: at_share(landing, 0.95), still: at_share(still, 0.95)});
  tell('the same, the latest', Math.max(...landing) - Math.max(...still), 'ms', {bound: 16, landing: Math.max(...landing), still: Math.max(...still)});
  await line.stop();
  await cloud.stop();
}

// Whole texts in the tab and by edge_client on one thread, in turn.
async function native(name, dir, prompt, formats) {
  const cloud = await cloud_of(dir);
  for (const [format, profile, bound] of formats) {
    const more = {format, profile, cut: 0, context: 256, draft: 'off', threads: 1, device: 'cpu'};
    const tab = await ours(browser, cloud, more);
    const edge = await start('edge_client', ['--server', cloud.url, '--serve', '127.0.0.1:0',
      ...Object.entries(more).flatMap(([flag, value]) => [`--${flag}`, String(value)])], /(^| )ready$/m);
    const body = {prompt, max_tokens: 32}, here = [], there = [];
    for (let run = 0; run <= runs; ++run) {
      const times = [await tab.ask(body), await streamed(fetch, `${edge.url}/v1/completions`, body)].map(({rate}) => rate);
      if (run > 0) here.push(times[0]), there.push(times[1]);  // the first one touches everything
    }
    const kind = profile === 'int8' ? `${format} with int8 rows` : format;
    tell(`${name}, ${kind}: tokens/s, native on one thread = 1`, median(here.map((one, i) => one / there[i])), '', {bound, least: true, tab: median(here), native: median(there)});
    const {heap, weights} = await tab.memory();
    const kv = 2 * 256 * kv_of_position(dir);
    tell(`${name}, ${kind}: heap`, heap / 1e6, 'MB', {bound: +((1.2 * weights + kv + 32e6) / 1e6).toFixed(1), weights: weights / 1e6});
    await tab.close();
    await edge.stop();
  }
  await cloud.stop();
}
function kv_of_position(dir) {
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8'));
  const layers = config.n_layer ?? config.num_hidden_layers, channels = config.n_embd ?? config.hidden_size;
  return 4 * 2 * layers * channels / (config.num_key_value_heads ? config.num_attention_heads / config.num_key_value_heads : 1);
}

async function against(name, dir, format, kind, load, threads = 1) {
  const cloud = await cloud_of(dir), serves = await serve_files({'/npm/': join(folder, 'node_modules'), '/model/': dir});
  const tab = await ours(browser, cloud, {format, cut: 0, context: 256, draft: 'off', threads: 1, device: 'cpu'});
  const peer = await peers[kind](browser, serves, load, threads);
  const here = [], there = [];
  for (let run = 0; run <= runs; ++run) {
    const times = [(await tab.ask({prompt: kIds, max_tokens: 32})).rate, await peer.tokens_per_s(32, kIds)];
    if (run > 0) here.push(times[0]), there.push(times[1]);
  }
  const mine = await tab.memory(), theirs = await peer.memory();
  tell(`${name}, ${format}: tokens/s, ${kind} on ${threads} thread${threads > 1 ? 's' : ''} = 1`, median(here.map((one, i) => one / there[i])), '',
    {...(threads === 1 ? {bound: 1, least: true} : {}), tab: median(here), [kind]: median(there), heap_mb: mine.heap / 1e6, [`${kind}_heap_mb`]: theirs / 1e6});
  await tab.close();
  await peer.close();
  await serves.stop();
  await cloud.stop();
}

// From the click to the first word at 20 Mbit/s, theirs behind a runtime and a whole model.
async function first_word_of_peer(name, dir, kind, load) {
  const serves = await serve_files({'/npm/': join(folder, 'node_modules'), '/model/': dir}), line = await line_to(serves, '--rate', '20Mbit', '--rtt', '40ms');
  const begun = performance.now(), peer = await peers[kind](browser, line, load, 1);
  await peer.tokens_per_s(1, kIds);
  tell(`${name}: ${kind}'s first word at 20 Mbit/s`, (performance.now() - begun) / 1000, 's');
  await peer.close();
  await line.stop();
  await serves.stop();
}
// Ours, of a model without a vocabulary: its prompt is ids.
async function first_word_of_ours(name, dir, format) {
  const cloud = await cloud_of(dir), line = await line_to(cloud, '--rate', '20Mbit', '--rtt', '40ms'), times = [];
  for (let run = 0; run < runs; ++run) {
    const begun = performance.now(), tab = await ours(browser, line, {format, cut: 'auto', goal: 'offload'}, true);
    await tab.ask({prompt: kIds, max_tokens: 1});
    times.push(performance.now() - begun);
    await tab.close();
  }
  tell(`${name}: ours, first word at 20 Mbit/s`, median(times) / 1000, 's', {worst: Math.max(...times) / 1000});
  await line.stop();
  await cloud.stop();
}

if (wanted.includes('page')) {
  files();
  await first_words('first word at 5 Mbit/s and 40 ms, 3 s after the load began', join(root, 'weights/demo'), '5Mbit', 3000, 1.0);
  await first_words('the same with a tokenizer.json of 7 MB', with_tokenizer(7e6), '5Mbit', 3000, 1.5);
  await first_words('first word at 20 Mbit/s and 40 ms, from the load on', join(root, 'weights/demo'), '20Mbit', 0);
  await visits();
  await lateness('over loopback');
  await lateness('at 20 Mbit/s', '--rate', '20Mbit');
}
const kFormats = [['f32', 'f32', 0.5], ['f16', 'f32', 0.5], ['q8_0', 'f32', 0.35], ['q4_0', 'f32', 0.35], ['q8_0', 'int8', 0.5]];
if (wanted.includes('native')) {
  await native('bundled model', join(root, 'weights/demo'), kPrompt, kFormats);
  await native('GPT-2 124M', model('gpt2', 'gpt2', 'f32', '--onnx'), kIds, kFormats.slice(0, 3));
}
if (wanted.includes('peers')) {
  const wide = model('gpt2', 'gpt2', 'f32', '--onnx'), half = model('gpt2', 'gpt2', 'f16');
  for (const type of ['f16', 'q8_0']) gguf(half, type);
  await against('GPT-2 124M', wide, 'f32', 'onnx', 'model.onnx');
  await against('GPT-2 124M', half, 'f16', 'wllama', 'f16.gguf');
  await against('GPT-2 124M', half, 'q8_0', 'wllama', 'q8_0.gguf');
  await against('GPT-2 124M', half, 'q8_0', 'wllama', 'q8_0.gguf', 2);
  const npm = (path) => statSync(join(folder, 'node_modules', path)).size / 1e6;
  tell("wllama's runtime, raw", npm('@wllama/wllama/esm/wasm/wllama.wasm') + npm('@wllama/wllama/esm/index.min.js'), 'MB');
  tell("ONNX Runtime Web's runtime, raw", npm('onnxruntime-web/dist/ort-wasm-simd-threaded.wasm') + npm('onnxruntime-web/dist/ort.wasm.min.mjs'), 'MB');
}
if (wanted.includes('qwen')) {
  const qwen = model('qwen2', 'qwen2.5-0.5b', 'f16');
  gguf(qwen, 'q8_0');
  await against('Qwen2.5 0.5B', qwen, 'q8_0', 'wllama', 'q8_0.gguf');
}
if (wanted.includes('words')) {
  const half = model('gpt2', 'gpt2', 'f16'), wide = model('gpt2', 'gpt2', 'f32', '--onnx');
  gguf(half, 'q8_0');
  await first_word_of_ours('GPT-2 124M, q8_0', half, 'q8_0');
  await first_word_of_peer('GPT-2 124M, q8_0', half, 'wllama', 'q8_0.gguf');
  await first_word_of_ours('GPT-2 124M, f32', wide, 'f32');
  await first_word_of_peer('GPT-2 124M, f32', wide, 'onnx', 'model.onnx');
}
await browser.close();
process.exit(0);
