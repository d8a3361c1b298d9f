// The edge's page in a real browser, with a cloud and an edge of this test's own: one flow for each thing a person can do.
// Environment: CLOUD_SERVER, EDGE_CLIENT (programs), PAGE_MODULES (where playwright-core is), PAGE_SHOTS (for pictures).

import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {mkdirSync, mkdtempSync, rmSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, afterEach, before, beforeEach, test} from 'node:test';

const {chromium} = createRequire(join(process.env.PAGE_MODULES, 'x.js'))('playwright-core');
const shots = process.env.PAGE_SHOTS;
const cache = mkdtempSync(join(tmpdir(), 'split-page-'));
let cloud, edge, browser, page, complaints;

// Starts a program; resolves to {process, url, said} when it says where it listens, or what `until` looks for.
function start(program, args, until = /listening on (http:\S+)/) {
  const child = spawn(program, args, {env: {...process.env, XDG_CACHE_HOME: cache}, stdio: ['ignore', 'ignore', 'pipe']});
  return new Promise((resolve, reject) => {
    let said = '', url;
    child.stderr.on('data', (bytes) => {
      said += bytes;
      url ??= /listening on (http:\S+)/.exec(said)?.[1];
      if (until.test(said)) resolve({child, url});
    });
    child.on('exit', (code) => reject(new Error(`${program} ended with ${code}: ${said}`)));
  });
}
function stop({child}, signal = 'SIGTERM') {
  return new Promise((resolve) => {
    child.removeAllListeners('exit').on('exit', resolve);
    child.kill(signal);
  });
}
const start_cloud = (port = 0) => start(process.env.CLOUD_SERVER, ['--port', String(port), '--device', 'cpu', '--threads', '1']);

before(async () => {
  mkdirSync(shots, {recursive: true});
  cloud = await start_cloud();
  edge = await start(process.env.EDGE_CLIENT,
    ['--server', cloud.url, '--serve', '127.0.0.1:0', '--device', 'cpu', '--threads', '1', '--retry-for', '60'], / ready$/m);
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-component-update',
      '--disable-sync', '--no-first-run'],
  });
});
after(async () => {
  await browser?.close();
  if (edge) await stop(edge);
  if (cloud) await stop(cloud);
  rmSync(cache, {recursive: true, force: true});
});
beforeEach(async () => {
  page = await (await browser.newContext({viewport: {width: 1000, height: 1200}})).newPage();
  complaints = [];
  page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => { if (!request.url().startsWith(edge.url)) complaints.push(`asked ${request.url()}`); });
  await page.goto(edge.url);
  await page.locator('#stages li').first().waitFor();
});
afterEach(async () => {
  await page.context().close();
  assert.deepEqual(complaints, []);
});

const text = (selector) => page.locator(selector).innerText();
async function generate({tokens = 24, seed = 7, prompt} = {}) {
  if (prompt !== undefined) await page.fill('#prompt', prompt);
  await page.fill('#max-tokens', String(tokens));
  await page.fill('#seed', String(seed));
  await page.click('#generate');
}
async function generated(asked) {
  await generate(asked);
  await page.locator('#parity', {hasText: 'Seed'}).waitFor();
  return text('#text');
}
const places = () => page.locator('#stages li').evaluateAll((items) => items.map((item) => item.className.split(' ')[0]));

test('shows each stage where it runs', async () => {
  assert.match(await text('#summary'), /demo: 8 blocks .* edge cpu/);
  assert.deepEqual(await places(), [...Array(7).fill('cloud'), ...Array(4).fill('edge-cpu')]);
  assert.equal(await page.locator('#stages li.first-of-edge').innerText(), '6');
  assert.match(await text('#cut-value'), /^6 \(blocks 0 to 5 on the cloud, 6 to 7 on the edge\)$/);
});

