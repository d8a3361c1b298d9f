// Pictures of the page, for people to look at: desktop, phone, light, dark, greyscale, a move in mid-answer,
// weights that come over a slow line, a chat, the base beside a tail, a lost cloud; and the tensor library's page.
// Environment: as of programs.mjs, and PAGE_SHOTS (the folder that gets them).

import {mkdirSync} from 'node:fs';
import {join} from 'node:path';

import {launch, slowed, start_pair, stop} from './programs.mjs';

const desktop = {viewport: {width: 1280, height: 800}}, phone = {viewport: {width: 390, height: 844}, isMobile: true};
const shots = process.env.PAGE_SHOTS;
mkdirSync(shots, {recursive: true});
const {cloud, edge} = await start_pair();
const browser = await launch();
const pace = (ms) => new Promise((done) => setTimeout(done, ms));

async function open(options, of = edge) {
  const page = await (await browser.newContext(options)).newPage();
  await page.goto(of.url);
  await page.locator('#stages li').first().waitFor();
  return page;
}
async function ask(page, tokens) {
  await page.evaluate((tokens) => {
    document.getElementById('max-tokens').value = tokens;
    document.getElementById('seed').value = 3;
    document.getElementById('ask').dispatchEvent(new Event('input'));
  }, tokens);
  await page.click('#generate');
}
const tokens_out = (page, count) => page.waitForFunction((count) => document.querySelectorAll('#text .answer span').length >= count, count);
const ended = (page) => page.locator('#parity', {hasText: /^(Seed|exact by design)/}).waitFor({timeout: 90000});
async function place(page, value) {
  await page.selectOption('#place', value);
  await page.waitForFunction((value) => document.getElementById('cut').ariaDisabled === 'false' && document.getElementById('place').value === value, value);
}
const picture = (page, name, fullPage = false) => page.screenshot({path: join(shots, `${name}.png`), fullPage});

// A move in mid-answer: the first words come from the cloud.
let page = await open(desktop);
await place(page, '5');  // so that its weights are here
await place(page, 'cloud');
const at_full_speed = slowed(cloud);
await ask(page, 96);
await tokens_out(page, 12);
await page.focus('#cut');
for (let i = 0; i < 4; i++) await page.keyboard.press('ArrowLeft');
await page.locator('#text .moved').waitFor();
await tokens_out(page, 40);
await picture(page, 'move');
at_full_speed();
await ended(page);
await page.mouse.move(0, 0);
await pace(400);
await picture(page, 'moved');
await place(page, '5');

for (const [name, options] of Object.entries({light: desktop, dark: {...desktop, colorScheme: 'dark'}, phone, 'phone-dark': {...phone, colorScheme: 'dark'}})) {
  page = await open(options);
  await ask(page, name.startsWith('phone') ? 24 : 64);
  await ended(page);
  await page.click('#compare');
  await page.locator('#parity', {hasText: /^(same text|Different)/}).waitFor();
  if (!name.startsWith('phone')) await page.locator('#text .answer span').nth(10).hover();
  await pace(400);
  await picture(page, name);
  await picture(page, `${name}-whole`, true);
  if (name === 'light' || name === 'dark') {
    await page.addStyleTag({content: ':root { filter: grayscale(1); }'}).catch(() => page.evaluate(() => { document.documentElement.style.filter = 'grayscale(1)'; }));
    await picture(page, name === 'light' ? 'greyscale' : 'greyscale-dark');
  }
}

const slow = await start_pair({line: ['--rate', '8Mbit', '--rtt', '30ms']});
page = await open({...desktop, colorScheme: 'dark'}, slow.edge);
await ask(page, 200);
await tokens_out(page, 40);
await page.locator('#here-work', {hasText: 's left'}).waitFor();
await picture(page, 'slow-line');
await ended(page);
await picture(page, 'slow-line-after');
for (const one of [slow.edge, slow.link, slow.cloud]) await stop(one, 'SIGKILL');

// The bundled model was taught no chat: with a template for it, it goes on with what was said.
const chat = await start_pair({cut: 6, more: ['--chat-template', "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"]});
for (const [name, options] of Object.entries({chat: desktop, 'chat-dark': {...desktop, colorScheme: 'dark'}, 'chat-phone': phone, 'chat-phone-dark': {...phone, colorScheme: 'dark'}})) {
  page = await open(options, chat.edge);
  await page.locator('body.chatting').waitFor();
  for (const words of ['Once upon a time there was a king who had *three* sons.', 'And then the youngest said:']) {
    await page.fill('#prompt', words);
    await ask(page, 48);
    await ended(page);
  }
  await pace(400);
  await picture(page, name);
}
for (const one of [chat.edge, chat.cloud]) await stop(one, 'SIGKILL');

const personal = await start_pair({tail: true});
page = await open(desktop, personal.edge);
await page.locator('#whose label', {hasText: 'Base'}).click();
await ask(page, 48);
await ended(page);
await pace(400);
await picture(page, 'base-beside-a-tail');
for (const one of [personal.edge, personal.cloud]) await stop(one, 'SIGKILL');

if ((await fetch(`${cloud.url}/app/ops/`)).status === 200) {  // where scripts/build.sh web has made it
  for (const [name, options] of Object.entries({ops: desktop, 'ops-dark': {...desktop, colorScheme: 'dark'}, 'ops-phone': phone})) {
    page = await (await browser.newContext(options)).newPage();
    await page.goto(`${cloud.url}/app/ops/`);
    await page.waitForFunction(() => document.body.dataset.state === 'done');
    await picture(page, name);
  }
}

page = await open(desktop);
await ask(page, 512);
await tokens_out(page, 20);
await stop(cloud, 'SIGKILL');
await page.locator('#cloud-work', {hasText: /no answer for [2-9] s/}).waitFor();
await picture(page, 'lost');
await browser.close();
await stop(edge, 'SIGKILL');
process.exit(0);
