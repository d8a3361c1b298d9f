// The page's wiring: what `source` says is drawn, and what a person does goes there.

import {Answer} from './answer.js';
import {Chat} from './chat.js';
import * as encoder from './encoder.js';
import * as figures from './figures.js';
import * as form from './form.js';
import {keep, kept} from './kept.js';
import {Scene, boundary, boundary_now, bytes, cut_of, draw_times, everything, highest, millis, place_words, remember_times, round_millis} from './machines.js';
import * as plan from './plan.js';
import {lacking, shown} from './shown.js';
import {source} from './source.js';
import {Tally} from './tally.js';
import {tell_of, trouble, trouble_is_over} from './trouble.js';

const $ = (id) => document.getElementById(id);
const plot = new figures.Plot($('plot'), $('plot-scale'), {parts: ['cloud', 'both', 'wire', 'edge'], say: millis, axis: round_millis, tell: figures.token_words});
const bytes_plot = new figures.Plot($('bytes-plot'), $('bytes-scale'), {parts: ['up', 'down'], say: bytes,
  tell: ({up, down}, index) => `Token ${index + 1}: ${bytes(up)} up, ${bytes(down)} down.`});
const answer = new Answer($('text'), $('candidates'), (index) => plot.look(index));
const chat = new Chat($('text'));
const scene = new Scene($('stages'), (value) => move_to(value));
const seen = new plan.Seen();

let state;        // the edge's last status
let running;      // AbortController of the running answer
let wanted;       // the target of a pending move
let moving;       // a change that a person asked for is pending
let moved_words;  // why the cut moved by itself
let chosen;       // a person chose a place since the answer on the page began
let lost_since;   // when the cloud was first missing
let gone_since;   // when this computer's edge was first missing
let asked;        // the request of the last answer
let receipt;      // the receipt of that, or of the running answer
let kept_here;    // {bytes} of weights on this computer's disk
let about;        // the model, its bytes and whether it has a template
let chatting = false;  // the page chats, with the model's template

// Shows an error; a lost cloud's ends when the cloud answers again.
const tell = (error) => tell_of(error, state?.server.url);

// --- where the model runs

const seconds_since = (time) => time === undefined ? undefined : Math.round((performance.now() - time) / 1000);

function show_status() {
  const {device, model, layers} = state;
  show_data();
  $('place').hidden = layers === null;
  if (layers === null) {
    $('summary').textContent = lost_since === undefined && state.begins ? `Texts begin on the cloud at ${state.server.url}; the layers to load here are not known yet.`
      : `Waiting for the cloud at ${state.server.url}${lost_since === undefined ? '' : `, ${seconds_since(lost_since)} s`}`;
    return;
  }
  encoder.show_kind(state.kind === 'encoder', state.ranks);
  const picture = shown(state, {asked, receipt, running, chosen, base: $('base').checked}), {drawn, next} = picture;
  scene.draw(drawn, {lost: seconds_since(lost_since), waited: Boolean(running), needed: next.stages.some(({runs}) => runs === 'cloud'), wanted,
    receipt: picture.receipt});
  const now = boundary(next), words = place_words(drawn, wanted ?? boundary_now(drawn));
  $('summary').textContent = wanted !== undefined ? `moving: ${words}` : picture.is_next ? `next: ${words}`
    : picture.differs ? `${words} · next: ${place_words(next, boundary_now(next))}` : words;
  const more = lost_since === undefined ? 0 : lacking(picture);
  $('cut-value').textContent = more > 0 ? `${bytes(more)} more here, and ${running ? 'it' : 'texts'} would go on without the cloud.`
    : moved_words ?? (next.base ? 'The base is the cloud\'s alone.' : state.auto ? 'Chosen for you, until you drag the boundary.'
    : 'Drag the boundary, or use its arrow keys.');
  $('stop-cloud').hidden = !state.server.stoppable || lost_since !== undefined;
  const exact = receipt?.exact ?? state.exact;
  $('exact').hidden = exact === null || exact === undefined;
  $('exact').textContent = exact ? 'exact' : 'near';
  $('exact').className = exact ? 'badge' : 'badge near';
  $('exact').title = exact ? 'The text does not depend on the cut, bit for bit' : 'This machine and the cloud differ in last bits: a move may change a text at near-ties';
  const models = (!state.tail && state.models) || [model], size = `${layers} blocks${about?.model === model ? `, ${bytes(about.bytes)}` : ''}`;
  form.offer($('model'), models.map((id) => [id, id === model ? `${id} · ${size}` : id]), model);
  $('model').hidden = models.length < 2;
  $('model-name').hidden = models.length > 1;
  $('model-name').textContent = `${model} · ${size}`;
  const may_choose = state.kind !== 'encoder';
  const most = Math.min(layers, highest(state));
  form.offer($('place'), next.base ? [['cloud', 'All on the cloud']] : [...(may_choose ? [['auto', 'Choose for me']] : []), ...(state.tail ? [] : [['cloud', 'All on the cloud']]),
    ...Array.from({length: most}, (_, i) => most - i).map((cut) => [String(cut), `Cut ${cut}`]), ['0', 'All here']],
    may_choose && next.auto ? 'auto' : String(cut_of(state, now)));
  $('placement').hidden = state.formats === undefined;
  $('head-choice').hidden = state.kind === 'encoder' || Boolean(state.tail);
  $('whose').hidden = !state.tail;
  $('head').value = state.head;
  if (state.formats) form.offer($('format'), state.formats.map((name) => [name, name]), state.format);
  if (state.devices) form.offer($('device'), state.devices.map((name) => [name, name]), state.device_asked);
  show_weights();
  plan.draw($('plan'), $('plan-why'), picture, seen, move_to);
  draw_times($('stage-times'), state.stages);
}

