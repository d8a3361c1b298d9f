// The bits of each format of weights (tests/web/bits.cpp), and which file this browser takes.
import {missing, roundsOnce} from '/app/start.js';
import {open} from './module.js';

export async function run() {
  const rounds = await roundsOnce();
  return {missing: missing(), rounds, lines: rounds ? await (await open()).call('bits') : ''};
}
