// The page's wiring: what `source` says is drawn, and what a person does goes there.

import {Answer} from './answer.js';
import * as figures from './figures.js';
import {Scene, boundary, bytes, cut_of, describe, everything, millis, place_words, round_millis} from './machines.js';
import * as plan from './plan.js';
import {source} from './source.js';

const $ = (id) => document.getElementById(id);
const token_words = ({cloud, wire, edge, up, down, cut}, index) =>
  cloud + wire + edge === 0 ? `Token ${index + 1}: came with the token before, a right guess.` : `Token ${index + 1}: cloud ${millis(cloud)}, wire and waiting ${millis(wire)}, here ${millis(edge)}; ${bytes(up + down)} at ${cut === 'cloud' ? 'the cloud' : `cut ${cut}`}.`;
const plot = new figures.Plot($('plot'), $('plot-scale'), {parts: ['cloud', 'wire', 'edge'], say: millis, axis: round_millis, tell: token_words});
const bytes_plot = new figures.Plot($('bytes-plot'), $('bytes-scale'), {parts: ['up', 'down'], say: bytes,
  tell: ({up, down}, index) => `Token ${index + 1}: ${bytes(up)} up, ${bytes(down)} down.`});
const answer = new Answer($('text'), $('candidates'), (index) => plot.look(index));
const scene = new Scene($('stages'), (value) => move_to(value));
const seen = new plan.Seen();

let state;      // the edge's last status
let running;    // AbortController of the answer that runs
let wanted;     // the boundary that a move is on its way to
let lost_since; // when the cloud, or
let gone_since; // this computer's edge, was first not there
let asked;      // the request of the last whole answer, and
let receipt;    // its receipt, or of the one that runs
let last_arrived, told_before = 0;  // ms that the page itself measured of it

function trouble(message) {
  $('trouble').hidden = !message;
  $('trouble').textContent = message || '';
}

// --- where the model runs

const seconds_since = (time) => time === undefined ? undefined : Math.round((performance.now() - time) / 1000);

// Gives a select these [value, words], and leaves it alone where it has them.
function options(select, list, value) {
  const made = JSON.stringify(list);
  if (select.dataset.made !== made) {
    select.replaceChildren(...list.map(([key, words]) => new Option(words, key)));
    select.dataset.made = made;
  }
  if (document.activeElement !== select || select.disabled) select.value = value;
}

// An encoder writes nothing: what compares texts comes first, and what tells of words and of a head is not there.
function show_kind(encoder) {
  if (document.body.classList.contains('encoder') === encoder) return;
  document.body.classList.toggle('encoder', encoder);
  for (const id of ['writing', 'took', 'bytes', 'head-choice']) $(id).hidden = encoder;
  for (const heading of document.querySelectorAll('.written')) heading.hidden = encoder;
  (encoder ? $('stages') : document.querySelector('.two')).after($('embeddings'));
  $('wire-bytes').textContent = '–';
  $('wire-ms').textContent = encoder ? 'a trip' : 'a token';
}

function show_status() {
  const {device, model, layers} = state;
  if (layers === null) {
    $('summary').textContent = `Waiting for the cloud at ${state.server.url}${lost_since === undefined ? '' : `, ${seconds_since(lost_since)} s`}`;
    return;
  }
  show_kind(state.kind === 'encoder');
  scene.draw(state, {lost: seconds_since(lost_since), wanted});
  const words = place_words(state, wanted ?? boundary(state));
  $('summary').textContent = wanted === undefined ? words : `moving: ${words}`;
  $('cut-value').textContent = `Now: ${place_words(state, boundary(state))}, on ${device.name === 'none' ? 'the cloud' : device.name}.`;
  const exact = receipt?.exact ?? state.exact;
  $('exact').hidden = exact === null || exact === undefined;
  $('exact').textContent = exact ? 'exact' : 'near';
  $('exact').className = exact ? 'badge' : 'badge near';
  $('exact').title = exact ? 'The text does not depend on the cut, bit for bit' : 'This machine and the cloud differ in last bits: a move may change a text at near-ties';
  options($('model'), (state.models ?? [model]).map((id) => [id, id === model ? `${id} · ${layers} blocks` : id]), model);
  $('model').disabled = (state.models ?? []).length < 2;
  const now = boundary(state), chooses = state.goal !== undefined && state.goal !== null;
  options($('place'), [...(chooses ? [['auto', 'Choose for me']] : []), ['cloud', 'All on the cloud'],
    ...Array.from({length: layers}, (_, i) => layers - i).map((cut) => [String(cut), `Cut ${cut}`]), ['0', 'All here']],
    String(cut_of(state, now)));
  $('placement').hidden = state.formats === undefined;
  $('head').value = state.head;
  if (state.formats) options($('format'), state.formats.map((name) => [name, name]), state.format);
  if (state.devices) options($('device'), state.devices.map((name) => [name, name]), state.device_asked);
  $('weights').textContent = `${bytes(state.bytes_downloaded)} of weights downloaded, ${bytes(state.bytes_from_cache)} from this disk.`;
  plan.draw($('plan'), $('plan-why'), state, seen, move_to);
  show_stage_times();
}

