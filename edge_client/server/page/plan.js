// "Where should it run?": a row for each place, predicted where the edge has a plan, measured where this page saw answers.

import {boundary, boundary_now, bytes, cut_of, everything, highest, millis, place_words} from './machines.js';

const kWhy = {
  fastest: 'nothing is faster', goal: 'it meets the goal', only_fit: 'nothing else fits this computer',
  asked_by_cloud: 'the cloud asked for it', landed: 'its weights have landed', asked: 'you asked for it',
  cloud_lost: 'the cloud was lost', asked_elsewhere: 'another program asked for it',
};
export const why = (word) => kWhy[word] ?? String(word).replaceAll('_', ' ');

// What answers cost at each cut, as this page saw it.
export class Seen {
  cuts = new Map();
  add(cut, ms, first) {
    const one = this.cuts.get(cut) ?? {tokens: 0, ms: 0, first: undefined};
    if (first) one.first = ms;
    else {
      one.tokens++;
      one.ms += ms;
    }
    this.cuts.set(cut, one);
  }
  forget() { this.cuts.clear(); }
}

// Weights that are not on this computer of what would run here.
function to_fetch(state, value) {
  let sum = 0;
  for (const stage of state.stages) {
    const block = /^block\.(\d+)$/.exec(stage.name)?.[1];
    const here = value < everything(state) && (block !== undefined ? Number(block) >= value : stage.name === 'embed' ? value === 0
      : !(stage.name === 'head' && state.head === 'cloud'));
    if (here) sum += stage.where === 'edge' ? stage.bytes - stage.bytes_done : stage.bytes;
  }
  return sum;
}

function name_of(state, value) {
  return value === everything(state) ? 'all on the cloud' : value === 0 ? 'all here' : `cut ${value}`;
}

// `pick` is called with the boundary of a row that a person chose.
export function draw(body, sentence, state, seen, pick) {
  const now = boundary(state), at = boundary_now(state), planned = new Map(), encoder = state.kind === 'encoder';
  for (const row of state.plan?.cuts ?? []) planned.set(row.cut === 'cloud' ? everything(state) : row.cut, row);
  const chosen = state.plan?.pick ?? (state.plan && 'why' in state.plan ? state.plan : undefined);
  const best = chosen && (chosen.cut === 'cloud' ? everything(state) : chosen.cut);
  const values = new Set([everything(state), now, 0, ...(Number.isInteger(best) ? [best] : [])]);
  for (const cut of [...seen.cuts.keys()].reverse()) if (values.size < 6) values.add(cut === 'cloud' ? everything(state) : cut);
  for (const half of [state.layers >> 1, state.layers >> 2, state.layers]) if (values.size < 5) values.add(half);
  const eachs = new Map();  // ms of a token, as the rows say them
  const rows = [...values].filter((value) => value <= highest(state)).sort((a, b) => b - a).map((value) => {
    const row = document.createElement('tr'), button = document.createElement('button');
    const one = seen.cuts.get(cut_of(state, value)), plan = planned.get(value);
    const first = one?.first ?? plan?.first_token_ms ?? undefined;  // null: not known yet
    const each = one?.tokens > 0 ? one.ms / one.tokens : plan?.token_ms ?? undefined;
    if (each !== undefined && plan?.fits !== false) eachs.set(value, each);
    const missing = value === now ? to_fetch(state, value) : plan?.missing_bytes ?? to_fetch(state, value);
    row.className = value === at ? 'now' : '';
    button.type = 'button';
    button.textContent = `${name_of(state, value)}${value === at ? ' (now)' : ''}${plan?.fits === false ? ' (does not fit)' : ''}`;
    button.title = place_words(state, value);
    button.disabled = value === now || plan?.fits === false;
    button.addEventListener('click', () => pick(value));
    row.insertCell().append(button);
    const times = encoder ? [] : [first, each].map((ms) => ms === undefined ? '–' : millis(ms));
    for (const words of [...times, plan ? `${plan.cloud_percent} %` : '–', bytes(missing)]) row.insertCell().textContent = words;
    return row;
  });
  const labels = rows.map((row) => row.textContent).join('|');
  if (body.dataset.shown !== `${labels}|${now}`) {  // a row under the pointer stays, unless its figures change
    const index = [...body.children].findIndex((row) => row.contains(document.activeElement));
    body.replaceChildren(...rows);
    body.dataset.shown = `${labels}|${now}`;
    if (index >= 0) body.children[index]?.querySelector('button').focus();
  }
  sentence.textContent = encoder ? 'However many texts there are, a cut adds one round trip of your line to them all.'
    : chosen && Number.isInteger(best) ? plan_words(state, best, chosen.why, [...planned.values()].filter(({fits}) => fits).length, eachs, planned.get(best)?.missing_bytes ?? to_fetch(state, best))
    : seen.cuts.size === 0 ? 'Times appear here as answers are measured.' : 'Measured by this page.';
}

// What the plan would have, and where the rows say otherwise, that too.
function plan_words(state, best, reason, fitting, eachs, missing) {
  const name = name_of(state, best), now = best === boundary(state);
  const [fastest, ms] = [...eachs].reduce((least, row) => row[1] < least[1] ? row : least, [best, eachs.get(best) ?? Infinity]);
  if (reason === 'fastest' && fastest !== best && ms < Infinity)
    return `The plan foresees that nothing is faster than ${name}; as measured here, ${name_of(state, fastest)} is.`;
  return `${now ? 'The plan stays' : state.auto ? 'The plan is going' : 'The plan would go'} ${now ? 'at' : 'to'} “${name}”: ${reason === 'only_fit' && fitting > 1 ? 'nothing else is measured yet' : why(reason)}${reason === 'fastest' && missing > 0 ? ' once its weights are here' : ''}.`;
}
