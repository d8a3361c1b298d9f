// An edge in a tab of any page: import {connect} from 'https://SERVER/app/splitcompute.js'.
// splitcompute.d.ts says what it gives.
import {events_of} from './events.js';
import {modules} from './modules.js';
import {missing} from './start.js';
import {startEdge} from './tab.js';

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
      for await (const {error, choices} of events_of(response)) {
        if (error) throw new Error(error.message);
        if (choices?.[0]?.text) yield choices[0].text;
      }
    },
    status: async () => (await edgeFetch(`${server}/split/status`)).json(),
    close: () => edge && edge.close(),
  };
}
