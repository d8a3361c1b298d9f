// The edge in a browser's tab: fibres, bits, and texts against edge_client's, and the tensor library's page, in Chromium and in
// Firefox.
// Environment: CLOUD_SERVER, EDGE_CLIENT, SPLIT_LINK, PRINT_BITS (programs), BUILD_WEB (folder), CHROMIUM and FIREFOX (programs, or empty).
import assert from 'node:assert/strict';
import {execFile, spawn} from 'node:child_process';
import {mkdtempSync, readdirSync, readFileSync, rmSync, statSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';
import {fileURLToPath} from 'node:url';
import {promisify} from 'node:util';
import {serve} from './server.mjs';

const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), 'split-web-'));
const programs = [];
let server, cloud;

// Resolves to the address that a program says it listens at.
function start(program, ...args) {
  const child = spawn(program, args, {env: {...process.env, XDG_CACHE_HOME: folder}, stdio: ['ignore', 'ignore', 'pipe']});
  programs.push(child);
  return new Promise((found, lost) => {
    let said = '';
    child.on('exit', () => lost(new Error(`${program}: ${said}`)));
    child.stderr.on('data', (bytes) => {
      said += bytes;
      const url = /listening on (http:\S+)/.exec(said);
      if (url) found(url[1]);
    });
  });
}

before(async () => {
  server = await serve(process.env.BUILD_WEB);
  cloud = await start(process.env.CLOUD_SERVER, '--port', '0', '--device', 'cpu', '--threads', '1');
  // So slow a line that texts run while the weights come.
  server.cloud = await start(process.env.SPLIT_LINK, '--to', new URL(cloud).host, '--rate', '40Mbit', '--rtt', '5ms');
});
after(() => {
  for (const child of programs) child.removeAllListeners('exit').kill();
  server.close();
  rmSync(folder, {recursive: true, force: true, maxRetries: 10});
});

// The encoders, and the rerankers.
const kEncoders = ['st-minilm', 'xlmr', 'roberta', 'mpnet', 'modernbert', 'embgemma'], kRerankers = ['rerank-bert', 'rerank-xlmr', 'rerank-modernbert'];
const golden_file = (model, name) => readFileSync(new URL(`../golden/models/${model}/${name}`, import.meta.url));
// The floats of a tensor of a model's golden.safetensors, or undefined.
function golden_of(model, name) {
  const bytes = golden_file(model, 'golden.safetensors'), header = Number(bytes.readBigUInt64LE(0));
  const at = JSON.parse(bytes.subarray(8, 8 + header).toString())[name];
  if (!at) return undefined;
  const [first, end] = at.data_offsets;
  return Array.from({length: (end - first) / 4}, (_, i) => bytes.readFloatLE(8 + header + first + 4 * i));
}
const unit = (numbers) => numbers.map((x) => x / Math.hypot(...numbers));

const native = async (...args) => (await run(process.env.EDGE_CLIENT,
  ['--server', cloud, '--quiet', '--max-tokens', '64', '--device', 'cpu', '--threads', '1', '--cache', join(folder, 'native'), ...args])).stdout;

// Opens the tests' page in a browser of its own and gives what it reports.
async function report(browser, what, from = server, flags = ['--disable-gpu']) {
  const url = `${from.url}/test/index.html?${new URLSearchParams(what)}`;
  const profile = mkdtempSync(join(folder, 'profile-'));
  const [program, args] = browser === 'Firefox' ? [process.env.FIREFOX, ['--headless', '--no-remote', '--profile', profile, url]] :
    [process.env.CHROMIUM, ['--headless=new', '--no-sandbox', ...flags, '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', `--user-data-dir=${profile}`, url]];
  const reported = from.report();
  const child = spawn(program, args, {env: {...process.env, HOME: profile, MOZ_CRASHREPORTER_DISABLE: '1'}, stdio: 'ignore', detached: true});
  const ended = new Promise((resolve) => child.on('exit', resolve));
  const found = await Promise.race([reported, ended.then((code) => { throw new Error(`${browser} ended with ${code}`); })]);
  process.kill(-child.pid, 'SIGKILL');
  await ended;
  for (const {name, error} of found.checks) assert.equal(error, undefined, `${name}: ${error}`);
  return found.more;
}

test('each of a tab\'s files is at most 800 kB of gzip', () => {
  const app = join(process.env.BUILD_WEB, 'app'), files = readdirSync(app).filter((name) => name.endsWith('.wasm.gz'));
  assert.equal(files.length, 2);
  for (const name of files) assert.ok(statSync(join(app, name)).size <= 800_000, `${name}: ${statSync(join(app, name)).size} bytes`);
});

// Chromium has it in tests/page/app.test.mjs.
describe('the page at /app/ in Firefox', {skip: !process.env.FIREFOX}, () => {
  test('begins on the cloud, goes on here, and downloads no weights again', async (t) => {
    if ((await fetch(`${cloud}/app/`)).status !== 200) return t.skip('built without the edge for browsers');
    const app = await serve(process.env.BUILD_WEB, false);
    app.cloud = server.cloud;
    try {
      const found = await report('Firefox', {run: 'app.js', prompt: 'Once upon a time'}, app);
      const expected = await native('--prompt', 'Once upon a time', '--temperature', '0');
      for (const text of [found.first, found.here, found.again]) assert.equal(text.trim(), expected.trim());
    } finally {
      app.close();
    }
  });
});

