#!/usr/bin/env python3
"""check.py [BINARIES]: every name in the READMEs and every file in a comment exists, and the READMEs' lines work.

Without BINARIES, the folder of the built programs, it reads the tree alone: links, files, commands, variables, metrics and
commits. With it, it also compares flags with --help and routes with /openapi.json, in both directions for the two programs'
own READMEs, and runs the curl lines and the edge_client lines against a started pair.
"""
import glob
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
SOURCES = ('.h', '.cpp', '.def', '.comp', '.glsl', '.txt', '.cmake', '.sh', '.py', '.js', '.mjs', '.cfg', '.conf', '.yaml')
# A name with one of these endings and no folder is a file of the tree; .json and .safetensors are users' files.
OURS = ('.h', '.cpp', '.def', '.comp', '.glsl', '.cmake', '.sh', '.py', '.mjs', '.cfg', '.conf', '.yaml', '.svg', '.md')
# Programs of others, whose flags are theirs.
FOREIGN = {'cc', './story', 'python3', 'curl', 'docker', 'echo', 'source', 'cmake', 'cpack', 'apt', 'systemctl', 'kubectl', 'ctest', 'git', 'nginx', 'docker-compose', 'clang-format-14'}
METHODS = 'GET|HEAD|PUT|POST|DELETE'
errors = []


def walk():
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f != '.git' and not f.startswith('build') and f != 'node_modules']
        for name in files:
            yield os.path.relpath(os.path.join(folder, name), ROOT)


FILES = sorted(walk())
NAMES = {os.path.basename(f) for f in FILES}
TEXT = ''.join(open(os.path.join(ROOT, f), encoding='utf-8', errors='replace').read()
               for f in FILES if f.endswith(SOURCES) and not f.startswith('tests/readmes/'))
WORDS = set(re.findall(r'\w+', TEXT))


class Readme:
    """A README: `spans` are (line, code between backquotes), `blocks` are (line, language, text)."""

    def __init__(self, path):
        self.path, self.folder = path, os.path.dirname(path)
        self.spans, self.blocks, self.links, self.prose = [], [], [], []
        block = None
        for number, line in enumerate(open(os.path.join(ROOT, path), encoding='utf-8').read().split('\n'), 1):
            if line.startswith('```'):
                if block is None:
                    block = (number + 1, line[3:].strip(), [])
                else:
                    self.blocks.append((block[0], block[1], '\n'.join(block[2])))
                    block = None
            elif block is not None:
                block[2].append(line)
            else:
                self.prose.append(line)
                if line.count('`') % 2:
                    self.fail(number, 'a backquote has no partner in its line')
                self.spans += [(number, span.replace('\\|', '|')) for span in re.findall(r'`([^`]+)`', line)]
                self.links += [(number, target) for target in re.findall(r'\]\(([^)]+)\)', line)]

    def fail(self, line, what):
        errors.append(f'{self.path}:{line}: {what}')

    def exists(self, name):
        for start in ('', self.folder):
            if any(glob.glob(os.path.join(ROOT, start, each)) for each in braces(name)):
                return True
        return False

    def anchors(self):
        return {re.sub(r'[^a-z0-9 _-]', '', line.lstrip('# ').lower()).replace(' ', '-')
                for line in self.prose if line.startswith('#')}

    def commands(self):
        """(line, words) of each command in a block of sh, and of each span that begins with a program."""
        for start, language, text in self.blocks:
            if language == 'sh':
                for offset, command in joined(text):
                    for words in simple(command):
                        yield start + offset, words
        for line, span in self.spans:
            if re.match(r'(build/bin/|scripts/[a-z_0-9]+\.|cloud_server |edge_client )', span):
                yield line, span.split()


def braces(name):
    found = re.search(r'\{([^}]*)\}', name)
    if not found:
        return [name]
    return [each for part in found[1].split(',') for each in braces(name[:found.start()] + part + name[found.end():])]


def joined(text):
    """(offset, command) of lines, those that end in a backslash as one."""
    lines, at = text.split('\n'), 0
    while at < len(lines):
        first = at
        while lines[at].endswith('\\') and at + 1 < len(lines):
            at += 1
        yield first, ' '.join(line.rstrip('\\').strip() for line in lines[first:at + 1])
        at += 1


