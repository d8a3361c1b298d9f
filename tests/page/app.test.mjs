// The edge in a tab at /app/, splitcompute.js on a page of another origin, and the tensor library's page at /app/ops/, in a real
// browser. Skipped where the cloud was built without them (scripts/build.sh web). Environment: as page.test.mjs has it.

import assert from 'node:assert/strict';
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import http from 'node:http';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, afterEach, before, beforeEach, describe, test} from 'node:test';
import {fileURLToPath} from 'node:url';

import {axe, launch, new_context, new_page, start_cloud, start_link, stop} from './programs.mjs';

const shots = process.env.PAGE_SHOTS, kPrompt = 'Once upon a time';
const built = await (async () => {
  const cloud = await start_cloud();
  const {status} = await fetch(`${cloud.url}/app/`);
  await stop(cloud);
  return status === 200;
})();

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

const whole = async (cloud, more = {}) => (await (await fetch(`${cloud.url}/v1/completions`,
  {method: 'POST', body: JSON.stringify({prompt: kPrompt, max_tokens: 64, temperature: 0, ...more})})).json()).choices[0].text;

describe('the page at /app/', {skip: !built && 'built without the edge for browsers'}, () => {
  let cloud, link, context, page, weights, complaints, traps;
  beforeEach(async () => {
    cloud = await start_cloud();
    await begin('20Mbit');
    page = await opened();
  });
  // A browser that has never been here, behind such a line.
  async function begin(rate = '200Mbit') {
    await context?.close();
    if (link) await stop(link);
    link = await start_link(cloud, ['--rate', rate, '--rtt', '10ms']);
    context = await new_context(browser, {viewport: {width: 1280, height: 900}});
    weights = new Map();  // by blob: bytes that came
    context.on('response', async (response) => {
      const blob = /\/blobs\/(\w+)/.exec(response.url())?.[1];
      if (blob) weights.set(blob, (weights.get(blob) ?? 0) + Number(response.headers()['content-length']));
    });
    complaints = [];
    traps = false;
  }
  afterEach(async () => {
    await context.close();
    context = null;
    await Promise.all([cloud, link].map((one) => stop(one)));
    link = null;
    assert.deepEqual(complaints, []);
  });
  const sum = () => [...weights.values()].reduce((all, one) => all + one, 0);
  async function opened(hash = '') {
    const page = await context.newPage();
    // Everything that the policy forbids, and errors of the page's own.
    page.on('console', (message) => { if (/Content.Security.Policy/i.test(message.text())) complaints.push(message.text()); });
    page.on('pageerror', (error) => { if (!traps || !error.message.includes('unreachable')) complaints.push(error.message); });
    await page.goto(`${link.url}/app/${hash}`);
    await page.locator('#generate:enabled').waitFor();
    return page;
  }
  const size_of_model = () => page.evaluate(async () => (await (await (await import('./edge.js')).ask('api/tags')).json()).models[0].size);
  const state = (wanted, of = page) => of.waitForFunction((wanted) => document.body.dataset.state === wanted, wanted);
  async function generate(of = page) {
    await of.fill('#prompt', kPrompt);
    await of.evaluate(() => {
      for (const [id, value] of [['max-tokens', 64], ['temperature', 0], ['seed', 3]]) document.getElementById(id).value = value;
    });
    await of.click('#generate');
  }
  const answer = async (of = page) => {
    await of.locator('#generate:visible').waitFor();
    return of.locator('#text .answer').textContent();
  };

  test('begins on the cloud, goes on here, and again without the server', async () => {
    const expected = await whole(cloud);
    await begin('20Mbit');
    let give;
    const given = new Promise((resolve) => { give = resolve; });
    await context.route(/\/blobs\//, async (route) => {
      await given;
      await route.continue();
    });
    page = await opened();
    await generate();
    await page.waitForFunction(() => document.querySelector('#text .answer')?.textContent.length > 0);
    assert.equal(await page.evaluate(() => document.body.dataset.state), 'cloud', 'the first word is not the cloud\'s');
    give();
    assert.equal(await answer(), expected);
    await state('local');
    assert.equal(await page.evaluate(() => document.body.dataset.exact), 'bits');
    await page.screenshot({path: join(shots, 'app-here.png')});
    assert.equal(await (async () => { await generate(); return answer(); })(), expected);
    // Each weight came once; and not at all with the second visit.
    const model = sum();
    assert.ok(model > 1 << 20);
    page = await opened();
    await state('local');
    assert.equal(sum(), model);
    await generate();
    assert.equal(await answer(), expected);
    // The server is gone: a text, a reload, a text.
    await page.waitForFunction(async () => (await (await caches.open('splitcompute-page')).keys()).some(({url}) => url.endsWith('.wasm')));
    await Promise.all([stop(cloud, 'SIGKILL'), stop(link, 'SIGKILL')]);
    await generate();
    assert.equal(await answer(), expected);
    await page.reload();
    await page.locator('#generate:enabled').waitFor();
    await generate();
    assert.equal(await answer(), expected);
    await page.screenshot({path: join(shots, 'app-without-server.png')});
  });

  test('goes on when its worker ends, and says when it ends twice', async () => {
    const expected = await whole(cloud);
    await generate();
    await page.waitForFunction(() => document.querySelector('#text .answer')?.textContent.length > 0);
    const trap = (worker) => worker.evaluate(() => { setTimeout(() => { throw new Error('unreachable'); }); });
    const next = page.waitForEvent('worker');
    traps = true;
    await trap(page.workers()[0]);
    assert.equal(await answer(), expected);
    const another = await next;
    await generate();  // by that one
    assert.equal(await answer(), expected);
    await trap(another);
    await page.locator('.notice:not(#trouble)', {hasText: 'has ended'}).waitFor();
  });

  test('goes on loading behind a reload', async () => {
    const bytes = await size_of_model();
    for (const share of [0.3, 0.8]) {
      await page.waitForFunction((least) => navigator.storage.estimate().then(({usage}) => usage > least), share * bytes, {polling: 50});
      await page.reload();
      await page.locator('#generate:enabled').waitFor();
    }
    await state('local');
    assert.ok(sum() <= bytes + 2 * (4 << 20), `${sum()} of ${bytes} bytes`);
  });

  test('loads each weight once for two tabs', async () => {
    const other = await opened();
    await Promise.all([generate(), generate(other)]);
    assert.equal(await answer(), await answer(other));
    await Promise.all([state('local'), state('local', other)]);
    const bytes = await size_of_model();
    assert.ok(sum() <= bytes + (4 << 20), `${sum()} of ${bytes} bytes`);
  });

  const told = (words, of = page) => of.locator('.notice:not(#trouble)', {hasText: words}).waitFor();

  test('says before the download that the memory is too little', async () => {
    await begin();
    await context.route('**/app/worker.js', async (route) => {
      const response = await route.fetch();
      route.fulfill({response, body: `${await response.text()}
        WebAssembly.Memory = class { constructor({initial}) { if (initial > ${(16 << 20) >> 16}) throw new RangeError(); } };`});
    });
    const small = await opened();
    await told(/the weights are .* more than the memory that is free, .*: texts stay on the cloud/, small);
    await generate(small);
    assert.equal(await answer(small), await whole(cloud));
    assert.equal(await small.evaluate(() => document.body.dataset.state), 'cloud');
  });

  test('leaves to memory what a full disk does not take', async () => {
    await begin();
    const devtools = await context.newCDPSession(await context.newPage());
    await devtools.send('Storage.overrideQuotaForOrigin', {origin: link.url, quotaSize: 12 << 20});
    page = await opened();
    await state('local');
    await told('The browser\'s disk is full');
    await generate();
    assert.equal(await answer(), await whole(cloud));
    assert.ok(await page.evaluate(async () => (await navigator.storage.estimate()).usage) < 12 << 20);
  });

  test('goes on when its tab was frozen, and its cloud begun again meanwhile', async () => {
    const expected = await whole(cloud), devtools = await context.newCDPSession(page);
    await generate();
    await page.waitForFunction(() => document.querySelector('#text .answer')?.textContent.length > 0);
    await devtools.send('Page.setWebLifecycleState', {state: 'frozen'});
    const {port} = new URL(cloud.url);
    await stop(cloud, 'SIGKILL');
    cloud = await start_cloud(port);
    await devtools.send('Page.setWebLifecycleState', {state: 'active'});
    assert.equal(await answer(), expected);
  });

  test('takes no byte that was flipped, on the line or on the disk', async () => {
    const asked = new Set();
    let flipped = 0;
    await begin();
    await context.route(/\/blobs\//, async (route) => {
      const response = await route.fetch(), body = await response.body(), part = route.request().url() + route.request().headers().range;
      // Every third, but not when it is asked for again.
      if (!asked.has(part) && asked.add(part).size % 3 === 2) {
        body[body.length >> 1] ^= 1;
        ++flipped;
      }
      route.fulfill({response, body});
    });
    page = await opened();
    await state('local');
    assert.ok(flipped > 2);
    await generate();
    assert.equal(await answer(), await whole(cloud));
    await context.unroute(/\/blobs\//);
    const size = await page.evaluate(async () => {
      let largest;
      const walk = async (folder) => {
        for await (const one of folder.values()) {
          if (one.kind === 'directory') await walk(one);
          const file = /^[0-9a-f]{64}$/.test(one.name) && await one.getFile();
          if (file?.size > (largest?.file.size ?? 1 << 20)) largest = {one, file};
        }
      };
      while (!largest) await walk(await navigator.storage.getDirectory());
      const out = await largest.one.createWritable({keepExistingData: true});
      const at = largest.file.size >> 1, [byte] = new Uint8Array(await largest.file.slice(at, at + 1).arrayBuffer());
      await out.write({type: 'write', position: at, data: new Uint8Array([byte ^ 1])});
      await out.close();
      return largest.file.size;
    });
    const before = sum();
    page = await opened();
    await state('local');
    assert.ok(sum() > before && sum() - before <= Math.min(size, 1 << 20), `${sum() - before} of ${size} bytes again`);
    await generate();
    assert.equal(await answer(), await whole(cloud));
  });

  test('takes another model that has come under the same name', async () => {
    await begin();
    page = await opened();
    await state('local');
    const {port} = new URL(cloud.url);
    await stop(cloud, 'SIGKILL');
    cloud = await start_cloud(port, ['--model', `demo=${fileURLToPath(new URL('../golden/models/qwen2', import.meta.url))}`]);
    const expected = await whole(cloud);
    await page.reload();
    await page.locator('#generate:enabled').waitFor();
    await state('local');
    // By its route: the page would write a chat.
    assert.equal(await page.evaluate(async (prompt) => {
      const body = JSON.stringify({prompt, max_tokens: 64, temperature: 0});
      return (await (await (await import('./edge.js')).ask('v1/completions', {method: 'POST', body})).json()).choices[0].text;
    }, kPrompt), expected);
  });

  test('takes a prompt from a link, fits a phone, and has no barriers', async () => {
    const linked = await opened('#prompt=The%20king');
    assert.equal(await linked.inputValue('#prompt'), 'The king');
    await linked.setViewportSize({width: 390, height: 844});
    assert.ok(await linked.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'it is wider than a phone');
    await linked.screenshot({path: join(shots, 'app-phone.png')});
    await linked.evaluate(axe);
    const {violations} = await linked.evaluate(() => globalThis.axe.run());
    assert.deepEqual(violations.map(({id, nodes}) => `${id}: ${nodes.map(({html}) => html)}`), []);
  });

  test('leaves all to the cloud where the browser lacks JSPI', async () => {
    await context.addInitScript(() => { delete WebAssembly.promising; });
    const without = await opened();
    await without.locator('.notice', {hasText: 'lacks WebAssembly that waits (JSPI)'}).waitFor();
    await generate(without);
    assert.equal(await answer(without), await whole(cloud));
  });
});

