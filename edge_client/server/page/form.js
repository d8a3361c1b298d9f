// The request: prompt and sampling, which survive a reload, kept apart for chats and for texts to continue.

import {keep, kept} from './kept.js';

const $ = (id) => document.getElementById(id);
const kKept = ['prompt', 'max-tokens', 'temperature', 'top-p', 'seed', 'stop'], kOfChat = {prompt: '', 'max-tokens': '512'};
const kHighest = 220;  // pixels of the prompt's box, some 8 lines

// The request that asks `what`, with a seed of its own where none is given.
export function request(what) {
  const seed = $('seed').value === '' ? Math.floor(Math.random() * 2 ** 32) : Number($('seed').value);
  const made = {
    ...what, max_tokens: Number($('max-tokens').value), temperature: Number($('temperature').value),
    top_p: Number($('top-p').value), seed,
  };
  if ($('stop').value !== '') made.stop = $('stop').value;
  return made;
}

function show() {
  const seed = $('seed').value === '' ? 'a new seed each time' : `seed ${$('seed').value}`;
  const stop = $('stop').value === '' ? '' : ` · stop at “${$('stop').value}”`;
  $('sampling-words').textContent = `${$('max-tokens').value} tokens · temperature ${$('temperature').value} · top-p ${$('top-p').value} · ${seed}${stop}`;
  // The prompt's box is as high as its text.
  const box = $('prompt');
  box.style.height = '';
  if (box.scrollHeight > box.clientHeight + 2) box.style.height = `${Math.min(box.scrollHeight + 2, kHighest)}px`;
}

const name_of = (chatting) => chatting ? 'asked-chat' : 'asked';
export function remember(chatting) {
  keep(name_of(chatting), Object.fromEntries(kKept.map((id) => [id, $(id).value])));
  show();
}
let shared = new URLSearchParams(location.hash.slice(1)).get('prompt');  // a link's
export function recall(chatting) {
  const values = {...kept(name_of(chatting)), ...(shared === null ? {} : {prompt: shared})};
  shared = null;
  for (const id of kKept) $(id).value = values[id] ?? (chatting ? kOfChat[id] : undefined) ?? $(id).defaultValue;
  show();
}
export function write_prompt(words) {
  $('prompt').value = words;
  show();
}

// Sets a select's [value, words], unless it has them already.
export function offer(select, list, value) {
  const made = JSON.stringify(list);
  if (select.dataset.made !== made) {
    select.replaceChildren(...list.map(([key, words]) => new Option(words, key)));
    select.dataset.made = made;
  }
  if (document.activeElement !== select || select.disabled) select.value = value;
}