def simple(command):
    """The words of each command of a pipeline, without variables in front; nothing for what is no command line."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars='|&;<>()')
    lexer.whitespace_split, lexer.commenters = True, '#'
    try:
        words = list(lexer)
    except ValueError:
        return
    part = []
    for word in words + [';']:
        if re.fullmatch(r'[|&;<>()]+', word):
            while part and re.fullmatch(r'[A-Z_]+=.*', part[0]):
                part.pop(0)
            if part:
                yield part
            part = []
        else:
            part.append(word)


# --- the tree alone


def check_links(readme, all_readmes):
    for line, target in readme.links:
        if re.match(r'[a-z]+:', target):
            continue
        path, _, anchor = target.partition('#')
        path = os.path.normpath(os.path.join(readme.folder, path)) if path else readme.path
        if not os.path.exists(os.path.join(ROOT, path)):
            readme.fail(line, f'the link to {target} leads nowhere')
        elif anchor and anchor not in all_readmes.get(path, readme).anchors():
            readme.fail(line, f'{path} has no heading #{anchor}')


def check_file(readme, line, name):
    program = re.fullmatch(r'build/bin/(\w+)', name)
    if program:
        if program[1] not in WORDS:
            readme.fail(line, f'no target {program[1]} is built')
    elif not re.match(r'(build|weights/(?!demo|README))', name) and not readme.exists(name):
        readme.fail(line, f'{name} is not there')


def check_files(readme):
    tops = {f.split('/')[0] for f in FILES} | {'build'}
    beside = set(os.listdir(os.path.join(ROOT, readme.folder)))
    for line, span in readme.spans:
        name = span.split(' ')[0].rstrip('/')
        if re.fullmatch(r'[\w.{},*/-]+', name) and '/' in name:
            if name.split('/')[0] in tops or name.split('/')[0] in beside:
                check_file(readme, line, name)
        elif span.endswith(OURS) and span not in OURS and re.fullmatch(r'[\w.{},*-]+', span):
            wanted = [re.escape(each).replace(r'\*', '.*') for each in braces(span)]
            if not all(any(re.fullmatch(each, have) for have in NAMES) for each in wanted):
                readme.fail(line, f'no file is called {span}')
    for start, _, text in readme.blocks:
        for offset, row in enumerate(text.split('\n')):
            for name in re.findall(r'(?<![\w/.:-])((?:\.github|cloud_server|common|edge_client|scripts|tests|weights)/[\w./*-]*)', row):
                check_file(readme, start + offset, name.rstrip('./'))


def check_commands(readme):
    for line, words in readme.commands():
        program = words[0]
        if program in FOREIGN or program in ('cloud_server', 'edge_client'):
            continue
        if program.startswith(('scripts/', 'build/')):
            check_file(readme, line, program)
        else:
            readme.fail(line, f"'{program}' is no command that is known here")


def check_variables(readme):
    text = [(line, span) for line, span in readme.spans] + [(line, block) for line, _, block in readme.blocks]
    for line, each in text:
        for name in re.findall(r'\bSPLIT_[A-Z0-9_]+\b', each):
            flag = name[len('SPLIT_'):].lower().replace('_', '-')
            if name not in WORDS and f'"{flag}"' not in TEXT:
                readme.fail(line, f'nothing reads {name}')
        for name in re.findall(r'\bsplit_[a-z_]+\b(?!\*)', each):
            family = re.sub(r'_(bucket|sum|count)$', '', name)
            if not {family, name} & WORDS:
                readme.fail(line, f'there is no metric {name}')


def check_commits(readme):
    git = ['git', '-c', 'safe.directory=*', '-C', ROOT]
    run = lambda *words: subprocess.run(git + list(words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if run('rev-parse', '--is-shallow-repository').stdout.strip() != b'false':
        return
    for line, span in readme.spans:
        if re.fullmatch(r'[0-9a-f]{7,12}', span) and re.search(r'[0-9]', span) and re.search(r'[a-f]', span):
            if run('merge-base', '--is-ancestor', span, 'HEAD').returncode != 0:
                readme.fail(line, f'{span} is no commit of this history')


# --- the programs


def check_comments():
    """A file that a comment names is there, by its path or by the end of it."""
    ends = {'/'.join(f.split('/')[i:]) for f in FILES for i in range(f.count('/') + 1)}
    for path in (f for f in FILES if f.endswith(SOURCES)):
        for number, line in enumerate(open(os.path.join(ROOT, path), encoding='utf-8', errors='replace'), 1):
            comment = re.search(r'(?:^|\s)(?://|#) (.*)', line)
            for name in re.findall(r'(?<![\w./$*~-])([a-z][a-z0-9_/]*\.(?:h|cpp|def|comp|glsl|sh|cmake))(?![\w(])', comment[1] if comment else ''):
                if name not in ends:
                    errors.append(f'{path}:{number}: a comment names {name}, which is not there')


def check_layers(readme):
    """The picture of the layers, its one block of such lines, is that of CMakeLists.txt."""
    folder = os.path.dirname(readme.path) if readme.path.startswith('edge_client/') else ''
    text = open(os.path.join(ROOT, folder, 'CMakeLists.txt'), encoding='utf-8').read()
    layers = [(name, deps.replace('edge_', '')) for name, deps in
              re.findall(r'^(?:split|edge)_layer\((\w+) DEPS ([\w ]+?)(?: LIBS.*)?$', text, re.M)]
    number, block = next((number, block) for number, _, block in readme.blocks if ' <- ' in block)
    picture = [tuple(re.split(r' +<- ', line)) for line in block.split('\n')]
    if sorted(layers) != sorted(picture):
        readme.fail(number, f'CMakeLists.txt has the layers {sorted(layers)}')


def check_locks(readme):
    """The table of locks has the ranks of lock_order.h, in their order."""
    header = open(os.path.join(ROOT, 'edge_client/split/lock_order.h'), encoding='utf-8').read()
    ranks = re.findall(r'\bk[A-Z]\w+', re.search(r'enum class LockOrder.*?};', header, re.S)[0])
    text = open(os.path.join(ROOT, readme.path), encoding='utf-8').read()
    table = re.findall(r'^\| `(k[A-Z]\w+)` \|', text, re.M)
    if ranks != table:
        readme.fail(text.count('\n', 0, text.find('## Locks')) + 1, f'lock_order.h has the ranks {ranks}')
    for rank, lock in re.findall(r'^\| `(k[A-Z]\w+)` \| `\w+::(\w+)` \|', text, re.M):
        if subprocess.run(['grep', '-rqF', f'{lock}{{LockOrder::{rank}}};', os.path.join(ROOT, 'edge_client')], check=False).returncode:
            readme.fail(1, f'no lock is {lock}{{LockOrder::{rank}}}')


def output(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode()


def flags_of(binaries):
    """The flags of each program and of its first words."""
    found = {}
    for name, *sub in (('cloud_server',), ('cloud_server', 'quantize'), ('edge_client',), ('edge_client', 'doctor'),
                       ('edge_client', 'audit'), ('edge_client', 'cache'), ('edge_client', 'train'), ('split_link',)):
        text = output(os.path.join(binaries, name), *sub, '--help')
        found[' '.join((name, *sub))] = set(re.findall(r'^\s+(--[a-z][a-z0-9-]*)', text, re.M)) | {'--help', '--version'}
    # doctor takes what the edge does, cache a few words more.
    found['edge_client doctor'] |= found['edge_client']
    return found


def script_flags(script):
    text = open(os.path.join(ROOT, script), encoding='utf-8').read()
    if script == 'scripts/bench.sh':
        text += ''.join(open(f, encoding='utf-8').read() for f in glob.glob(os.path.join(ROOT, 'tests/bench/**/*.cpp'), recursive=True))
    return text


def knows(flags, program, sub, flag):
    """Whether the program of a command line takes the flag; None for programs of others."""
    name = os.path.basename(program)
    if name in ('cloud_server', 'edge_client', 'split_link'):
        return flag in flags.get(f'{name} {sub}', flags[name])
    if program.startswith('scripts/'):
        text = script_flags(program)
        takes = flag in text or f'"{flag[2:]}"' in text
        return takes or (name in ('demo.sh', 'demo_page.sh') and flag in flags['edge_client'])
    if name.startswith('bench_'):
        return f'"{flag[2:]}"' in script_flags('scripts/bench.sh')
    return None


def check_flags(readme, flags):
    for line, words in readme.commands():
        for word in words[1:]:
            flag = re.match(r'--[a-z][a-z0-9-]*', word)
            if flag and knows(flags, words[0], words[1], flag[0]) is False:
                readme.fail(line, f'{words[0]} has no flag {flag[0]}')
    scripts = ''.join(script_flags(f) for f in FILES if re.match(r'scripts/[^/]*\.(sh|py)$', f))
    bench = script_flags('scripts/bench.sh')
    own = {'cloud_server/README.md': 'cloud_server', 'edge_client/README.md': 'edge_client'}.get(readme.path)
    named, heading = set(), ''
    for number, row in enumerate(open(os.path.join(ROOT, readme.path), encoding='utf-8'), 1):
        heading = row.strip('# \n') if row.startswith('#') else heading
        for span in re.findall(r'`(--[^`]*)`', row):
            for flag in re.findall(r'(?:^|\s)(--[a-z][a-z0-9-]*)', span):
                named.add(flag)
                if own and heading == 'Flags' and row.startswith('|') and span in row.split('|')[1].replace('\\', '|'):
                    if flag not in flags[own]:
                        readme.fail(number, f'{own} has no flag {flag}')
                elif not any(flag in each for each in flags.values()) and flag not in scripts and f'"{flag[2:]}"' not in bench:
                    readme.fail(number, f'nothing has a flag {flag}')
    if own:
        for flag in sorted(flags[own] - named - {'--help', '--version'}):
            readme.fail(1, f'{flag} of {own} is missing')


def shape(path):
    return re.sub(r'\{[^}]*\}', '{}', path.partition('?')[0])


def check_routes(readme, apis):
    own = {'cloud_server/README.md': 'cloud', 'edge_client/README.md': 'edge'}.get(readme.path)
    known = apis[own] if own else apis['cloud'] | apis['edge']
    paths = {path for _, path in apis['cloud'] | apis['edge']}
    named = set()
    for line, span in readme.spans:
        for method, path in re.findall(rf'\b({METHODS}) (/[^\s,`]*)', span):
            named.add((method, shape(path)))
            if ('GET' if method == 'HEAD' else method, shape(path)) not in known:
                readme.fail(line, f'there is no route {method} {path}')
        if re.fullmatch(r'/[a-z_0-9./{}-]*', span) and not span.startswith(('/tmp', '/etc/', '/var/')) and shape(span) not in paths:
            readme.fail(line, f'there is no route {span}')
    if own:
        for method, path in sorted(apis[own] - named):
            if not re.search(r'\.(js|ts|css|svg|wasm|def|safetensors|json)$', path) or path == '/openapi.json':  # a page's files
                readme.fail(1, f'the route {method} {path} is missing')


class Pair:
    """A cloud_server with the bundled model and an edge_client that serves, on free ports."""

    def __init__(self, binaries, scratch):
        self.running, self.binaries = [], binaries
        environment = {name: value for name, value in os.environ.items() if not name.startswith('SPLIT_')}
        self.environment = environment | {'XDG_CACHE_HOME': os.path.join(scratch, 'cache')}
        self.cloud = self.start(scratch, 'cloud_server', '--port', '0', '--device', 'cpu')
        self.edge = self.start(scratch, 'edge_client', '--server', self.cloud, '--serve', '127.0.0.1:0', '--device', 'cpu',
                               '--stops-cloud', str(self.running[0].pid))

    def start(self, scratch, name, *words):
        log = os.path.join(scratch, name + '.log')
        with open(log, 'wb') as out:
            process = subprocess.Popen([os.path.join(self.binaries, name), *words], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out, env=self.environment)
        self.running.append(process)
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            text = open(log, encoding='utf-8').read()
            url = re.search(r'^[-\d: ]*listening on (http://[\d.]+:\d+)', text, re.M)
            try:
                if url and urllib.request.urlopen(url[1] + '/readyz', timeout=60).status == 200:
                    return url[1]
            except urllib.error.HTTPError:
                pass  # 503 until it is ready
            time.sleep(0.05)
        self.stop()
        sys.exit(f'check.py: {name} did not start:\n{open(log, encoding="utf-8").read()}')

    def routes(self, url):
        with urllib.request.urlopen(url + '/openapi.json', timeout=60) as answer:
            return {(method.upper(), shape(path)) for path, methods in json.load(answer)['paths'].items() for method in methods}

    def here(self, text):
        """The same with this pair's addresses and programs."""
        for host in ('localhost', '127.0.0.1'):
            text = text.replace(f'http://{host}:8080', self.cloud).replace(f'http://{host}:8081', self.edge)
        return text.replace('build/bin/', self.binaries + '/')

    def stop(self):
        for process in self.running:
            process.terminate()
            process.wait()


