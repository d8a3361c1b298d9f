#!/usr/bin/env python3
"""token_calls.py BINARIES [EDGE]: the calls that a token of --prompt passes at a cut, from the text to the socket, are those that
common/README.md lists. EDGE is an unoptimised edge_client (scripts/build.sh --debug edge_client); gdb stops it where each
coroutine of the text begins to ask, and at the socket. Exit 77 without gdb or such a build, or without SPLIT_LONG or EDGE."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
# A frame whose source is known: its call, and its file.
FRAME = re.compile(r'^#\d+ +(?:0x[0-9a-f]+ in )?(.*) at (\S+):\d+$')
STOPS = ['split::edge::TextSession::pass', 'split::edge::CloudRows::ask',
         'split::edge::SplitForward::perform', 'split::http::ClientConnection::write', 'send']


def listed():
    """The rows of the README's table: (call, file)."""
    with open(os.path.join(ROOT, 'common', 'README.md'), encoding='utf-8') as readme:
        text = readme.read()
    table = text.split('| call | file | |', 1)[1].split('\n\n', 1)[0]
    return re.findall(r'^\| `(\S+)` \| `(\S+)` \|', table, re.M)


def calls(backtrace, expected):
    """The project's calls of a backtrace from the first listed one on: listed rows, or (name, file) of one that is not."""
    found = []
    for line in backtrace.splitlines():
        frame = FRAME.match(line)
        at = frame and re.search(r'/((?:common|edge_client)/.*)$', frame.group(2))
        if not at:
            continue
        # "split::edge::CloudRows::ask(split::edge::CloudRows::ask(...)::...Frame*) (...)": a coroutine that goes on.
        name = re.sub(r'\(.*', '', frame.group(1).replace('(anonymous namespace)::', '')).strip()
        # Built with -g1 a call of an anonymous namespace comes without its scope.
        same = [row for row in expected if row[1] == at.group(1) and
                (('::' + name).endswith('::' + row[0]) or name == row[0].split('::')[-1])]
        call = same[0] if same else (name, at.group(1))
        found.insert(0, call)
    return found[found.index(expected[0]):] if expected[0] in found else []


def backtraces(edge, arguments):
    """The backtraces of one generated token, one a stop."""
    commands = ['set pagination off', 'set confirm off', 'set breakpoint pending on', 'set print frame-arguments none',
                'set width 0', 'break split::edge::SplitText::next', 'run']
    commands += ['continue', 'continue', 'delete']  # the prompt's step is behind it: a token's begins
    for stop in STOPS:
        commands += [f'tbreak {stop}', 'continue', 'echo \\n=== stop\\n', 'backtrace']
    commands += ['kill', 'quit']
    line = ['gdb', '-batch', '-nx']
    for command in commands:
        line += ['-ex', command]
    made = subprocess.run(line + ['--args', edge] + arguments, capture_output=True, text=True, timeout=600, check=False)
    parts = made.stdout.split('=== stop\n')[1:]
    if len(parts) != len(STOPS):
        sys.exit(f'token_calls.py: gdb stopped {len(parts)} times of {len(STOPS)}:\n{made.stdout[-4000:]}{made.stderr[-2000:]}')
    return parts


def main():
    binaries = sys.argv[1]
    edge = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, 'build-debug', 'bin', 'edge_client')
    if not shutil.which('gdb') or not os.path.exists(edge) or (len(sys.argv) < 3 and not os.environ.get('SPLIT_LONG')):
        print('token_calls.py: skipped: no gdb, no build-debug/bin/edge_client or no SPLIT_LONG')
        sys.exit(77)
    expected = listed()
    with tempfile.TemporaryDirectory() as folder, \
            subprocess.Popen([os.path.join(binaries, 'cloud_server'), '--port', '0', '--device', 'cpu', '--threads', '1'],
                             stderr=subprocess.PIPE, text=True) as cloud:
        try:
            url = next(found.group(1) for line in cloud.stderr if (found := re.search(r'listening on (http://\S+)', line)))
            parts = backtraces(edge, ['--server', url, '--cache', folder, '--cut', '1', '--device', 'cpu', '--threads', '1',
                                      '--quiet', '--prompt', 'Once', '--max-tokens', '8', '--temperature', '0'])
        finally:
            cloud.send_signal(signal.SIGTERM)
            cloud.stderr.close()
    seen = []
    for part in parts:
        for call in calls(part, expected):
            if call not in seen:
                seen.append(call)
    missing = [call for call in expected if call not in seen]
    more = [call for call in seen if call not in expected]
    for call, file in missing:
        print(f'token_calls.py: common/README.md lists {call} in {file}, which no backtrace has')
    for call, file in more:
        print(f'token_calls.py: a backtrace has {call} in {file}, which common/README.md does not list')
    files = {file for _, file in seen}
    print(f'{len(seen)} calls in {len(files)} files')
    if missing or more or len(seen) > 14 or len(files) > 9:
        sys.exit(1)


main()
