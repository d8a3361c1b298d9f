// Texts of the edge in this tab: from the cloud, while layers land, at a cut, and all here.
import {startEdge} from '/app/tab.js';

const pause = (ms) => new Promise((go) => { setTimeout(go, ms); });

export async function run({check, expect, same, asked}) {
  const said = [];
  let opened;
  const ready = new Promise((go) => { opened = go; });
  const edge = startEdge({modules: ['/app/edge.wasm', '/app/edge-plain.wasm'],
    options: {server: location.origin, cut: 'auto', goal: 'offload', device: 'cpu', threads: 1, ...JSON.parse(asked.options ?? '{}')},
    on: (event) => {
      said.push(event);
      if (event.type !== 'log') opened(event);
    }});
  const status = async () => (await edge.fetch('/split/status')).json();
  const ask = async (more) => {
    const body = {prompt: asked.prompt, max_tokens: 64, temperature: 0, stream: true,
      stream_options: {include_usage: true, continuous_usage_stats: true}, ...more};
    const begun = performance.now();
    const response = await edge.fetch('/v1/completions', {method: 'POST', body: JSON.stringify(body)});
    if (!response.ok) throw new Error(await response.text());
    let text = '', cost, done = false, rest = '';
    const times = [];
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const read = await reader.read();
      if (read.done) break;
      const events = (rest + read.value).split('\n\n');
      rest = events.pop();
      for (const event of events) {
        if (event === 'data: [DONE]') { done = true; continue; }
        const {choices, usage, error} = JSON.parse(event.slice('data: '.length));
        if (error) throw new Error(error.message);
        text += choices?.[0]?.text ?? '';
        if (choices?.[0]?.text) times.push(performance.now() - begun);
        cost = usage?.splitcompute ?? cost;
      }
    }
    expect(done, 'no [DONE]');
    return {text, cost, times};
  };
  const found = {};
  await check('opens', async () => same((await ready).type, 'opened'));
  await check('layers land while a text runs', async () => {
    let landed = 0;
    found.moves = [];
    for (let i = 0; i < 40 && (await status()).cut !== 0; ++i) {
      let running = true;
      const look = (async () => {
        const seen = new Set();
        for (; running; await pause(20)) seen.add((await status()).bytes_downloaded);
        landed += seen.size - 1;
      })();
      const {text, cost, times} = await ask({max_tokens: 300});
      running = false;
      await look;
      found.long ??= text;
      same(text, found.long, 'another text');
      found.first ??= times[0];
      found.moves.push(...cost.moves);
    }
    expect(landed >= 3, `parts of the weights came only between texts: ${landed}`);
  });
  await check('all of it comes', async () => {
    let now;
    for (let i = 0; i < 2400; ++i) {
      now = await status();
      if (now.stages.every(({runs}) => runs === 'here')) break;
      await pause(100);
    }
    found.status = now;
    found.heap = Number(/^process_resident_memory_bytes (\S+)/m.exec(await (await edge.fetch('/metrics')).text())[1]);
  });
  for (const cut of [...(asked.cuts ?? '').split(',').map(Number), 'cloud', 0]) {
    await check(`a text at cut ${cut}`, async () => {
      const put = await edge.fetch('/split/cut', {method: 'PUT', body: JSON.stringify({cut})});
      same(put.status, 200, await put.text());
      found[`greedy ${cut}`] = (await ask({})).text;
      const seeded = await ask({temperature: 0.8, top_p: 0.95, seed: 7});
      found[`seeded ${cut}`] = seeded.text;
      found[`cost ${cut}`] = seeded.cost;
      found[`ms ${cut}`] = (seeded.times.at(-1) - seeded.times[0]) / (seeded.times.length - 1);
    });
  }
  await check('an answer is cancelled', async () => {
    const tokens = async () => Number(/^split_edge_tokens_total\{kind="generated"\} (\S+)/m.exec(await (await edge.fetch('/metrics')).text())[1]);
    let ended = 'read', written;
    // A page that gets no turn for seconds may find a text whole: then another one is cancelled.
    for (let tries = 0; tries < 10 && ended === 'read'; tries++) {
      const before = await tokens(), control = new AbortController();
      const response = await edge.fetch('/v1/completions', {method: 'POST', signal: control.signal,
        body: JSON.stringify({prompt: asked.prompt, max_tokens: 400, temperature: 0, stream: true})});
      const reader = response.body.getReader();
      await reader.read();
      control.abort();
      ended = await reader.read().then(() => 'read', (error) => error.name);
      while ((await status()).answers.length > 0) await pause(10);
      written = await tokens() - before;
    }
    same(ended, 'AbortError');
    expect(written < 400, `went on to ${written} tokens`);
    same((await (await edge.fetch('/v1/completions', {method: 'POST', body: JSON.stringify({prompt: asked.prompt, max_tokens: 2, temperature: 0})})).json()).usage.completion_tokens, 2);
  });
  await check('what is wrong is told', async () => {
    same((await edge.fetch('/nothing')).status, 404);
    same((await edge.fetch('/v1/completions', {method: 'POST', body: '{"prompt": 1.5}'})).status, 400);
  });
  found.said = said.filter(({type}) => type === 'log').map(({line}) => line);
  return found;
}
