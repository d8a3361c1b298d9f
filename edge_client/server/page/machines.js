// The scene: the cloud's box, this computer's box, the model's stages inside them, each as high and as dark as it is slow,
// the wire between with its bytes, and the boundary, which a person drags.

export const bytes = (n) => {
  for (const [unit, size] of [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]])
    if (n >= size) return `${(n / size).toFixed(n >= 10 * size ? 0 : 1)} ${unit}`;
  return `${Math.round(n)} B`;
};
export const millis = (ms) => ms >= 1e3 ? `${(ms / 1e3).toFixed(ms >= 1e4 ? 0 : 1)} s` : `${ms.toFixed(ms >= 100 ? 0 : ms >= 10 ? 1 : 2)} ms`;
export const round_millis = (ms) => ms >= 1e3 ? `${Number((ms / 1e3).toFixed(2))} s` : `${Number(ms.toFixed(2))} ms`;  // of an axis

const kOuter = 1.5;  // width of embed, norm and head in blocks (style.css says it again for .outer)
const is_block = (stage) => stage.name.startsWith('block.');
const number_of = (stage) => Number(stage.name.slice('block.'.length));
const short_name = (stage) => is_block(stage) ? stage.name.slice('block.'.length) : stage.name;
const width_of = (stage) => is_block(stage) ? 1 : kOuter;

// Boundaries are numbers: K blocks on the cloud, and one more than there are blocks for all on the cloud.
export const everything = (state) => state.layers + 1;
export const boundary = (state) => Number.isInteger(state.cut) ? state.cut : everything(state);
export const cut_of = (state, value) => value === everything(state) ? 'cloud' : value;

// Names what a model computes at once: a token of a text that it writes, or whole texts.
export const unit = (state) => state.kind === 'encoder' ? 'a step' : 'a token';

const range = (first, last) => first === last ? `block ${first}` : `blocks ${first} to ${last}`;
export function place_words(state, value) {
  const {layers} = state, encoder = state.kind === 'encoder';
  const rest = encoder ? 'pooling here' : state.head === 'cloud' ? 'head too' : 'norm and head here';
  return value === everything(state) ? 'all on the cloud'
    : value === 0 ? state.head === 'cloud' && !encoder ? 'all blocks on this computer, head on the cloud' : 'all on this computer'
    : value === layers ? `all blocks on the cloud, ${rest}`
    : `${range(0, value - 1)} on the cloud, ${value === layers - 1 ? range(value, value) : `${value} to ${layers - 1}`} here`;
}

export function place(stage) {
  if (stage.where === 'cloud') return 'cloud';
  if (stage.state !== 'ready') return stage.state;
  return stage.device.startsWith('vulkan') ? 'edge-gpu' : 'edge-cpu';
}
const kWords = {
  'cloud': 'runs on the cloud', 'edge-cpu': "runs on this machine's CPU", 'edge-gpu': "runs on this machine's GPU",
  'downloading': 'downloading', 'absent': 'not downloaded yet',
};
export function describe(stage) {
  const at = place(stage);
  const part = at === 'downloading' && stage.bytes > 0 ? ` (${Math.floor(100 * stage.bytes_done / stage.bytes)} %)` : '';
  return `${kWords[at]}${part}`;
}

// The stages as they would be with the boundary there.
function moved(state, value) {
  if (value === boundary(state)) return state.stages;
  return state.stages.map((stage) => {
    const above = is_block(stage) ? number_of(stage) >= value : stage.name === 'embed' ? value === 0
      : state.head !== 'cloud' && value < everything(state);
    const where = above ? 'edge' : 'cloud';
    if (where === stage.where) return stage;
    return {...stage, where, ms: null, state: where === 'cloud' ? 'ready' : 'absent'};
  });
}

// Of the stages: one measured in a bad moment, far beyond the rest, makes the others no smaller.
function slowest(stages) {
  const times = stages.map((stage) => stage.ms ?? 0).filter((ms) => ms > 0).sort((a, b) => a - b);
  return Math.max(Math.min(times.at(-1) ?? 0, 4 * (times[times.length >> 1] ?? 0)), 1e-6);
}

