// A cloud, an edge with its page, and a browser, for the page's tests and its pictures.
// Environment: CLOUD_SERVER, EDGE_CLIENT, SPLIT_LINK and CHROMIUM (programs), PAGE_MODULES (where playwright-core and axe-core are).

import {spawn} from 'node:child_process';
import {mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';

const modules = createRequire(join(process.env.PAGE_MODULES, 'x.js'));
export const axe = readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');
const cache = mkdtempSync(join(tmpdir(), 'split-page-'));
process.on('exit', () => rmSync(cache, {recursive: true, force: true}));

// Starts a program; resolves to {child, url} when it says where it listens, or what `until` looks for.
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
export function stop({child}, signal = 'SIGTERM') {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.removeAllListeners('exit').on('exit', resolve);
    child.kill(signal);
  });
}
export const start_cloud = (port = 0, more = []) => start(process.env.CLOUD_SERVER, ['--port', String(port), '--device', 'cpu', '--threads', '1', ...more]);

// A line of split_link's flags to a program.
export const start_link = ({url}, line) => start(process.env.SPLIT_LINK, ['--to', new URL(url).host, ...line]);

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Nanoseconds of processor time that a thread has taken; 0 of one that ended behind the listing.
function taken_by(pid, thread) {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]);
  } catch {
    return 0;
  }
}
const taken = ({pid}) => readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => sum + taken_by(pid, thread), 0);

// Lets a program run in pieces of 5 ms of its processor time until the function that this returns is called: an answer is not
// over before a slow browser has done something, and goes on where the machine is busy with others.
export function slowed({child}) {
  let slow = true;
  (async () => {
    while (slow) {
      child.kill('SIGSTOP');
      await pause(75);
      if (!slow) return;  // the program may have ended since
      const before = taken(child), latest = performance.now() + 100;
      child.kill('SIGCONT');
      do await pause(1); while (slow && taken(child) < before + 5e6 && performance.now() < latest);
    }
  })();
  return () => {
    slow = false;
    child.kill('SIGCONT');
  };
}

// Trains a tail of a cloud's model, its last block, on some sentences; resolves to the file.
function train_tail({url}) {
  const text = join(cache, 'text.txt'), out = join(cache, 'tail.safetensors');
  writeFileSync(text, Array.from({length: 260}, (_, i) => `The ${i % 7} men went on to the house of ${i % 11}. `).join(''));
  const child = spawn(process.env.EDGE_CLIENT, ['train', '--server', url, '--text', text, '--out', out, '--lora', '4', '--blocks', '1',
    '--steps', '30', '--device', 'cpu', '--quiet'], {env: {...process.env, XDG_CACHE_HOME: cache}, stdio: 'ignore'});
  return new Promise((resolve, reject) => child.on('exit', (code) => code === 0 ? resolve(out) : reject(new Error(`train ended with ${code}`))));
}

// A pair of the bundled model, or of one of tests/golden/models, cut at block `cut`; behind a `line` of split_link's flags, with
// a cache of its own; with a `tail` of the model's; with a button that `stops` the cloud.
export async function start_pair({model, cut, line, tail, stops, more = []} = {}) {
  const cloud = await start_cloud(0, model ? ['--model', fileURLToPath(new URL(`../golden/models/${model}`, import.meta.url))] : []);
  const link = line && await start_link(cloud, line);
  if (tail) more = [...more, '--tail', await train_tail(cloud)];
  if (stops) more = [...more, '--stops-cloud', String(cloud.child.pid)];
  const edge = await start(process.env.EDGE_CLIENT,
    ['--server', (link ?? cloud).url, '--serve', '127.0.0.1:0', '--device', 'cpu', '--threads', '1', '--retry-for', '60',
      ...(line || stops ? ['--cache', join(cache, `line-${++lines}`)] : []), ...(cut === undefined ? [] : ['--cut', String(cut)]), ...more], /(^| )ready$/m);
  return {cloud, link, edge};
}
let lines = 0;

export const launch = () => modules('playwright-core').chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-component-update',
    '--disable-sync', '--no-first-run'],
});

// A browser that has never been anywhere, whose waits are long enough for a machine that is busy with others.
export async function new_context(browser, options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(120000);
  return context;
}
// Waits for what the page draws in its next frame: plots and Markdown.
export const drawn = (page) => page.evaluate(() => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); }));
export const new_page = async (browser, options) => (await new_context(browser, options)).newPage();
