// The edge that answers this page: one in this tab, over the server that the page came from. Where the browser lacks what
// that needs, the server answers alone.

import {files, modules} from './modules.js';
import {missing, roundsOnce} from './start.js';
import {startEdge} from './tab.js';

const server = new URL('..', location.href).href.replace(/\/$/, '');
const wished = new URLSearchParams(location.hash.slice(1));  // #model=ID, #goal=fast; form.js reads #prompt=WORDS
let key = '';  // kept in memory alone
const kStays = /--cut auto: (.*texts stay on the cloud)/;  // why no layer comes here

export const gone = 'The edge in this tab has ended. Reload the page.';

function notice(words) {
  const line = document.createElement('p');
  line.className = 'notice';
  line.textContent = words;
  document.querySelector('main').before(line);
}

// The server's own answer; asks for a key until it is one.
async function of_server(path, init = {}) {
  const response = await fetch(`${server}/${path}`, {...init, cache: 'no-store', headers: {...init.headers, ...(key ? {Authorization: `Bearer ${key}`} : {})}});
  if (response.status !== 401) return response;
  key = await asked_key(key !== '');
  return of_server(path, init);
}
function asked_key(wrong) {
  const form = document.createElement('form'), label = document.createElement('label');
  const input = document.createElement('input'), button = document.createElement('button');
  form.id = 'key-form';
  form.className = 'notice';
  input.type = 'password';
  input.required = true;
  button.textContent = 'Use it';
  label.append(wrong ? 'This server does not know that key. Its key: ' : 'This server asks for a key: ', input);
  form.append(label, ' ', button);
  document.querySelector('main').before(form);
  input.focus();
  return new Promise((resolve) => form.addEventListener('submit', (event) => {
    event.preventDefault();
    form.remove();
    resolve(input.value);
  }));
}

const json = (value, status = 200) => new Response(JSON.stringify(value), {status, headers: {'Content-Type': 'application/json'}});

// The status that an edge would give of a model that runs on the cloud alone.
async function status_alone() {
  const models = (await (await of_server('v1/models')).json()).data.map(({id}) => id), model = models[0];
  const about = await (await of_server(`v1/models/${model}`)).json();
  const bytes = ({blobs, format}) => blobs.filter((blob) => blob.format === format).reduce((sum, blob) => sum + blob.bytes, 0);
  const stages = about.stages.map((stage) => ({name: stage.name, where: 'cloud', runs: 'cloud', landing: {percent: 0, seconds_left: null},
    device: 'cloud', is_gpu: false, state: 'ready', ms: null, bytes: bytes(stage), bytes_done: 0}));
  return {state: 'ready', begins: true, server: {url: server, reachable: true, lost_s: null}, model, models, stages,
    layers: stages.filter(({name}) => name.startsWith('block.')).length, kind: stages.some(({name}) => name === 'pool') ? 'encoder' : 'decoder',
    cut: 'cloud', next_cut: null, auto: false, head: 'edge', goal: 'fast', plan: null, exact: null, answers: [], last: null,
    device: {name: 'none', kind: 'none', is_gpu: false}, bytes_downloaded: 0, bytes_from_cache: 0};
}
const kAlone = {
  'split/status': async () => json(await status_alone()),
  'split/cache': async () => json({bytes: 0, files: 0}),
  'api/tags': async () => json({models: [{size: (await status_alone()).stages.reduce((sum, {bytes}) => sum + bytes, 0)}]}),
  'split/unsplit': (init) => of_server('v1/completions', init),
  'split/unsplit/chat': (init) => of_server('v1/chat/completions', init),
};
const alone = (path, init) => path.startsWith('v1/') || path === 'props' ? of_server(path, init)
  : kAlone[path]?.(init) ?? json({error: {message: 'Nothing can run in this browser: the cloud runs all of it.', code: 'not_supported'}}, 501);

// So that a reload without the server shows this page.
async function keepPage() {
  if (!isSecureContext || !navigator.serviceWorker) return;
  await navigator.serviceWorker.register('sw.js');
  const {active} = await navigator.serviceWorker.ready, addresses = (names) => names.map((name) => new URL(name, location.href).href);
  const [plain, relaxed] = [true, false].map((is) => addresses(modules).find((name) => is === name.includes('edge-plain')));
  const unused = ['index.html', 'sw.js', ...(navigator.gpu ? [] : ['gpu.js', 'kernels.js'])];
  active.postMessage({keep: [...addresses(['.', 'modules.js', ...files.filter((name) => !unused.includes(name))]),
    await roundsOnce() ? relaxed : plain]});
}

async function start() {
  const lacks = missing();
  if (lacks !== null) {
    notice(`This browser lacks ${lacks}: the cloud runs all of the model.`);
    return alone;
  }
  await of_server('v1/models').catch(() => {});  // asks for a key where one is needed
  if (!isSecureContext) notice('This address is not https: the disk cache is off, and each visit downloads the weights again.');
  const edge = startEdge({
    on: ({type, store, message, line}) => {
      if (type === 'log') console.debug(line);
      if (type === 'log' && kStays.test(line)) notice(kStays.exec(line)[1]);
      if (type === 'full') notice('The browser\'s disk is full: what does not fit stays in memory, and the next visit downloads it again.');
      if (type === 'opened') keepPage().catch(() => {});  // a reload then needs the server
      if (type === 'opened' && store === 'memory' && isSecureContext) notice('This browser gives no disk here, perhaps in a private window: each visit downloads the weights again.');
      if (type === 'failed') notice(`The edge in this tab has ended: ${message}. Reload the page.`);
    },
    modules,
    options: {server, cut: 'auto', goal: wished.get('goal') ?? 'offload', ...(key ? {'api-key': key} : {}),
      ...(wished.has('model') ? {model: wished.get('model')} : {})},
  });
  return (path, init) => edge.fetch(`/${path}`, init);
}
const answers = start();

export const ask = async (path, init) => (await answers)(path, init);
