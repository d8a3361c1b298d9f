// An edge in a tab of any page: import {connect} from 'https://SERVER/app/splitcompute.js'.
// splitcompute.d.ts says what it gives.
import {modules} from './modules.js';
import {missing} from './start.js';
import {startEdge} from './tab.js';

// The texts in a stream of completions, one by one.
async function* textsOf(response) {
  let rest = '';
  for (const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();;) {
    const {value, done} = await reader.read();
    if (done) throw new Error('The answer broke off before its end.');
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith('data: ')) continue;
      if (event === 'data: [DONE]') return;
      const {error, choices} = JSON.parse(event.slice('data: '.length));
      if (error) throw new Error(error.message);
      if (choices?.[0]?.text) yield choices[0].text;
    }
  }
}

export async function connect(url, {key, on, ...flags} = {}) {
  const server = new URL(url, location.href).href.replace(/\/$/, '');
  const lacks = missing();
  const edge = lacks === null && startEdge({
    modules: modules.map((name) => new URL(name, import.meta.url).href), on,
    options: {server, cut: 'auto', goal: 'offload', ...flags, ...(key ? {'api-key': key} : {})},
  });

  async function edgeFetch(input, init) {
    const request = new Request(input, init);
    if (!request.url.startsWith(`${server}/`)) throw new TypeError(`expected an address below ${server}, got ${request.url}`);
    if (!edge) {  // the server answers alone
      const headers = new Headers(request.headers);
      headers.delete('Authorization');
      if (key) headers.set('Authorization', `Bearer ${key}`);
      return fetch(request, {headers});
    }
    return edge.fetch(request.url.slice(server.length), {method: request.method, body: await request.text(), signal: request.signal});
  }

  return {
    url: `${server}/v1`,
    missing: lacks,
    fetch: edgeFetch,
    async *generate(prompt, {signal, ...more} = {}) {
      const response = await edgeFetch(`${server}/v1/completions`,
        {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({prompt, ...more, stream: true}), signal});
      if (!response.ok) throw new Error((await response.json()).error.message);
      yield* textsOf(response);
    },
    status: async () => (await edgeFetch(`${server}/split/status`)).json(),
    close: () => edge && edge.close(),
  };
}
