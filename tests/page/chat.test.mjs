// The page's chat in a real browser: of a model with a template, and of answers that this test makes up, hostile ones too.
// Environment: as of page.test.mjs.

import assert from 'node:assert/strict';
import {mkdirSync} from 'node:fs';
import {join} from 'node:path';
import {after, afterEach, before, beforeEach, test} from 'node:test';

import {axe, drawn, launch, new_page, start_pair, stop} from './programs.mjs';

const shots = process.env.PAGE_SHOTS;
let pair, browser, page, complaints;

before(async () => {
  mkdirSync(shots, {recursive: true});
  // A stopped cloud is waited for, and each token takes a trip: no answer is over before a slow browser has looked.
  pair = await start_pair({model: 'qwen2', cut: 1, line: ['--rtt', '20ms'], more: ['--stay']});
  browser = await launch();
});
after(async () => {
  await browser?.close();
  for (const one of pair ? [pair.edge, pair.link, pair.cloud] : []) await stop(one);
});
beforeEach(async () => {
  page = await new_page(browser, {viewport: {width: 1280, height: 800}});
  complaints = [];
  page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('dialog', (dialog) => { complaints.push(`asked ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(pair.edge.url)) complaints.push(`asked ${request.url()}`); });
  await page.goto(pair.edge.url);
  await page.locator('body.chatting').waitFor();
  await page.locator('#sampling').evaluate((fold) => { fold.open = true; });
  await page.fill('#max-tokens', '8');
  await page.fill('#seed', '7');
  await page.locator('#sampling').evaluate((fold) => { fold.open = false; });
});
afterEach(async () => {
  await page.context().close();
  assert.deepEqual(complaints, []);
});

async function ended() {
  await page.locator('#parity', {hasText: /^(Seed|exact by design|Stopped)/}).waitFor();
  await drawn(page);
}
async function say(words, keys = 'Enter') {
  await page.fill('#prompt', words);
  await page.press('#prompt', keys);
}
async function said(words) {
  await say(words);
  await ended();
}
const turns = () => page.locator('#text .turn').evaluateAll((nodes) => nodes.map((node) => [node.classList.contains('user') ? 'user' : 'answer', node.innerText.trim()]));
const last_request = () => page.waitForRequest((request) => request.url().endsWith('/v1/chat/completions')).then((request) => request.postDataJSON());

// Answers the next questions with this text, in pieces as tokens come.
async function answer_with(text, size = 3) {
  const pieces = Array.from({length: Math.ceil(text.length / size)}, (_, i) => text.slice(i * size, (i + 1) * size));
  const spent = (n) => ({prompt_tokens: 3, completion_tokens: n, splitcompute: {
    cut: 1, bytes_up: 10 * n, bytes_down: 0, cloud_ms: n, wire_ms: n, edge_ms: n, time_to_first_token_ms: 3, tokens_per_second: 9,
    cloud_layer_rows: n, cloud_percent: 50, losses: 0, moves: [], exact: true}});
  const events = pieces.map((content, i) => ({choices: [{delta: {content}, logprobs: {content: [{token: content, logprob: -1, top_logprobs: []}]}}], usage: spent(i + 1)}));
  await page.route('**/v1/chat/completions', (route) => route.fulfill({contentType: 'text/event-stream',
    body: `${[...events, {choices: [], usage: spent(pieces.length)}].map((event) => `data: ${JSON.stringify(event)}\n\n`).join('')}data: [DONE]\n\n`}));
  return pieces.length;
}
const elements = () => page.locator('#text .turn.answer').last().evaluate((node) => [...node.querySelectorAll('*')].map((one) => one.localName));

test('turns are kept and shown, and each is asked with those before', async () => {
  const first = last_request();
  await said('The king');
  assert.deepEqual((await first).messages, [{role: 'user', content: 'The king'}]);
  const [asked, answered] = await turns();
  assert.deepEqual(asked, ['user', 'The king']);
  assert.ok(answered[1].length > 0);
  assert.equal(await page.inputValue('#prompt'), '');
  assert.equal(await page.locator('#text .turn.answer span[data-index]').first().getAttribute('class'), 'e1');
  const count = Number(/: (\d+) tokens, /.exec(await page.getAttribute('#plot', 'aria-label'))[1]);
  assert.ok(count > 0 && count <= 8);  // a token that ends within a character comes with the next
  const second = last_request();
  await say('two', 'Shift+Enter');  // begins a line
  assert.equal((await turns()).length, 2);
  await page.keyboard.type('lines');
  await page.keyboard.press('Enter');
  const {messages} = await second;
  await ended();
  assert.deepEqual(messages.map(({role}) => role), ['user', 'assistant', 'user']);
  assert.equal(messages[2].content, 'two\nlines');
  const before_reload = await turns();
  assert.equal(before_reload.length, 4);
  await page.reload();
  await page.locator('#text .turn').nth(3).waitFor();
  assert.deepEqual(await turns(), before_reload);
  await page.click('#fresh');
  assert.deepEqual(await turns(), []);
  assert.equal(await page.locator('#again').isDisabled(), true);
});

test('the cloud alone says the same in a chat, and only then there is a check mark', async () => {
  await said('The king');
  assert.doesNotMatch(await page.locator('#verdict').innerText(), /✓/);
  const asked = page.waitForRequest(/\/split\/unsplit\/chat$/);
  await page.click('#compare');
  assert.equal((await asked).postDataJSON().messages.length, 1);
  await page.locator('#parity', {hasText: /^same text as unsplit ✓$/}).waitFor();
});

test('the last turn is edited, Esc leaves it as it was, and Again asks it again', async () => {
  await said('The king');
  await said('The queen');
  const all = await turns();
  await page.click('#edit');
  assert.equal(await page.inputValue('#prompt'), 'The queen');
  assert.equal(await page.locator('#text .fading').count(), 2);
  await page.keyboard.press('Escape');
  assert.equal(await page.inputValue('#prompt'), '');
  assert.equal(await page.locator('#text .fading').count(), 0);
  assert.deepEqual(await turns(), all);
  await page.click('#edit');
  const edited = last_request();
  await said('The prince');
  assert.deepEqual((await edited).messages.map(({content}) => content).filter((_, i) => i % 2 === 0), ['The king', 'The prince']);
  assert.deepEqual((await turns()).map(([, words]) => words).filter((_, i) => i % 2 === 0), ['The king', 'The prince']);
  const once = await turns();
  await page.click('#again');
  await ended();
  assert.deepEqual(await turns(), once);  // the seed is named
});

test('an answer is stopped and stays', async () => {
  await page.locator('#sampling').evaluate((fold) => { fold.open = true; });
  await page.fill('#max-tokens', '90');
  try {
    await say('The king');
    await page.waitForFunction(() => document.querySelectorAll('#text .turn.answer [data-index]').length > 2);
    pair.cloud.child.kill('SIGSTOP');
    await page.click('#halt');
    await page.locator('#parity', {hasText: 'Stopped'}).waitFor();
  } finally {
    pair.cloud.child.kill('SIGCONT');
  }
  assert.equal((await turns()).length, 2);
});

test('a chat that does not fit is told, and its words stay to be edited', async () => {
  await said('The king');
  await say('word '.repeat(300));
  await page.locator('#trouble:visible').waitFor();
  await page.locator('#generate:visible').waitFor();
  complaints = complaints.filter((line) => !/status of 400/.test(line));  // the browser's own note of it
  assert.equal((await turns()).length, 2);
  assert.ok((await page.inputValue('#prompt')).startsWith('word word'));
});

test('Continue goes on with a text as ever, and the chat is there again after it', async () => {
  await said('The king');
  const chat = await turns();
  await page.locator('#mode label', {hasText: 'Continue'}).click();
  assert.equal(await page.inputValue('#prompt'), 'Once upon a time');
  await page.locator('#sampling').evaluate((fold) => { fold.open = true; });
  await page.fill('#max-tokens', '5');
  await page.fill('#seed', '7');
  await page.click('#generate');
  await ended();
  assert.ok((await page.locator('#text').innerText()).startsWith('Once upon a time'));
  assert.ok(await page.locator('#text .answer span').count() > 0);
  await page.reload();
  await page.locator('#mode:visible').waitFor();
  assert.equal(await page.locator('#continue-mode').isChecked(), true);
  await page.locator('#mode label', {hasText: 'Chat'}).click();
  assert.deepEqual(await turns(), chat);
});

const markdown = `# A title

Some **bold**, *soft* and ~~gone~~ words, \`code & <b>\`, a &lt; b, 1 \\* 2, [a link](https://example.org/?a=1&b=2) and <post@example.org>.

- one
  1. inner **two**
- [x] done

> quoted
> twice

\`\`\`c
if (a < b && c) return "<script>";
\`\`\`

| a | b |
|---|---|
| 1 | *2* |

---
end`;

test('Markdown becomes elements, with each token marked where it stands', async (context) => {
  if (!(await (await fetch(`${pair.edge.url}/marked.js`)).text())) return context.skip('built without libjs-marked');
  const tokens = await answer_with(markdown);
  await said('Show me');
  const found = new Set(await elements());
  for (const name of ['p', 'strong', 'em', 'del', 'code', 'a', 'ul', 'ol', 'li', 'blockquote', 'pre', 'table', 'th', 'td', 'hr', 'span']) assert.ok(found.has(name), name);
  const answer = page.locator('#text .turn.answer');
  assert.equal(await answer.locator('pre').innerText(), 'if (a < b && c) return "<script>";');
  assert.equal(await answer.locator('.heading').innerText(), 'A title');
  assert.match(await answer.locator('p').nth(1).innerText(), /^Some bold, soft and gone words, code & <b>, a < b, 1 \* 2, a link and post@example\.org\.$/);
  assert.match(await answer.locator('li').last().innerText(), /^☑ done$/);
  const links = await answer.locator('a').evaluateAll((all) => all.map((a) => [a.getAttribute('href'), a.rel, a.target]));
  assert.deepEqual(links, [['https://example.org/?a=1&b=2', 'noopener noreferrer', '_blank'], ['mailto:post@example.org', 'noopener noreferrer', '_blank']]);
  // What is drawn of a token is part of it, and the last one is known as the last.
  const drawn = await answer.locator('[data-index]').evaluateAll((spans) => spans.map((span) => [Number(span.dataset.index), span.textContent]));
  const wrong = drawn.filter(([index, words]) => !markdown.slice(3 * index, 3 * index + 3).includes(words) && !'<&'.includes(words));
  assert.deepEqual(wrong, []);
  assert.deepEqual(drawn.map(([index]) => index), drawn.map(([index]) => index).toSorted((a, b) => a - b));
  await answer.locator('[data-index]', {hasText: /^bo|old/}).first().hover();
  assert.match(await page.locator('#candidates:visible').innerText(), new RegExp(`token \\d+ of ${tokens}`));
  await page.click('#copy');
  await page.evaluate(axe);
  assert.deepEqual(await page.evaluate(async () => (await window.axe.run()).violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`)), []);
  await page.screenshot({path: join(shots, 'chat.png')});
  await page.reload();
  await page.locator('#text .turn.answer strong').first().waitFor();
});

test('Markdown that is slow to read twice in a row is read no more', async (context) => {
  if (!(await (await fetch(`${pair.edge.url}/marked.js`)).text())) return context.skip('built without libjs-marked');
  const shown = await page.evaluate(async () => {
    const {Answer} = await import('./answer.js'), {lexer} = marked, now = performance.now.bind(performance);
    let late = 0;  // ms that the clock is ahead
    performance.now = () => now() + late;
    const drawn = (each) => {
      const turn = document.createElement('div'), answer = new Answer(document.createElement('div'), document.createElement('div'), () => {});
      answer.begin('', turn);
      answer.words = '**bold**';
      return each.map((slow) => {
        marked.lexer = (...all) => {
          late += slow ? 200 : 0;
          return lexer(...all);
        };
        answer.draw();
        return turn.querySelector('strong') ? 'bold' : 'plain';
      });
    };
    return [drawn([true, false, true, false]), drawn([true, true, false])];
  });
  assert.deepEqual(shown, [['bold', 'bold', 'bold', 'bold'], ['bold', 'bold', 'plain']]);
});

test('without the lexer an answer is shown as it stands, its tokens marked', async () => {
  await page.route('**/marked.js', (route) => route.fulfill({contentType: 'text/javascript', body: ''}));
  await page.reload();
  await page.locator('body.chatting').waitFor();
  await answer_with(markdown);
  await said('Show me');
  assert.equal(await page.locator('#text .turn.answer').evaluate((node) => node.textContent), markdown);
  assert.deepEqual([...new Set(await elements())], ['p', 'span']);
});

const hostile = {
  'scripts and handlers': '<script>alert(1)</script> <img src=x onerror=alert(2)> <svg onload=alert(3)>\n\n<iframe src="javascript:alert(4)"></iframe>\n\n<style>*{display:none}</style>',
  'links that are none': '[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x) [e](//example.org) [f](/split/status) [g](java\tscript:alert(1)) [h](&#106;avascript:alert(1)) <javascript:alert(1)>',
  'pictures': '![a](https://example.org/a.png) ![b](data:image/png;base64,AA) [![c](https://example.org/c.png)](https://example.org)\n\n[r]: https://example.org/r.png\n![r]',
  'quotes in a link': '[x](https://example.org/"onmouseover="alert(1)) [y](https://example.org \'"><script>alert(1)</script>\')',
  'deep quotes': '> '.repeat(600) + 'deep',
  'deep lists': Array.from({length: 200}, (_, i) => `${' '.repeat(2 * i)}- ${i}`).join('\n'),
  'deeper than any stack': `${'>'.repeat(1900)} x`,
  'marks without end': '*a_'.repeat(6000),
  'brackets without end': '['.repeat(1900),
  'long': 'word <b> '.repeat(12000),
};
const allowed = new Set(['p', 'span', 'strong', 'em', 'del', 'code', 'pre', 'a', 'ul', 'ol', 'li', 'blockquote', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'hr', 'br']);
for (const [name, words] of Object.entries(hostile)) {
  test(`hostile Markdown: ${name}`, async () => {
    await answer_with(words, Math.max(3, Math.ceil(words.length / 300)));
    await said('Show me');
    assert.deepEqual([...new Set(await elements())].filter((element) => !allowed.has(element)), []);
    const answer = page.locator('#text .turn.answer');
    const attributes = await answer.evaluate((node) => [...new Set([...node.querySelectorAll('*')].flatMap((one) => one.getAttributeNames()))]);
    assert.deepEqual(attributes.filter((one) => !['class', 'data-index', 'tabindex', 'href', 'rel', 'target', 'start'].includes(one)), []);
    for (const href of await answer.locator('a').evaluateAll((all) => all.map((a) => a.href))) assert.match(href, /^(https?:\/\/example\.org|mailto:)/);
    // Nothing of it is lost: its letters are there, in their order.
    const letters = (text) => text.replace(/[^a-z]/gi, '');
    if (!/\]\(|\]:/.test(words)) assert.equal(letters(await answer.evaluate((node) => node.textContent)), letters(words));
    await page.reload();
    await page.locator('#text .turn.answer').waitFor();
    assert.deepEqual([...new Set(await elements())].filter((element) => !allowed.has(element)), []);
  });
}

test('fits a phone', async () => {
  await answer_with(markdown);
  await said('Show me what you can do with a rather long question on a narrow screen');
  await page.setViewportSize({width: 390, height: 844});
  const [width, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(width <= shown, `${width} pixels wide on a screen of ${shown}`);
  const [paper, prompt] = await Promise.all(['#paper', '#prompt'].map((box) => page.locator(box).boundingBox()));
  assert.ok(prompt.y > paper.y + paper.height && prompt.width > 350, JSON.stringify([paper, prompt]));
  await page.screenshot({path: join(shots, 'chat-phone.png'), fullPage: true});
});
