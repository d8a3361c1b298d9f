// All that the page shows comes from `source`, and all that it does goes there: to the routes of an edge, whoever
// answers them (edge.js). Errors are one Error with a sentence for a person.

import {ask, gone} from './edge.js';
import {events_of} from './events.js';

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
    response = await ask(path, {
      method, signal,
      headers: body === undefined ? {} : {'Content-Type': 'application/json'},
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw Object.assign(new Error(gone), {gone: true});
  }
  if (!response.ok) throw await failure(response);
  return response;
}

// A chat's event in the shape of a completion's.
const as_completion = (chunk) => ({...chunk, choices: chunk.choices.map(({delta, logprobs}) => ({text: delta?.content ?? '', logprobs: {
  tokens: logprobs?.content?.map(({token}) => token), token_logprobs: logprobs?.content?.map(({logprob}) => logprob),
  top_logprobs: logprobs?.content?.map(({top_logprobs}) => Object.fromEntries(top_logprobs.map(({token, logprob}) => [token, logprob]))),
}}))});

// Calls on_event with the JSON of each event until [DONE]. Before its model is here a text comes without candidates.
// Throws when the stream tells of an error or ends before [DONE].
async function stream(request, on_event, signal, ready) {
  const chats = 'messages' in request, candidates = chats ? {logprobs: true, top_logprobs: 5} : {logprobs: 5};
  const response = await send('POST', chats ? 'v1/chat/completions' : 'v1/completions',
    {...request, ...(ready ? candidates : {}), stream: true,
      stream_options: {include_usage: true, continuous_usage_stats: true}}, signal);
  for await (const event of events_of(response)) {
    if (event.error) throw new Error(event.error.message);
    on_event(chats ? as_completion(event) : event);
  }
}

export const source = {
  // Returns what runs where: GET /split/status.
  status: async () => (await send('GET', 'split/status')).json(),

  // Returns whether the model has a chat template, and the bytes of all its weights.
  about: async () => {
    const [props, tags] = await Promise.all(['props', 'api/tags'].map(async (path) => (await send('GET', path)).json()));
    return {has_template: Boolean(props.chat_template), bytes: tags.models[0].size};
  },

  // A completion, or with `messages` a chat's answer, token by token to on_event in a completion's shape; with `alone`, at
  // once and by the cloud alone: {text}.
  generate: async (request, {on_event, signal, ready = true, alone = false} = {}) => {
    if (!alone) return stream(request, on_event, signal, ready);
    const chats = 'messages' in request;
    const [choice] = (await (await send('POST', chats ? 'split/unsplit/chat' : 'split/unsplit', request, signal)).json()).choices;
    return {text: chats ? choice.message.content : choice.text};
  },

  // {cut} moves the boundary, with `running` that of running answers too; any of {model, head,
  // format, device} makes another placement, where later answers begin. Returns the new status.
  move: async ({running, ...wish}) => {
    const placement = ['model', 'head', 'format', 'device'].some((key) => key in wish);
    const [path, body] = placement ? ['split/placement', wish] : ['split/cut', running ? {...wish, running} : wish];
    return (await send('PUT', path, body)).json();
  },

  // {bytes, files} of weights that this computer's disk keeps; and once they are deleted.
  kept: async () => (await send('GET', 'split/cache')).json(),
  forget: async () => (await send('DELETE', 'split/cache')).json(),

  // Ends the cloud, where the edge may.
  stop_cloud: () => send('POST', 'split/stop-cloud'),

  // {vectors, usage}: one vector a text, and what they took.
  embed: async (texts) => {
    const {data, usage} = await (await send('POST', 'v1/embeddings', {input: texts})).json();
    return {vectors: data.map((one) => one.embedding), usage};
  },
  // {results, usage}: the documents' places and scores, the best first, and what they took.
  rerank: async (query, documents) => (await send('POST', 'v1/rerank', {query, documents})).json(),
};