function draw_blocks(list, stages, top, all, unit) {
  list.classList.toggle('many', all > 17);
  list.querySelector('.nothing')?.remove();
  while (list.children.length > stages.length) list.lastElementChild.remove();
  while (list.children.length < stages.length) {
    const item = document.createElement('li');
    item.append(document.createElement('i'), document.createElement('span'), document.createElement('small'));
    list.append(item);
  }
  stages.forEach((stage, index) => {
    const item = list.children[index], [fill, name, figure] = item.children;
    const measured = stage.ms !== null && stage.ms !== undefined;
    const share = measured ? Math.sqrt(stage.ms / top) : .6;
    const first = stage.where === 'edge' && index === 0;
    const labelled = is_block(stage) && (number_of(stage) % 6 === 0);
    item.className = `${place(stage)}${is_block(stage) ? '' : ' outer'}${first ? ' first-of-edge' : ''}${labelled ? ' labelled' : ''}`;
    item.title = `${stage.name}: ${describe(stage)}, ${bytes(stage.bytes)}${measured ? `, ${millis(stage.ms)} ${unit}` : ''}`;
    item.style.height = `${46 + 54 * Math.min(1, share)}%`;
    item.style.setProperty('--shade', `${Math.round(82 + 18 * Math.min(1, share))}%`);
    name.textContent = short_name(stage);
    figure.textContent = !measured || stage.name === 'norm' ? '' : stage.ms < .005 ? '<0.01' : stage.ms.toFixed(2);
    fill.style.height = place(stage) === 'downloading' && stage.bytes > 0 ? `${100 * stage.bytes_done / stage.bytes}%` : '0';
  });
  if (stages.length === 0) {
    const nothing = document.createElement('li');
    nothing.className = 'nothing';
    nothing.textContent = 'runs nothing';
    list.append(nothing);
  }
}

const sum = (stages, of) => stages.reduce((total, stage) => total + (of(stage) ?? 0), 0);

export class Scene {
  // `on_pick` is called with the boundary that a person chose.
  constructor(root, on_pick) {
    this.root = root;
    this.on_pick = on_pick;
    this.handle = root.querySelector('[role=slider]');
    this.boxes = {cloud: root.querySelector('.machine.cloud'), edge: root.querySelector('.machine.here')};
    this.listen();
  }

  // `lost` seconds without the cloud, or none. `wanted`: a boundary on its way.
  draw(state, {lost, wanted} = {}) {
    this.state = state;
    this.wanted = wanted;
    this.lost = lost;
    const value = this.preview ?? wanted ?? boundary(state);
    const stages = moved(state, value);
    const at = (where) => stages.filter((stage) => stage.where === where);
    const top = slowest(stages);
    for (const where of ['cloud', 'edge']) draw_blocks(this.boxes[where].querySelector('ol'), at(where), top, stages.length, unit(state));
    for (const [name, where] of [['--there', 'cloud'], ['--at-home', 'edge']])
      this.root.style.setProperty(name, `${Math.max(1, sum(at(where), width_of))}fr`);
    this.say(at('cloud'), at('edge'), value);
    const handle = this.handle;
    handle.setAttribute('aria-valuemax', everything(state));
    handle.setAttribute('aria-valuenow', value);
    handle.setAttribute('aria-valuetext', place_words(state, value));
    handle.setAttribute('aria-disabled', String(Boolean(this.disabled)));
  }

