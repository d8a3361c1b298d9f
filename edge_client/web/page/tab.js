// The edge in this tab: a fetch() whose server is a worker of its own.

const encoder = new TextEncoder();

// Starts the worker. `modules`: URLs of the two WebAssembly files, of which it takes one (start.js);
// `options`: edge_client's long flags, as splitcompute.h has them; `on`: hears {type: 'opened',
// store: 'disk' or 'memory'}, {type: 'log', line} and {type: 'failed', message}, after which nothing
// answers. Gives {fetch, close}.
export function startEdge({modules, options, on = () => {}}) {
  const worker = new Worker(new URL('worker.js', import.meta.url), {type: 'module'});
  const pending = new Set();  // how to fail what runs, should the worker fail
  let failure;
  worker.onmessage = ({data}) => {
    if (data.type === 'failed') {
      failure = new Error(data.message);
      for (const fail of pending) fail(failure);
      pending.clear();
    }
    on(data);
  };
  worker.onerror = (event) => worker.onmessage({data: {type: 'failed', message: event.message}});
  worker.postMessage({open: {modules: modules.map((file) => String(new URL(file, location.href))), options}});

  function edgeFetch(path, {method = 'GET', body = '', signal} = {}) {
    return new Promise((resolve, reject) => {
      if (failure) return reject(failure);
      if (signal?.aborted) return reject(signal.reason);
      const {port1: port, port2} = new MessageChannel();
      let stream, ended = false;
      const end = () => {
        ended = true;
        pending.delete(fail);
        signal?.removeEventListener('abort', abort);
        port.close();
      };
      const fail = (error) => {
        if (ended) return;
        end();
        reject(error);
        stream?.error(error);
      };
      const abort = () => {
        port.postMessage('cancel');
        fail(signal.reason);
      };
      signal?.addEventListener('abort', abort);
      pending.add(fail);
      // A stream's events are framed as a server frames them.
      const streams = path.replace(/^\//, '').startsWith('v1/') && JSON.parse(body || '{}').stream === true;
      let good, broken = false;
      port.onmessage = ({data}) => {
        if (data.status) {
          good = data.status === 200;
          const answer = new ReadableStream({
            start(controller) { stream = controller; },
            cancel() {
              port.postMessage('cancel');
              end();
            },
          });
          resolve(new Response(answer, {status: data.status,
            headers: {'Content-Type': streams && good ? 'text/event-stream' : 'application/json'}}));
        } else if (data.json !== undefined) {
          broken = data.json.startsWith('{"error"');
          stream.enqueue(encoder.encode(streams && good ? `data: ${data.json}\n\n` : data.json));
        } else if (data.ended) {
          if (streams && good && !broken) stream.enqueue(encoder.encode('data: [DONE]\n\n'));
          end();
          stream.close();
        }
      };
      worker.postMessage({ask: {method, path: path.startsWith('/') ? path : `/${path}`, body: body ?? ''}}, [port2]);
    });
  }
  return {fetch: edgeFetch, close: () => worker.terminate()};
}
