// Plots with axes, the verdict, and vectors as pictures and as numbers.

import {bytes, millis} from './machines.js';
import {line_ms} from './tally.js';

const kBars = 512;  // tokens the plot shows: the last ones
const kLeft = 52, kRight = 8, kTop = 16, kBottom = 22;  // margins of the bars, in pixels

// The least of 1, 2 and 5 times a power of ten that three of which reach the top.
function step_of(top) {
  const power = 10 ** Math.floor(Math.log10(top / 3));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => 3 * step >= top);
}

function made(parent, name, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// Stacks each token's parts. `say` puts a figure into words, `axis` a round one, `tell` a token.
export class Plot {
  constructor(svg, readout, {parts, say, axis, tell}) {
    Object.assign(this, {svg, readout, parts, say, axis, tell, name: svg.getAttribute('aria-label')});
    new ResizeObserver(() => this.later()).observe(svg);
    svg.addEventListener('pointermove', (event) => this.look(this.index_at(event)));
    svg.addEventListener('pointerleave', () => this.look());
    this.clear();
  }
  clear() {
    this.tokens = [];
    this.later();
  }
  // One token: a figure for each part, and in words where the cut `moved` to before it, if it did.
  add(token) {
    this.tokens.push(token);
    this.later();
  }
  later() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.draw(); });
  }
  total(token) { return this.parts.reduce((sum, part) => sum + token[part], 0); }
  get first() { return Math.max(0, this.tokens.length - kBars); }
  get bar() { return (this.svg.clientWidth - kLeft - kRight) / Math.max(this.tokens.length - this.first, 32); }
  index_at(event) {
    const index = this.first + Math.floor((event.clientX - this.svg.getBoundingClientRect().left - kLeft) / this.bar);
    return index >= this.first && index < this.tokens.length ? index : undefined;
  }
  // Marks one token and says its figures.
  look(index) {
    this.seen = index;
    if (index !== undefined) this.readout.textContent = this.tell(this.tokens[index], index);
    this.later();
  }
  draw() {
    const {svg} = this, width = svg.clientWidth, height = svg.clientHeight;
    svg.replaceChildren();
    if (width === 0) return;
    const shown = this.tokens.slice(this.first), totals = shown.map((token) => this.total(token));
    // A few are far slower than the rest, the prompt's for one: they are cut off at the top, not the others flattened.
    const sorted = totals.slice(this.first === 0 && totals.length > 2 ? 1 : 0).sort((a, b) => a - b);
    const usual = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * .97))] ?? 0;
    const step = step_of(Math.max(Math.min(usual * 1.1, sorted.at(-1) ?? 0), this.say === bytes ? 30 : .03) * 1.02);
    const top = 3 * step, high = height - kTop - kBottom, base = height - kBottom;
    for (let i = 0; i <= (shown.length > 0 ? 3 : -1); i++) {
      const y = base - i * high / 3;
      made(svg, 'path', {class: 'grid', d: `M${kLeft} ${y}H${width - kRight}`});
      made(svg, 'text', {x: kLeft - 6, y: y + 4, 'text-anchor': 'end'}, i === 0 ? '0' : (this.axis ?? this.say)(i * step));
    }
    const paths = Object.fromEntries([...this.parts, 'guess'].map((part) => [part, '']));
    const wide = Math.max(.5, this.bar * .84);
    shown.forEach((token, index) => {
      let y = base;
      if (totals[index] === 0) paths.guess += `M${(kLeft + index * this.bar).toFixed(2)} ${base - 3}h${wide.toFixed(2)}v3h-${wide.toFixed(2)}z`;
      for (const part of this.parts) {
        const tall = Math.min(token[part] / top * high, y - kTop);
        y -= tall;
        if (tall > 0) paths[part] += `M${(kLeft + index * this.bar).toFixed(2)} ${y.toFixed(2)}h${wide.toFixed(2)}v${tall.toFixed(2)}h-${wide.toFixed(2)}z`;
      }
    });
    for (const [part, d] of Object.entries(paths)) made(svg, 'path', {class: part, d});
    let labelled = -100;
    shown.forEach((token, index) => {
      const x = kLeft + index * this.bar;
      if (totals[index] > top && x > labelled + 60 && (labelled = x)) made(svg, 'text', {x: x + this.bar / 2, y: kTop - 4, 'text-anchor': index < 2 ? 'start' : 'middle'}, this.say(totals[index]));
      if (this.first + index === this.seen) made(svg, 'path', {class: 'lit', d: `M${x} ${kTop}h${wide}V${base}h-${wide}z`});
      if (!token.moved) return;
      made(svg, 'path', {class: 'moves', d: `M${x} ${kTop - 6}V${base}`});
      made(svg, 'text', {class: 'note', x: x + (x > width * .6 ? -5 : 5), y: kTop + 8, 'text-anchor': x > width * .6 ? 'end' : 'start'}, token.moved);
    });
    if (shown.length > 0) {
      made(svg, 'text', {x: kLeft, y: height - 6}, `token ${this.first + 1}`);
      made(svg, 'text', {x: kLeft + shown.length * this.bar, y: height - 6, 'text-anchor': shown.length > 6 ? 'end' : 'start', dx: shown.length > 6 ? 0 : 60}, `${this.tokens.length}`);
    } else {
      made(svg, 'text', {x: (kLeft + width) / 2, y: base - high / 2 + 4, 'text-anchor': 'middle'}, 'one bar for each token of the answer');
    }
    const rest = totals.length > 2 ? totals.slice(1) : totals;  // the first token stands for the whole prompt
    const mean = rest.reduce((a, b) => a + b, 0) / Math.max(1, rest.length);
    svg.setAttribute('aria-label', shown.length === 0 ? this.name : `${this.name}: ${this.tokens.length} tokens, ${this.say(mean)} on average`);
  }
}