// For programs that look at the page: where the next token comes from, and how exact that is.
function show_data() {
  const data = document.body.dataset, runs = (where) => state.stages.some((stage) => stage.runs === where);
  data.state = gone_since !== undefined ? 'error' : state.stages.length > 0 ? runs('here') ? runs('cloud') ? 'split' : 'local' : 'cloud'
    : state.begins ? 'cloud' : 'loading';
  data.exact = state.exact === null ? 'unknown' : state.exact ? 'bits' : 'near';
  if (lost_since === undefined) delete data.waiting;
  else data.waiting = seconds_since(lost_since);
}

function show_weights() {
  const keeps = kept_here && `, and its disk keeps ${kept_here.bytes > 0 ? bytes(kept_here.bytes) : 'none'}`;
  $('weights').textContent = `This computer downloaded ${bytes(state.bytes_downloaded)} of weights and read ${bytes(state.bytes_from_cache)} from its disk${keeps ?? ''}.`;
  $('forget').hidden = !(kept_here?.bytes > 0);
}
async function look_at_disk(look = source.kept) {
  kept_here = await look();
  show_weights();
}

const place_name = (cut) => cut === 'cloud' ? 'all on the cloud' : cut === 0 ? 'all here' : `at cut ${cut}`;

function take_status(now) {
  const before = state;
  state = now;
  remember_times(state);
  const landed = before?.bytes_downloaded !== now.bytes_downloaded;
  if (state.server.reachable) {
    if (!running && trouble_is_over(lost_since !== undefined)) trouble('');
    lost_since = undefined;
  } else {
    lost_since ??= performance.now();
  }
  // The place of later answers changed by itself.
  if (before?.layers && state.layers && before.model === state.model && before.cut !== state.cut && !moving) {
    const pick = state.plan?.pick;
    const reason = lost_since !== undefined ? 'cloud_lost' : !state.auto ? 'asked_elsewhere' : 'landed';
    const words = reason === 'landed' && pick?.cut === state.cut && pick.reason || plan.why(reason);
    moved_words = `${asked ? 'Next' : 'Now'} ${place_name(state.cut)}: ${words}.`;
  }
  show_status();
  // A file is the disk's once its last byte is there, which may be later than told.
  if (now.layers && (landed || (kept_here?.bytes ?? 0) < now.bytes_downloaded)) look_at_disk().catch(() => {});
}

// Answers may overtake each other: drop a status that was requested before the one on the page.
let statuses_asked = 0, status_taken = 0;

async function refresh() {
  const turn = ++statuses_asked, now = await source.status();
  if (turn < status_taken) return;
  status_taken = turn;
  take_status(now);
  const {model} = state;
  if (state.state !== 'ready' || about?.model === model) return;
  about = {model, ...await source.about()};
  show_status();
  show_mode();
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
    document.body.dataset.state = 'error';
    trouble(`${error.message} (${seconds_since(gone_since)} s)`);
    wait = 1000;
  }
  setTimeout(watch, wait);
}

// Answers begin where `wish` says from now on.
async function move(wish) {
  moving = chosen = true;
  moved_words = undefined;
  scene.set_disabled(true);
  for (const id of ['place', 'model', 'head', 'format', 'device']) $(id).disabled = true;
  const following = setInterval(() => refresh().catch(() => {}), 250);
  try {
    const now = await source.move(wish);
    status_taken = ++statuses_asked;
    take_status(now);
    trouble('');
  } catch (error) {
    tell(error);
  } finally {
    clearInterval(following);
    wanted = undefined;
    scene.set_disabled(false);
    for (const id of ['place', 'model', 'head', 'format', 'device']) $(id).disabled = false;
    await refresh().catch(() => {});
    moving = false;
  }
}

