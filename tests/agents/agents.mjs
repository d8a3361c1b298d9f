// agents.mjs NAME FOLDER URL WORDS: the agent NAME of FOLDER/node_modules is asked one question, with the file that
// edge_client/README.md has for it, by way of a listener that keeps what is said. The model at URL has it run
// `cat weather.txt`, and says WORDS once it has the result.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { dirname, join } from 'node:path';

const [name, folder, url, words] = process.argv.slice(2);
const result = 'sunny, 21 degrees';
const question = 'How is the weather in Paris?';
const modules = join(folder, 'node_modules');
const home = join(folder, name, 'home');
const work = join(folder, name, 'work');
// opencode's own starter is made when it is installed with scripts.
const native = join(modules, `opencode-${process.platform}-${process.arch}`, 'bin', 'opencode');
const agents = {
  codex: {
    file: '~/.codex/config.toml',
    command: [process.execPath, join(modules, '@openai/codex/bin/codex.js'), 'exec', '--skip-git-repo-check',
      '--dangerously-bypass-approvals-and-sandbox', question],
  },
  opencode: { file: '~/.config/opencode/opencode.json', command: [native, 'run', question] },
  qwen: { file: '~/.qwen/.env', command: [process.execPath, join(modules, '@qwen-code/qwen-code/cli.js'), '-y', '-p', question] },
};
const { file, command } = agents[name];

// The block that follows the file's name in the README.
const readme = readFileSync(new URL('../../edge_client/README.md', import.meta.url), 'utf8');
const [, text] = readme.slice(readme.indexOf(`\`${file}\``)).match(/```\w+\n(.*?)```/s);

const heard = [];
const listener = http.createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = Buffer.concat(pieces);
  const one = { path: request.url, asked: body.toString(), said: '' };
  heard.push(one);
  const to = http.request(new URL(request.url, url), { method: request.method, headers: request.headers }, (answer) => {
    one.status = answer.statusCode;
    one.headers = answer.headers;
    response.writeHead(answer.statusCode, answer.headers);
    answer.on('data', (data) => {
      one.said += data;
      response.write(data);
    });
    answer.on('end', () => response.end());
  });
  response.on('close', () => to.destroy());
  to.on('error', () => response.destroy());
  to.end(body);
});
await new Promise((listening) => listener.listen(0, '127.0.0.1', listening));
const here = `http://127.0.0.1:${listener.address().port}`;
while ((await fetch(`${url}/readyz`)).status !== 200) await new Promise((resolve) => setTimeout(resolve, 100));

for (const one of [home, work]) {
  rmSync(one, { recursive: true, force: true });
  mkdirSync(one, { recursive: true });
}
const config = file.replace('~', home);
mkdirSync(dirname(config), { recursive: true });
writeFileSync(config, text.replaceAll('http://127.0.0.1:8081', here));
writeFileSync(join(work, 'weather.txt'), `${result}\n`);

const { PATH, http_proxy, https_proxy, no_proxy } = process.env;
const env = { PATH, HOME: home, http_proxy, https_proxy, no_proxy, NO_COLOR: '1', TERM: 'dumb' };
const agent = spawn(command[0], command.slice(1), { cwd: work, env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 240_000 });
let printed = '';
let complained = '';
agent.stdout.on('data', (data) => (printed += data));
agent.stderr.on('data', (data) => (complained += data));
const code = await new Promise((ended) => agent.on('close', ended));
listener.closeAllConnections();
listener.close();

const told = JSON.stringify(heard.map(({ path, status, said }) => [path, status, said.slice(0, 300)]), null, 1);
const all = `${told}\n${printed}\n${complained.slice(-2000)}`;
assert.equal(code, 0, all);
const texts = heard.filter(({ path }) => /\/(responses|chat\/completions)$/.test(path));
for (const { status } of texts) assert.equal(status, 200, all);
// The first of them has no result yet, the last one has.
const withTools = texts.filter(({ asked }) => JSON.parse(asked).tools?.length > 0);
assert.ok(withTools.length >= 2, all);
assert.ok(!withTools[0].asked.includes(result), all);
assert.ok(withTools.at(-1).asked.includes(result), all);
assert.ok(printed.includes(words), all);
const [, tokens] = withTools[0].said.match(/"(?:prompt|input)_tokens":(\d+)/);
const left = withTools[0].headers['split-tools-left-out'];
console.log(`${name}: ok, ${tokens} tokens of a first prompt${left === undefined ? '' : `, without ${left}`}`);