  say(there, here, value) {
    const {state, lost} = this, cloud = this.boxes.cloud, work = (box) => box.querySelector('.work');
    const blocks = there.filter(is_block).length;
    const share = Math.round(100 * blocks / Math.max(1, state.layers));
    cloud.classList.toggle('lost', lost !== undefined);
    cloud.querySelector('.name span').textContent = new URL(state.server.url).host;
    const took = (stages) => {
      const ms = sum(stages, (stage) => stage.ms);
      return ms > 0 ? `${millis(ms)} ${unit(state)}` : '';
    };
    work(cloud).textContent = lost !== undefined ? `no answer for ${lost} s; waiting${value === 0 ? ' (not needed now)' : ''}`
      : [took(there), `${share} % of the blocks`].filter(Boolean).join(' · ');
    this.boxes.edge.querySelector('.name span').textContent = state.device.name === 'none' ? '' : state.device.name;
    const coming = here.filter((stage) => place(stage) === 'downloading' || place(stage) === 'absent');
    const left = sum(coming, (stage) => stage.bytes - stage.bytes_done);
    const landing = coming.find((stage) => place(stage) === 'downloading');
    work(this.boxes.edge).textContent =
      landing ? `${landing.name.replace('.', ' ')} landing: ${Math.floor(100 * landing.bytes_done / landing.bytes)} %, ${bytes(left)} left`
      : left > 0 ? `${bytes(left)} to fetch`
      : [took(here), `${100 - share} % of the blocks`].filter(Boolean).join(' · ');
  }

  // One token crossed the wire, unless it came with the one before.
  pulse(up, down, ms) {
    if (up + down === 0) return;
    const packet = this.root.querySelector('#packet'), wire = this.root.querySelector('#wire');
    this.root.querySelector('#wire-bytes').textContent = bytes(up + down);
    this.root.querySelector('#wire-ms').textContent = `${millis(ms)} wire`;
    if (matchMedia('(prefers-reduced-motion: reduce)').matches || packet.getAnimations().length > 1) return;
    const upright = getComputedStyle(this.root).gridTemplateColumns.split(' ').length === 1;
    const way = upright ? `0, ${wire.clientHeight - 12}px` : `${wire.clientWidth - 24}px, 0`;
    packet.animate([{opacity: 1, transform: 'translate(0, 0)'}, {opacity: 1, transform: `translate(${way})`}],
      {duration: 260, easing: 'ease-in-out'});
  }

  set_disabled(disabled) {
    this.disabled = disabled;
    this.handle.setAttribute('aria-disabled', String(Boolean(disabled)));
  }

  show(value) {
    this.preview = Math.max(0, Math.min(everything(this.state), value));
    this.draw(this.state, this);
  }
  pick() {
    const value = this.preview;
    this.preview = undefined;
    if (value !== undefined && value !== boundary(this.state)) this.on_pick(value);
    else this.draw(this.state, this);
  }

  listen() {
    const handle = this.handle, steps = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -4, PageUp: 4, Home: -1e6, End: 1e6};
    let settling, from;
    const now = () => this.preview ?? this.wanted ?? boundary(this.state);
    // Each key pressed is a change: the last one counts.
    handle.addEventListener('keydown', (event) => {
      if (!(event.key in steps) || this.disabled || !this.state?.layers) return;
      event.preventDefault();
      this.show(now() + steps[event.key]);
      clearTimeout(settling);
      settling = setTimeout(() => this.pick(), 400);
    });
    handle.addEventListener('pointerdown', (event) => {
      if (this.disabled || !this.state?.layers) return;
      event.preventDefault();
      handle.focus();
      handle.setPointerCapture(event.pointerId);
      const upright = getComputedStyle(this.root).gridTemplateColumns.split(' ').length === 1;
      // A drag along the whole scene moves the boundary from one end to the other, be it flat or upright.
      const length = upright ? 240 : this.root.clientWidth - this.root.querySelector('#wire').clientWidth;
      from = {at: upright ? event.clientY : event.clientX, upright, value: now(), block: length / (this.state.layers + 3 * kOuter)};
      handle.classList.add('dragged');
      document.body.classList.add('dragging');
    });
    handle.addEventListener('pointermove', (event) => {
      if (!from) return;
      this.show(from.value + Math.round(((from.upright ? event.clientY : event.clientX) - from.at) / from.block));
    });
    const drop = (pick) => () => {
      if (!from) return;
      from = undefined;
      handle.classList.remove('dragged');
      document.body.classList.remove('dragging');
      if (!pick) this.preview = undefined;
      this.pick();
    };
    handle.addEventListener('pointerup', drop(true));
    handle.addEventListener('pointercancel', drop(false));
  }
}
