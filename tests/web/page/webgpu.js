// Texts of the edge in this tab on WebGPU: all here, in part, while the cut moves, and where its device is lost, those of the cloud
// alone.
import {startEdge} from '/app/tab.js';
import {events_of} from '/app/events.js';

export async function run({check, same, asked}) {
  const lines = [];
  let say;
  const opened = new Promise((go) => { say = go; });
  const edge = startEdge({modules: ['/app/edge.wasm', '/app/edge-plain.wasm'], options: {server: location.origin, cut: 0, device: 'webgpu'},
    on: (event) => (event.type === 'log' ? lines.push(event.line) : say(event))});
  const body = {prompt: asked.prompt, max_tokens: 24, temperature: 0};
  const init = (more) => ({method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({...body, ...more})});
  const move = async (cut) => same((await edge.fetch('/split/cut', {method: 'PUT', body: JSON.stringify({cut})})).status, 200);
  const expected = (await (await fetch('/v1/completions', init())).json()).choices[0].text;
  let device;
  await check('opens', async () => same((await opened).type, 'opened'));
  await check('writes the text of the cloud', async () => {
    same((await (await edge.fetch('/v1/completions', init())).json()).choices[0].text, expected, lines.join('\n'));
    ({device} = await (await edge.fetch('/split/status')).json());
    same(device.kind, 'webgpu', lines.join('\n'));
  });
  await check('moves in a text', async () => {
    let text = '', events = 0;
    for await (const {choices} of events_of(await edge.fetch('/v1/completions', init({stream: true})))) {
      text += choices?.[0]?.text ?? '';
      if (++events === 6) await move(4);
      if (events === 12) await move(0);
    }
    same(text, expected);
  });
  await check('goes on where its device is lost', async () => {
    let text = '', events = 0;
    for await (const {choices} of events_of(await edge.fetch('/v1/completions', init({stream: true})))) {
      text += choices?.[0]?.text ?? '';
      if (++events === 6) new BroadcastChannel('lose').postMessage(0);
    }
    same(text, expected, lines.join('\n'));
    same(lines.filter((line) => /was started again/.test(line)).length, 1, lines.join('\n'));
    same((await (await edge.fetch('/split/status')).json()).device.kind, 'webgpu', lines.join('\n'));
  });
  edge.close();
  return {device};
}
