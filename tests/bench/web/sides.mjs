// The sides that bench.sh web times: texts of an edge in a tab, of a server by its routes, and of other programs in a tab.

// A text: when its tokens came, in ms, and how many a second there were behind the first, as the receipt has it: of a model
// without a vocabulary nothing is streamed before the end; and its moves. `each`: tokens are told one by one, at a cost. Runs in a page too: it names nothing outside itself.
export async function streamed(ask, url, body, each = false) {
  const response = await ask(url, {method: 'POST', headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({temperature: 0, ignore_eos: true, ...body, stream: true, stream_options: {include_usage: true, ...(each ? {continuous_usage_stats: true} : {})}})});
  if (!response.ok) throw new Error(await response.text());
  let rate = 0, moves = [];
  const times = [], reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '', tokens = 0;;) {
    const {value, done} = await reader.read();
    if (done) return {times, rate, moves};
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith('data: {')) continue;
      const {usage, error} = JSON.parse(event.slice('data: '.length));
      if (error) throw new Error(error.message);
      rate = usage?.splitcompute?.tokens_per_second ?? rate;
      moves = usage?.splitcompute?.moves ?? moves;
      for (; tokens < (usage?.completion_tokens ?? 0); ++tokens) times.push(performance.now());
    }
  }
}

// An edge of splitcompute.js on a page of the server's origin, ready where its cut is fixed, or as it begins.
export async function ours(browser, server, options, begun = false) {
  const context = await browser.newContext(), page = await context.newPage();
  await page.goto(`${server.url}/livez`);
  await page.evaluate(async ({options, streamed, begun}) => {
    globalThis.streamed = eval(`(${streamed})`);
    globalThis.edge = await (await import('/app/splitcompute.js')).connect(location.origin, options);
    const ready = async () => (await edge.status()).state === 'ready';
    while (!begun && !await ready()) await new Promise((go) => { setTimeout(go, 50); });
  }, {options, streamed: String(streamed), begun});
  const side = {
    ask: (body, each) => page.evaluate(([body, each]) => globalThis.streamed(edge.fetch, `${edge.url}/completions`, body, each), [body, each]),
    status: () => page.evaluate(() => edge.status()),
    all_here: () => page.evaluate(async () => {
      while (!(await edge.status()).stages.every(({runs}) => runs === 'here')) await new Promise((go) => { setTimeout(go, 50); });
    }),
    put_cut: (cut) => page.evaluate(async (cut) => {
      const reply = await edge.fetch(`${location.origin}/split/cut`, {method: 'PUT', body: JSON.stringify({cut})});
      if (!reply.ok) throw new Error(await reply.text());
    }, cut),
    // Bytes of the module's memory, and of the weights that are in it.
    memory: () => page.evaluate(async () => {
      const metrics = await (await edge.fetch(`${location.origin}/metrics`)).text(), {stages} = await edge.status();
      return {heap: Number(/^process_resident_memory_bytes (\S+)/m.exec(metrics)[1]),
        weights: stages.reduce((sum, {bytes, runs}) => sum + (runs === 'here' ? bytes : 0), 0)};
    }),
    close: () => context.close(),
  };
  return side;
}

// A page whose workers and itself remember the memories that their modules have.
const kRemember = `globalThis.memories = [];
  for (const name of ['instantiate', 'instantiateStreaming']) {
    const before = WebAssembly[name];
    WebAssembly[name] = async (source, imports) => {
      for (const from of Object.values(imports ?? {})) memories.push(...Object.values(from).filter((one) => one instanceof WebAssembly.Memory));
      const made = await before.call(WebAssembly, source, imports);
      memories.push(...Object.values((made.instance ?? made).exports).filter((one) => one instanceof WebAssembly.Memory));
      return made;
    };
  }
`;
async function opened(browser, url, script, more) {
  const context = await browser.newContext(), page = await context.newPage();
  await context.addInitScript(`${kRemember}
    const OwnBlob = Blob;  // a worker's script
    globalThis.Blob = class extends OwnBlob {
      constructor(parts, options) { super(/javascript/.test(options?.type) ? [${JSON.stringify(kRemember)}, ...parts] : parts, options); }
    };`);
  await page.goto(`${url}/`);
  await page.evaluate(script, more);
  const largest = () => Math.max(0, ...globalThis.memories.map(({buffer}) => buffer.byteLength));
  return {page, close: () => context.close(),
    memory: async () => Math.max(...await Promise.all([page, ...page.workers()].map((one) => one.evaluate(largest).catch(() => 0))))};
}