// By its driver that computes on the processor. Firefox ESR has no WebGPU on this system.
describe('WebGPU in Chromium', {skip: !process.env.CHROMIUM}, () => {
  test('writes the texts of the cloud, while the cut moves too', async () => {
    const {device} = await report('Chromium', {run: 'webgpu.js', prompt: 'Once upon a time'}, server,
      ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--enable-features=Vulkan']);
    console.log(`Chromium: ${device.name}`);
  });
});

for (const browser of ['Chromium', 'Firefox']) {
  describe(browser, {skip: !process.env[browser.toUpperCase()]}, () => {
    test('runs every operation of the tensor library at /app/ops/', async () => {
      const {all} = await report(browser, {run: 'ops.js'});
      console.log(`${browser}: ${all.cases} cases of ${all.cards} operations in ${Number(all.seconds).toFixed(1)} s`);
    });
    test('has threads', () => report(browser, {run: 'fibres.js'}));
    test('computes the bits of a native edge', async () => {
      const {missing, rounds, lines} = await report(browser, {run: 'bits.js'});
      assert.equal(missing, null);
      assert.ok(rounds, 'the file without relaxed-simd would be taken');
      // A processor with AVX512-BF16 has an order of sums of its own where weights are no floats.
      const env = {...process.env, SPLIT_CPU_ISA: 'avx2'};
      assert.equal(lines, (await run(process.env.PRINT_BITS, {env})).stdout);
      assert.match(lines, /^exact1: kept$/m);
    });
    test('computes the embeddings and scores of each family at every cut', async () => {
      const models = [...kEncoders, ...kRerankers];
      const apart = await serve(process.env.BUILD_WEB);
      apart.cloud = await start(process.env.CLOUD_SERVER, '--port', '0', '--device', 'cpu', '--threads', '1',
        ...models.flatMap((model) => ['--model', fileURLToPath(new URL(`../golden/models/${model}`, import.meta.url))]));
      try {
        const found = await report(browser, {run: 'encoders.js', models: models.join(',')}, apart);
        let compared = 0;
        for (const model of models) {
          const {prompts, prompts_of_the_model: named} = JSON.parse(golden_file(model, 'golden.json'));
          const whole = prompts.filter(({text}) => typeof text === 'string');
          if (kRerankers.includes(model)) {
            for (const [i, {prefix}] of whole.entries()) {
              assert.ok(Math.abs(found[model][i] - golden_of(model, `${prefix}score`)[0]) <= 1e-5, `${model} ${prefix}`);
              ++compared;
            }
            continue;
          }
          for (const [at, name] of ['', ...Object.keys(named ?? {})].entries()) {
            for (const [i, {prefix}] of whole.entries()) {
              const mean = name === '' && !golden_of(model, `${prefix}embedding`) && golden_of(model, `${prefix}mean`);
              const expected = mean ? unit(mean) : golden_of(model, `${prefix}embedding${name && `_${name}`}`);
              if (!expected) continue;
              const bytes = Buffer.from(found[model][at][i], 'base64');
              const got = Array.from({length: bytes.length / 4}, (_, j) => bytes.readFloatLE(4 * j));
              assert.equal(got.length, expected.length);
              const most = 1e-6 * Math.max(1, Math.hypot(...expected));
              for (const [j, x] of expected.entries()) assert.ok(Math.abs(got[j] - x) <= most, `${model} ${prefix}${name} ${j}: ${got[j]}, ${x}`);
              ++compared;
            }
          }
        }
        assert.ok(compared > 60, `${compared} texts`);
      } finally {
        apart.close();
      }
    });
    test('writes the texts of a native edge', async () => {
      const prompt = 'Once upon a time', seeded = ['--temperature', '0.8', '--top-p', '0.95', '--seed', '7'];
      const found = await report(browser, {run: 'texts.js', prompt, cuts: '4'});
      const greedy = await native('--prompt', prompt, '--temperature', '0');
      const drawn = await native('--prompt', prompt, ...seeded);
      for (const cut of ['cloud', '4', '0']) {
        assert.equal(found[`greedy ${cut}`].trim(), greedy.trim(), `greedy, cut ${cut}`);
        assert.equal(found[`seeded ${cut}`].trim(), drawn.trim(), `seeded, cut ${cut}`);
      }
      assert.ok(found.long.startsWith(found['greedy 0']));
      assert.equal(found.status.exact, true);
      const {n_layer: layers, n_embd: channels, n_positions: context} = JSON.parse(readFileSync(new URL('../../weights/demo/config.json', import.meta.url), 'utf8'));
      const weights = found.status.stages.reduce((sum, {bytes}) => sum + bytes, 0), texts = 2 * 4 * 2 * layers * channels * context;
      assert.ok(found.heap <= 1.2 * weights + texts + 32e6, `a heap of ${found.heap} bytes, weights of ${weights}`);
      assert.equal(found['cost 0'].cut, 0);
      console.log(`${browser}: first word ${found.first.toFixed(0)} ms, a token all here ${found['ms 0'].toFixed(1)} ms`);
    });
  });
}