test('streams a text and says what it took', async () => {
  const answer = await generated();
  assert.ok(answer.startsWith('Once upon a time') && answer.length > 40, answer);
  const figures = await text('#figures');
  for (const name of ['First token after', 'Tokens per second', 'Cloud, per step', 'Up, per token', 'Replays'])
    assert.ok(figures.includes(name), figures);
  assert.match(await page.getAttribute('#plot', 'aria-label'), /\d+ tokens, \d+\.\d*[1-9]\d* ms on average/);
  assert.match(await page.getAttribute('#bytes-plot', 'aria-label'), /^Bytes of each token: \d+ tokens, \d+(\.\d)? k?B on average$/);
  await page.click('summary');
  for (const row of [/block\.0\s*runs on the cloud\s*[\d.]+ MB\s*\d+\.\d{3}/, /block\.7\s*runs on this machine's CPU\s*[\d.]+ MB\s*\d+\.\d{3}/])
    await page.locator('#stage-times tr', {hasText: row}).waitFor();
  await page.screenshot({path: join(shots, 'answer.png'), fullPage: true});
});

test('the same seed gives the same text, and the cloud alone gives it too', async () => {
  const first = await generated();
  assert.equal(await generated(), first);
  await page.click('#compare');
  await page.locator('#parity', {hasText: 'Identical'}).waitFor();
  assert.match(await text('#parity'), /the cloud alone gives the same \d+ characters \(seed 7\)/);
});

// The cloud runs in short pieces, so that the answer is not over before a slow browser has clicked.
test('stop ends an answer and leaves the page usable', async () => {
  cloud.child.kill('SIGSTOP');
  try {
    await generate({tokens: 900});
    await page.locator('#halt:enabled').waitFor();
    while ((await text('#text')).length <= 60) {
      cloud.child.kill('SIGCONT');
      await new Promise((done) => setTimeout(done, 20));
      cloud.child.kill('SIGSTOP');
    }
    await page.click('#halt');
    await page.locator('#parity', {hasText: 'Stopped'}).waitFor();
  } finally {
    cloud.child.kill('SIGCONT');
  }
  assert.ok((await generated({tokens: 4})).length > 16);
});

test('a text streams piece by piece, and the page goes on drawing and answering', async () => {
  await page.evaluate(() => {
    window.lengths = new Set();
    window.tops = new Set();  // of a button below the text, from the first drawing of an answer on
    const look = () => {
      window.lengths.add(document.getElementById('text').innerText.length);
      if (!document.getElementById('took').hidden) window.tops.add(document.querySelector('#embed button').offsetTop);
      requestAnimationFrame(look);
    };
    look();
  });
  await generate({tokens: 400});
  await page.fill('#first', 'typed while it streams');
  await page.click('#embed button');
  await page.locator('#cosine', {hasText: 'cosine'}).waitFor();
  await page.locator('#parity', {hasText: 'Seed'}).waitFor();
  const [seen, tops, below] = await page.evaluate(() => {
    const box = document.querySelector('.answer').getBoundingClientRect(), end = document.createRange();
    end.selectNodeContents(document.getElementById('text'));
    return [window.lengths.size, [...window.tops], end.getBoundingClientRect().bottom - box.bottom];
  });
  assert.ok(seen > 5, `the text was drawn at ${seen} lengths`);
  assert.equal(tops.length, 1, `a button below moved while the text grew: ${tops}`);
  assert.ok(below <= 1, `the text ends ${below} pixels below its box`);
});

test('the cut moves by keyboard, and the text stays', async () => {
  const before_move = await generated();
  await page.focus('#cut');
  for (let i = 0; i < 4; i++) await page.keyboard.press('ArrowLeft');
  await page.waitForFunction(() => document.querySelector('#stages li.first-of-edge')?.innerText === '2');
  await page.locator('#cut:not([disabled])').waitFor();
  assert.equal((await places()).filter((place) => place === 'edge-cpu').length, 8);
  assert.equal(await generated(), before_move);
  await page.focus('#cut');
  for (let i = 0; i < 4; i++) await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => document.querySelector('#stages li.first-of-edge')?.innerText === '6');
});

test('embeddings: a text is like itself and less like another', async () => {
  const cosine = async (first, second) => {
    await page.fill('#first', first);
    await page.fill('#second', second);
    await page.locator('#cosine').evaluate((output) => { output.textContent = ''; });
    await page.click('#embed button');
    await page.locator('#cosine', {hasText: 'over 320 channels'}).waitFor();
    return Number(/cosine (-?[\d.]+)/.exec(await text('#cosine'))[1]);
  };
  assert.equal(await cosine('The king sat.', 'The king sat.'), 1);
  assert.ok(await cosine('The king sat.', '12345 &&&') < 0.9999);
  assert.equal(await page.locator('#vectors canvas').count(), 2);
});

test('a wrong wish is answered in words', async () => {
  await generate({prompt: 'word '.repeat(3000)});
  await page.locator('#trouble:visible').waitFor();
  assert.match(await text('#trouble'), /prompt|context|tokens/);
  complaints = complaints.filter((line) => !/status of 400/.test(line));  // the browser's own note of it
  await generated({prompt: 'Once', tokens: 4});
  assert.equal(await page.locator('#trouble').isVisible(), false);
});

test('the cloud is killed while an answer streams and started again: the same text', async () => {
  const calm = await generated({tokens: 200});
  await generate({tokens: 200});
  await page.waitForFunction(() => document.getElementById('text').innerText.length > 60);
  const port = new URL(cloud.url).port;
  await stop(cloud, 'SIGKILL');
  cloud = await start_cloud(port);
  await page.locator('#parity', {hasText: 'Seed'}).waitFor({timeout: 60000});
  assert.equal(await text('#text'), calm);
});

for (const [name, options] of Object.entries({
  phone: {viewport: {width: 360, height: 740}, isMobile: true}, dark: {viewport: {width: 1000, height: 1200}, colorScheme: 'dark'}})) {
  test(`fits: ${name}`, async () => {
    const other = await (await browser.newContext(options)).newPage();
    await other.goto(edge.url);
    await other.locator('#stages li').first().waitFor();
    await other.fill('#max-tokens', '32');
    await other.click('#generate');
    await other.locator('#parity', {hasText: 'Seed'}).waitFor();
    const [width, shown] = await other.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(width <= shown, `${width} pixels wide on a screen of ${shown}`);
    await other.screenshot({path: join(shots, `${name}.png`), fullPage: true});
    await other.context().close();
  });
}

test('every control has a name', async () => {
  const nameless = await page.locator('input, textarea, button').evaluateAll((controls) =>
    controls.filter((c) => !(c.labels?.length || c.innerText || c.ariaLabel)).map((c) => c.id));
  assert.deepEqual(nameless, []);
});
