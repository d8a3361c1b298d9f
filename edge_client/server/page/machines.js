// The scene: the cloud's box and this computer's, each with the stages that the next token runs through there, as high and
// as dark as they are slow; a stage whose weights come beside the text is a dashed ghost here until it runs here. Between
// them the wire with its bytes, and the boundary, which a person drags.

export const bytes = (n) => {
  for (const [unit, size] of [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]])
    if (n >= size) return `${(n / size).toFixed(n >= 10 * size ? 0 : 1)} ${unit}`;
  return `${Math.round(n)} B`;
};
export const millis = (ms) => ms >= 1e3 ? `${(ms / 1e3).toFixed(ms >= 1e4 ? 0 : 1)} s` : `${ms.toFixed(ms >= 100 ? 0 : ms >= 10 ? 1 : 2)} ms`;
export const round_millis = (ms) => ms >= 1e3 ? `${Number((ms / 1e3).toFixed(2))} s` : `${Number(ms.toFixed(2))} ms`;  // label of an axis

const kOuter = 1.5;  // width of embed, norm and head in blocks (style.css says it again for .outer)
const is_block = (stage) => stage.name.startsWith('block.');
const number_of = (stage) => Number(stage.name.slice('block.'.length));
const full_name = (stage) => stage.kind ? `${stage.name}, ${stage.kind}` : stage.name;
const short_name = (stage) => is_block(stage) ? stage.name.slice('block.'.length) : stage.name;
const width_of = (stage) => is_block(stage) ? 1 : kOuter;

// Boundaries are numbers: K blocks on the cloud, and one more than there are blocks for all on the cloud.
export const everything = (state) => state.layers + 1;
export const highest = (state) => state.tail?.first ?? everything(state);  // a tail's own blocks run here alone
export const boundary = (state) => Number.isInteger(state.cut) ? state.cut : everything(state);
// The boundary of what runs: all of a text runs here while a cloud is lost, whatever was chosen.
export const boundary_now = (state) => state.stages.length > 0 && state.stages.every(({runs}) => runs === 'here') ? 0 : boundary(state);
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

// A stage that is to run here and does not yet: it runs on the cloud, or nowhere before the first load.
const lands = (stage) => stage.where === 'edge' && (stage.runs === 'cloud' || stage.landing.percent < 100);
const place = (stage) => stage.runs === 'cloud' ? 'cloud' : stage.is_gpu ? 'edge-gpu' : 'edge-cpu';
const kWords = {'cloud': 'runs on the cloud', 'edge-cpu': "runs on this machine's CPU", 'edge-gpu': "runs on this machine's GPU"};
const seconds_left = ({landing}) => landing.seconds_left === null ? '' : `, ${landing.seconds_left < 9.95 ? landing.seconds_left.toFixed(1) : Math.round(landing.seconds_left)} s left`;
const landing_words = (stage) => `${stage.landing.percent} %${seconds_left(stage)}`;
export function describe(stage) {
  if (!lands(stage)) return kWords[place(stage)];
  const landing = stage.landing.percent > 0 ? `landing here: ${landing_words(stage)}` : 'not downloaded yet';
  return stage.runs === 'cloud' ? `${kWords.cloud}, ${landing}` : landing;
}

// Whether a stage runs here where the boundary is there.
export const is_above = (state, value, stage) => is_block(stage) ? number_of(stage) >= value : stage.name === 'embed' ? value === 0
  : state.head !== 'cloud' && value < everything(state);

// Times of stages by where they ran: a status has those of where they run.
const times = new Map(), key_of = (state, stage, runs) => `${state.model} ${stage.name} ${runs}`;
export function remember_times(state) {
  for (const stage of state.stages) if (stage.ms !== null) times.set(key_of(state, stage, stage.runs), stage.ms);
}
const run_at = (state, stage, runs) => runs === stage.runs ? stage
  : {...stage, runs, is_gpu: runs === 'here' && state.device.is_gpu, ms: times.get(key_of(state, stage, runs)) ?? null};

