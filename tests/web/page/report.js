// Runs what the address names (?run=fibres.js&...) and posts what it found: {checks: [{name, error}], ...}.
const asked = Object.fromEntries(new URLSearchParams(location.search));
const checks = [];
export async function check(name, test) {
  try {
    await test();
    checks.push({name});
  } catch (error) {
    checks.push({name, error: String(error?.stack ?? error)});
  }
}
export function expect(good, words) {
  if (!good) throw new Error(words);
}
export function same(got, wanted, words = 'got') {
  expect(JSON.stringify(got) === JSON.stringify(wanted), `${words} ${JSON.stringify(got)}, expected ${JSON.stringify(wanted)}`);
}

let more = {};
try {
  more = await (await import(`./${asked.run}`)).run({check, expect, same, asked});
} catch (error) {
  checks.push({name: asked.run, error: String(error?.stack ?? error)});
}
await fetch('/report', {method: 'POST', body: JSON.stringify({checks, more})});
