// The edge of a tab on WebGPU (tab.mjs): texts of every family of decoders at two cuts are those of a cloud on its CPU, embeddings
// and scores of encoders too; a lost device, a kernel that computes wrongly and a browser without an adapter leave a text that goes on.
// Environment: CLOUD_SERVER and NODE (programs; NODE suspends WebAssembly) beside tab.mjs's.
import assert from 'node:assert/strict';
import {fork, spawn} from 'node:child_process';
import {after, before, describe, test} from 'node:test';
import {fileURLToPath} from 'node:url';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const kDecoders = ['rand-a', 'rand-b', 'rand-c', 'models/llama2', 'models/llama3', 'models/mistral', 'models/qwen2', 'models/qwen3', 'models/gemma2', 'models/gemma3'];
const kEncoders = ['bert', 'roberta', 'xlmr', 'mpnet', 'modernbert', 'embgemma', 'st-minilm', 'st-qwen3'].map((name) => `models/${name}`);
// Whole with SPLIT_LONG: SwiftShader takes 10 s for the pipelines of a model.
const drawn = (all, few) => (process.env.SPLIT_LONG ? all : all.filter((path) => few.includes(name_of(path))));
const name_of = (path) => path.split('/').pop();
// Tokens of a text, as far as the positions of a model go.
const kTokens = process.env.SPLIT_LONG ? 64 : 24, kPositions = {'rand-a': 64, 'rand-b': 33, 'rand-c': 24};
const kCuts = process.env.SPLIT_LONG ? ['0', '1'] : ['0'];
const kIds = [5, 9, 2, 7, 11, 3, 8, 4, 6];
const clouds = [];
let server;

// Resolves to the URL of a cloud with these flags, on whatever Vulkan driver is the machine's.
async function begin(flags, models) {
  const {VK_DRIVER_FILES, ...env} = process.env;
  const cloud = spawn(process.env.CLOUD_SERVER, ['--port', '0', '--threads', '1', ...flags,
    ...models.flatMap((path) => ['--model', here(`../golden/${path}`)])], {stdio: ['ignore', 'ignore', 'pipe'], env});
  clouds.push(cloud);
  return new Promise((found, lost) => {
    let said = '';
    cloud.on('exit', () => lost(new Error(said)));
    cloud.stderr.on('data', (bytes) => {
      said += bytes;
      const url = /listening on (http:\S+)/.exec(said);
      if (url) found(url[1]);
    });
  });
}
before(async () => { server = await begin(['--device', 'cpu'], ['../../weights/demo', ...kDecoders, ...kEncoders]); });
after(() => { for (const cloud of clouds) cloud.removeAllListeners('exit').kill(); });

// An adapter that computes on the processor is not tested at its start, which takes 15 s here.
const kTested = {isFallbackAdapter: true};
// What tab.mjs answers comes as a message: Dawn prints lines of its own, also after it.
const tab = (given) => new Promise((answered, failed) => {
  let said = '', answer;
  const child = fork(here('tab.mjs'), [JSON.stringify(given)], {execPath: process.env.NODE, execArgv: [], silent: true});
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes) => { said += bytes; });
  child.on('message', (message) => { answer = message; });
  child.on('error', failed);
  child.on('close', (code, signal) => (answer ? answered(answer) : failed(new Error(`tab.mjs ended with ${code ?? signal}: ${said}`))));
});
const post = async (path, body, at = server) => (await fetch(at + path, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)})).json();
// The tokens that were written: the goldens' models have no words.
const tokens_of = ({choices: [{logprobs: {tokens}}]}) => tokens;
const status = ['GET', '/split/status'];
const far = (got, expected) => Math.max(...expected.map((x, i) => Math.abs(x - got[i])));

describe('texts', () => {
  for (const path of drawn(kDecoders, ['rand-c', 'qwen3', 'gemma3'])) {
    test(name_of(path), async () => {
      const model = name_of(path);
      const body = {model, prompt: kIds, max_tokens: Math.min(kTokens, (kPositions[model] ?? 80) - kIds.length - 1), temperature: 0, logprobs: 5, ignore_eos: true};
      const expected = await post('/v1/completions', body), {token_logprobs} = expected.choices[0].logprobs;
      assert.equal(tokens_of(expected).length, body.max_tokens);
      for (const cut of kCuts) {
        const {lines, answers: [got, {events: [{device}]}]} = await tab({options: {server, model, cut, device: 'webgpu'}, adapter: kTested, asks: [['POST', '/v1/completions', body], status]});
        assert.equal(got.status, 200, JSON.stringify(got.events));
        assert.equal(device.kind, 'webgpu', lines.join('\n'));
        assert.deepEqual(tokens_of(got.events[0]), tokens_of(expected), `cut ${cut}`);
        const there = got.events[0].choices[0].logprobs.token_logprobs;
        assert.ok(far(there, token_logprobs) < 1e-3, `cut ${cut}: ${there}, ${token_logprobs}`);
      }
    });
  }
});

