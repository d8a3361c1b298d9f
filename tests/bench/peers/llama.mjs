// llama.cpp's side of `bench.sh peers`, by npm's node-llama-cpp: the same lines as tests/bench/bench_player.cpp has.
//   llama.mjs FILE.gguf THREADS
import { createInterface } from 'node:readline';
import { getLlama, LlamaLogLevel } from 'node-llama-cpp';

const kContext = 128;  // keys that a token of a decode or a batch sees
const kSequences = 32;
const [file, threads] = process.argv.slice(2);
const llama = await getLlama({
  gpu: false, build: 'never', skipDownload: true, maxThreads: Number(threads), logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath: file });
const vocabulary = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
const ids = Array.from({ length: 4096 }, (_, i) => (i * 7919 + 13) % vocabulary);
const threadsAlways = { ideal: Number(threads), min: Number(threads) };
// One context for what one sequence does, and one for many: a context's cache is shared out among its sequences.
const single = await model.createContext({ contextSize: 1024, batchSize: 512, threads: threadsAlways });
const one = single.getSequence();
let several, many;

const seconds = (since) => Number(process.hrtime.bigint() - since) / 1e9;

// Leaves the sequence with `length` tokens.
async function cut(sequence, length) {
  if (sequence.nextTokenIndex < length) {
    await sequence.evaluateWithoutGeneratingNewTokens(ids.slice(sequence.nextTokenIndex, length));
  } else if (sequence.nextTokenIndex > length) {
    await sequence.eraseContextTokenRanges([{ start: length, end: sequence.nextTokenIndex }]);
  }
}

// Evaluates a token and takes the most likely next one, `count` times.
async function generate(sequence, count) {
  let left = count;
  for await (const _ of sequence.evaluate([ids[kContext]], { temperature: 0, yieldEogToken: true })) {
    if (--left === 0) return;
  }
}

const answers = {
  async decode(count) {
    await cut(one, kContext - 1);
    const start = process.hrtime.bigint();
    await generate(one, count);
    return seconds(start) / count;
  },
  async prefill(length) {
    await one.clearHistory();
    const start = process.hrtime.bigint();
    await one.controlledEvaluate([...ids.slice(0, length - 1), [ids[length - 1], { generateNext: { token: true } }]]);
    return seconds(start);
  },
  async batch(sequences, count) {
    if (!several) {
      several = await model.createContext({
        contextSize: 256, batchSize: 512, sequences: kSequences, threads: threadsAlways,
      });
      many = Array.from({ length: kSequences }, () => several.getSequence());
    }
    const used = many.slice(0, sequences);
    for (const sequence of used) await cut(sequence, kContext - 1);
    const start = process.hrtime.bigint();
    await Promise.all(used.map((sequence) => generate(sequence, count)));
    return seconds(start) / count;
  },
};

console.log(`llama.cpp of node-llama-cpp, ${threads} threads`);
for await (const line of createInterface({ input: process.stdin })) {
  const [what, ...numbers] = line.split(' ');
  console.log(await answers[what](...numbers.map(Number)));
}
process.exit(0);
