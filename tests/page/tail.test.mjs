// The page of an edge with a tail of one's own: its switch, what is compared, and where the boundary may be.
// Environment: as of page.test.mjs.

import assert from 'node:assert/strict';
import {mkdirSync} from 'node:fs';
import {join} from 'node:path';
import {after, afterEach, before, beforeEach, test} from 'node:test';

import {axe, launch, new_page, start_pair, stop} from './programs.mjs';

const shots = process.env.PAGE_SHOTS;
let pair, browser, page, complaints;

before(async () => {
  mkdirSync(shots, {recursive: true});
  pair = await start_pair({model: 'llama3', tail: true});
  browser = await launch();
});
after(async () => {
  await browser?.close();
  if (pair) await stop(pair.edge);
  if (pair) await stop(pair.cloud);
});
beforeEach(async () => {
  page = await new_page(browser, {viewport: {width: 1280, height: 800}});
  complaints = [];
  page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(error.message));
  await page.goto(pair.edge.url);
  await page.locator('#whose:visible').waitFor();
  await page.locator('#generate:enabled').waitFor();
  await page.locator('#sampling').evaluate((fold) => { fold.open = true; });
  await page.fill('#max-tokens', '12');
  await page.fill('#temperature', '0');
  await page.fill('#seed', '7');
  await page.locator('#sampling').evaluate((fold) => { fold.open = false; });
});
afterEach(async () => {
  await page.context().close();
  assert.deepEqual(complaints, []);
});

const choose = (whose) => page.locator('#whose label', {hasText: whose}).click();
// Asks, and resolves to the model that was asked and to what it said.
async function asked() {
  const request = page.waitForRequest(/\/v1\/(chat\/)?completions$/);
  await page.fill('#prompt', 'The men went on');
  await page.press('#prompt', 'Enter');
  const {model} = (await request).postDataJSON();
  await page.locator('#parity', {hasText: /^(Seed|exact by design)/}).waitFor();
  return {model, text: await page.locator('#text .answer').last().innerText()};
}
async function compared() {
  const shown = await page.locator('#parity').innerText();
  await page.click('#compare');
  await page.waitForFunction((before) => {
    const now = document.querySelector('#parity').textContent;
    return now !== before && !now.startsWith('The cloud is asked');
  }, shown);
  return page.locator('#parity').evaluate((node) => [node.className, node.textContent]);
}

test('the personal model answers, and the base at a switch that stays over a reload', async () => {
  assert.equal(await page.isChecked('#personal'), true);
  const personal = await asked();
  assert.equal(personal.model, 'llama3:personal');
  assert.equal(await page.locator('#compare').innerText(), 'Compare with the base');
  const [of_personal, words] = await compared();
  assert.equal(of_personal, '');  // neither good nor bad
  assert.match(words, /^The base (says the same\.|goes on from character \d+: “)/);
  await page.screenshot({path: join(shots, 'tail.png'), fullPage: true});
  await choose('Base');
  await page.reload();
  await page.locator('#whose:visible').waitFor();
  await page.locator('#generate:enabled').waitFor();
  assert.equal(await page.isChecked('#base'), true);
  const all_on_cloud = async () => {
    assert.deepEqual(await page.locator('#stages li').evaluateAll((items) => [...new Set(items.map((item) => item.className.split(' ')[0]))]), ['cloud', 'nothing']);
    assert.equal(await page.locator('#place').evaluate((select) => select.selectedOptions[0].text), 'All on the cloud');
    assert.equal(await page.locator('#plan tr').count(), 1);
  };
  await page.locator('#summary', {hasText: /^all on the cloud$/}).waitFor();
  await all_on_cloud();
  const base = await asked();
  assert.equal(base.model, 'llama3');
  await all_on_cloud();
  assert.match(await page.locator('#cloud-work').innerText(), /100 % of the work$/);
  assert.match(await page.locator('#figures').innerText(), /^100 % of the work in the cloud/);
  assert.match(await page.locator('#wire-bytes').innerText(), /B$/);
  await page.screenshot({path: join(shots, 'tail-base.png'), fullPage: true});
  await choose('Personal');
  await page.locator('#summary', {hasText: /^next: (all on this computer|block)/}).waitFor();
  await choose('Base');
  await page.locator('#summary', {hasText: /^all on the cloud$/}).waitFor();
  assert.notEqual(base.text, personal.text);
  assert.equal(await page.locator('#compare').innerText(), 'Compare with the cloud alone');
  assert.deepEqual(await compared(), ['good', 'same text as unsplit ✓']);
});

test('the boundary ends where the tail begins', async () => {
  assert.equal(await page.getAttribute('#cut', 'aria-valuemax'), '2');
  assert.deepEqual(await page.locator('#place option').evaluateAll((all) => all.map(({value}) => value)), ['auto', '2', '1', '0']);
  assert.equal(await page.locator('#head-choice').isVisible(), false);
  assert.equal(await page.locator('#model').isVisible(), false);
  await page.focus('#cut');
  await page.keyboard.press('End');
  await page.waitForFunction(async () => (await (await fetch('split/status')).json()).cut === 2);
  await page.keyboard.press('ArrowLeft');
  await page.waitForFunction(async () => (await (await fetch('split/status')).json()).cut === 1);
  await page.locator('#cut[aria-disabled=false]').waitFor();
  assert.equal(await page.locator('#trouble').isVisible(), false);
});

test('the switch is there on a phone, for everybody', async () => {
  await page.setViewportSize({width: 390, height: 844});
  const [width, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(width <= shown, `${width} of ${shown}`);
  assert.equal(await page.locator('#whose').isVisible(), true);
  await page.focus('#personal');
  await page.keyboard.press('ArrowLeft');
  assert.equal(await page.isChecked('#base'), true);
  await page.screenshot({path: join(shots, 'tail-phone.png'), fullPage: true});
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await window.axe.run()).violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`));
  assert.deepEqual(found, []);
});
