#!/usr/bin/env python3
"""check_balancer.py BINARIES: scripts/cluster/haproxy.cfg in front of real cloud_servers keeps every session where it is.

Two balancers that are peers, three replicas, 240 sessions. A fourth replica joins; each balancer is started again; a replica is
killed, and comes back; and one drains: a real one, and a stand-in that answers GET /readyz with 404. Exit 77 where there is no HAProxy.
"""
import http.client
import http.server
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
HAPROXY = shutil.which('haproxy', path=os.environ['PATH'] + ':/usr/sbin')
SESSIONS = 240
wrong = []


def expect(true, message):
    print(('' if true else 'WRONG: ') + message, flush=True)
    if not true:
        wrong.append(message)


def wait_for(what, true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            sys.exit(f'check_balancer.py: waited {seconds} s for {what}')
        time.sleep(0.02)


class Port:
    """A port of this test's own: bound, so that nobody else is given it, and not listened at, so that a server may."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(('127.0.0.1', 0))
        self.number = self.socket.getsockname()[1]
        self.address = f'127.0.0.1:{self.number}'
        self.connection = None

    def ask(self, method, path, body=None):
        """The status, over a connection that is kept; None where nobody answers."""
        for _ in range(2):  # the kept one may have been closed
            kept = self.connection is not None
            self.connection = self.connection or http.client.HTTPConnection('127.0.0.1', self.number, timeout=30)
            try:
                self.connection.request(method, path, body)
                answer = self.connection.getresponse()
                answer.read()
                return answer.status
            except (OSError, http.client.HTTPException):
                self.connection.close()
                self.connection = None
                if not kept:
                    return None
        return None


class Program(Port):
    """A program that listens there, until stop()."""
    running = []

    def __init__(self, *words, **environment):
        super().__init__()
        self.words, self.environment, self.process = words, os.environ | environment, None

    def start(self):
        words = [word.format(port=self.number, address=self.address) for word in self.words]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        Program.running.append(self.process)
        return self

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()


class Balancer(Program):
    """HAProxy by the project's file; the second one gives this test a socket to look into its tables by."""

    def __init__(self, scratch, **environment):
        self.socket_path = tempfile.mktemp(suffix='.sock', dir=scratch)
        more = self.socket_path + '.cfg'
        with open(more, 'w', encoding='utf-8') as file:
            file.write(f'global\n    stats socket {self.socket_path} level admin\n')
        super().__init__(HAPROXY, '-db', '-f', f'{ROOT}/scripts/cluster/haproxy.cfg', '-f', more, **environment)
        self.environment['LISTEN'] = self.address

    def say(self, command):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(self.socket_path)
            line.sendall(command.encode() + b'\n')
            return b''.join(iter(lambda: line.recv(65536), b'')).decode()

    def states(self):
        """Of each replica what both backends think of it."""
        try:
            rows = [row.split(',') for row in self.say('show stat').split('\n')]
        except OSError:
            return {}
        return {name: {row[17] for row in rows if len(row) > 17 and row[0] in ('sessions', 'any') and row[1] == name} for name in 'abcd'}

    def at_once(self):
        """The most requests that it sends to a replica, by both backends."""
        rows = [row.split(',') for row in self.say('show stat').split('\n')]
        return sum(int(row[6]) for row in rows if len(row) > 6 and row[0] in ('sessions', 'any') and row[1] == 'a')

    def entries(self):
        try:
            found = re.search(r'used:(\d+)', self.say('show table sessions'))
        except OSError:
            return -1
        return int(found[1]) if found else -1

    def sees(self, **states):
        wait_for(f'HAProxy to see {states}',
                 lambda: (now := self.states()) and all(now[name] == {state} for name, state in states.items()))


class StandIn(http.server.BaseHTTPRequestHandler):
    """A replica that keeps sessions' ids and answers GET /readyz with what its server was told."""
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        found = self.path.rsplit('/', 1)[1] in self.server.sessions
        self.answer(self.server.ready if self.path == '/readyz' else 200 if found else 404)

    def do_PUT(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.server.sessions.add(self.path.rsplit('/', 1)[1])
        self.answer(201)

    def answer(self, status):
        self.send_response(status)
        self.send_header('Content-Length', '0')
        self.end_headers()

    def log_message(self, *_):
        pass


def ids(start, count):
    return [f'{number:032x}' for number in range(start, start + count)]


def path(each):
    return f'/v1/sessions/{each}'


def opened(balancer, which):
    got = [balancer.ask('PUT', path(each), '{"model":"demo","cut":4}') for each in which]
    expect(got == [201] * len(which), f'{len(which)} sessions opened' + ('' if set(got) == {201} else f': {got}'))


def lost(balancer, which):
    """How many of these sessions a balancer no longer finds where they are."""
    return sum(balancer.ask('GET', path(each)) != 200 for each in which)


class Stepping:
    """A session of a replica that steps all the while, so that the replica has a reason to stay."""

    def __init__(self, replica, session):
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(replica.number, path(session) + '/forward'), daemon=True)
        self.thread.start()

    def run(self, number, where):
        while not self.done.wait(0.2):
            line = http.client.HTTPConnection('127.0.0.1', number, timeout=30)
            line.request('POST', where, '{"past":0,"tokens":[1],"rows":"none"}')
            if line.getresponse().status != 204:
                wrong.append('a session of a replica that drains does not step')
            line.close()

    def end(self):
        self.done.set()
        self.thread.join()


def check_table(binaries, scratch):
    server = (os.path.join(binaries, 'cloud_server'), '--host', '127.0.0.1', '--port', '{port}', '--threads', '1', '--device', 'cpu',
              '--trusted-proxy', '127.0.0.1', '--drain-timeout', '600')
    replicas = {name: Program(*server, XDG_CACHE_HOME=os.path.join(scratch, 'cache')) for name in 'abcd'}
    heard = {'a': Port(), 'b': Port()}
    environment = {f'REPLICA_{name.upper()}': each.address for name, each in replicas.items()}
    environment |= {f'PEER_{name.upper()}': each.address for name, each in heard.items()}
    first, second = [Balancer(scratch, PEER=name, PEER_LISTEN=heard[name].address, **environment).start() for name in 'ab']
    for name in 'abc':
        replicas[name].start()
    for balancer in (first, second):
        balancer.sees(a='UP', b='UP', c='UP', d='DOWN')
    most = first.at_once() + second.at_once()
    expect(0 < most < 256, f'both send a replica {most} requests at once, of the 256 that it takes')

    sessions = ids(1, SESSIONS)
    opened(first, sessions)
    at = {name: [each for each in sessions if replicas[name].ask('GET', path(each)) == 200] for name in 'abc'}
    expect(all(at.values()) and sum(map(len, at.values())) == SESSIONS,
           f'each is at one of three replicas: {[len(each) for each in at.values()]}')
    strangers = ids(1 << 64, 50)
    expect([first.ask('GET', path(each)) for each in strangers] == [404] * 50, '50 invented ids are answered 404')
    expect(first.entries() == SESSIONS, f'and take no entry: {first.entries()} entries')
    wait_for('the peer to learn the table', lambda: second.entries() == SESSIONS)
    expect(lost(second, sessions) == 0, f'the other balancer finds all: {lost(second, sessions)} lost')

    replicas['d'].start()
    for balancer in (first, second):
        balancer.sees(a='UP', b='UP', c='UP', d='UP')
        moved = lost(balancer, sessions)
        expect(moved == 0, f'a fourth replica joined: {moved} of {SESSIONS} sessions moved')
    later = ids(1 << 32, 40)
    opened(first, later)
    found = sum(replicas['d'].ask('GET', path(each)) == 200 for each in later)
    expect(found > 0, f'it has {found} of {len(later)} new ones')

    for balancer in (second, first):
        balancer.stop()
        balancer.start()
        balancer.sees(a='UP', b='UP', c='UP', d='UP')
        wait_for('a balancer to learn the table anew', lambda one=balancer: one.entries() == SESSIONS + len(later))
        gone = lost(balancer, sessions + later)
        expect(gone == 0, f'a balancer started again: {gone} of {SESSIONS + len(later)} sessions lost')

    replicas['a'].stop(signal.SIGKILL)
    first.sees(a='DOWN', b='UP', c='UP', d='UP')
    others = at['b'] + at['c']
    moved = lost(first, others)
    expect(moved == 0, f'a replica killed: {moved} of the {len(others)} sessions elsewhere moved')
    expect(lost(first, at['a']) == len(at['a']), f'all {len(at["a"])} of its own did')
    opened(first, at['a'])  # as their edges do
    replicas['a'].start()
    first.sees(a='UP', b='UP', c='UP', d='UP')
    moved = lost(first, sessions)
    expect(moved == 0, f'it came back: {moved} of {SESSIONS} moved')

    stepping = Stepping(replicas['b'], at['b'][0])
    replicas['b'].process.send_signal(signal.SIGTERM)
    for balancer in (first, second):
        balancer.sees(a='UP', b='NOLB', c='UP', d='UP')
        moved = lost(balancer, sessions)
        expect(moved == 0, f'a replica drains: {moved} of {SESSIONS} sessions moved')
    newest = ids(1 << 96, 40)
    opened(first, newest)
    found = sum(replicas['b'].ask('GET', path(each)) == 200 for each in newest)
    expect(found == 0, f'it has {found} of {len(newest)} new ones')
    expect(replicas['b'].ask('PUT', path(ids(1 << 100, 1)[0]), '{"model":"demo","cut":4}') == 503, 'and takes none')
    stepping.end()
    replicas['b'].stop()
    expect(replicas['b'].process.returncode == 0, f'it ends by a second signal: {replicas["b"].process.returncode}')


def check_drain(scratch):
    ports = {name: Port() for name in 'abc'}
    servers = {}
    for name, port in ports.items():
        servers[name] = http.server.ThreadingHTTPServer(('127.0.0.1', port.number), StandIn)
        servers[name].daemon_threads, servers[name].sessions, servers[name].ready = True, set(), 200
        threading.Thread(target=servers[name].serve_forever, daemon=True).start()
    balancer = Balancer(scratch, **{f'REPLICA_{name.upper()}': port.address for name, port in ports.items()}).start()
    balancer.sees(a='UP', b='UP', c='UP')
    sessions = ids(1, 90)
    opened(balancer, sessions)
    had = set(servers['a'].sessions)
    servers['a'].ready = 404
    balancer.sees(a='NOLB', b='UP', c='UP')
    moved = lost(balancer, sessions)
    expect(moved == 0 and len(had) > 0, f'/readyz 404 at a replica: {moved} of its {len(had)} sessions moved')
    opened(balancer, ids(1 << 32, 30))
    expect(servers['a'].sessions == had, 'it got none of 30 new ones')


def main():
    if not HAPROXY:
        print('check_balancer.py: no haproxy')
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix='split-balancer-') as scratch:
        try:
            check_table(sys.argv[1], scratch)
            check_drain(scratch)
        finally:
            for process in Program.running:
                process.kill()
                process.wait()
    sys.exit(bool(wrong))


main()
