// Figures of an answer and the plot of its tokens.

import {bytes} from './stages.js';

const kBars = 128;  // tokens the plot shows: the last ones
const kWidth = 640, kHeight = 160;  // of the plots' viewBox

// Of each token some parts, one on the other. `say` puts a figure into words.
export class Plot {
  constructor(svg, scale, parts, say) {
    this.svg = svg;
    this.scale = scale;
    this.parts = parts;
    this.say = say;
    this.name = svg.getAttribute('aria-label');
    this.clear();
  }
  clear() {
    this.tokens = [];
    this.svg.replaceChildren();
    this.scale.textContent = '';
  }
  // One token: a figure for each part.
  add(token) {
    this.tokens.push(token);
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.draw(); });
  }
  draw() {
    const shown = this.tokens.slice(-kBars);
    const total = (token) => this.parts.reduce((sum, part) => sum + token[part], 0);
    // The first token stands for the whole prompt: it would flatten the others.
    const tops = shown.length > 2 ? shown.slice(1).map(total) : shown.map(total);
    const top = Math.max(...tops, 1e-3);
    const width = kWidth / Math.max(shown.length, 32);
    const paths = Object.fromEntries(this.parts.map((part) => [part, '']));
    shown.forEach((token, index) => {
      let y = kHeight;
      for (const part of this.parts) {
        const height = Math.min(token[part] / top * (kHeight - 4), y);
        y -= height;
        paths[part] += `M${(index * width).toFixed(2)} ${y.toFixed(2)}h${(width * 0.85).toFixed(2)}v${height.toFixed(2)}h-${(width * 0.85).toFixed(2)}z`;
      }
    });
    for (const part of this.parts) {
      let path = this.svg.querySelector(`.${part}`);
      if (!path) {
        path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
        path.setAttribute('class', part);
        this.svg.append(path);
      }
      path.setAttribute('d', paths[part]);
    }
    this.scale.textContent = `top: ${this.say(top)} a token`;
    const mean = tops.reduce((a, b) => a + b, 0) / tops.length;
    this.svg.setAttribute('aria-label',
      `${this.name}: ${shown.length} tokens, ${this.say(mean)} on average`);
  }
}

// Name and words of each figure of an answer: `receipt` is usage.splitcompute, `usage` the answer's.
const per_step = (ms) => (receipt) => `${(receipt[ms] / Math.max(1, receipt.steps)).toFixed(2)} ms`;
const per_token = (n) => (receipt, usage) =>
  bytes(Math.round(receipt[n] / Math.max(1, usage.prompt_tokens + usage.completion_tokens - 1)));
const kFigures = [
  ['First token after', (receipt) => `${receipt.time_to_first_token_ms.toFixed(0)} ms`],
  ['Tokens per second', (receipt) => receipt.tokens_per_second.toFixed(1)],
  ['Cloud, per step', per_step('cloud_ms')],
  ['Wire, per step', per_step('wire_ms')],
  ['Edge, per step', per_step('edge_ms')],
  ['Up, per token', per_token('bytes_up')],
  ['Down, per token', per_token('bytes_down')],
  ['Layer-rows on the cloud', (receipt) => String(receipt.cloud_layer_rows)],
  ['Replays', (receipt) => String(receipt.replays)],
];

// Before the first receipt each figure has its place already: nothing moves when it comes.
export function show(list, receipt, usage) {
  list.replaceChildren(...kFigures.map(([name, words]) => {
    const group = document.createElement('div'), term = document.createElement('dt'), detail = document.createElement('dd');
    term.textContent = name;
    detail.textContent = receipt ? words(receipt, usage) : '–';
    group.append(term, detail);
    return group;
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