// A running answer moves too where it can; where it cannot, it ends where it began.
async function move_to(value) {
  if (wanted !== undefined) return;
  wanted = value;
  moved_words = undefined;
  if (state) show_status();
  const cut = cut_of(state, value);
  if (running && await move_running(cut)) return;
  await move({cut});
  if ($('trouble').hidden && running) trouble('This answer ends where it began; the next one begins there.');
}

// Returns false if the running answer cannot move.
async function move_running(cut) {
  moving = true;
  scene.set_disabled(true);
  try {
    await source.move({cut, running: true});
  } catch (error) {
    if (error.code === 'not_supported' || error.field === 'running') return false;
    tell(error);
  }
  wanted = undefined;
  scene.set_disabled(false);
  await refresh().catch(() => {});
  moving = false;
  return true;
}

// --- answers

function busy(now) {
  $('generate').hidden = now;
  $('halt').hidden = !now;
  $('generate').disabled = now || gone_since !== undefined || !state?.begins;
  $('again').disabled = now || (chatting ? chat.empty : !asked);
  for (const id of ['edit', 'fresh']) $(id).disabled = now || chat.empty;
  for (const input of document.querySelectorAll('.switch input')) input.disabled = now;
  $('copy').disabled = !answer.words;
  $('compare').disabled = now || !answer.words;
  $('compare').textContent = is_personal(asked) ? 'Compare with the base' : 'Compare with the cloud alone';
  $('text').setAttribute('aria-busy', String(now));
}

// Whether the fine-tuned tail answers a request: no other model gives that text.
const is_personal = (request) => Boolean(state?.tail) && request?.model === state.tail.model;

const in_words = (cut) => cut === 'cloud' ? 'cloud' : cut === 0 ? 'here' : `cut ${cut}`;

// Shows a token of the running answer with its costs.
function take(token) {
  const {move, ms} = token;
  answer.add({...token, moved: move && in_words(move.to)});
  if (ms === undefined) return;
  const reason = move && (move.reason ?? plan.why(move.why)), told = {...token, moved: move && `${in_words(move.to)}: ${reason}`};
  plot.add(told);
  bytes_plot.add(told);
  scene.receipt = receipt;
  scene.pulse(token.up, token.down, token.both > 0 ? token.both : token.wire, {words: token.both > 0 ? 'cloud and line' : 'wire', here: token.cut === 0 && state.head !== 'cloud'});
  if (!move) seen.add(token.cut, token.counted_ms, token.first);
  else if (move.why !== 'asked') moved_words = `Now ${place_name(move.to)}, from token ${move.at + 1} on: ${reason}.`;
  if (token.first || move) show_status();
}

function show_verdict(usage) {
  figures.show_verdict($('figures'), figures.verdict(receipt));
  seen.judge(receipt);
  $('receipt').textContent = JSON.stringify({model: asked?.model ?? state.model, ...usage}, null, 2);
}
function judge(kind, words) {
  $('parity').className = kind;
  $('parity').textContent = words;
}

function clear_answer() {
  asked = receipt = chosen = scene.travels = undefined;
  answer.forget();
  judge('', '');
  $('figures').textContent = '';
  plot.clear();
  bytes_plot.clear();
}

async function generate(event) {
  event?.preventDefault();
  if (running || !state?.begins || (chatting && !$('prompt').value.trim())) return;
  running = new AbortController();
  const words = $('prompt').value, tally = new Tally();
  clear_answer();
  const turn = chatting ? chat.begin(words) : undefined;
  const model = state.tail && $('personal').checked ? state.tail.model : state.model;
  const ask = asked = form.request({...(model ? {model} : {}), ...(turn ? {messages: turn.messages} : {prompt: words})});
  if (turn) form.write_prompt('');
  form.remember(chatting);
  busy(true);
  trouble('');
  moved_words = undefined;
  answer.begin(words, turn?.node);
  $('figures').textContent = 'Waiting for the first word …';
  try {
    await source.generate(ask, {signal: running.signal, ready: state.state === 'ready', on_event: (chunk) => {
      const token = tally.take(chunk);
      receipt = tally.receipt;
      if (token) take(token);
      if (receipt) show_verdict(tally.usage);
    }});
    judge('', receipt?.exact === true && !is_personal(ask) ? 'exact by design' : `Seed ${ask.seed}.`);
    $('parity').title = `Seed ${ask.seed}`;
  } catch (error) {
    const written = `${tally.tokens} tokens`;
    if (error.name === 'AbortError') judge('', `Stopped after ${written}; seed ${ask.seed} gives them again.`);
    else {
      tell(error);
      judge('bad', answer.words ? `${written} written; seed ${ask.seed} gives the same again.` : '');
    }
  } finally {
    if (!receipt) $('figures').textContent = '';
    if (turn && !chat.end(answer.words)) form.write_prompt(words);
    answer.draw();
    running = undefined;
    busy(false);
    refresh().catch(() => {});
  }
}

