// Embeddings and scores of the edge in this tab, of the models that are named (?models=a,b): at each cut the numbers of the cloud
// alone, whether a text is alone, in a list or in another order. Gives what it found: {model: {texts: [[name of the prompt, numbers]]}}.
import {startEdge} from '/app/tab.js';

export async function run({check, same, asked}) {
  const found = {};
  for (const model of asked.models.split(',')) {
    await check(model, async () => {
      const [config, golden] = await Promise.all(['config.json', 'golden.json'].map(async (name) => (await fetch(`/golden/${model}/${name}`)).json()));
      const prompts = golden.prompts.filter(({text}) => typeof text === 'string');
      let say, edge;
      const opened = new Promise((go) => { say = go; });
      edge = startEdge({modules: ['/app/edge.wasm', '/app/edge-plain.wasm'],
        options: {server: location.origin, model, cut: 0, device: 'cpu', threads: 1}, on: (event) => { if (event.type !== 'log') say(event); }});
      try {
        same((await opened).type, 'opened');
        const post = async (ask, path, body) => {
          const reply = await ask(path, {method: 'POST', body: JSON.stringify({model, ...body})});
          if (!reply.ok) throw new Error(`${path}: ${await reply.text()}`);
          return reply.json();
        };
        const numbers = async (ask, texts, name) => (await post(ask, '/v1/embeddings',
          {input: texts, encoding_format: 'base64', truncate: true, ...(name && {prompt_name: name})})).data.map(({embedding}) => embedding);
        const scores = async (ask, texts, query) => {
          const {results} = await post(ask, '/v1/rerank', {query, documents: texts});
          return texts.map((_, index) => results.find((one) => one.index === index).relevance_score);
        };
        const here = (path, options) => edge.fetch(path, options), cloud = (path, options) => fetch(path, options);
        const ranks = model.startsWith('rerank'), of = ranks ? scores : numbers, texts = prompts.map(({text}) => text);
        // A reranker's texts each have a query, an encoder's may have the prompts of its model.
        const with_them = ranks ? prompts.map(({query}) => query) : [undefined, ...Object.keys(golden.prompts_of_the_model ?? {})];
        found[model] = [];
        for (let cut = 0; cut <= config.num_hidden_layers; ++cut) {
          if (cut > 0) same((await edge.fetch('/split/cut', {method: 'PUT', body: JSON.stringify({cut})})).status, 200);
          for (const [at, with_it] of with_them.entries()) {
            const list = await of(here, texts, with_it), words = `${with_it} at cut ${cut}`;
            same(list, await of(cloud, texts, with_it), words);
            same((await of(here, [...texts].reverse(), with_it)).reverse(), list, `another order, ${words}`);
            for (const [i, text] of texts.entries()) same((await of(here, [text], with_it))[0], list[i], `alone, ${words}`);
            if (cut === 0) found[model].push(ranks ? list[at] : list);
          }
        }
      } finally {
        edge.close();
      }
    });
  }
  return found;
}
