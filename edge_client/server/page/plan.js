// "Where should it run?": a row for each place, predicted where the edge has a plan, measured where this page saw answers.

import {boundary, boundary_now, bytes, cut_of, everything, highest, is_above, millis, place_words} from './machines.js';

const kWhy = {landed: 'its weights have landed', cloud_lost: 'the cloud was lost', asked_elsewhere: 'another program asked for it'};
export const why = (word) => kWhy[word] ?? String(word).replaceAll('_', ' ');

const kTokens = 64;  // length of the text whose time a plan compares

// Costs of answers at each cut, as seen by this page.
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
  // An answer that stayed where it began says which part of its work was the cloud's.
  judge({cut, moves, cloud_percent}) {
    const one = this.cuts.get(cut);
    if (one && moves.length === 0) one.percent = cloud_percent;
  }
  forget() { this.cuts.clear(); }
}

// Weights that are not on this computer of what would run here.
function to_fetch(state, value) {
  let sum = 0;
  for (const stage of state.stages) {
    if (is_above(state, value, stage)) sum += stage.where === 'edge' ? stage.bytes - stage.bytes_done : stage.bytes;
  }
  return sum;
}

function name_of(state, value) {
  return value === everything(state) ? 'all on the cloud' : value === 0 ? 'all here' : `cut ${value}`;
}

// The plan of what is shown (shown.js). `pick` is called with the boundary of a row that a person chose.
export function draw(body, sentence, {drawn, next: state, is_next}, seen, pick) {
  const now = boundary(state), to = boundary_now(state), at = boundary_now(drawn), planned = new Map(), encoder = state.kind === 'encoder';
  for (const row of state.plan?.cuts ?? []) planned.set(row.cut === 'cloud' ? everything(state) : row.cut, row);
  const chosen = state.plan?.pick ?? (state.plan && 'why' in state.plan ? state.plan : undefined);
  const best = chosen && (chosen.cut === 'cloud' ? everything(state) : chosen.cut);
  const values = new Set(state.base ? [now] : [everything(state), now, at, 0, ...(Number.isInteger(best) ? [best] : [])]);
  for (const cut of [...seen.cuts.keys()].reverse()) if (!state.base && values.size < 6) values.add(cut === 'cloud' ? everything(state) : cut);
  for (const half of [state.layers >> 1, state.layers >> 2, state.layers]) if (!state.base && values.size < 5) values.add(half);
  const texts = new Map();  // ms of 64 tokens, as the rows say them
  const rows = [...values].filter((value) => value <= highest(state)).sort((a, b) => b - a).map((value) => {
    const row = document.createElement('tr'), button = document.createElement('button');
    const one = seen.cuts.get(cut_of(state, value)), plan = planned.get(value);
    const first = one?.first ?? plan?.first_token_ms ?? undefined;  // null: not known yet
    const each = one?.tokens > 0 ? one.ms / one.tokens : plan?.token_ms ?? undefined;
    if (first !== undefined && each !== undefined && plan?.fits !== false) texts.set(value, first + kTokens * each);
    const part = one?.percent ?? plan?.cloud_percent, missing = value === now ? to_fetch(state, value) : plan?.missing_bytes ?? to_fetch(state, value);
    row.className = value === at ? 'now' : '';
    button.type = 'button';
    button.textContent = `${name_of(state, value)}${value === at ? is_next ? ' (next)' : ' (now)' : value === to ? ' (next)' : ''}${plan?.fits === false ? ' (does not fit)' : ''}`;
    button.title = place_words(state, value);
    button.disabled = value === now || plan?.fits === false;
    button.addEventListener('click', () => pick(value));
    row.insertCell().append(button);
    const times = encoder ? [] : [first, each].map((ms) => ms === undefined ? '–' : millis(ms));
    for (const words of [...times, part === undefined ? '–' : `${part} %`, bytes(missing)]) row.insertCell().textContent = words;
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
    : state.base ? 'The base is the cloud\'s alone: it has no stage here.'
    : chosen && Number.isInteger(best) ? plan_words(state, best, chosen, texts)
    : seen.cuts.size === 0 ? 'Times appear here as answers are measured.' : 'Measured by this page.';
}

// The plan's pick and its reason, with the rows' own if that differs.
function plan_words(state, best, {why: reason, reason: words}, texts) {
  const now = best === boundary(state), [fastest, ms] = [...texts].reduce((least, row) => row[1] < least[1] ? row : least, [best, texts.get(best) ?? Infinity]);
  const plan = `${now ? 'The plan stays' : state.auto ? 'The plan is going' : 'The plan would go'} ${now ? 'at' : 'to'} “${name_of(state, best)}”: ${words ?? why(reason)}`;
  return reason === 'fastest' && fastest !== best ? `${plan}. As measured here, “${name_of(state, fastest)}” is quicker: ${millis(ms)}.` : `${plan}.`;
}