// The status of an answer that runs at this cut, and of one of the base beside a tail, which is the cloud's alone.
export function placed(state, cut) {
  const value = cut === 'cloud' ? everything(state) : cut;
  return {...state, cut, stages: state.stages.map((stage) => run_at(state, stage, is_above(state, value, stage) ? 'here' : 'cloud'))};
}
export const based = (state) => ({...placed(state, 'cloud'), base: true, auto: false, plan: null, tail: undefined,
  stages: state.stages.map((stage) => ({...run_at(state, stage, 'cloud'), where: 'cloud'}))});

// The stages as a boundary there would have them: of a move on its way, what runs stays as it is.
function aimed(state, value, on_its_way) {
  if (value === boundary(state)) return state.stages;
  return state.stages.map((stage) => {
    const above = is_above(state, value, stage), where = above ? 'edge' : 'cloud';
    if (where === stage.where) return stage;
    return on_its_way ? {...stage, where} : {...run_at(state, stage, above ? 'here' : 'cloud'), where};
  });
}

// The slowest stage, without an outlier: one measured in a bad moment makes the others no smaller.
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
  const here = list.closest('.here') !== null;
  stages.forEach((stage, index) => {
    const item = list.children[index], [fill, name, figure] = item.children;
    const ghost = here && lands(stage), {percent} = stage.landing;
    const measured = !ghost && stage.ms !== null;
    const share = measured ? Math.sqrt(stage.ms / top) : stage.name === 'norm' ? 0 : .6;
    const labelled = is_block(stage) && (number_of(stage) % 6 === 0);
    const kind = !ghost ? place(stage) : percent > 0 ? 'downloading' : 'absent';
    item.className = `${kind}${is_block(stage) ? '' : ' outer'}${here && index === 0 ? ' first-of-edge' : ''}${labelled ? ' labelled' : ''}`;
    item.title = `${full_name(stage)}: ${describe(stage)}, ${bytes(stage.bytes)}${measured ? `, ${millis(stage.ms)} ${unit}` : ''}`;
    item.style.height = `${46 + 54 * Math.min(1, share)}%`;
    item.style.setProperty('--shade', `${Math.round(82 + 18 * Math.min(1, share))}%`);
    name.textContent = short_name(stage);
    figure.textContent = ghost ? `${percent} %` : !measured || stage.name === 'norm' ? '' : stage.ms < .005 ? '<0.01' : stage.ms.toFixed(2);
    fill.style.height = ghost ? `${percent}%` : '0';
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

  // `lost` seconds without the cloud, or none, and whether somebody waits for it, or the next answer needs it. `wanted`: a boundary on its
  // way. `receipt`: of the answer whose place it is; none: it is the next one's.
  draw(state, {lost, waited, needed, wanted, receipt} = {}) {
    Object.assign(this, {state, wanted, lost, waited, needed, receipt});
    const value = this.preview ?? wanted ?? boundary(state);
    const stages = aimed(state, value, this.preview === undefined);
    const there = stages.filter((stage) => stage.runs === 'cloud'), here = stages.filter((stage) => stage.runs !== 'cloud' || lands(stage));
    const top = slowest(stages);
    for (const [box, list, name] of [[this.boxes.cloud, there, '--there'], [this.boxes.edge, here, '--at-home']]) {
      draw_blocks(box.querySelector('ol'), list, top, stages.length, unit(state));
      this.root.style.setProperty(name, `${Math.max(1, sum(list, width_of))}fr`);
    }
    this.say(there, here);
    this.say_wire();
    const handle = this.handle;
    handle.setAttribute('aria-valuemax', highest(state));
    handle.setAttribute('aria-valuenow', value);
    handle.setAttribute('aria-valuetext', place_words(state, value));
    handle.setAttribute('aria-disabled', String(Boolean(this.fixed)));
  }
  get fixed() { return this.disabled || !this.state?.layers || this.state.base; }

  say(there, here) {
    const {state, lost} = this, receipt = (this.preview ?? this.wanted) === undefined ? this.receipt : undefined, cloud = this.boxes.cloud, work = (box) => box.querySelector('.work');
    const blocks = there.filter(is_block).length, runs = here.filter((stage) => !lands(stage));
    // As the receipt says it; of an answer that moved, or is to, as the plan does of what runs there, where it speaks of this head.
    const moved = receipt?.moves.length > 0, of_plan = state.head !== 'cloud' && state.plan?.cuts.find(({cut}) => cut === (there.length < state.stages.length ? blocks : 'cloud'))?.cloud_percent;
    const percent = (moved ? undefined : receipt?.cloud_percent) ?? of_plan;
    const words = (stages) => {
      const ms = sum(stages, (stage) => stage.ms), part = stages === there ? percent : 100 - percent;
      const known = ms > 0 && stages.every((stage) => stage.ms !== null || stage.name === 'norm');
      return [...(known ? [`${millis(ms)} ${unit(state)}`] : []),
        Number.isInteger(part) ? `${part} % of the work${moved ? ' now' : ''}` : `${stages.filter(is_block).length} of ${state.layers} blocks`];
    };
    cloud.classList.toggle('lost', lost !== undefined);
    cloud.querySelector('.name span').textContent = new URL(state.server.url).host;
    work(cloud).textContent = lost === undefined ? words(there).join(' · ')
      : `no answer for ${lost} s${there.length === 0 || (!this.waited && !this.needed) ? '; not needed' : this.waited ? '; waiting' : ''}`;
    this.boxes.edge.querySelector('.name span').textContent = state.device.name === 'none' ? '' : state.device.name;
    const coming = here.filter(lands), left = sum(coming, (stage) => stage.bytes - stage.bytes_done), soonest = ({landing}) => landing.seconds_left ?? Infinity;
    // The one that is coming in: of those with bytes to come, the one that is here the soonest.
    const landing = coming.filter((stage) => stage.bytes_done < stage.bytes).sort((a, b) => soonest(a) - soonest(b))
      .find((stage) => stage.landing.percent > 0 || soonest(stage) < Infinity);
    work(this.boxes.edge).textContent = coming.length === 0 ? words(here).join(' · ')
      : [...words(runs).slice(0, runs.length > 0 ? 1 : 0), landing ? `${landing.name.replace('.', ' ')} landing: ${landing_words(landing)}`
        : left > 0 ? `${bytes(left)} to fetch` : 'the weights are here'].join(' · ');
  }

  // Bytes of a token of this answer: the next one's are unknown.
  say_wire() {
    const {travels} = this.receipt || this.state?.kind === 'encoder' ? this : {}, wire = this.root.querySelector('#wire');
    wire.classList.toggle('dim', this.lost !== undefined);
    wire.querySelector('#wire-bytes').textContent = travels ? bytes(travels.bytes) : '–';
    wire.querySelector('#wire-ms').textContent = travels?.words ?? (this.state?.kind === 'encoder' ? 'a trip' : 'a token');
  }
  // One token crossed the wire, unless it came with the one before; or none does, for all of the text runs here.
  pulse(up, down, ms, {words = 'wire', here = false} = {}) {
    if (up + down === 0 && !here) return;
    this.travels = {bytes: up + down, words: here ? 'a token' : `${millis(ms)} ${words}`};
    this.say_wire();
    const packet = this.root.querySelector('#packet'), wire = this.root.querySelector('#wire');
    if (here || matchMedia('(prefers-reduced-motion: reduce)').matches || packet.getAnimations().length > 1) return;
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
    this.preview = Math.max(0, Math.min(highest(this.state), value));
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
      if (!(event.key in steps) || this.fixed) return;
      event.preventDefault();
      this.show(now() + steps[event.key]);
      clearTimeout(settling);
      settling = setTimeout(() => this.pick(), 400);
    });
    handle.addEventListener('pointerdown', (event) => {
      if (this.fixed) return;
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

// Draws a row for each stage into a table: its name, where it runs, its bytes and its time.
export function draw_times(table, stages) {
  table.replaceChildren(...stages.map((stage) => {
    const row = document.createElement('tr');
    for (const text of [full_name(stage), describe(stage), bytes(stage.bytes), stage.ms === null ? '–' : stage.ms.toFixed(3)])
      row.insertCell().textContent = text;
    return row;
  }));
}
