// ONNX Runtime's side of `bench.sh peers`, by npm's onnxruntime-node: the same lines as tests/bench/bench_player.cpp has,
// but for a batch, which this graph does not keep apart.
//   ort.mjs FOLDER THREADS      the folder has model.onnx and config.json
import { createInterface } from 'node:readline';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import ort from 'onnxruntime-node';

const [folder, threads] = process.argv.slice(2);
const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
const session = await ort.InferenceSession.create(join(folder, 'model.onnx'), {
  executionProviders: ['cpu'], intraOpNumThreads: Number(threads), interOpNumThreads: 1, graphOptimizationLevel: 'all',
});
const ids = Array.from({ length: 1024 }, (_, i) => BigInt((i * 7919 + 13) % config.vocab_size));
const seconds = (since) => Number(process.hrtime.bigint() - since) / 1e9;
const whole = (values, dims) => new ort.Tensor('int64', BigInt64Array.from(values), dims);

// Runs rows behind `kept`, the keys and values of earlier ones; returns those of all.
async function rows(values, kept) {
  const feeds = { input_ids: whole(values, [1, values.length]) };
  const heads = config.n_head;
  for (const name of session.inputNames.filter((n) => n.startsWith('past.'))) {
    feeds[name] = kept?.[name.replace('past', 'present')] ??
      new ort.Tensor('float32', new Float32Array(0), [1, heads, 0, config.n_embd / heads]);
  }
  return session.run(feeds);
}

let before;
const answers = {
  async decode(count, keys) {
    before ??= await rows(ids.slice(0, keys - 1));
    const start = process.hrtime.bigint();
    for (let i = 0; i < count; ++i) await rows([ids[keys]], before);
    return seconds(start) / count;
  },
  async prefill(length) {
    const start = process.hrtime.bigint();
    await rows(ids.slice(0, length));
    return seconds(start);
  },
  // The mean vector of each of `texts` texts of `length` tokens.
  async embed(texts, length) {
    const all = Array.from({ length: texts * length }, (_, i) => ids[i % ids.length]);
    const feeds = { input_ids: whole(all, [texts, length]), attention_mask: whole(all.map(() => 1n), [texts, length]) };
    const start = process.hrtime.bigint();
    const { last_hidden_state: state } = await session.run(feeds);
    const channels = state.dims[2], mean = new Float32Array(texts * channels), { data } = state;
    for (let text = 0, i = 0; text < texts; ++text) {
      for (let row = 0; row < length; ++row) {
        for (let c = text * channels, end = c + channels; c < end; ++c, ++i) mean[c] += data[i];
      }
    }
    return seconds(start);
  },
};

console.log(`ONNX Runtime ${ort.env.versions.node ?? ''}, ${threads} threads`);
for await (const line of createInterface({ input: process.stdin })) {
  const [what, ...numbers] = line.split(' ');
  console.log(await answers[what](...numbers.map(Number)));
}
process.exit(0);