function show_stage_times() {
  $('stage-times').replaceChildren(...state.stages.map((stage) => {
    const row = document.createElement('tr');
    for (const text of [stage.name, describe(stage), bytes(stage.bytes), stage.ms === null ? '–' : stage.ms.toFixed(3)])
      row.insertCell().textContent = text;
    return row;
  }));
}

async function refresh() {
  state = await source.status();
  if (state.server.reachable) lost_since = undefined;
  else lost_since ??= performance.now();
  show_status();
}

// The picture follows answers, downloads and losses closely and rests otherwise.
async function watch() {
  let wait = 3000;
  try {
    await refresh();
    if (gone_since !== undefined) trouble('');
    gone_since = undefined;
    if (!running) busy(false);
    if (lost_since !== undefined || running) wait = 1000;
    if (state.state !== 'ready' || state.next_cut !== null || wanted !== undefined) wait = 300;
  } catch (error) {
    gone_since ??= performance.now();
    if (!running) busy(false);
    trouble(`${error.message} (${seconds_since(gone_since)} s)`);
    wait = 1000;
  }
  setTimeout(watch, wait);
}

// Answers begin where `wish` says from now on.
async function move(wish) {
  scene.set_disabled(true);
  for (const id of ['place', 'model', 'head', 'format', 'device']) $(id).disabled = true;
  const following = setInterval(() => refresh().catch(() => {}), 250);
  try {
    state = await source.move(wish);
    trouble('');
  } catch (error) {
    trouble(error.message);
  } finally {
    clearInterval(following);
    wanted = undefined;
    scene.set_disabled(false);
    for (const id of ['place', 'head', 'format', 'device']) $(id).disabled = false;
    await refresh().catch(() => {});
  }
}

// A running answer moves too where it can; where it cannot, it ends where it began.
async function move_to(value) {
  if (wanted !== undefined) return;
  wanted = value;
  if (state) show_status();
  const cut = cut_of(state, value);
  if (running) {
    try {
      scene.set_disabled(true);
      await source.move({cut, running: true});
      wanted = undefined;
      scene.set_disabled(false);
      await refresh().catch(() => {});
      return;
    } catch (error) {
      if (error.code !== 'not_supported' && error.field !== 'running') {
        wanted = undefined;
        scene.set_disabled(false);
        trouble(error.message);
        return;
      }
    }
    await move({cut});
    if ($('trouble').hidden && running) trouble('This answer ends where it began; the next one begins there.');
    return;
  }
  await move({cut});
}

// --- answers

function request() {
  const seed = $('seed').value === '' ? Math.floor(Math.random() * 2 ** 32) : Number($('seed').value);
  const made = {
    model: state.model, prompt: $('prompt').value, max_tokens: Number($('max-tokens').value),
    temperature: Number($('temperature').value), top_p: Number($('top-p').value), seed, logprobs: 5,
  };
  if ($('stop').value !== '') made.stop = $('stop').value;
  return made;
}

function say_sampling() {
  const seed = $('seed').value === '' ? 'a new seed each time' : `seed ${$('seed').value}`;
  const stop = $('stop').value === '' ? '' : ` · stop at “${$('stop').value}”`;
  $('sampling-words').textContent = `${$('max-tokens').value} tokens · temperature ${$('temperature').value} · top-p ${$('top-p').value} · ${seed}${stop}`;
}

