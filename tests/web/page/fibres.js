// Threads of a tab (tests/web/fibres.cpp).
import {open} from './module.js';

export async function run({check, same, expect}) {
  const module = await open();
  for (let i = 0; i < module.tests; ++i) {
    await check(`fibres, test ${i}`, async () => same(await module.call('test', i), 'good'));
  }
  await check('a deadlock is told', async () => {
    const error = await module.call('deadlock').then(() => null, (error) => error);
    same(error?.message, 'idle');
  });
  await check('an overrun stack is told', async () => {
    const error = await (await open()).call('overrun').then(() => null, (error) => error);
    same(error?.message, 'a fibre has overrun its stack');
  });
  await check('suspensions are cheap', async () => {
    let least = Infinity;  // the others' work only adds
    for (let run = 0; run < 5; ++run) {
      const begun = performance.now();
      await module.call('test', 3);  // 2,000 of them at least
      least = Math.min(least, (performance.now() - begun) / 2000 * 1000);
    }
    expect(least < 500, `${least} us`);
  });
  return {};
}
