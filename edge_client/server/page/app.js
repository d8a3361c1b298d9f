// The page's wiring: what is on it, what the edge says, what a person does.

import * as api from './api.js';
import * as figures from './figures.js';
import * as picture from './stages.js';

const $ = (id) => document.getElementById(id);
const plot = new figures.Plot($('plot'), $('plot-scale'), ['cloud', 'wire', 'edge'], (ms) => `${ms.toFixed(2)} ms`);
const bytes_plot = new figures.Plot($('bytes-plot'), $('bytes-scale'), ['up', 'down'], (n) => picture.bytes(Math.round(n)));
let state;        // the edge's last status
let running;      // AbortController of the answer that runs
let moving;       // while the cut does
let asked;        // the request of the last whole answer, and
let answered;     // its text
let receipt;      // and receipt

function trouble(message) {
  $('trouble').hidden = !message;
  $('trouble').textContent = message || '';
}

// --- where the model runs

function show_status() {
  const {server, device, model, layers, stages} = state;
  const away = server.reachable ? '' : ' (does not answer now)';
  if (layers === null) {
    $('summary').textContent = `waiting for the cloud at ${server.url}${away}`;
    return;
  }
  $('summary').textContent = `${model}: ${layers} blocks · cloud ${server.url}${away} · edge ${device.name}`;
  picture.draw($('stages'), stages);
  const slider = $('cut');
  slider.max = layers;
  picture.align(slider, layers);
  if (document.activeElement !== slider || slider.disabled) slider.value = present_cut();
  slider.disabled = Boolean(running || moving);
  show_cut();
  $('weights').textContent = `${picture.bytes(state.bytes_downloaded)} of weights downloaded, ${picture.bytes(state.bytes_from_cache)} from the cache`;
  show_stage_times();
}

// The slider's value: with everything on the cloud it stands at its end.
const present_cut = () => Number.isInteger(state.cut) ? state.cut : state.layers;

function show_cut() {
  const cut = Number($('cut').value), layers = state.layers;
  const words = state.cut === 'cloud' && cut === layers ? 'everything on the cloud'
    : cut === 0 ? 'everything on the edge'
    : cut === layers ? 'all blocks on the cloud, norm and head on the edge'
    : `blocks 0 to ${cut - 1} on the cloud, ${cut} to ${layers - 1} on the edge`;
  $('cut-value').textContent = `${cut} (${words})`;
  $('cut').setAttribute('aria-valuetext', words);
}

function show_stage_times() {
  $('stage-times').replaceChildren(...state.stages.map((stage) => {
    const row = document.createElement('tr');
    for (const text of [stage.name, picture.describe(stage), picture.bytes(stage.bytes),
      stage.ms === null ? '–' : stage.ms.toFixed(3)])
      row.insertCell().textContent = text;
    return row;
  }));
}

async function refresh() {
  state = await api.status();
  show_status();
}

// The picture follows downloads closely and rests otherwise.
async function watch() {
  let wait = 5000;
  try {
    await refresh();
    if (watch.failed) trouble('');
    watch.failed = false;
    if (state.state !== 'ready' || state.next_cut !== null) wait = 300;
  } catch (error) {
    watch.failed = true;
    trouble(error.message);
  }
  setTimeout(watch, wait);
}

async function move_cut() {
  const slider = $('cut');
  moving = true;
  slider.disabled = true;
  $('generate').disabled = true;
  const following = setInterval(() => refresh().catch(() => {}), 200);
  try {
    await api.setCut(Number(slider.value));
    trouble('');
  } catch (error) {
    trouble(error.message);
  } finally {
    clearInterval(following);
    moving = false;
    $('generate').disabled = false;
    await refresh().catch(() => {});
    slider.disabled = false;
    slider.value = present_cut();
    show_cut();
    slider.focus();
  }
}

// --- answers

function request() {
  const seed = $('seed').value === '' ? Math.floor(Math.random() * 2 ** 32) : Number($('seed').value);
  const made = {
    model: state.model, prompt: $('prompt').value, max_tokens: Number($('max-tokens').value),
    temperature: Number($('temperature').value), top_p: Number($('top-p').value), seed,
  };
  if ($('stop').value !== '') made.stop = $('stop').value;
  return made;
}

function busy(now) {
  $('generate').disabled = now;
  $('halt').disabled = !now;
  $('compare').disabled = now || !asked;
  $('cut').disabled = now;
}

async function generate(event) {
  event.preventDefault();
  if (running || !state) return;
  running = new AbortController();
  const ask = request();
  asked = receipt = undefined;
  busy(true);
  trouble('');
  $('parity').textContent = '';
  plot.clear();
  bytes_plot.clear();
  figures.show($('figures'));
  $('took').hidden = false;
  const prompt = document.createElement('span'), text = document.createTextNode('');
  prompt.className = 'asked';
  prompt.textContent = ask.prompt;
  $('text').replaceChildren(prompt, text);
  try {
    await api.stream(ask, (chunk) => {
      for (const choice of chunk.choices) text.appendData(choice.text);
      if (chunk.usage) {
        const now = chunk.usage.splitcompute;
        const spent = (what) => Math.max(0, now[what] - (receipt?.[what] ?? 0));
        if (chunk.choices.length > 0 && chunk.choices[0].text) {
          plot.add({cloud: spent('cloud_ms'), wire: spent('wire_ms'), edge: spent('edge_ms')});
          bytes_plot.add({up: spent('bytes_up'), down: spent('bytes_down')});
        }
        receipt = now;
        figures.show($('figures'), receipt, chunk.usage);
      }
    }, running.signal);
    asked = ask;
    answered = text.data;
    $('parity').textContent = `Seed ${ask.seed}.`;
  } catch (error) {
    if (error.name === 'AbortError') $('parity').textContent = 'Stopped.';
    else trouble(error.message);
  } finally {
    running = undefined;
    busy(false);
    refresh().catch(() => {});
  }
}

// The same request, unsplit, on the cloud: the first character that differs, if one does.
async function compare() {
  running = new AbortController();
  busy(true);
  $('parity').textContent = 'The cloud is asked the same…';
  try {
    const whole = (await api.unsplit(asked, running.signal)).choices[0].text;
    let same = 0;
    while (same < whole.length && whole[same] === answered[same]) same++;
    $('parity').textContent = whole === answered
      ? `Identical: the cloud alone gives the same ${answered.length} characters (seed ${asked.seed}).`
      : `Different from character ${same + 1}: split “${answered.slice(same, same + 30)}”, cloud alone “${whole.slice(same, same + 30)}”.`;
  } catch (error) {
    $('parity').textContent = '';
    if (error.name !== 'AbortError') trouble(error.message);
  } finally {
    running = undefined;
    busy(false);
  }
}

async function embed(event) {
  event.preventDefault();
  try {
    const [first, second] = await api.embeddings([$('first').value, $('second').value]);
    $('cosine').textContent = `cosine ${figures.cosine(first, second).toFixed(4)} over ${first.length} channels`;
    $('vectors').replaceChildren(figures.strip(first), figures.strip(second));
    trouble('');
  } catch (error) {
    trouble(error.message);
  }
}

$('ask').addEventListener('submit', generate);
$('halt').addEventListener('click', () => running?.abort());
$('compare').addEventListener('click', compare);
$('cut').addEventListener('input', show_cut);
// Each key pressed is a change: the last one counts.
let settling;
$('cut').addEventListener('change', () => {
  clearTimeout(settling);
  settling = setTimeout(move_cut, 400);
});
$('embed').addEventListener('submit', embed);
$('prompt').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) $('ask').requestSubmit();
});
watch();