describe('embeddings', () => {
  for (const path of drawn(kEncoders, ['mpnet', 'modernbert'])) {
    test(name_of(path), async () => {
      const model = name_of(path), body = {model, input: ['hello there', 'a longer text, of some more words than that']};
      const expected = (await post('/v1/embeddings', body)).data;
      for (const cut of kCuts) {
        const {lines, answers: [got, {events: [{device}]}]} = await tab({options: {server, model, cut, device: 'webgpu'}, adapter: kTested, asks: [['POST', '/v1/embeddings', body], status]});
        assert.equal(got.status, 200, JSON.stringify(got.events));
        assert.equal(device.kind, 'webgpu', lines.join('\n'));
        for (const [i, {embedding}] of got.events[0].data.entries()) assert.ok(far(embedding, expected[i].embedding) < 2e-4, `cut ${cut}, text ${i}`);
      }
    });
  }
});

describe('bad days', () => {
  const body = {model: 'rand-a', prompt: kIds, max_tokens: 30, temperature: 0, ignore_eos: true, logprobs: 1};
  const options = () => ({server, model: 'rand-a', cut: '0', device: 'webgpu'});
  const asks = [['POST', '/v1/completions', body], status];
  const expected = async () => tokens_of(await post('/v1/completions', body));

  test('a lost device begins again, and the text goes on', async () => {
    const {lines, answers: [got, {events: [{device}]}]} = await tab({options: options(), adapter: kTested, asks, lose: [4, 1]});
    assert.deepEqual(tokens_of(got.events[0]), await expected(), lines.join('\n'));
    assert.ok(lines.some((line) => /was started again/.test(line)), lines.join('\n'));
    assert.equal(device.kind, 'webgpu');
  });
  test('one that is lost again soon leaves the text to the CPU', async () => {
    const {lines, answers: [got]} = await tab({options: options(), adapter: kTested, asks, lose: [3, 2]});
    assert.deepEqual(tokens_of(got.events[0]), await expected(), lines.join('\n'));
    assert.equal(lines.filter((line) => /the CPU takes its place/.test(line)).length, 1, lines.join('\n'));
  });
  test('one that is lost while a layer moves here leaves the text as it is', async () => {
    const {lines, answers: [got, moved, {events: [{device, cut}]}]} = await tab({options: {...options(), cut: '1'}, adapter: kTested, lose: [9, 1],
      asks: [[asks[0], ['PUT', '/split/cut', {cut: 0}]], status]});
    assert.equal(moved.status, 200, JSON.stringify(moved.events));
    assert.deepEqual(tokens_of(got.events[0]), await expected(), lines.join('\n'));
    assert.ok(lines.some((line) => /was started again/.test(line)), lines.join('\n'));
    assert.deepEqual([device.kind, cut], ['webgpu', 0]);
  });
  test('memory that ends while weights come leaves the text to the CPU', async () => {
    const {lines, answers: [got, {events: [{device}]}]} = await tab({options: options(), adapter: kTested, asks, short: 20});
    assert.deepEqual(tokens_of(got.events[0]), await expected(), lines.join('\n'));
    assert.ok(lines.some((line) => /out of memory.*the CPU takes its place/.test(line)), lines.join('\n'));
    assert.equal(device.kind, 'cpu');
  });
  test('a kernel that computes wrongly is named, and the CPU computes', async () => {
    const {lines, answers: [got, {events: [{device}]}]} = await tab({options: {...options(), device: 'auto'}, asks, spoil: ['let c = cosines[table + i];', 'let c = cosines[table];']});
    assert.deepEqual(tokens_of(got.events[0]), await expected(), lines.join('\n'));
    assert.ok(lines.some((line) => /computes wrongly: rotation of \d+ rows.*the CPU takes its place/.test(line)), lines.join('\n'));
    assert.equal(device.kind, 'cpu');
  });
  test('so is one that does not compile', async () => {
    const {lines, answers: [got, {events: [{device}]}]} = await tab({options: {...options(), device: 'auto'}, asks, spoil: ['let c = cosines[table + i];', 'let c = nothing;']});
    assert.deepEqual(tokens_of(got.events[0]), await expected(), lines.join('\n'));
    assert.ok(lines.some((line) => /'nothing'.*the CPU takes its place/.test(line)), lines.join('\n'));
    assert.equal(device.kind, 'cpu');
  });
  test('a browser without an adapter computes on its CPU', async () => {
    const {lines, answers: [got, {events: [{device}]}]} = await tab({options: {...options(), device: 'auto'}, asks, adapter: null});
    assert.deepEqual(tokens_of(got.events[0]), await expected(), lines.join('\n'));
    assert.ok(lines.some((line) => /no adapter; the CPU takes its place/.test(line)), lines.join('\n'));
    assert.equal(device.kind, 'cpu');
  });
  test('a text is the same behind each change of the device and the cut', async () => {
    const put = (wanted) => ['PUT', '/split/placement', wanted];
    const {lines, answers} = await tab({options: {...options(), device: 'cpu'}, adapter: kTested,
      asks: [asks[0], put({device: 'webgpu'}), asks[0], status, put({cut: 1}), asks[0], put({cut: 0}), asks[0], status]});
    for (const [i, {status: code, events}] of answers.entries()) assert.equal(code, 200, `${i}: ${JSON.stringify(events)} ${lines.join('\n')}`);
    for (const i of [0, 2, 5, 7]) assert.deepEqual(tokens_of(answers[i].events[0]), await expected(), `${i}: ${lines.join('\n')}`);
    for (const i of [3, 8]) assert.equal(answers[i].events[0].device.kind, 'webgpu', lines.join('\n'));
  });
  test('where the CPU is the faster one it computes', async () => {
    const {lines, answers: [, {events: [{device}]}]} = await tab({options: {...options(), device: 'auto'}, asks});
    const line = lines.find((one) => /a token takes .* ms on webgpu .* and .* ms on the CPU/.test(one));
    const [, gpu, cpu] = /takes ([\d.]+) ms .* and ([\d.]+) ms/.exec(line);
    assert.equal(device.kind, Number(gpu) > Number(cpu) ? 'cpu' : 'webgpu', line);
  });
});