function busy(now) {
  $('generate').hidden = now;
  $('halt').hidden = !now;
  $('generate').disabled = now || gone_since !== undefined || !state?.layers;
  $('again').disabled = now || !asked;
  $('copy').disabled = !$('text').querySelector('.answer')?.textContent;
  $('compare').disabled = now || !asked;
}

const in_words = (cut) => cut === 'cloud' ? 'cloud' : cut === 0 ? 'here' : `cut ${cut}`;

// The five likeliest tokens with their probabilities, and the one that was drawn, if it is none of them.
function candidates(logprobs) {
  const top = Object.entries(logprobs?.top_logprobs?.[0] ?? {}).sort((a, b) => b[1] - a[1]).slice(0, 5);
  const drawn = logprobs?.tokens?.[0];
  if (drawn !== undefined && !top.some(([text]) => text === drawn)) top.push([drawn, logprobs.token_logprobs[0]]);
  return top.map(([text, logprob]) => [text, Math.exp(logprob)]);
}

// One event of the stream: its token, and what that took since the last one.
function take(chunk) {
  const choice = chunk.choices[0], usage = chunk.usage, now = usage?.splitcompute;
  if (!choice?.text || !now) {
    for (const one of chunk.choices) if (one.text) answer.answer.append(one.text);
    if (now) receipt = now;
    return usage;
  }
  const spent = (what) => Math.max(0, now[what] - (receipt?.[what] ?? 0));
  let [cloud, wire, edge] = ['cloud_ms', 'wire_ms', 'edge_ms'].map(spent);
  const [up, down] = ['bytes_up', 'bytes_down'].map(spent);
  const last = now.moves.at(-1), moves = receipt?.moves.length ?? 0;
  const cut = last ? last.to : now.cut;
  const moved = now.moves.length > moves ? last : undefined;
  const first = answer.tokens.length === 0;
  // What the cloud streams is told in full only at its end: until then its time is that between two tokens.
  const arrived = performance.now();
  if (cut === 'cloud' && cloud + wire + edge === 0) {
    cloud = first ? now.time_to_first_token_ms : arrived - last_arrived;
    told_before += cloud;
  } else {
    const known = Math.min(told_before, cloud);
    told_before -= known;
    cloud -= known;
  }
  last_arrived = arrived;
  const ms = cloud + wire + edge;
  answer.add({text: choice.text, ms, cut, up, down, moved: moved && in_words(moved.to),
    candidates: candidates(choice.logprobs)});
  const told = {cloud, wire, edge, up, down, cut, moved: moved && `${in_words(moved.to)}: ${plan.why(moved.why)}`};
  plot.add(told);
  bytes_plot.add(told);
  scene.pulse(up, down, wire);
  if (!moved) seen.add(cut, first ? now.time_to_first_token_ms : ms, first);
  receipt = now;
  return usage;
}

function show_verdict(usage, ended) {
  figures.show_verdict($('figures'), figures.verdict(receipt, usage, state.layers));
  $('receipt').textContent = JSON.stringify({model: state.model, ...usage}, null, 2);
  if (ended && receipt.exact === true) judge('good', 'same text as unsplit ✓');
}
function judge(kind, words) {
  $('parity').className = kind;
  $('parity').textContent = words;
}

async function generate(event) {
  event?.preventDefault();
  if (running || !state?.layers) return;
  running = new AbortController();
  const ask = request();
  asked = receipt = undefined;
  told_before = 0;
  let usage;
  $('prompt').value = ask.prompt;
  keep();
  busy(true);
  trouble('');
  judge('', '');
  $('compare').hidden = true;
  plot.clear();
  bytes_plot.clear();
  answer.begin(ask.prompt);
  $('figures').textContent = 'Waiting for the first word …';
  try {
    await source.generate(ask, {signal: running.signal, on_event: (chunk) => {
      usage = take(chunk) ?? usage;
      if (usage) show_verdict(usage, false);
    }});
    asked = ask;
    judge('', `Seed ${ask.seed}.`);
  } catch (error) {
    if (error.name === 'AbortError') judge('', `Stopped after ${answer.tokens.length} tokens; seed ${ask.seed} gives them again.`);
    else {
      trouble(error.message);
      judge('bad', answer.tokens.length > 0 ? `${answer.tokens.length} tokens written; seed ${ask.seed} gives the same again.` : '');
    }
  } finally {
    if (!usage) $('figures').textContent = '';
    else show_verdict(usage, Boolean(asked));
    $('compare').hidden = !asked || receipt?.exact === true;
    $('parity').title = `Seed ${ask.seed}`;
    running = undefined;
    busy(false);
    refresh().catch(() => {});
  }
}

