// The tensor library's page in a frame, as any host would serve its folder; and with a value spoilt among the goldens.
const pause = (ms) => new Promise((go) => { setTimeout(go, ms); });

async function visit(address, width) {
  const frame = document.createElement('iframe');
  frame.style.cssText = `width: ${width}px; height: 800px`;
  await new Promise((loaded) => {
    frame.onload = loaded;
    frame.src = address;
    document.body.append(frame);
  });
  const page = frame.contentDocument, {dataset} = page.body;
  for (const end = performance.now() + 240_000; dataset.state !== 'done'; await pause(20)) {
    if (dataset.state === 'broken') throw new Error(dataset.trouble);
    if (performance.now() > end) throw new Error(`not in four minutes: ${dataset.done} of ${dataset.cases}`);
  }
  const card = (name) => [...page.querySelectorAll('article')].find((one) => one.querySelector('h2').textContent === name);
  const found = {...dataset, cards: page.querySelectorAll('article').length, plots: page.querySelectorAll('svg:not([hidden]) .forward[d^=M]').length,
    plain: [...page.querySelectorAll('article')].filter((one) => one.querySelector('code').textContent === '').map((one) => one.querySelector('h2').textContent),
    tanh: [...card('tanh').children].map((part) => part.textContent).join('\n'), failed_lines: [...page.querySelectorAll('.failed li')].map((one) => one.textContent),
    wide: page.documentElement.scrollWidth > width};
  frame.remove();
  return found;
}

export async function run({check, same, expect}) {
  const found = {};
  await check('every case agrees', async () => {
    found.all = await visit('/app/ops/', 1200);
    same([found.all.cases, found.all.done, found.all.failed], ['1150', '1150', '0'], found.all.failed_lines.join('; '));
    same(found.all.cards, 317);
    expect(found.all.plots > 40, `${found.all.plots} plots`);
    expect(/^tanh\s+✓ error 0\.\d+\s/.test(found.all.tanh) && found.all.tanh.includes('tanh_f(x)\ngradient: dy * (1.0f - y * y)'), found.all.tanh);
    same(found.all.plain, [], 'operations without code');
    expect(found.all.seconds < 120, `${found.all.seconds} s`);
  });
  await check('a spoilt value is found by name, and nothing else, on a phone', async () => {
    const spoilt = await visit('/spoilt/', 360);
    same([spoilt.done, spoilt.failed, spoilt.wide], ['1150', '1', false], spoilt.failed_lines.join('; '));
    expect(/^unary\.tanh\.3 out0, dense: error [\d.e-]+, allowed [\d.e-]+$/.test(spoilt.failed_lines[0]), spoilt.failed_lines[0]);
  });
  await check('goldens that are not there are told', async () => {
    const trouble = await visit('/empty/', 360).catch((error) => error.message);
    expect(trouble.includes('goldens/'), trouble);
  });
  return found;
}
