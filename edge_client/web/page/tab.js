// The edge in this tab: a fetch() whose server is a worker of its own.

const encoder = new TextEncoder();
const kScript = new URL('worker.js', import.meta.url);
const kMinute = 60_000;

// A page of another origin may not start the worker, but a script of its own that imports it.
function newWorker() {
  const script = kScript.origin === location.origin ? kScript :
    URL.createObjectURL(new Blob([`import ${JSON.stringify(String(kScript))};`], {type: 'text/javascript'}));
  return new Worker(script, {type: 'module'});
}

// Whether it asks for a stream; whose text gets a seed, so that it is drawn in the same way should it be asked for again.
function readBody(path, body) {
  let asked = null;
  try { asked = JSON.parse(body); } catch { /* the edge says what is wrong with it */ }
  const streams = path.startsWith('v1/') && asked?.stream === true;
  if (!streams || 'seed' in asked || !path.endsWith('completions')) return {body, streams};
  return {body: JSON.stringify({...asked, seed: crypto.getRandomValues(new Uint32Array(1))[0]}), streams};
}

// How far the texts of a stream were told, by choice. Asked for once more, its events may be cut elsewhere.
class Told {
  #lengths = new Map();
  #known = new Map();  // texts of these that will come again
  again() { this.#known = new Map(this.#lengths); }
  // The event without what was told before, and its JSON; null where that is all of it.
  rest(json) {
    const event = JSON.parse(json), again = this.#known.size > 0;
    let fresh = !again || 'error' in event;
    for (const choice of event.choices ?? []) {
      const [holder, field] = 'text' in choice ? [choice, 'text'] : [choice.delta ?? {}, 'content'];
      const text = holder[field] ?? '', known = this.#known.get(choice.index) ?? 0, skip = Math.min(known, text.length);
      if (again) holder[field] = text.slice(skip);
      if (known > skip) this.#known.set(choice.index, known - skip); else this.#known.delete(choice.index);
      this.#lengths.set(choice.index, (this.#lengths.get(choice.index) ?? 0) + text.length - skip);
      fresh ||= text.length > skip || choice.finish_reason != null;
    }
    return fresh ? {event, json: again ? JSON.stringify(event) : json} : null;
  }
}

// The Response of a stream of {event, json}: text, whose JSON `lines` ends. A stream of events has them as `events` too, for
// who reads values (events.js).
function responseOf(told, status, streams, lines) {
  let reader, broken = false;
  const made = (chunk, end) => new ReadableStream({
    async pull(controller) {
      const {value, done} = await (reader ??= told.getReader()).read();
      if (!done) {
        broken = value.json.startsWith('{"error"');
        return controller.enqueue(chunk(value));
      }
      if (end && !broken) controller.enqueue(end);
      controller.close();
    },
    cancel: (reason) => (reader ?? told).cancel(reason),
  }, {highWaterMark: 0});  // takes nothing before it is read
  const body = made(({json}) => encoder.encode(streams ? `data: ${json}\n\n` : json + lines), streams && encoder.encode('data: [DONE]\n\n'));
  const response = new Response(body, {status, headers: {'Content-Type': streams ? 'text/event-stream' : 'application/json'}});
  return streams ? Object.assign(response, {events: made(({event}) => event)}) : response;
}

// Starts the worker. `modules`: URLs of the two WebAssembly files, of which it takes one (start.js);
// `options`: edge_client's long flags, as splitcompute.h has them; `on`: hears {type: 'opened',
// store: 'disk' or 'memory'}, {type: 'log', line}, {type: 'full'} when the disk is, {type: 'restarted', message} when the worker ended
// and another goes on, and {type: 'failed', message}, after which nothing answers. Gives {fetch, close}.
export function startEdge({modules, options, on = () => {}}) {
  const running = new Set();  // requests, each {ask, fail}
  let worker, failure, opened = false, ended = -Infinity;

  function begin() {
    worker = newWorker();
    worker.onmessage = ({data}) => {
      if (data.type === 'failed') return fail(data.message);
      opened ||= data.type === 'opened';
      on(data);
    };
    worker.onerror = (event) => fail(event.message);
    worker.postMessage({open: {modules: modules.map((file) => String(new URL(file, location.href))), options}});
    for (const one of running) one.ask();
  }
  // A trap is the worker's end. Another one is asked again what ran, and twice in a minute that is all.
  function fail(message) {
    worker.terminate();
    const again = opened && performance.now() - ended > kMinute;
    ended = performance.now();
    if (again) {
      on({type: 'restarted', message});
      return begin();
    }
    failure = new Error(message);
    for (const one of [...running]) one.fail(failure);
    on({type: 'failed', message});
  }

  function edgeFetch(address, {method = 'GET', body: given, signal} = {}) {
    const path = address.replace(/^\//, '');
    const {body, streams} = readBody(path, given ?? ''), lines = path.startsWith('api/') ? '\n' : '';
    return new Promise((resolve, reject) => {
      if (failure) return reject(failure);
      if (signal?.aborted) return reject(signal.reason);
      const told = new Told();
      let port, stream, good;
      const end = () => {
        running.delete(request);
        signal?.removeEventListener('abort', abort);
        port.close();
      };
      const abort = () => {
        port.postMessage('cancel');
        request.fail(signal.reason);
      };
      const request = {
        ask() {
          const {port1, port2} = new MessageChannel();
          port?.close();
          told.again();
          port = port1;
          port.onmessage = ({data}) => {
            if (data.status && stream) {
              if (data.status !== 200) request.fail(new Error(`the edge began again, and answers ${data.status}`));
            } else if (data.status) {
              good = data.status === 200;
              const answer = new ReadableStream({
                start(controller) { stream = controller; },
                cancel() {
                  port.postMessage('cancel');
                  end();
                },
              });
              resolve(responseOf(answer, data.status, streams && good, lines));
            } else if (data.json !== undefined) {
              const fresh = streams && good ? told.rest(data.json) : data;
              if (fresh !== null) stream.enqueue(fresh);
            } else if (data.ended) {
              end();
              stream.close();
            }
          };
          worker.postMessage({ask: {method, path: `/${path}`, body}}, [port2]);
        },
        fail(error) {
          end();
          reject(error);
          stream?.error(error);
        },
      };
      signal?.addEventListener('abort', abort);
      running.add(request);
      request.ask();
    });
  }
  begin();
  return {fetch: edgeFetch, close: () => {
    worker.terminate();
    failure = new Error('The edge in this tab was closed.');
    for (const one of [...running]) one.fail(failure);
  }};
}