// The same request, unsplit, on the cloud: the first character that differs, if one does.
async function compare() {
  running = new AbortController();
  busy(true);
  judge('', 'The cloud is asked the same …');
  try {
    const {text: whole} = await source.generate(asked, {signal: running.signal, alone: true});
    const answered = answer.words;
    let same = 0;
    while (same < whole.length && whole[same] === answered[same]) same++;
    if (whole === answered) judge('good', `same text as unsplit ✓ (${answered.length} characters, seed ${asked.seed})`);
    else judge('bad', `Different from character ${same + 1}: split “${answered.slice(same, same + 30)}”, cloud alone “${whole.slice(same, same + 30)}”.`);
    $('compare').hidden = whole === answered;
  } catch (error) {
    judge('', '');
    if (error.name !== 'AbortError') trouble(error.message);
  } finally {
    running = undefined;
    busy(false);
  }
}

async function embed(event) {
  event.preventDefault();
  try {
    const {vectors: [first, second], usage} = await source.embed([$('first').value, $('second').value]);
    const took = usage.splitcompute;
    const cosine = figures.cosine(first, second);
    $('cosine').textContent = `${figures.likeness(cosine)}: cosine ${cosine.toFixed(4)} over ${first.length} channels`;
    $('vectors').replaceChildren(figures.strip(first), figures.strip(second));
    figures.show_verdict($('embed-took'), figures.embeddings_verdict(usage));
    if (state.kind === 'encoder') {
      $('receipt').textContent = JSON.stringify({model: state.model, ...usage}, null, 2);
      scene.pulse(took.bytes_up, took.bytes_down, took.wire_ms);
    }
    trouble('');
  } catch (error) {
    trouble(error.message);
  }
}

// The prompt and the sampling survive a reload.
const kKept = ['prompt', 'max-tokens', 'temperature', 'top-p', 'seed', 'stop'];
function keep() {
  try {
    localStorage.setItem('asked', JSON.stringify(Object.fromEntries(kKept.map((id) => [id, $(id).value]))));
  } catch { /* a browser that keeps nothing */ }
}
function recall() {
  try {
    for (const [id, value] of Object.entries(JSON.parse(localStorage.getItem('asked')) ?? {})) if (kKept.includes(id)) $(id).value = value;
  } catch { /* nothing was kept */ }
  say_sampling();
}

$('ask').addEventListener('submit', generate);
$('ask').addEventListener('input', () => { keep(); say_sampling(); });
$('halt').addEventListener('click', () => running?.abort());
$('again').addEventListener('click', () => generate());
$('copy').addEventListener('click', async () => {
  await navigator.clipboard?.writeText($('text').querySelector('.answer').textContent).catch(() => {});
  $('copy').textContent = 'Copied';
  setTimeout(() => { $('copy').textContent = 'Copy'; }, 1500);
});
$('compare').addEventListener('click', compare);
$('place').addEventListener('change', () => {
  const value = $('place').value;
  if (value === 'auto') move({cut: 'auto'});
  else move_to(value === 'cloud' ? everything(state) : Number(value));
});
for (const id of ['model', 'head', 'format', 'device']) {
  $(id).addEventListener('change', () => {
    if (id === 'model') seen.forget();
    move({[id]: $(id).value});
  });
}
$('embed').addEventListener('submit', embed);
$('prompt').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey || !event.shiftKey) && !event.isComposing) {
    event.preventDefault();
    $('ask').requestSubmit();
  }
});
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  if (!$('candidates').hidden) answer.hide();
  running?.abort();
});
recall();
watch();
