// All that the page shows comes from `source`, and all that it does goes there: another object with
// these four calls can stand in for the edge's routes. Errors are one Error with a sentence for a person.

async function failure(response) {
  const error = new Error(`${response.status} ${response.statusText}`);
  try {
    const said = (await response.json()).error;
    error.message = said.message || error.message;
    error.code = said.code;
    error.field = said.param;
  } catch { /* not our JSON: the status says it */ }
  error.status = response.status;
  return error;
}

async function send(method, path, body, signal) {
  let response;
  try {
    response = await fetch(path, {
      method, signal, cache: 'no-store',
      headers: body === undefined ? {} : {'Content-Type': 'application/json'},
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw Object.assign(new Error('The edge does not answer. Is edge_client still running?'), {gone: true});
  }
  if (!response.ok) throw await failure(response);
  return response;
}

// Calls on_event with the JSON of each event until [DONE].
// Throws when the stream tells of an error or ends before [DONE].
async function stream(request, on_event, signal) {
  const response = await send('POST', 'v1/completions',
    {...request, stream: true, stream_options: {include_usage: true, continuous_usage_stats: true}}, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read().catch((error) => {
      if (error.name === 'AbortError') throw error;
      throw new Error('The edge went away in the middle of the answer.');
    });
    if (done) throw new Error('The answer broke off before its end.');
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith('data: ')) continue;  // a comment that keeps the connection alive
      const data = event.slice('data: '.length);
      if (data === '[DONE]') return;
      const parsed = JSON.parse(data);
      if (parsed.error) throw new Error(parsed.error.message);
      on_event(parsed);
    }
  }
}

export const source = {
  // What runs where: GET /split/status.
  status: async () => (await send('GET', 'split/status')).json(),

  // A completion, token by token to on_event; with `alone`, at once and by the cloud alone: {text}.
  generate: async (request, {on_event, signal, alone = false} = {}) => {
    if (!alone) return stream(request, on_event, signal);
    const {logprobs, ...plain} = request;
    return {text: (await (await send('POST', 'split/unsplit', plain, signal)).json()).choices[0].text};
  },

  // {cut} moves the boundary, with `running` that of running answers too; any of {model, head,
  // format, device} makes another placement, where later answers begin. Returns the new status.
  move: async ({running, ...wish}) => {
    const placement = ['model', 'head', 'format', 'device'].some((key) => key in wish);
    const [path, body] = placement ? ['split/placement', wish] : ['split/cut', running ? {...wish, running} : wish];
    return (await send('PUT', path, body)).json();
  },

  // {vectors, usage}: one vector a text, and what they took.
  embed: async (texts) => {
    const {data, usage} = await (await send('POST', 'v1/embeddings', {input: texts})).json();
    return {vectors: data.map((one) => one.embedding), usage};
  },
};
