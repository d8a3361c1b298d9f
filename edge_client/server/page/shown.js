// The subject of the picture: the answer on the page, where it runs or where it ended; and the next one's place where there is no answer, or
// once a person has chosen another place.

import {based, boundary_now, placed} from './machines.js';

// `asked`: the request of the answer on the page, `receipt`: its own so far. `chosen`: a person chose a place since it began. `base`:
// the next one is of the base beside a tail. Returns {drawn, next}, two statuses, with the receipt of the answer that is drawn, and
// whether the next one's place is drawn in place of an answer's.
export function shown(state, {asked, receipt, running, chosen, base}) {
  const next = state.tail && base ? based(state) : state;
  const of_base = state.tail && asked?.model === state.model;
  if (!asked || !(of_base || [undefined, state.model, state.tail?.model].includes(asked.model)) || !(receipt || running)) return {drawn: next, next};
  const drawn = of_base ? based(state) : receipt ? placed(state, receipt.moves.at(-1)?.to ?? receipt.cut) : state;
  const same = boundary_now(drawn) === boundary_now(next) && drawn.base === next.base;
  if (chosen && !running && !same) return {drawn: next, next, is_next: true};
  return {drawn, next, receipt, differs: !same};
}

// The weights that a text would need to go on without its cloud; 0 where it goes on, or waits whatever is here.
export function lacking({drawn, next}) {
  if (drawn.base || !next.goes_on || drawn.stages.every(({runs}) => runs === 'here')) return 0;
  return next.plan?.cuts.find(({cut}) => cut === 0)?.missing_bytes ?? 0;
}