// Repeats the last prompt; in a chat the last turn.
function again() {
  if (chatting) form.write_prompt(chat.back());
  generate();
}

// --- chat or continue

// A model with a template is chatted with, unless a person would rather have a text go on.
function show_mode() {
  const now = about.has_template && kept('mode') !== 'continue', was = chatting;
  $('mode').hidden = !about.has_template;
  $(now ? 'chat-mode' : 'continue-mode').checked = true;
  chatting = now;
  document.body.classList.toggle('chatting', now);
  $('generate').textContent = now ? 'Send' : 'Generate';
  $('prompt').placeholder = now ? 'Message' : '';
  if (was === now) return;
  // The next words stand below a chat, and above a text that goes on.
  if (now) $('paper').after($('ask'));
  else $('paper').before($('ask'));
  clear_answer();
  $('text').replaceChildren();
  if (now) chat.draw();
  form.recall(chatting);
  busy(false);
}

function edit(editing) {
  const words = chat.edit(editing);
  form.write_prompt(editing ? words : '');
  $('prompt').focus();
}

// Repeats the request unsplit on the cloud, and shows the first character that differs, if any.
async function compare() {
  const [was, said] = [$('parity').className, $('parity').textContent];
  running = new AbortController();
  busy(true);
  judge('', 'The cloud is asked the same …');
  try {
    const {text: whole} = await source.generate(asked, {signal: running.signal, alone: true});
    const answered = answer.words;
    $('parity').title = `${answered.length} characters, seed ${asked.seed}`;
    let same = 0;
    while (same < whole.length && whole[same] === answered[same]) same++;
    if (is_personal(asked)) judge('', whole === answered ? 'The base says the same.' : `The base goes on from character ${same + 1}: “${whole.slice(same, same + 30)}”.`);
    else if (whole === answered) judge('good', 'same text as unsplit ✓');
    else judge('bad', `Different from character ${same + 1}: split “${answered.slice(same, same + 30)}”, cloud alone “${whole.slice(same, same + 30)}”.`);
  } catch (error) {
    judge(was, said);
    if (error.name !== 'AbortError') tell(error);
  } finally {
    running = undefined;
    busy(false);
  }
}

// An encoder's trip has no receipt of a text: its usage is shown as one.
function show_usage(usage) {
  if (state.kind === 'encoder') {
    const {bytes_up, bytes_down, wire_ms} = usage.splitcompute;
    $('receipt').textContent = JSON.stringify({model: state.model, ...usage}, null, 2);
    scene.pulse(bytes_up, bytes_down, wire_ms);
  }
  trouble('');
}

$('ask').addEventListener('submit', generate);
$('ask').addEventListener('input', () => form.remember(chatting));
$('halt').addEventListener('click', () => running?.abort());
$('again').addEventListener('click', again);
$('edit').addEventListener('click', () => edit(true));
$('fresh').addEventListener('click', () => {
  chat.clear();
  clear_answer();
  busy(false);
  $('prompt').focus();
});
$('mode').addEventListener('change', () => {
  keep('mode', $('chat-mode').checked ? 'chat' : 'continue');
  show_mode();
});
$('whose').addEventListener('change', () => {
  keep('whose', $('base').checked ? 'base' : 'personal');
  chosen = true;
  if (state) show_status();
});
$('stop-cloud').addEventListener('click', () => source.stop_cloud().then(refresh).catch(tell));
$('copy').addEventListener('click', async () => {
  await navigator.clipboard?.writeText(answer.words).catch(() => {});
  $('copy').textContent = 'Copied';
  setTimeout(() => { $('copy').textContent = 'Copy'; }, 1500);
});
$('compare').addEventListener('click', compare);
$('forget').addEventListener('click', () => look_at_disk(source.forget).catch(tell));
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
encoder.listen(show_usage, tell);
$('prompt').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey || !event.shiftKey) && !event.isComposing) {
    event.preventDefault();
    $('ask').requestSubmit();
  }
});
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  if (!$('candidates').hidden) answer.hide();
  if (running) running.abort();
  else if (chat.editing) edit(false);
});
$(kept('whose') === 'base' ? 'base' : 'personal').checked = true;
form.recall(chatting);
watch();
