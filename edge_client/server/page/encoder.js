// What an encoder computes: two texts beside each other, and a list ranked by a query.

import * as figures from './figures.js';
import {source} from './source.js';

const $ = (id) => document.getElementById(id);

// An encoder writes nothing: what compares or ranks texts comes first, and what tells of words and of a head is not there.
export function show_kind(encoder, ranks) {
  $('ranking').hidden = !ranks;
  $('embeddings').hidden = ranks;
  if (document.body.classList.contains('encoder') === encoder) return;
  document.body.classList.toggle('encoder', encoder);
  for (const id of ['writing', 'took', 'bytes', 'head-choice']) $(id).hidden = encoder;
  for (const written of document.querySelectorAll('.written')) written.hidden = encoder;
  if (encoder) $('stages').after($('embeddings'), $('ranking'));
  else document.querySelector('.folds').prepend($('embeddings'), $('ranking'));
  $('embeddings').open = $('ranking').open = encoder;
}

async function compare() {
  const {vectors, usage} = await source.embed([$('first').value, $('second').value]);
  const cosine = figures.cosine(...vectors);
  $('cosine').textContent = `${figures.likeness(cosine)}: cosine ${cosine.toFixed(4)} over ${vectors[0].length} channels`;
  $('vectors').replaceChildren(...vectors.flatMap((vector) => [figures.strip(vector), figures.numbers(vector)]));
  return usage;
}

async function rank() {
  const lines = $('documents').value.split('\n').filter((line) => line.trim());
  const {results, usage} = await source.rerank($('query').value, lines);
  $('ranked').replaceChildren(...results.map(({index, relevance_score}) => {
    const item = document.createElement('li');
    item.textContent = `${relevance_score.toFixed(4)} ${lines[index]}`;
    return item;
  }));
  return usage;
}

// Runs both forms. `on_usage` hears what each trip took, `on_error` what went wrong.
export function listen(on_usage, on_error) {
  for (const [form, took, ask] of [['embed', 'embed-took', compare], ['rank', 'rank-took', rank]]) {
    $(form).addEventListener('submit', async (event) => {
      event.preventDefault();
      try {
        const usage = await ask();
        figures.show_verdict($(took), figures.embeddings_verdict(usage));
        on_usage(usage);
      } catch (error) {
        on_error(error);
      }
    });
  }
}