export const token_words = ({cloud, wire, edge, both, up, down, cut}, index) => {
  const took = [[cloud, 'cloud'], [wire, 'wire and waiting'], [both, 'cloud and line'], [edge, 'here']].filter(([ms]) => ms > 0);
  return took.length === 0 ? `Token ${index + 1}: came with the token before, a right guess.`
    : `Token ${index + 1}: ${took.map(([ms, words]) => `${words} ${millis(ms)}`).join(', ')}; ${bytes(up + down)} at ${cut === 'cloud' ? 'the cloud' : `cut ${cut}`}.`;
};

// One line: [words, figure] pieces of it.
export function verdict(receipt) {
  const rate = receipt.tokens_per_second, percent = receipt.cloud_percent, {losses} = receipt;
  return [
    ...(percent === null || percent === undefined ? [] : [[`${percent} %`, 'of the work in the cloud']]),
    [bytes(receipt.bytes_up + receipt.bytes_down), 'over the wire'],
    ['first word after', millis(receipt.time_to_first_token_ms)],
    [rate.toFixed(rate < 10 ? 1 : 0), 'tokens/s'],
    ...(losses > 0 ? [[String(losses), losses === 1 ? 'loss of the cloud' : 'losses of the cloud']] : []),
  ];
}

// The same of embeddings.
export function embeddings_verdict({prompt_tokens, splitcompute: receipt}) {
  const trips = receipt.trips === 1 ? 'round trip' : 'round trips';
  return [
    [String(receipt.texts), 'texts'],
    [String(prompt_tokens), 'tokens'],
    [String(receipt.trips), trips],
    [bytes(receipt.bytes_up + receipt.bytes_down), 'over the wire'],
    [millis(line_ms(receipt) + receipt.edge_ms), 'in all'],
  ];
}

export function show_verdict(node, line) {
  node.replaceChildren(...line.flatMap(([first, second], index) => {
    const words = /^\d/.test(first) ? first : second, bold = document.createElement('b');
    bold.textContent = words;
    return [index > 0 ? ' · ' : '', ...(words === first ? [bold, ` ${second}`] : [`${first} `, bold])];
  }));
}

export const cosine = (a, b) => {
  let dot = 0, aa = 0, bb = 0;
  for (let i = 0; i < a.length; i++) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return dot / Math.sqrt(aa * bb);
};
export const likeness = (cosine) =>
  cosine > .9999 ? 'the same' : cosine > .8 ? 'much alike' : cosine > .5 ? 'rather alike' : cosine > .2 ? 'somewhat alike' : 'not alike';

// "Tensor [320] = 0.1234, ..., -0.0567": the first numbers and the last.
export function numbers(vector) {
  const node = document.createElement('code'), words = (some) => some.map((value) => value.toPrecision(4)).join(', ');
  node.textContent = `Tensor [${vector.length}] = ${words(vector.slice(0, 6))}, …, ${words(vector.slice(-2))}`;
  return node;
}
// One text's vector as a strip: one pixel a channel, dark below zero and light above.
export function strip(vector) {
  const canvas = document.createElement('canvas');
  canvas.width = vector.length;
  canvas.height = 1;
  const context = canvas.getContext('2d');
  const image = context.createImageData(vector.length, 1);
  const top = Math.max(...vector.map(Math.abs));
  vector.forEach((value, index) => {
    const shade = Math.round(127.5 + 127.5 * Math.sign(value) * Math.sqrt(Math.abs(value) / top));
    image.data.set([shade, shade, shade, 255], 4 * index);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}