def check_zsh(readme, line, command):
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", '', command)
    if re.search(r'[?*\[\]{}&]| #', bare):
        readme.fail(line, 'zsh takes ?, &, *, [ and { only between quotes, and # only in front of a line')


def run_lines(readme, pair, scratch):
    for start, language, text in readme.blocks:
        for offset, command in joined(text) if language == 'sh' else ():
            line = start + offset
            edge = re.search(r'build/bin/edge_client', command) and re.search(r' --prompt |^echo | doctor | --plan', command)
            curl = command.startswith('curl ') and 'https://' not in command
            if command.startswith('curl '):
                check_zsh(readme, line, command)
            if not curl and not edge:
                continue
            here = pair.here(command)
            if curl:
                here = here.replace('curl ', 'curl -sS --fail-with-body --max-time 120 --retry 60 ', 1)
            done = subprocess.run(['bash', '-euo', 'pipefail', '-c', here], cwd=scratch, env=pair.environment, check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            saved = re.search(r' -o (\S+)', command)
            got = open(os.path.join(scratch, saved[1]), 'rb').read() if saved and done.returncode == 0 else done.stdout
            if done.returncode != 0 or not got:
                readme.fail(line, f'fails ({done.returncode}): {command}\n{(done.stdout + done.stderr).decode()[:500]}')


def run_python(readme, pair, scratch):
    for line, language, text in readme.blocks:
        if language == 'python':
            compile(text, readme.path, 'exec')
            if importlib.util.find_spec('openai') is None:
                print(f'{readme.path}:{line}: not run, Python has no openai here')
                continue
            done = subprocess.run([sys.executable, '-c', pair.here(text)], cwd=scratch, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
            if done.returncode != 0 or not done.stdout:
                readme.fail(line, f'fails: {done.stderr.decode()}')


def check_speed(readme):
    """The table of speed is one run's: its file, rounded, ours beside the peer's."""
    run = json.load(open(os.path.join(ROOT, 'tests/bench/figures/xeon-peers-llama-3.2-1b.json'), encoding='utf-8'))
    rows = {each['name']: f"{int(each['ours'] + 0.5):,}, {int(each['peer'] + 0.5):,}" for each in run}
    expected = [' | '.join(rows[f'{what}_{weights}'] for weights in ('f16', 'q8_0', 'q4_0')) for what in ('decode', 'prefill_512', 'batch_16')]
    found = re.findall(r'^\|[^|]*\| (\d.*) \|$', '\n'.join(readme.prose).partition('## How fast')[2], re.M)
    if found != expected:
        readme.fail(1, f'the table of speed has {found}, and the run {expected}')


def main():
    readmes = {path: Readme(path) for path in FILES if path.endswith('.md')}
    for readme in readmes.values():
        check_links(readme, readmes)
        check_files(readme)
        check_commands(readme)
        check_variables(readme)
        check_commits(readme)
    check_comments()
    check_layers(readmes['common/README.md'])
    check_layers(readmes['edge_client/README.md'])
    check_locks(readmes['edge_client/README.md'])
    check_speed(readmes['README.md'])
    if len(readmes['README.md'].prose) + sum(text.count('\n') + 3 for _, _, text in readmes['README.md'].blocks) > 131:
        errors.append('README.md: more than 130 lines; replace lines and add none')
    if len(sys.argv) > 1:
        binaries = os.path.realpath(sys.argv[1])
        flags = flags_of(binaries)
        with tempfile.TemporaryDirectory(prefix='split-readmes-') as scratch:
            pair = Pair(binaries, scratch)
            try:
                apis = {'cloud': pair.routes(pair.cloud), 'edge': pair.routes(pair.edge)}
                for readme in readmes.values():
                    check_flags(readme, flags)
                    check_routes(readme, apis)
                    run_lines(readme, pair, scratch)
                    run_python(readme, pair, scratch)
            finally:
                pair.stop()
    for error in errors:
        print(error)
    print(f'check.py: {len(readmes)} READMEs, {len(errors)} errors')
    sys.exit(1 if errors else 0)


main()
