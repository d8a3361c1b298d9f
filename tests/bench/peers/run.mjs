// `bench.sh peers`: times this project's steps, llama.cpp's and ONNX Runtime's (f32) in turn on the same random weights, and
// prints medians of their ratios; above 1 ours is faster.
//   run.mjs PLAYER FOLDER [--json FILE] [--size SIZE] [--threads N] [--runs N] [--formats f16,q8_0,...]
// Formats also q4_k and q4_k_int8, which no profile makes: the same file on both sides.
// PLAYER is build/bin/bench_player; FOLDER has node_modules and gets the weights.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const here = dirname(fileURLToPath(import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'string' }, size: { type: 'string', default: 'gpt2' }, runs: { type: 'string', default: '5' },
    threads: { type: 'string', default: String(availableParallelism()) },
    formats: { type: 'string', default: 'f32,f16,q8_0,q8_0_int8,q4_0,q4_0_int8' },
  },
});
const [player, folder] = positionals;
const prompt = 512, sequences = 16;
const asks = [
  { name: 'decode', line: 'decode 12', unit: 'tokens/s', of: (s) => 1 / s },
  { name: `prefill_${prompt}`, line: `prefill ${prompt}`, unit: 'tokens/s', of: (s) => prompt / s },
  { name: `batch_${sequences}`, line: `batch ${sequences} 6`, unit: 'tokens/s', of: (s) => sequences / s },
];

// An encoder has a text of 128 tokens, and 256 texts of 16 in one request.
const texts = [[1, 128], [256, 16]].map(([count, length]) => ({
  name: `embed_${count}x${length}`, line: `embed ${count} ${length}`, unit: 'texts/s', of: (s) => count / s,
}));
const encoder = /minilm|bge/.test(values.size);

function must(command, args) {
  const { status, error } = spawnSync(command, args, { stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) throw new Error(`${command} ${args[0]}: ${error ?? `exit code ${status}`}`);
}

// A program that answers each line by a line.
class Side {
  constructor(command, args) {
    this.child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
    this.name = this.line();
  }
  async line() {
    const { value, done } = await this.lines.next();
    if (done) throw new Error('a side ended before its answer');
    return value;
  }
  async ask(line) {
    this.child.stdin.write(`${line}\n`);
    const seconds = Number(await this.line());
    if (!(seconds > 0)) throw new Error(`'${line}': expected seconds`);
    return seconds;
  }
  end() {
    this.child.stdin.end();
  }
}

const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];
const rows = [];
const python = (...args) => must('/usr/bin/python3', args);

// Times each line on both sides in turn.
async function compare(weights, format, lines, peer_name, command, args) {
  // "q4_0_int8": these blocks, and rows rounded to eight bits as llama.cpp's are. Blocks of a file
  // are multiplied as they lie.
  const blocks = format.replace('_int8', '');
  const own = weights.endsWith('.gguf');
  const how = blocks === format ? ['--profile', own ? 'f32' : format]
    : ['--profile', 'int8', '--format', own ? 'own' : blocks];
  const ours = new Side(player, [...how, '--threads', values.threads, '--model', weights]);
  const theirs = new Side(command, args);
  await ours.name, await theirs.name;
  // The other side's threads may spin for a while behind its answer.
  const rested = async (side, line) => {
    await new Promise((resolve) => setTimeout(resolve, 200));
    return side.ask(line);
  };
  for (const ask of lines) {
    const times = { ours: [], theirs: [], ratios: [] };
    await ours.ask(ask.line), await theirs.ask(ask.line);  // not counted: first touches
    for (let run = 0; run < Number(values.runs); ++run) {
      const mine = await rested(ours, ask.line), other = await rested(theirs, ask.line);
      times.ours.push(mine), times.theirs.push(other), times.ratios.push(other / mine);
    }
    const row = {
      name: `${ask.name}_${format}`, ours: ask.of(median(times.ours)), peer: ask.of(median(times.theirs)),
      peer_name, unit: ask.unit, ratio: median(times.ratios),
    };
    rows.push(row);
    console.log(`${row.name.padEnd(20)} ${row.ours.toFixed(1).padStart(9)} ${row.unit}, ` +
                `${peer_name} ${row.peer.toFixed(1).padStart(9)}, ratio ${row.ratio.toFixed(2)}`);
  }
  ours.end(), theirs.end();
}
// The directory of the model in a type, made when it is first wanted.
function model(dtype, ...more) {
  const dir = join(folder, `${values.size}-${dtype}`);
  if (!existsSync(join(dir, 'model.safetensors'))) {
    const arch = archs.find(([sizes]) => sizes.test(values.size))[1];
    python(join(here, '../../../scripts/make_random_model.py'), '--arch', arch, '--size', values.size,
           '--dtype', dtype, '--out', dir, ...more);
  }
  return dir;
}

const archs = [[/gpt2/, 'gpt2'], [/llama|smollm/, 'llama'], [/qwen2/, 'qwen2'], [/qwen3/, 'qwen3'],
               [/minilm|bge/, 'bert']];
console.log(`${values.size}, ${values.threads} threads, medians of ${values.runs} runs in turn (above 1: ours is faster)`);
// ONNX Runtime's side of an encoder is in f32, ours with bf16 rows and weights too.
for (const format of encoder ? ['f32', 'bf16'] : values.formats.split(',')) {
  const blocks = format.replace('_int8', '');
  if (format === 'f32' || encoder) {
    if (!/gpt2/.test(values.size) && !encoder) continue;
    const dir = model('f32', '--onnx');
    const lines = encoder ? texts : asks.filter((ask) => !ask.line.startsWith('batch'));
    await compare(dir, format, lines, 'ONNX Runtime', process.execPath, [join(folder, 'ort.mjs'), dir, values.threads]);
    continue;
  }
  const dir = model('f16'), file = join(dir, `${blocks}.gguf`);
  if (!existsSync(file)) {
    // As the profile of that name has it, or as llama.cpp's files of it do.
    const head = { q4_0: 'q8_0', q4_k: 'q6_k' }[blocks] ?? blocks;
    python(join(here, '../../support/make_gguf.py'), dir, file, '--type', blocks.toUpperCase(),
           '--head-type', head.toUpperCase(), '--made-up-tokens');
  }
  await compare(blocks === 'q4_k' ? file : dir, format, asks, 'llama.cpp', process.execPath, [join(folder, 'llama.mjs'), file, values.threads]);
}
if (values.json) writeFileSync(values.json, `${JSON.stringify(rows, null, 1)}\n`);
