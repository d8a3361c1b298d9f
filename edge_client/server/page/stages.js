// The picture of the model: one box a stage, coloured by where it runs, and the cut between them.

export const bytes = (n) => {
  for (const [unit, size] of [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]])
    if (n >= size) return `${(n / size).toFixed(n >= 10 * size ? 0 : 1)} ${unit}`;
  return `${n} B`;
};

const kOuter = 1.6;  // width of embed, norm and head in blocks (style.css says it again for .outer)
const is_block = (stage) => stage.name.startsWith('block.');
const short_name = (stage) => is_block(stage) ? stage.name.slice('block.'.length) : stage.name;

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

export function draw(list, stages) {
  list.classList.toggle('many', stages.length > 20);
  while (list.children.length > stages.length) list.lastElementChild.remove();
  while (list.children.length < stages.length) {
    const item = document.createElement('li');
    item.append(document.createElement('span'), document.createElement('i'));
    list.append(item);
  }
  stages.forEach((stage, index) => {
    const item = list.children[index];
    const first = stage.where === 'edge' && (index === 0 || stages[index - 1].where === 'cloud');
    item.className = `${place(stage)}${is_block(stage) ? '' : ' outer'}${first ? ' first-of-edge' : ''}`;
    item.title = `${stage.name}: ${describe(stage)}, ${bytes(stage.bytes)}`;
    item.firstElementChild.textContent = short_name(stage);
    item.lastElementChild.style.width =
      place(stage) === 'downloading' && stage.bytes > 0 ? `${100 * stage.bytes_done / stage.bytes}%` : '0';
  });
}

// The slider's thumb stands under the boundary that it moves.
export function align(slider, layers) {
  const total = layers + 3 * kOuter;
  slider.style.marginLeft = `calc(${100 * kOuter / total}% - .5rem)`;
  slider.style.width = `calc(${100 * layers / total}% + 1rem)`;
}