// The profile int8 has the same bits in WebAssembly as on a cloud of any kind: a text moves at any token, and stays the cloud's own,
// held by a grammar too, and where the cloud loses its sessions.
describe('exact', () => {
  let state = 1;
  const random = (below) => (state = (state * 48271) % 2147483647) % below;
  const kMost = 40, kModels = ['rand-a', '../../weights/demo'];
  for (const device of ['cpu', 'vulkan']) {
    test(`texts that move between a tab and a cloud on ${device}`, async (t) => {
      const url = await begin(['--device', device, '--profile', 'int8'], kModels).catch((error) => error);
      if (url instanceof Error) return device === 'cpu' ? assert.fail(url) : t.skip(url.message);
      let moved = 0, begunAgain = 0;
      for (let i = 0; i < (process.env.SPLIT_LONG ? 100 : 2); ++i) {
        const model = name_of(kModels[i % kModels.length]), layers = (await (await fetch(`${url}/v1/models/${model}`)).json()).stages.filter(({name}) => name.startsWith('block.')).length;
        const any = () => [...Array(layers + 1).keys(), 'cloud'][random(layers + 2)];
        const moves = [];
        for (let at = 1 + random(3); at < kMost - 1; at += 1 + random(8)) moves.push(`${at}:${any()}`);
        const cut = `${random(layers + 1)}`;
        const bodies = [0, 1].map((n) => ({model, prompt: Array.from({length: 1 + random(20)}, () => random(256)), max_tokens: kMost, temperature: n ? 0 : 0.9,
          seed: random(1000), return_token_ids: true, ...(n && model === 'demo' ? {response_format: {type: 'json_object'}} : {ignore_eos: true})}));
        const {lines, answers} = await tab({options: {server: url, model, cut, device: 'cpu', exact: true, moves: moves.join(',')}, forget: 5,
          asks: bodies.flatMap((body) => [['POST', '/v1/completions', body], status])});
        for (const [n, body] of bodies.entries()) {
          const said = `${model} at ${cut}, ${moves}: ${lines.join('\n')}`, [got, {events: [{last: receipt}]}] = answers.slice(2 * n);
          assert.equal(got.status, 200, JSON.stringify(got.events) + said);
          assert.deepEqual(got.events[0].choices[0].token_ids, (await post('/v1/completions', body, url)).choices[0].token_ids, said);
          assert.equal(receipt.exact, true, JSON.stringify(receipt) + said);
          moved += receipt.moves.length;
          begunAgain += receipt.replays;
        }
      }
      assert.ok(moved > 5 && begunAgain > 5, `${moved} moves, begun again ${begunAgain} times`);
    });
  }
});
