// The edge's routes as the page uses them. Errors become one Error with a sentence for a person.

async function failure(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message || message;
  } catch { /* not our JSON: the status says it */ }
  return new Error(message);
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
    throw new Error('The edge does not answer. Is edge_client still running?');
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export const status = async () => (await send('GET', 'split/status')).json();
export const setCut = async (cut) => (await send('PUT', 'split/cut', {cut})).json();
export const unsplit = async (request, signal) =>
  (await send('POST', 'split/unsplit', request, signal)).json();
export const embeddings = async (texts) =>
  (await (await send('POST', 'v1/embeddings', {input: texts})).json()).data.map((one) => one.embedding);

// Calls on_event with the JSON of each event until [DONE].
// Throws when the stream tells of an error or ends before [DONE].
export async function stream(request, on_event, signal) {
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
