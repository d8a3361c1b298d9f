// Keeps the page's own files, so that a reload without the server shows the page. The server's answer
// comes first wherever there is one; a file whose name says its bytes is kept for good.

const kCache = 'splitcompute-page';
const isFixed = (url) => /-[0-9a-f]{16}\.wasm$/.test(url);

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

// Keeps the files that a page loaded before this worker: {keep: [addresses]}. Other builds' modules go.
self.addEventListener('message', (event) => event.waitUntil((async () => {
  const cache = await caches.open(kCache), wanted = new Set(event.data.keep);
  for (const {url} of await cache.keys()) {
    if (isFixed(url) && !wanted.has(url)) await cache.delete(url);
  }
  await Promise.all([...wanted].map(async (url) => await cache.match(url) ?? cache.add(url)));
  event.source?.postMessage({kept: wanted.size});
})()));

async function answer(request, event) {
  const cache = await caches.open(kCache);
  if (isFixed(request.url)) {
    const kept = await cache.match(request);
    if (kept) return kept;
  }
  try {
    const response = await fetch(request);
    if (response.status === 200) event.waitUntil(cache.put(request, response.clone()));
    return response;
  } catch (error) {
    const kept = await cache.match(request, {ignoreSearch: true});
    if (kept) return kept;
    throw error;
  }
}

self.addEventListener('fetch', (event) => {
  const {method, url} = event.request;
  if (method === 'GET' && url.startsWith(self.registration.scope)) event.respondWith(answer(event.request, event));
});