describe('splitcompute.js', {skip: !built && 'built without the edge for browsers'}, () => {
  const folder = mkdtempSync(join(tmpdir(), 'split-app-')), kKey = 'a-key-of-the-tests-own';
  let cloud, other, page;
  before(async () => {
    writeFileSync(join(folder, 'keys'), `tester:${kKey}\n`);
    // A page of another origin, with the policy that edge_client/README.md names.
    other = http.createServer((request, response) => {
      if (request.url.startsWith('/openai/')) {
        response.writeHead(200, {'Content-Type': 'text/javascript'});
        return response.end(readFileSync(join(process.env.PAGE_MODULES, 'node_modules', request.url)));
      }
      response.writeHead(200, {'Content-Type': 'text/html', ...(request.url === '/plain' ? {} : {'Content-Security-Policy':
        `default-src 'none'; script-src 'self' ${cloud.url} 'wasm-unsafe-eval'; worker-src blob: ${cloud.url}; connect-src ${cloud.url}`})});
      response.end('<!doctype html><title>Another page</title>');
    });
    await new Promise((listens) => other.listen(0, '127.0.0.1', listens));
    writeFileSync(join(folder, 'template'), '{% for one in messages %}{{ one.content }}{% endfor %}');
    const origin = `http://127.0.0.1:${other.address().port}`;
    cloud = await start_cloud(0, ['--cors-origin', origin, '--api-key-file', join(folder, 'keys'),
      '--chat-template', join(folder, 'template')]);
    page = await new_page(browser);
    await page.goto(origin);
  });
  after(async () => {
    other?.closeAllConnections();
    other?.close();
    if (cloud) await stop(cloud);
    rmSync(folder, {recursive: true, force: true});
  });

  test('gives another page texts, streams, usage and errors', async () => {
    const asked = {prompt: kPrompt, max_tokens: 32, temperature: 0};
    const expected = (await (await fetch(`${cloud.url}/v1/completions`, {method: 'POST', body: JSON.stringify(asked),
      headers: {Authorization: `Bearer ${kKey}`}})).json()).choices[0].text;
    const found = await page.evaluate(async ({server, asked, key}) => {
      const {connect} = await import(`${server}/app/splitcompute.js`);
      const edge = await connect(server, {key});
      let words = '';
      for await (const text of edge.generate(asked.prompt, {max_tokens: asked.max_tokens, temperature: 0})) words += text;
      const post = (path, body) => edge.fetch(`${edge.url}/${path}`, {method: 'POST', body: JSON.stringify(body), headers: {Authorization: 'Bearer -'}});
      const bad = await post('completions', {...asked, max_tokens: -1});
      let status;
      do status = await edge.status(); while (status.state !== 'ready');
      const result = {words, missing: edge.missing, usage: (await (await post('completions', asked)).json()).usage,
        error: [bad.status, (await bad.json()).error.param], stages: status.stages.length,
        elsewhere: await edge.fetch('https://example.com/').then(() => '', (error) => error.message)};
      edge.close();
      result.closed = await edge.status().then(() => '', (error) => error.message);
      return result;
    }, {server: cloud.url, asked, key: kKey});
    assert.equal(found.words, expected);
    assert.equal(found.missing, null);
    assert.equal(found.usage.completion_tokens, 32);
    assert.deepEqual(found.error, [400, 'max_tokens']);
    assert.ok(found.stages > 2);
    assert.match(found.elsewhere, /expected an address below/);
    assert.match(found.closed, /was closed/);
  });

  test('is the server of OpenAI\'s own client', async () => {
    const found = await page.evaluate(async ({server, prompt, key}) => {
      const [{connect}, {OpenAI}] = await Promise.all([import(`${server}/app/splitcompute.js`), import('/openai/index.mjs')]);
      const edge = await connect(server, {key});
      const client = new OpenAI({baseURL: edge.url, apiKey: '-', fetch: edge.fetch, dangerouslyAllowBrowser: true, maxRetries: 0});
      const asked = {model: 'demo', max_tokens: 24, temperature: 0, seed: 1}, messages = [{role: 'user', content: prompt}];
      const joined = async (events, text) => {
        let words = '', usage = null;
        for await (const event of events) {
          words += event.choices[0] ? text(event.choices[0]) ?? '' : '';
          usage = event.usage ?? usage;
        }
        return {words, usage};
      };
      const streamed = {stream: true, stream_options: {include_usage: true}};
      const result = {
        text: await client.completions.create({...asked, prompt}),
        stream: await joined(await client.completions.create({...asked, ...streamed, prompt}), ({text}) => text),
        chat: await joined(await client.chat.completions.create({...asked, ...streamed, messages}), ({delta}) => delta.content),
        models: (await client.models.list()).data.map(({id}) => id),
      };
      while ((await edge.status()).state !== 'ready') continue;
      result.schema = await client.chat.completions.create({...asked, messages, max_tokens: 64,
        response_format: {type: 'json_schema', json_schema: {name: 'x', schema: {type: 'object', properties: {a: {enum: ['b']}}, required: ['a'], additionalProperties: false}}}});
      result.error = await client.completions.create({...asked, prompt, temperature: -1}).then(() => null, ({status, param}) => [status, param]);
      const stopping = new AbortController();
      result.events = 0;
      try {
        for await (const event of await client.completions.create({...asked, prompt, max_tokens: 200, stream: true}, {signal: stopping.signal})) {
          result.events += event ? 1 : 0;
          stopping.abort();
        }
      } catch (error) {
        result.stopped = error.name;  // or the stream just ends
      }
      edge.close();
      return result;
    }, {server: cloud.url, prompt: kPrompt, key: kKey});
    const {text, usage} = {text: found.text.choices[0].text, usage: found.text.usage};
    assert.equal(usage.completion_tokens, 24);
    assert.deepEqual([found.stream.words, found.chat.words], [text, text]);
    assert.deepEqual([found.stream.usage.completion_tokens, found.chat.usage.completion_tokens], [24, 24]);
    assert.deepEqual(found.models, ['demo']);
    assert.deepEqual(JSON.parse(found.schema.choices[0].message.content), {a: 'b'});
    assert.deepEqual(found.error, [400, 'temperature']);
    assert.ok(found.events > 0 && found.events < 100, `${found.events} events, ${found.stopped}`);
  });

  test('embeds texts without the server once its layers are here', async () => {
    const encoder = await start_cloud(0, ['--cors-origin', new URL(page.url()).origin, '--model', fileURLToPath(new URL('../golden/models/st-minilm', import.meta.url))]);
    const other = await page.context().newPage();
    try {
      await other.goto(new URL('/plain', page.url()).href);
      const asked = {input: ['a cat', 'the weather'], model: 'st-minilm'};
      const expected = (await (await fetch(`${encoder.url}/v1/embeddings`, {method: 'POST', body: JSON.stringify(asked)})).json()).data;
      const embed = async (edge, asked) => (await (await edge.fetch(`${edge.url}/embeddings`, {method: 'POST', body: JSON.stringify(asked)})).json()).data;
      await other.evaluate(async ({server, asked, embed}) => {
        globalThis.embed = eval(embed);
        globalThis.edge = await (await import(`${server}/app/splitcompute.js`)).connect(server);
        await globalThis.embed(globalThis.edge, asked);
        while (!(await globalThis.edge.status()).stages.every(({runs}) => runs === 'here')) continue;
      }, {server: encoder.url, asked, embed: String(embed)});
      await stop(encoder, 'SIGKILL');
      assert.deepEqual(await other.evaluate((asked) => globalThis.embed(globalThis.edge, asked), asked), expected);
    } finally {
      await other.close();
      await stop(encoder, 'SIGKILL');
    }
  });

  test('ranks a list, and compares two texts, of an encoder', async () => {
    const [ranks, embeds] = await Promise.all(['rerank-bert', 'st-minilm'].map((name) =>
      start_cloud(0, ['--model', fileURLToPath(new URL(`../golden/models/${name}`, import.meta.url))])));
    const other = await page.context().newPage();
    const post = async (cloud, path, body) => (await fetch(`${cloud.url}/v1/${path}`, {method: 'POST', body: JSON.stringify(body)})).json();
    try {
      await other.goto(`${ranks.url}/app/`);
      const documents = ['The king sat on his throne.', 'A little girl lived in a wood.', 'king'], query = 'Who lived in the wood?';
      await other.locator('#ranking').filter({visible: true}).waitFor();
      await other.fill('#query', query);
      await other.fill('#documents', documents.join('\n'));
      await other.click('#rank button');
      await other.locator('#ranked li').nth(2).waitFor();
      const {results} = await post(ranks, 'rerank', {query, documents});
      const lines = (await other.locator('#ranked li').allInnerTexts()).map((line) => [Number(line.split(' ')[0]), line.slice(line.indexOf(' ') + 1)]);
      assert.deepEqual(lines.map(([, text]) => text), results.map(({index}) => documents[index]));
      for (const [i, [score]] of lines.entries()) assert.ok(Math.abs(score - results[i].relevance_score) < 1e-4, `${score}, ${results[i].relevance_score}`);
      await other.screenshot({path: join(shots, 'app-reranker.png'), fullPage: true});

      await other.goto(`${embeds.url}/app/`);
      await other.locator('#embeddings').filter({visible: true}).waitFor();
      await other.fill('#first', 'a cat');
      await other.fill('#second', 'the weather');
      await other.click('#embed button');
      await other.locator('#cosine', {hasText: 'cosine'}).waitFor();
      const [a, b] = (await post(embeds, 'embeddings', {input: ['a cat', 'the weather']})).data.map(({embedding}) => embedding);
      const cosine = Number(/cosine (-?[\d.]+)/.exec(await other.locator('#cosine').innerText())[1]);
      assert.ok(Math.abs(cosine - a.reduce((sum, value, i) => sum + value * b[i], 0)) < 1e-3, `cosine ${cosine}`);
    } finally {
      await other.close();
      await Promise.all([ranks, embeds].map((one) => stop(one, 'SIGKILL')));
    }
  });

  test('writes a text by the README\'s page', async () => {
    const plain = await start_cloud(0, ['--cors-origin', new URL(page.url()).origin]);
    const other = await page.context().newPage();
    try {
      await other.goto(new URL('/plain', page.url()).href);
      const [, script] = /```html\n<script type="module">([\s\S]*?)<\/script>/.exec(readFileSync(new URL('../../README.md', import.meta.url), 'utf8'));
      await other.evaluate((text) => {
        document.body.textContent = '';
        document.body.append(Object.assign(document.createElement('script'), {type: 'module', text}));
      }, script.replaceAll('http://localhost:8080', plain.url));
      await other.waitForFunction(() => [...document.body.childNodes].filter(({nodeType}) => nodeType === Node.TEXT_NODE).length > 3);
    } finally {
      await other.close();
      await stop(plain, 'SIGKILL');
    }
  });
});

describe('the page at /app/ops/', () => {
  test('runs every operation under the server\'s policy, and is no part of /app/', async (t) => {
    const cloud = await start_cloud();
    try {
      const address = `${cloud.url}/app/ops`;
      assert.equal((await fetch(address, {redirect: 'manual'})).headers.get('location'), '/app/ops/');
      const {status} = await fetch(`${address}/`);
      if (status !== 200) {
        assert.equal(status, 503);
        return t.skip('built without it');
      }
      assert.ok(!(await (await fetch(`${cloud.url}/app/modules.js`)).text()).includes('ops'));
      for (const viewport of [{width: 1280, height: 900}, {width: 390, height: 844}]) {
        const context = await new_context(browser, {viewport}), page = await context.newPage(), complaints = [];
        page.on('console', (message) => { if (/Content.Security.Policy/i.test(message.text())) complaints.push(message.text()); });
        page.on('pageerror', (error) => complaints.push(error.message));
        await page.goto(`${address}/`);
        await page.waitForFunction(() => ['done', 'broken'].includes(document.body.dataset.state), null, {timeout: 120000});
        const {state, done, failed} = await page.evaluate(() => ({...document.body.dataset}));
        assert.deepEqual([state, done, failed], ['done', '1150', '0']);
        await page.fill('#find', 'softmax');
        assert.ok(await page.locator('article:visible').count() < 10);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
        await page.fill('#find', 'tan');
        await page.evaluate(axe);
        assert.deepEqual(await page.evaluate(async () => (await globalThis.axe.run()).violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`)), []);
        assert.deepEqual(complaints, []);
        await context.close();
      }
    } finally {
      await stop(cloud);
    }
  });
});
