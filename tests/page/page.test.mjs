// The edge's page in a real browser, with a cloud and an edge of this test's own: one flow for each thing a person can do.
// Environment: CLOUD_SERVER, EDGE_CLIENT, SPLIT_LINK (programs), PAGE_MODULES (where playwright-core is), PAGE_SHOTS (for pictures).

import assert from 'node:assert/strict';
import {existsSync, mkdirSync} from 'node:fs';
import {join} from 'node:path';
import {after, afterEach, before, beforeEach, test} from 'node:test';
import {fileURLToPath} from 'node:url';

import {axe, drawn, launch, new_page, slowed, start_cloud, start_pair, stop} from './programs.mjs';

const shots = process.env.PAGE_SHOTS;
let cloud, edge, browser, page, complaints;

before(async () => {
  mkdirSync(shots, {recursive: true});
  ({cloud, edge} = await start_pair({cut: 6, more: ['--stay']}));  // a lost cloud is waited for
  browser = await launch();
});
after(async () => {
  await browser?.close();
  if (edge) await stop(edge);
  if (cloud) await stop(cloud);
});
// Each test begins with the same placement, however the one before ended.
const home = {cut: 6, head: 'edge', format: 'auto'};
const status = async (of = edge) => (await fetch(`${of.url}/split/status`)).json();
beforeEach(async () => {
  const now = await status();
  if (now.auto || Object.keys(home).some((key) => now[key] !== home[key]))
    await fetch(`${edge.url}/split/placement`, {method: 'PUT', body: JSON.stringify(home), headers: {'Content-Type': 'application/json'}});
  page = await new_page(browser, {viewport: {width: 1280, height: 800}});
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
  await page.locator('#sampling').evaluate((fold) => { fold.open = true; });
  await page.fill('#max-tokens', String(tokens));
  await page.fill('#seed', String(seed));
  await page.locator('#sampling').evaluate((fold) => { fold.open = false; });
  await page.click('#generate');
}
async function generated(asked) {
  await generate(asked);
  await ended();
  return text('#text');
}
// Waits until the answer is whole and drawn: its seed is told, or that it is exact by design.
async function ended() {
  await page.locator('#parity', {hasText: /^(Seed|exact by design)/}).waitFor();
  await drawn(page);
}
async function no_violations(of) {
  await of.evaluate(axe);
  const found = await of.evaluate(async () => (await window.axe.run()).violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`));
  assert.deepEqual(found, []);
}
const places = () => page.locator('#stages li').evaluateAll((items) => items.map((item) => item.className.split(' ')[0]));

const font_sizes = (of) => page.locator(of).evaluateAll((items) => items.map((item) => Number(getComputedStyle(item).fontSize.replace('px', ''))));

test('shows two machines, each with the stages that run there', async () => {
  assert.deepEqual(await places(), [...Array(7).fill('cloud'), ...Array(4).fill('edge-cpu')]);
  assert.equal(await page.locator('#cloud li').count(), 7);
  assert.equal(await page.locator('#here li').count(), 4);
  assert.match(await page.locator('#stages li.first-of-edge').innerText(), /^6/);
  assert.equal(await text('#summary'), 'blocks 0 to 5 on the cloud, 6 to 7 here');
  assert.equal(await page.getAttribute('#cut', 'aria-valuetext'), 'blocks 0 to 5 on the cloud, 6 to 7 here');
  assert.match(await text('#cloud .name'), new RegExp(`^Cloud ${new URL(cloud.url).host}$`));
  assert.match(await text('#here .name'), /^This computer cpu/);
  const [left, right] = await Promise.all(['#cloud', '#here'].map((box) => page.locator(box).boundingBox()));
  assert.ok(left.x + left.width < right.x && Math.abs(left.y - right.y) < 1);
  assert.ok((await page.locator('#ask').boundingBox()).y > left.y + left.height);
});

test('streams a text and says what it took', async () => {
  const answer = await generated();
  assert.ok(answer.startsWith('Once upon a time') && answer.length > 40, answer);
  assert.equal(`Once upon a time${await text('#text .answer')}`, answer);
  assert.match(await text('#figures'),
    /^\d\d % of the work in the cloud · [\d.]+ kB over the wire · first word after [\d.]+ m?s · [\d.]+ tokens\/s$/);
  const [, mean] = /: 24 tokens, ([\d.]+) m?s on average/.exec(await page.getAttribute('#plot', 'aria-label'));
  assert.ok(Number(mean) > 0);
  assert.match(await page.locator('#plot').textContent(), /^0[\d.]+ m?s.*token 124$/);
  assert.match(await text('#wire-bytes'), /^1\.\d kB$/);
  await page.click('#bytes summary');
  assert.match(await page.getAttribute('#bytes-plot', 'aria-label'), /^Bytes of each token: 24 tokens, \d+(\.\d)? k?B on average$/);
  await page.locator('summary', {hasText: 'Time of each stage'}).click();
  for (const row of [/block\.0, attention\s*runs on the cloud\s*[\d.]+ MB\s*\d+\.\d{3}/, /block\.7, attention\s*runs on this machine's CPU\s*[\d.]+ MB\s*\d+\.\d{3}/])
    await page.locator('#stage-times tr', {hasText: row}).waitFor();
  const row = /cut 6 \(now\)\s*[\d.]+ m?s\s*[\d.]+ m?s\s*(\d+ %)\s*0 B/;
  await page.locator('#plan tr.now', {hasText: row}).waitFor();
  const [, part] = row.exec(await text('#plan tr.now'));
  // The plan speaks of a token, the receipt of the prompt too, whose rows but the last have no head.
  const taken = parseInt(await text('#figures'));
  assert.ok(taken > 50 && taken < 75, `${taken} % taken, of 6 of 8 blocks without the head`);
  // It is one figure, wherever it is told.
  assert.equal(part, `${taken} %`);
  assert.match(await text('#cloud-work'), new RegExp(`^[\\d.]+ ms a token · ${taken} % of the work$`));
  assert.match(await text('#here-work'), new RegExp(`^[\\d.]+ ms a token · ${100 - taken} % of the work$`));
  await page.screenshot({path: join(shots, 'answer.png'), fullPage: true});
});

test('each token shows its candidates on hover and on focus, and its time as a tint', async () => {
  await generated();
  const tokens = page.locator('#text .answer span');
  assert.equal(await tokens.count(), 24);
  for (const name of await tokens.evaluateAll((spans) => spans.map((span) => span.className))) assert.match(name, /^e[123]$/);
  assert.ok((await font_sizes('#text')).every((size) => size >= 18));
  await tokens.nth(3).hover();
  await page.locator('#candidates:visible').waitFor();
  assert.ok(await page.locator('#candidates tr').count() >= 5);
  assert.match(await text('#candidates'), /[\d.]+ %.* m?s · cut 6 · token 4 of 24 · [\d.]+ k?B/s);
  const drawn = await text('#candidates tr.chosen td:first-child');
  assert.equal(drawn.trim(), (await tokens.nth(3).textContent()).trim());
  await page.mouse.move(0, 0);
  await page.locator('#candidates').waitFor({state: 'hidden'});
  await tokens.first().focus();
  await page.keyboard.press('ArrowRight');
  assert.match(await text('#candidates'), /token 2 of 24/);
  await page.keyboard.press('Escape');
  await page.locator('#candidates').waitFor({state: 'hidden'});
});

test('the same seed gives the same text, and the cloud alone gives it too', async () => {
  const first = await generated();
  assert.equal(await generated(), first);
  assert.doesNotMatch(await text('main'), /✓/);  // nobody has compared yet
  await page.click('#compare');
  await page.locator('#parity', {hasText: /^same text as unsplit ✓$/}).waitFor();
  assert.match(await page.getAttribute('#parity', 'title'), /^\d+ characters, seed 7$/);
  assert.equal(await page.locator('#compare').isVisible(), true);
  await generate();
  assert.doesNotMatch(await text('#parity'), /✓/);
  await ended();
});

// Asks for a text, and stops the cloud in the middle of it: it runs in short pieces, so that the answer is not over before a slow
// browser has looked.
async function generate_half(asked) {
  cloud.child.kill('SIGSTOP');
  await generate(asked);
  await page.locator('#halt:visible').waitFor();
  while ((await text('#text')).length <= 60) {
    cloud.child.kill('SIGCONT');
    await new Promise((done) => setTimeout(done, 20));
    cloud.child.kill('SIGSTOP');
  }
}

test('Escape ends an answer and leaves the page usable', async () => {
  try {
    await generate_half({tokens: 900, seed: 8});
    await page.keyboard.press('Escape');
    await page.locator('#parity', {hasText: 'Stopped'}).waitFor();
  } finally {
    cloud.child.kill('SIGCONT');
  }
  assert.ok((await generated({tokens: 4})).length > 16);
});

test('a text streams piece by piece, and the page goes on drawing and answering', async (t) => {
  const disk = gate();
  await page.route('**/split/cache', async (route) => {
    await disk.opened;
    await route.continue();
  });
  await page.reload();
  await page.locator('#stages li').first().waitFor();
  await page.evaluate(() => {
    window.lengths = new Set();
    window.tops = new Set();  // of a button below the text, while it grows
    const look = () => {
      window.lengths.add(document.getElementById('text').innerText.length);
      if (!document.getElementById('sampling').open) window.tops.add(document.querySelector('#embeddings').offsetTop);
      requestAnimationFrame(look);
    };
    look();
  });
  const at_full_speed = slowed(cloud);
  t.after(at_full_speed);
  await generate({tokens: 400});
  await page.click('#embeddings summary');
  await page.fill('#first', 'typed while it streams');
  await page.click('#embed button');
  await page.locator('#cosine', {hasText: 'cosine'}).waitFor();
  await page.waitForFunction(() => window.lengths.size > 5);
  disk.open();
  await page.locator('#forget:visible').waitFor();
  await drawn(page);
  at_full_speed();
  await ended();
  const [tops, below] = await page.evaluate(() => {
    const box = document.querySelector('.scroll').getBoundingClientRect(), end = document.createRange();
    end.selectNodeContents(document.getElementById('text'));
    return [[...window.tops], end.getBoundingClientRect().bottom - box.bottom];
  });
  assert.equal(tops.length, 1, `a button below moved while the text grew: ${tops}`);
  assert.ok(below <= 1, `the text ends ${below} pixels below its box`);
});

const first_here = (name) => page.waitForFunction((name) => document.querySelector('#stages li.first-of-edge span')?.innerText === name, name);
const gate = () => {
  const made = {};
  made.opened = new Promise((open) => { made.open = open; });
  return made;
};
const settled = (cut) => page.waitForFunction((cut) => document.querySelector('#place').value === cut && document.querySelector('#cut').ariaDisabled === 'false' &&
  !document.querySelector('#summary').innerText.startsWith('moving'), cut);

test('the cut moves by keyboard, to all on the cloud too, and the text stays', async () => {
  const before_move = await generated();
  await page.focus('#cut');
  while (Number(await page.getAttribute('#cut', 'aria-valuenow')) > 2) await page.keyboard.press('ArrowLeft');
  await first_here('2');
  await settled('2');
  assert.equal((await places()).filter((place) => place === 'edge-cpu').length, 8);
  assert.equal(await generated(), before_move);
  await page.focus('#cut');
  await page.keyboard.press('End');
  await settled('cloud');
  assert.deepEqual(await places(), [...Array(11).fill('cloud'), 'nothing']);
  assert.equal(await generated(), before_move);
  assert.match(await text('#figures'), /^100 % of the work in the cloud/);
  assert.match(await page.locator('#text .answer span').first().getAttribute('class'), /^c/);
});

test('the boundary is dragged, between answers and during one', async (t) => {
  const asked = {tokens: 500, seed: 9};  // a text that was written before comes in fewer steps
  const drag = async (blocks, to) => {
    const handle = await page.locator('#cut').boundingBox(), block = (await page.locator('#stages li').nth(1).boundingBox()).width;
    await page.mouse.move(handle.x + handle.width / 2, handle.y + handle.height / 2);
    await page.mouse.down();
    await page.mouse.move(handle.x + handle.width / 2 + blocks * block, handle.y + 20, {steps: 6});
    await page.mouse.up();
    await page.waitForFunction((value) => document.querySelector('#cut').ariaValueNow === value, String(to));
  };
  await drag(-2, 4);
  await settled('4');
  const at_full_speed = slowed(cloud);
  t.after(at_full_speed);
  await generate(asked);
  await page.waitForFunction(() => document.querySelectorAll('#text .answer span').length > 10);
  await drag(1, 5);
  await page.locator('#text .moved').waitFor();
  at_full_speed();
  await ended();
  const moved = await text('#text');
  assert.equal(await page.locator('#text .moved').getAttribute('data-moved'), 'cut 5');
  assert.match(await page.locator('#plot').textContent(), /cut 5: asked for/);
  await settled('5');
  assert.equal(await generated(asked), moved);
});

test('the head and the format of the weights are chosen, and the text stays', async () => {
  const before_move = await generated();
  await page.selectOption('#head', 'cloud');
  await page.waitForFunction(() => document.querySelectorAll('#cloud li').length === 9);  // norm and head too
  assert.equal(await generated(), before_move);
  await page.selectOption('#head', 'edge');
  await page.waitForFunction(() => document.querySelectorAll('#cloud li').length === 7);
  await page.selectOption('#format', 'f32');
  await page.waitForFunction(() => document.querySelector('#format').value === 'f32' && !document.querySelector('#format').disabled);
  assert.equal(await generated(), before_move);
});

test('the prompt stays over a reload, Again writes again, Copy copies the answer alone', async () => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], {origin: edge.url});
  const once = await generated({prompt: 'The king', tokens: 8});
  await page.click('#again');
  await ended();
  assert.equal(await text('#text'), once);
  const copied = page.waitForFunction(() => document.getElementById('copy').textContent === 'Copied');  // for a moment
  await page.click('#copy');
  await copied;
  assert.equal(`The king${await page.evaluate(() => navigator.clipboard.readText())}`, once);
  await page.reload();
  assert.equal(await page.inputValue('#prompt'), 'The king');
  assert.match(await text('#sampling-words'), /^8 tokens .* seed 7$/);
});

test('ranking: of a reranker the page ranks a list, the best first, and compares no texts', async () => {
  const pair = await start_pair({model: 'rerank-bert', cut: 1});
  const other = await new_page(browser, {viewport: {width: 1280, height: 800}});
  try {
    await other.goto(pair.edge.url);
    await other.locator('#stages li').first().waitFor();
    assert.equal(await other.locator('#embeddings').filter({visible: true}).count(), 0);
    await other.fill('#query', 'Who lived in the wood?');
    await other.fill('#documents', 'The king sat on his throne.\n\nA little girl lived in a wood.\nking');
    await other.click('#rank button');
    await other.locator('#ranked li').nth(2).waitFor();
    const lines = await other.locator('#ranked li').allInnerTexts();
    const {results} = await (await fetch(`${pair.edge.url}/v1/rerank`, {
      method: 'POST',
      body: JSON.stringify({query: 'Who lived in the wood?', documents: ['The king sat on his throne.', 'A little girl lived in a wood.', 'king'],
        return_documents: true}),
    })).json();
    assert.deepEqual(lines, results.map(({relevance_score, document}) => `${relevance_score.toFixed(4)} ${document.text}`));
    assert.match(await other.locator('#rank-took').innerText(), /^3 texts · \d+ tokens · 1 round trip · /);
    await no_violations(other);
    await other.screenshot({path: join(shots, 'reranker.png'), fullPage: true});
  } finally {
    await other.context().close();
    await stop(pair.edge);
    await stop(pair.cloud);
  }
});

test('embeddings: a text is like itself and less like another', async () => {
  await page.click('#embeddings summary');
  const cosine = async (first, second) => {
    await page.fill('#first', first);
    await page.fill('#second', second);
    await page.locator('#cosine').evaluate((output) => { output.textContent = ''; });
    await page.click('#embed button');
    await page.locator('#cosine', {hasText: 'over 320 channels'}).waitFor();
    assert.match(await text('#embed-took'), /^2 texts · \d+ tokens · \d round trips?/);
    return Number(/cosine (-?[\d.]+)/.exec(await text('#cosine'))[1]);
  };
  assert.equal(await cosine('The king sat.', 'The king sat.'), 1);
  assert.ok(await cosine('The king sat.', '12345 &&&') < 0.9999);
  assert.equal(await page.locator('#vectors canvas').count(), 2);
  // The numbers are those that programs get, and the files that are named are there.
  const reply = await fetch(`${edge.url}/v1/embeddings`, {method: 'POST', body: JSON.stringify({input: '12345 &&&'})});
  const expected = (await reply.json()).data[0].embedding, shown = await page.locator('#vectors code').last().innerText();
  const [, size, numbers, last] = /^Tensor \[(\d+)\] = (.*), …, (.*)$/.exec(shown);
  assert.equal(Number(size), expected.length);
  for (const [words, values] of [[numbers, expected.slice(0, 6)], [last, expected.slice(-2)]])
    assert.deepEqual(words.split(', '), values.map((value) => value.toPrecision(4)));
  const named = (await text('#embeddings')).match(/tests\/[\w/.]+\w/g);
  assert.equal(named.length, 3);
  for (const file of named) assert.ok(existsSync(fileURLToPath(new URL(`../../${file}`, import.meta.url))), file);
});

test('an encoder: texts are compared in one trip, and nothing speaks of words or of a head', async () => {
  const pair = await start_pair({model: 'st-minilm', cut: 1});
  const other = await new_page(browser, {viewport: {width: 1280, height: 800}});
  try {
    other.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
    other.on('pageerror', (error) => complaints.push(error.message));
    await other.goto(pair.edge.url);
    await other.locator('#stages li').first().waitFor();
    assert.equal(await other.locator('#summary').innerText(), 'block 0 on the cloud, block 1 here');
    for (const away of ['#ask', '#paper', '#plot', '#bytes', '#head', '#plan td:nth-child(4)'])
      assert.equal(await other.locator(away).filter({visible: true}).count(), 0, away);
    assert.doesNotMatch(await other.locator('main').innerText(), /word|a token|head/);
    const [scene, compare, plan] = await Promise.all(['#stages', '#embeddings', '#plan'].map((box) => other.locator(box).boundingBox()));
    assert.ok(scene.y + scene.height + 8 <= compare.y && compare.y + compare.height < plan.y, 'the scene, the texts, the plan');
    await other.click('#embed button');
    await other.locator('#cosine', {hasText: 'over 48 channels'}).waitFor();
    assert.match(await other.locator('#embed-took').innerText(), /^2 texts · \d+ tokens · 1 round trip · \d\.\d kB over the wire · [\d.]+ ms in all$/);
    assert.match(await other.locator('#wire-bytes').innerText(), /kB$/);
    assert.equal(JSON.parse(await other.locator('#receipt').textContent()).splitcompute.trips, 1);
    await no_violations(other);
    await other.screenshot({path: join(shots, 'encoder.png'), fullPage: true});
    await other.selectOption('#place', 'cloud');
    await other.locator('#summary', {hasText: 'all on the cloud'}).waitFor();
    await other.locator('#cut[aria-disabled=false]').waitFor();
    const before_move = await other.locator('#cosine').innerText();
    await other.click('#embed button');
    await other.locator('#embed-took', {hasText: /· \d+ B over the wire/}).waitFor();
    assert.equal(await other.locator('#cosine').innerText(), before_move);
    await other.setViewportSize({width: 390, height: 844});
    const [width, shown] = await other.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(width <= shown, `${width} pixels wide on a screen of ${shown}`);
    await other.screenshot({path: join(shots, 'encoder-phone.png'), fullPage: true});
  } finally {
    await other.context().close();
    await stop(pair.edge);
    await stop(pair.cloud);
  }
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
  const asked = {tokens: 600, seed: 10};  // a text that was written before comes in fewer steps
  const port = new URL(cloud.url).port;
  try {
    await generate_half(asked);
    await stop(cloud, 'SIGKILL');
    await page.locator('#cloud.lost').waitFor();
    await page.locator('#cloud-work', {hasText: /no answer for [1-9]\d* s; waiting/}).waitFor();
    await page.screenshot({path: join(shots, 'lost.png')});
  } finally {
    await stop(cloud, 'SIGKILL');
    cloud = await start_cloud(port);
  }
  await ended();
  const disturbed = await text('#text');
  assert.equal(await generated(asked), disturbed);
});

test('the select says who chooses, the subtitle what runs, and a move that nobody asked for why', async () => {
  assert.equal(await page.inputValue('#place'), '6');
  await page.selectOption('#place', 'auto');
  await page.waitForFunction(() => !document.querySelector('#place').disabled && document.querySelector('#place').value === 'auto');
  assert.equal((await status()).auto, true);
  await page.locator('#cut-value', {hasText: /^(Chosen for you|Now )/}).waitFor();
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#place').value === 'auto');
  // A status that was asked for before the move comes behind it.
  const late = gate(), held = gate();
  await page.route('**/split/status', async (route) => {
    const response = await route.fetch();
    held.open();
    await late.opened;
    await route.fulfill({response});
  }, {times: 1});
  await held.opened;
  await page.selectOption('#place', '5');
  await settled('5');
  const told = page.waitForResponse('**/split/status');
  late.open();
  await (await told).finished();
  await page.evaluate(() => new Promise(requestAnimationFrame));
  assert.match(await text('#cut-value'), /^Drag the boundary/);
  assert.equal(await text('#summary'), 'blocks 0 to 4 on the cloud, 5 to 7 here');
  // All of a text runs here where the cloud is lost; what was chosen stays chosen.
  await page.route('**/split/status', async (route) => {
    const response = await route.fetch(), json = await response.json();
    for (const stage of json.stages) stage.runs = 'here';
    const cuts = [0, 5].map((cut) => ({cut, fits: true, first_token_ms: null, token_ms: null, cloud_percent: 50, missing_bytes: 0}));
    json.plan = {cuts, pick: {cut: 5, why: 'only_fit', reason: 'nothing else was measured'}};
    await route.fulfill({response, json});
  });
  await page.locator('#summary', {hasText: /^all on this computer$/}).waitFor();
  assert.equal(await text('#plan tr.now button'), 'all here (now)');
  assert.equal(await page.inputValue('#place'), '5');
  await page.locator('#plan-why', {hasText: /^The plan stays at “cut 5”: nothing else was measured\.$/}).waitFor();
  await page.unroute('**/split/status');
  await page.locator('#summary', {hasText: 'blocks 0 to 4'}).waitFor();
  // Of an answer that is made up: it went on here, and nobody asked.
  const receipt = {cut: 5, bytes_up: 1, bytes_down: 1, cloud_ms: 1, wire_ms: 1, edge_ms: 1, time_to_first_token_ms: 1, tokens_per_second: 1,
    cloud_layer_rows: 1, cloud_percent: 50, losses: 1, exact: true, moves: [{at: 40, from: 5, to: 0, why: 'fastest', reason: 'quicker there: 0.06 for 0.10 ms a token', rows: 1, bytes: 1, pause_ms: 1}]};
  const event = {choices: [{text: 'x'}], usage: {prompt_tokens: 1, completion_tokens: 1, splitcompute: receipt}};
  await page.route('**/v1/completions', (route) => route.fulfill({contentType: 'text/event-stream', body: `data: ${JSON.stringify(event)}\n\ndata: [DONE]\n\n`}));
  await generated();
  await page.locator('#cut-value', {hasText: /^Now all here, from token 41 on: quicker there: 0\.06 for 0\.10 ms a token\.$/}).waitFor();
  assert.equal(await text('#summary'), 'all on this computer · next: blocks 0 to 4 on the cloud, 5 to 7 here');
  assert.match(await text('#here-work'), /% of the work now$/);
});

test('the picture, the wire and the table are of the answer that is shown, and what differs is called the next one\'s', async () => {
  await generated();
  assert.match(await text('#wire-bytes'), /kB$/);
  // Another program says where the next one begins.
  await fetch(`${edge.url}/split/cut`, {method: 'PUT', body: JSON.stringify({cut: 'cloud'})});
  await page.locator('#cut-value', {hasText: 'Next all on the cloud: another program asked for it.'}).waitFor();
  assert.equal(await text('#summary'), 'blocks 0 to 5 on the cloud, 6 to 7 here · next: all on the cloud');
  assert.equal(await page.locator('#cloud li').count(), 7);
  assert.match(await text('#wire-bytes'), /kB$/);
  assert.equal(await text('#plan tr.now button'), 'cut 6 (now)');
  assert.match(await text('#plan'), /all on the cloud \(next\)/);
  // And a person does: then that is what is drawn, of which nothing has travelled yet.
  await page.selectOption('#place', '0');
  await page.locator('#summary', {hasText: /^next: all on this computer$/}).waitFor();
  await settled('0');
  assert.equal(await page.locator('#here li').count(), 11);
  assert.equal(await text('#wire-bytes'), '–');
  assert.equal(await text('#plan tr.now button'), 'all here (next)');
  await generated({seed: 8});
  assert.match(await text('#figures'), /^0 % of the work in the cloud · 0 B over the wire/);
  assert.equal(await text('#summary'), 'all on this computer');
  assert.equal(await text('#cloud-work'), '0 % of the work');
  assert.equal(`${await text('#wire-bytes')} ${await text('#wire-ms')}`, '0 B a token');
  assert.equal(await text('#plan tr.now button'), 'all here (now)');
});

test('the button stops the cloud that was started for it, and the page says what a text lacks that waits', async () => {
  const pair = await start_pair({cut: 6, stops: true, more: ['--max-weights', '0']});
  const other = await new_page(browser, {viewport: {width: 390, height: 844}, isMobile: true});
  const at_full_speed = slowed(pair.edge);
  try {
    await other.goto(pair.edge.url);
    await other.locator('#generate:enabled').waitFor();
    await other.locator('#sampling').evaluate((fold) => { fold.open = true; });
    await other.fill('#max-tokens', '400');
    await other.click('#generate');
    await other.locator('#text .answer span').first().waitFor();
    const died = new Promise((resolve) => pair.cloud.child.removeAllListeners('exit').on('exit', (code, signal) => resolve(signal)));
    await other.click('#stop-cloud');
    assert.equal(await died, 'SIGKILL');
    await other.locator('#cloud.lost').waitFor();
    await other.locator('#wire.dim').waitFor();
    await other.locator('#cut-value', {hasText: /^1\d MB more here, and it would go on without the cloud\.$/}).waitFor();
    assert.equal(await other.locator('#stop-cloud').isVisible(), false);
    await other.screenshot({path: join(shots, 'stopped-phone.png')});
  } finally {
    at_full_speed();
    await other.context().close();
    for (const one of [pair.edge, pair.cloud]) await stop(one, 'SIGKILL');
  }
  assert.equal(await page.locator('#stop-cloud').isVisible(), false);  // this edge may not
});

// The automatic cut on a slow line, with nothing here: all of a text runs on the cloud while its weights come.
test('what runs is drawn where it runs, and what lands as a ghost with its own percent', async () => {
  const pair = await start_pair({line: ['--rate', '4Mbit', '--rtt', '30ms']});
  const other = await new_page(browser, {viewport: {width: 1280, height: 800}});
  try {
    await other.goto(pair.edge.url);
    await other.locator('#stages li').first().waitFor();
    assert.equal(await other.inputValue('#place'), 'auto');
    await other.evaluate(() => { document.getElementById('max-tokens').value = 200; });
    await other.click('#generate');
    await other.locator('#here li.downloading').first().waitFor();
    await other.locator('#here-work', {hasText: /landing: \d+ %, [\d.]+ s left$/}).waitFor();
    await other.locator('#wire-ms', {hasText: /cloud and line$/}).waitFor();  // the first word is here
    const now = await other.evaluate(() => {
      const items = (box) => [...document.querySelectorAll(`${box} li`)].map((li) => [li.className.split(' ')[0], li.innerText.replace(/\s+/g, ' ')]);
      const words = (id) => document.getElementById(id).innerText;
      return {cloud: items('#cloud'), here: items('#here'), summary: words('summary'), figures: words('figures'), landing: words('here-work'), wire: words('wire-ms')};
    });
    assert.equal(now.summary, 'all on the cloud');
    assert.deepEqual(now.cloud.map(([kind]) => kind), Array(11).fill('cloud'), 'all that runs is in the box of the cloud');
    assert.match(now.figures, /^100 % of the work/);
    assert.match(now.wire, /cloud and line$/);
    for (const [kind, words] of now.here) assert.match(`${kind} ${words}`, /^(downloading|absent) .* \d+ %$/);
    // The stage that is named is the one of which more comes.
    const [, name] = /^(\w+(?: \d+)?) landing/.exec(now.landing);
    const ghost = now.here.find(([, words]) => words.startsWith(`${name.replace('block ', '')} `));
    assert.ok(ghost && !ghost[1].endsWith(' 100 %'), JSON.stringify(now));
    await other.screenshot({path: join(shots, 'landing.png')});
  } finally {
    await other.context().close();
    for (const one of [pair.edge, pair.link, pair.cloud]) await stop(one, 'SIGKILL');
  }
});

test('a cloud that stays away is told in a sentence, which goes when it is back, and Again asks again', async () => {
  await generated({tokens: 8});
  const place = async () => (await page.locator('#ask').boundingBox()).y;
  const before_loss = await place();
  await page.route('**/v1/completions', (route) => route.fulfill({contentType: 'text/event-stream',
    body: `data: ${JSON.stringify({error: {message: `${cloud.url}: cannot connect: Connection reset by peer`, code: 'cloud_error'}})}\n\n`}));
  const port = new URL(cloud.url).port;
  await stop(cloud, 'SIGKILL');
  try {
    await page.click('#again');
    await page.locator('#trouble:visible').waitFor();
    assert.equal(await text('#trouble'), `The cloud at 127.0.0.1:${port} does not answer.`);
    await page.locator('#cloud-work', {hasText: /^no answer for [1-9]\d* s$/}).waitFor();  // nobody waits for it
    assert.equal(await place(), before_loss);
    assert.equal(await page.locator('#again').isDisabled(), false);
  } finally {
    cloud = await start_cloud(port);
  }
  await page.locator('#trouble').waitFor({state: 'hidden'});
  await page.unroute('**/v1/completions');
  await page.click('#again');
  await ended();
});

for (const [name, options] of Object.entries({
  phone: {viewport: {width: 390, height: 844}, isMobile: true}, desktop: {viewport: {width: 1280, height: 800}},
  dark: {viewport: {width: 1280, height: 800}, colorScheme: 'dark'}})) {
  test(`fits: ${name}`, async () => {
    const other = await new_page(browser, options);
    await other.goto(edge.url);
    await other.locator('#stages li').first().waitFor();
    await other.click('#generate');
    await other.locator('#parity', {hasText: /^(Seed|exact by design)/}).waitFor();
    const [box, prompt] = await Promise.all(['#paper', '#prompt'].map((one) => other.locator(one).boundingBox()));
    if (options.isMobile) assert.ok(prompt.width > 350, `the prompt is ${prompt.width} pixels wide`);
    assert.ok(box.y + box.height <= options.viewport.height, `the answer ends at ${box.y + box.height} of ${options.viewport.height} pixels`);
    await no_violations(other);
    const [width, shown] = await other.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(width <= shown, `${width} pixels wide on a screen of ${shown}`);
    await other.screenshot({path: join(shots, `${name}.png`), fullPage: true});
    await other.context().close();
  });
}

// Relative luminance of what is drawn (WCAG), without hue.
test('cloud and this computer differ in lightness and in pattern', async () => {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({colorScheme: scheme});
    const [cloud_light, cpu_light, gpu_light] = await page.evaluate(() => ['--cloud', '--edge-cpu', '--edge-gpu'].map((name) => {
      const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
      const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
      return .2126 * r + .7152 * g + .0722 * b;
    }));
    for (const edge_light of [cpu_light, gpu_light])
      assert.ok((edge_light + .05) / (cloud_light + .05) >= 3, `${scheme}: ${cloud_light} beside ${edge_light}`);
  }
  assert.match(await page.locator('.key.edge-gpu').evaluate((key) => getComputedStyle(key).backgroundImage), /radial-gradient/);
});

test('every control has a name', async () => {
  const nameless = await page.locator('input, textarea, button').evaluateAll((controls) =>
    controls.filter((c) => !(c.labels?.length || c.textContent || c.ariaLabel)).map((c) => c.id));
  assert.deepEqual(nameless, []);
});