// Each gives tokens_per_s(count, ids) behind a prompt of ids, and memory(), its heap in bytes.
export const peers = {
  async wllama(browser, {url}, file, threads) {
    const {page, close, memory} = await opened(browser, url, async ({file, threads}) => {
      const {Wllama} = await import('/npm/@wllama/wllama/esm/index.min.js');
      globalThis.wllama = new Wllama({default: '/npm/@wllama/wllama/esm/wasm/wllama.wasm'}, {suppressNativeLog: true});
      await wllama.loadModelFromUrl(`${location.origin}/model/${file}`, {n_threads: threads, n_ctx: 256, n_gpu_layers: 0, useCache: false});
      if (wllama.getNumThreads() !== threads) throw new Error(`wllama has ${wllama.getNumThreads()} threads`);
    }, {file, threads});
    return {close, memory,
      // Its prompts are texts: letters, a token each in the made-up vocabulary.
      tokens_per_s: (count, ids) => page.evaluate(async ({count, prompt}) => {
        const times = [], control = new AbortController();
        const chunks = await wllama.createCompletion({prompt, max_tokens: count, temperature: 0, stream: true, ignore_eos: true, abortSignal: control.signal});
        for await (const chunk of chunks) if (chunk) times.push(performance.now());
        return 1000 * (times.length - 1) / (times.at(-1) - times[0]);
      }, {count, prompt: 'x'.repeat(ids.length)})};
  },
  async onnx(browser, {url}, file, threads) {
    const {page, close, memory} = await opened(browser, url, async ({file, threads}) => {
      const ort = await import('/npm/onnxruntime-web/dist/ort.wasm.min.mjs');
      ort.env.wasm.numThreads = threads;
      ort.env.wasm.wasmPaths = '/npm/onnxruntime-web/dist/';
      const session = await ort.InferenceSession.create(`/model/${file}`, {executionProviders: ['wasm'], graphOptimizationLevel: 'all',
        externalData: [{path: `${file}.data`, data: `/model/${file}.data`}]});
      const config = await (await fetch('/model/config.json')).json();
      const rows = async (ids, kept) => {
        const feeds = {input_ids: new ort.Tensor('int64', BigInt64Array.from(ids.map(BigInt)), [1, ids.length])};
        for (const name of session.inputNames.filter((name) => name.startsWith('past.'))) {
          feeds[name] = kept?.[name.replace('past', 'present')] ??
            new ort.Tensor('float32', new Float32Array(0), [1, config.n_head, 0, config.n_embd / config.n_head]);
        }
        return session.run(feeds);
      };
      const greedy = ({logits: {data}}) => {
        const last = data.subarray(data.length - config.vocab_size);
        let best = 0;
        for (let i = 1; i < last.length; ++i) if (last[i] > last[best]) best = i;
        return best;
      };
      globalThis.write = async (count, ids) => {
        const times = [];
        for (let result = await rows(ids);; result = await rows([greedy(result)], result)) {
          times.push(performance.now());
          if (times.length === count) return 1000 * (count - 1) / (times.at(-1) - times[0]);
        }
      };
    }, {file, threads});
    return {close, memory, tokens_per_s: (count, ids) => page.evaluate(({count, ids}) => write(count, ids), {count, ids})};
  },
};
