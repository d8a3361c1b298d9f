// The page at /app/ in a frame: its first text begins on the cloud, the layers land, and a second visit downloads none.
const pause = (ms) => new Promise((go) => { setTimeout(go, ms); });

export async function run({check, same, expect, asked}) {
  const frame = document.createElement('iframe');
  const page = () => frame.contentDocument;
  const until = async (what, holds) => {
    for (const end = performance.now() + 240_000; !holds(); await pause(5)) if (performance.now() > end) throw new Error(`${what}: not in four minutes`);
  };
  const visit = async () => {
    await new Promise((loaded) => {
      frame.onload = loaded;
      if (frame.isConnected) return frame.contentWindow.location.reload();
      frame.src = '/app/';
      document.body.append(frame);
    });
    await until('a text may begin', () => page().querySelector('#generate:enabled'));
  };
  const text = () => page().querySelector('#text .answer')?.textContent ?? '';
  const generate = async () => {
    for (const [id, value] of [['prompt', asked.prompt], ['max-tokens', 64], ['temperature', 0]]) page().getElementById(id).value = value;
    page().getElementById('generate').click();
    await until('a word', () => text() !== '');
  };
  const ended = async () => {
    await until('its end', () => !page().getElementById('generate').hidden && page().querySelector('#generate:enabled'));
    return text();
  };
  const weights = async () => Number(await (await fetch('/weights')).text());
  const found = {};
  await check('the first word is the cloud\'s', async () => {
    await visit();
    await generate();
    same(page().body.dataset.state, 'cloud');
    found.first = await ended();
  });
  await check('all of it comes', async () => {
    await until('all here', () => page().body.dataset.state === 'local');
    same(page().body.dataset.exact, 'bits');
    await generate();
    found.here = await ended();
    found.weights = await weights();
  });
  await check('a second visit downloads no weights', async () => {
    await visit();
    await until('all here again', () => page().body.dataset.state === 'local');
    await generate();
    found.again = await ended();
    expect(found.weights > 1 << 20);
    same(await weights(), found.weights);
  });
  return found;
}
