// Shows what a worker finds: a card for each operation, filled in as its cases come.

const cards = new Map(), all = document.getElementById('all'), summary = document.getElementById('summary');
const find = document.getElementById('find'), only = document.getElementById('only');
const kMostTold = 5;  // failures of an operation that are written out
let cases = 0, done = 0, failed = 0, drawn = false;

function add({name, cases, gradients, types, forward, gradient}) {
  const made = document.getElementById('card').content.cloneNode(true), at = (what) => made.querySelector(what);
  at('h2').textContent = name;
  at('code').textContent = forward + (gradient ? `\ngradient: ${gradient}` : '');
  at('.code').hidden = forward === '';
  at('.of').textContent = `${cases} case${cases === 1 ? '' : 's'}, ${gradients} with gradients · ${types.join(' ')}`;
  cards.set(name, {element: at('article'), cases, done: 0, failed: 0, worst: 0});
  all.append(made);
}

function show(card) {
  const verdict = card.element.querySelector('.verdict'), agree = card.done - card.failed;
  verdict.className = `verdict ${card.failed > 0 ? 'fails' : card.done === card.cases ? 'agrees' : ''}`;
  verdict.textContent = card.failed > 0 ? `✗ ${card.failed} of ${card.cases} fail`
    : card.done < card.cases ? `${agree} of ${card.cases}` : `✓ error ${card.worst && card.worst.toPrecision(2)}`;
}
function told({operation, case: name, worst, failed: what, plot}) {
  const card = cards.get(operation);
  ++card.done;
  ++done;
  card.worst = Math.max(card.worst, worst);
  if (what !== undefined) {
    ++failed;
    const list = card.element.querySelector('.failed');
    list.hidden = false;
    if (++card.failed <= kMostTold) list.append(Object.assign(document.createElement('li'), {textContent: what}));
  }
  if (plot) {
    const svg = card.element.querySelector('svg');
    svg.setAttribute('aria-label', `${operation} and its gradient from −4 to 4`);
    svg.querySelector('.forward').setAttribute('d', plot.forward);
    svg.querySelector('.gradient').setAttribute('d', plot.gradient);
    svg.removeAttribute('hidden');
  }
  show(card);
  soon();
}

const count = (number) => number.toLocaleString('en');
function draw(seconds) {
  document.body.classList.toggle('bad', failed > 0);
  document.getElementById('bar').style.transform = `scaleX(${done / cases})`;
  summary.textContent = `${count(done - failed)} of ${count(cases)} cases agree with PyTorch, ${failed} fail` +
    (seconds === undefined ? '' : `: ${cards.size} operations in ${seconds.toFixed(1)} s`);
  Object.assign(document.body.dataset, {cases, done, failed});
}
// At most once a frame.
function soon() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    if (document.body.dataset.state === 'running') draw();
  });
}
function filter() {
  const words = find.value.trim().toLowerCase();
  for (const [name, {element, failed}] of cards) {
    element.hidden = !name.toLowerCase().includes(words) || (only.checked && failed === 0);
  }
}
find.addEventListener('input', filter);
only.addEventListener('change', filter);
document.getElementById('show').addEventListener('submit', (event) => event.preventDefault());

function broken(words) {
  summary.textContent = `This page cannot go on: ${words}`;
  document.body.classList.add('bad');
  Object.assign(document.body.dataset, {state: 'broken', trouble: words});
}

const worker = new Worker(new URL('worker.js', import.meta.url), {type: 'module'});
worker.onerror = (event) => broken(event.message ?? 'the worker does not start');
worker.onmessage = ({data}) => {
  if (data.operations) {
    cases = data.cases;
    document.body.dataset.state = 'running';
    data.operations.sort((a, b) => a.place - b.place).forEach(add);  // as they are run
  } else if (data.case) {
    told(data);
  } else if (data.broken) {
    broken(data.broken);
  } else if (data.ended) {
    draw(data.seconds);
    filter();
    document.body.dataset.state = 'done';
    document.body.dataset.seconds = data.seconds;
  }
};
