#!/usr/bin/env python3
"""check.py BINARIES [--only TEXT] [--all]: what requests make of their bodies stays within --memory-budget and --kv-budget.

Starts cloud_server and edge_client --serve with small budgets B and K, sends each route its worst bodies (of 8 MB and of
64 MB, alone and 8 at once) and asserts that the program's anonymous memory never rises by more than B + K + 10 % + 32 MB,
and that it answers afterwards. SPLIT_LONG=1 or --all: every body and 40 mixes of 8; else one of each route and the worst, the same each time."""
import argparse, http.client, json, os, random, re, shutil, socket, struct, subprocess, sys, tempfile, threading, time

MB = 1 << 20
BUDGET, KV = 128 * MB, 32 * MB
ALLOWED = (BUDGET + KV) * 1.1 + 32 * MB
SIZES = {"8 MB": 8 * MB - 1024, "64 MB": 64 * MB - 1024}
AT_ONCE = 8
CHOICES = 16  # n and best_of at their most
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SESSION = "0123456789abcdef" * 2
# Reads all that a chat can hold.
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>{% if m.content is string %}"
    "{{ m.content | trim }}{% else %}{{ m.content | tojson }}{% endif %}{% for call in m.tool_calls or [] %}"
    "{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


# --- bodies: texts of nearly `size` bytes of JSON ---


def filled(size, head, piece, tail):
    """head piece,piece,...piece tail"""
    return head + ((piece + b",") * ((size - len(head) - len(tail)) // (len(piece) + 1)))[:-1] + tail


def keys(size, head, value, tail):
    names = b",".join(b'"%x":%s' % (i, value) for i in range(max(1, (size - len(head) - len(tail)) // (8 + len(value)))))
    return head + names[: size - len(head) - len(tail)].rsplit(b",", 1)[0] + tail


def text(size, head, piece, tail):
    return head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail


LISTS = {"objects": b"{}", "numbers": b"1", "floats": b"1e9", "texts": b'"a"', "empty lists": b"[]", "lists of numbers": b"[1,2]",
         "nulls": b"null", "objects of one": b'{"a":1}'}
TEXTS = {"letters": b"a", "words": b"king ", "newlines": b"\\n", "escapes": b"\\u00e9", "quotes": b'\\"', "bytes": "é".encode()}


def values(field, more=b"", only=None):
    """name -> maker of a body whose `field` is what costs most to parse, to copy and to encode."""
    head = b'{%s"%s":' % (more, field.encode())
    out = {}
    for name, piece in LISTS.items():
        out[name] = lambda size, piece=piece: filled(size, head + b"[", piece, b"]}")
    for name, piece in TEXTS.items():
        out[name] = lambda size, piece=piece: text(size, head + b'"', piece, b'"}')
    out["keys"] = lambda size: keys(size, head + b"{", b"1", b"}}")
    out["keys of texts"] = lambda size: keys(size, head + b"{", b'"a"', b"}}")
    out["no JSON"] = lambda size: b"\0" * size
    out["open lists"] = lambda size: head + b"[" * (size - len(head))
    out["long texts"] = lambda size: filled(size, head + b"[", b'"' + b"a" * (size // 17) + b'"', b"]}")
    return {name: make for name, make in out.items() if only is None or name in only}


def generation(main):
    """What every route that writes texts takes, `main` being a short prompt's field and value."""
    stops = lambda size, count, more: b'{%s,%s"stop":[%s]}' % (
        main, more, b",".join(b'"%d' % i + b"x" * (size // count - 40) + b'"' for i in range(count)))
    most = b'"n":%d,"max_tokens":64,"ignore_eos":true,' % CHOICES
    schema = lambda size, inner: inner(size, b'{%s,%s"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":' % (main, most))
    return {
        "16 stops": lambda size: stops(size, 16, b'"max_tokens":8,'),
        "16 stops, n 16": lambda size: stops(size, 16, most),
        "16 stops, n 16, stream": lambda size: stops(size, 16, most + b'"stream":true,'),
        "one stop": lambda size: stops(size, 1, most),
        "many stops": lambda size: filled(size, b'{%s,"stop":[' % main, b'"a"', b"]}"),
        "logit_bias": lambda size: keys(size, b'{%s,%s"logit_bias":{' % (main, most), b"1", b"}}"),
        "logit_bias of 1024": lambda size: b'{%s,%s"logit_bias":{%s},"user":"%s"}' % (
            main, most, b",".join(b'"%d":1' % i for i in range(1024)), b"a" * (size - 20000)),
        "schema of enums": lambda size: schema(size, lambda s, h: filled(s, h + b'{"enum":[', b'"a"', b"]}}}}")),
        "schema of texts": lambda size: schema(size, lambda s, h: text(s, h + b'{"enum":["', b"ab", b'"]}}}}')),
        "schema of long texts": lambda size: schema(size, lambda s, h: filled(s, h + b'{"enum":[', b'"' + b"a" * 100_000 + b'"', b"]}}}}")),
        "schema of long names": lambda size: schema(size, lambda s, h: h + b'{"properties":{' + b",".join(
            b'"%d%s":{}' % (i, b"a" * 100_000) for i in range(s // 100_020)) + b"}}}}}"),
        "schema of a long description": lambda size: schema(size, lambda s, h: text(s, h + b'{"type":"string","maxLength":8,"description":"', b"a ", b'"}}}}')),
        "schema of properties": lambda size: schema(size, lambda s, h: keys(s, h + b'{"type":"object","properties":{', b'{"type":"string"}', b"}}}}}")),
        "schema as text": lambda size: schema(size, lambda s, h: text(s, h + b'"{\\"enum\\":[0', b",0", b']}"}}}')),
        "unknown field": lambda size: filled(size, b'{%s,"unknown":[' % main, b"{}", b"]}"),
        "user": lambda size: text(size, b'{%s,%s"user":"' % (main, most), b"a", b'"}'),
        "model": lambda size: text(size, b'{%s,"model":"' % main, b"a", b'"}'),
    }


def chats(field, more=b""):
    head = b'{%s"%s":[' % (more, field.encode())
    user = b'{"role":"user","content":'
    call = b'{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"'
    return {
        "one long message": lambda size: text(size, head + user + b'"', b"a ", b'"}]}'),
        "one message of newlines": lambda size: text(size, head + user + b'"', b"\\n", b'"}]}'),
        "short messages": lambda size: filled(size, head, user + b'"a"}', b"]}"),
        "parts": lambda size: filled(size, head + user + b"[", b'{"type":"text","text":"a"}', b"]}]}"),
        "arguments as text": lambda size: text(size, head + user + b'"a"},' + call + b"[0", b",0", b']"}}]}]}'),
        "arguments of objects": lambda size: text(size, head + user + b'"a"},' + call + b"[0", b",{}", b']"}}]}]}'),
        "tool calls of numbers": lambda size: filled(size, head + b'{"role":"assistant","content":"","tool_calls":[', b"0", b"]}]}"),
        "tool calls": lambda size: filled(size, head + b'{"role":"assistant","content":"","tool_calls":[',
                                          b'{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}', b"]}]}"),
        "message of values": lambda size: filled(size, head + b'{"role":"user","content":"a","values":[', b"{}", b"]}]}"),
        "tools": lambda size: filled(size, head + user + b'"a"}],"tools":[', b'{"type":"function","function":{"name":"f"}}', b"]}"),
        "tools of values": lambda size: filled(size, head + user + b'"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":[',
                                               b"0", b"]}}]}"),
        "template values": lambda size: filled(size, head + user + b'"a"}],"chat_template_kwargs":{"a":[', b"0", b"]}}"),
    }


def completions(more=b""):
    prompts = lambda size, piece: filled(size, b'{"n":%d,"max_tokens":1,"prompt":[' % CHOICES, piece, b"]}")
    echo = lambda size, tail: b'{%s"prompt":[%s],"max_tokens":8,"n":%d,"best_of":%d,"logprobs":5,"echo":true,%s"user":"%s"}' % (
        more, b",".join([b'"Once upon a time"'] * 8), CHOICES, CHOICES, tail, b"a" * (size - 500))
    return {
        **values("prompt", more),
        **generation(more + b'"prompt":["a","b","c","d","e","f","g","h"]'),
        "n 16, best_of 16, echo": lambda size: echo(size, b""),
        "n 16, best_of 16, echo, stream": lambda size: echo(size, b'"stream":true,'),
        "prompts of ids": lambda size: prompts(size, b"[1]"),
        "prompts of texts": lambda size: prompts(size, b'"a"'),
        "suffix": lambda size: text(size, b'{"prompt":"a","suffix":"', b"a", b'"}'),
    }


def hidden(size, rows, dtype=b"F32", width=320, item=4, name=b"hidden"):
    data = rows * width * item
    header = b'{"%s":{"dtype":"%s","shape":[%d,%d],"data_offsets":[0,%d]}}' % (name, dtype, rows, width, data)
    header += b" " * (-len(header) % 8)
    return (struct.pack("<Q", len(header)) + header + b"\0" * data).ljust(0)


def frames():
    return {
        "rows beyond the context": lambda size: hidden(size, (size - 200) // 1280),
        "halves beyond the context": lambda size: hidden(size, (size - 200) // 640, b"F16", item=2),
        "one wide row": lambda size: hidden(size, 1, width=(size - 200) // 4),
        "zeros": lambda size: b"\0" * size,
        "a header of tensors": lambda size: struct.pack("<Q", size - 8) + keys(size - 8, b"{", b'{"dtype":"F32","shape":[0],"data_offsets":[0,0]}', b"}").ljust(size - 8),
        "a header of spaces": lambda size: struct.pack("<Q", size - 8) + b"{" + b" " * (size - 10) + b"}",
    }


JSON, TENSORS = "application/json", "application/octet-stream"
CONTEXT = 1024  # of the bundled model


def attacks(program):
    """[(name, method, path, type, maker)]"""
    out = []

    def add(method, path, bodies, content_type=JSON, title=None):
        for name, make in bodies.items():
            out.append((f"{method} {title or path}: {name}", method, path, content_type, make))

    add("POST", "/v1/completions", completions())
    add("POST", "/v1/chat/completions", {**chats("messages"), **values("messages"), **generation(b'"messages":[{"role":"user","content":"a"}]')})
    add("POST", "/tokenize", values("content"))
    add("POST", "/detokenize", values("tokens"))
    add("POST", "/apply-template", {**chats("messages"), **values("messages")})
    add("POST", "/v1/embeddings", values("input"))
    ids = b",".join(b"%d" % (i % 8000) for i in range(500))
    if program == "cloud":
        forward = "/v1/models/demo/forward"
        add("POST", forward, {**values("tokens"), **{"prompt: " + k: v for k, v in values("prompt").items()},
                              **{"rows: " + k: v for k, v in values("rows", b'"tokens":[1],').items()}})
        add("POST", forward, {
            "all logits": lambda size: b'{"tokens":[%s],"rows":"all","special":%s}' % (ids, b" " * (size - 4000) + b"true"),
            "all likeliest": lambda size: b'{"tokens":[%s],"rows":"all","top":1000,"special":%s}' % (ids, b" " * (size - 4000) + b"true"),
            "all hidden states": lambda size: b'{"tokens":[%s],"to":4,"rows":"all","special":%s}' % (ids, b" " * (size - 4000) + b"true")})
        for query in ("?from=1&to=2", "?from=1&to=head&rows=all", "?from=1&to=2&rows=all&dtype=f16"):
            add("POST", forward + query, frames(), TENSORS)
            add("POST", forward + query, {"a whole context": lambda size: hidden(size, CONTEXT - 1)}, TENSORS)
        add("POST", "/v1/models/encoder/forward", {**values("prompt"), "to pool": lambda size: filled(size, b'{"to":"pool","prompt":[', b'"king"', b"]}"),
                                                    "to pool, ids": lambda size: filled(size, b'{"to":"pool","tokens":[', b"[1,2]", b"]}"),
                                                    "all states": lambda size: filled(size, b'{"rows":"all","tokens":[', b"[1,2]", b"]}")},
            title="/v1/models/encoder/forward")
        add("POST", "/v1/embeddings", {"encoder: " + k: v for k, v in values("input", b'"model":"encoder",').items()})
        add("POST", "/v1/models/demo/sessions/" + SESSION + "/completions", completions(), title="/v1/models/demo/sessions/S/completions")
        add("POST", "/v1/sessions", values("model", only=("letters", "objects", "keys", "no JSON")))
        add("PUT", "/v1/sessions/" + SESSION, values("model", only=("letters", "objects", "keys", "no JSON")), title="/v1/sessions/S")
        add("POST", "/v1/sessions/" + SESSION + "/forward", values("tokens", b'"past":0,'), title="/v1/sessions/S/forward")
        add("POST", "/v1/sessions/" + SESSION + "/forward", {
            "all hidden states": lambda size: b'{"past":0,"tokens":[%s],"rows":"all"%s}' % (ids, b" " * (size - 4000))},
            title="/v1/sessions/S/forward")
        add("POST", "/v1/sessions/" + SESSION + "/forward", frames(), TENSORS, title="/v1/sessions/S/forward, tensors")
        for path in ("/v1/models/demo/files/tokenizer.json", "/v1/models/demo/stages/head", "/v1/models/demo/stages/embed", "/metrics", "/openapi.json", "/v1/models/demo"):
            out.append((f"GET {path}", "GET", path, JSON, lambda size: b""))
    else:
        add("POST", "/v1/responses", {**values("input"), **chats("input"), **generation(b'"input":"a"')})
        add("POST", "/api/generate", {**values("prompt", b'"model":"demo",'), **generation(b'"model":"demo","prompt":"a"'),
                                      **{"system: " + k: v for k, v in values("system", b'"model":"demo","prompt":"a",', only=("letters", "newlines", "objects")).items()},
                                      "options.stop": lambda size: filled(size, b'{"model":"demo","prompt":"a","options":{"num_predict":8,"stop":[', b'"' + b"x" * (size // 17) + b'"', b"]}}"),
                                      "format": lambda size: filled(size, b'{"model":"demo","prompt":"a","format":{"enum":[', b'"a"', b"]}}"),
                                      "format of properties": lambda size: keys(size, b'{"model":"demo","prompt":"a","format":{"type":"object","properties":{', b'{"type":"string"}', b"}}}"),
                                      "options": lambda size: keys(size, b'{"model":"demo","prompt":"a","options":{', b"1", b"}}")})
        add("POST", "/api/chat", {**chats("messages", b'"model":"demo",'), **values("messages", b'"model":"demo",')})
        add("POST", "/api/embed", values("input", b'"model":"demo",'))
        add("PUT", "/split/cut", values("cut", only=("letters", "objects", "keys", "no JSON")))
        add("PUT", "/split/placement", values("cut", only=("letters", "objects", "keys", "no JSON")))
        add("POST", "/split/unsplit", completions())
    return out


# --- programs ---


class Program:
    """One of the built programs on a free port, its output, and the most anonymous memory that it had."""

    def __init__(self, argv, mark):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env={k: v for k, v in os.environ.items() if not k.startswith("SPLIT_")})
        self.pid, self.port = self.process.pid, None
        end = time.monotonic() + 60
        while self.port is None:
            found = re.search(mark + rb".*?listening on http://127\.0\.0\.1:(\d+)" if mark else rb"listening on http://127\.0\.0\.1:(\d+)", self.said(), re.S)
            if found and self.get("/readyz", int(found[1])) == 200:
                self.port = int(found[1])
            elif self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit("does not listen: " + self.said().decode("utf-8", "replace"))
            time.sleep(0.02)  # is asked again, not waited for
        self.base, self.peak, self.lock = self.anonymous(), 0, threading.Lock()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def get(self, path, port=None):
        try:
            one = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=30)
            one.request("GET", path)
            return one.getresponse().status
        except OSError:
            return 0

    def anonymous(self):
        try:
            with open(f"/proc/{self.pid}/status") as status:
                return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))
        except (OSError, StopIteration):
            return 0

    def watch(self):
        while not self.done.wait(0.002):
            with self.lock:
                self.peak = max(self.peak, self.anonymous())

    def forget_peak(self):
        with self.lock:
            self.peak = self.anonymous()
            return self.peak

    def answers(self, path, body):
        """Whether it answers, once what was held is given back."""
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            if exchange(self.port, "POST", path, JSON, body) == 200:
                return self.get("/livez") == 200
            time.sleep(0.05)
        return False

    def end(self):
        self.done.set()
        self.thread.join()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def exchange(port, method, path, content_type, body):
    """The status, or 0 where the connection ended without one. The answer is read and thrown away."""
    head = (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n").encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as line:
            try:
                line.sendall(head)
                line.sendall(body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before its end
            got = b""
            while True:
                piece = line.recv(1 << 16)
                if not piece:
                    break
                if len(got) < 64:
                    got += piece[:64]
            return int(got[9:12]) if got.startswith(b"HTTP/1.1 ") else 0
    except OSError:
        return 0


class Run:
    """Sends bodies to a program and notes what went wrong."""

    def __init__(self, program, name):
        self.program, self.name, self.failures = program, name, []

    def send(self, title, requests):
        """All at once; False where the program is no more."""
        program = self.program
        if self.name == "cloud_server":  # whose session gives way to others
            exchange(program.port, "PUT", "/v1/sessions/" + SESSION, JSON, b'{"cut":4}')
        before, began, codes = program.forget_peak(), time.monotonic(), {}

        def one(request):
            code = exchange(program.port, *request)
            codes[code] = codes.get(code, 0) + 1

        threads = [threading.Thread(target=one, args=(request,)) for request in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rise = program.peak - program.base
        what = (f"{self.name}: {title}: {codes}, {time.monotonic() - began:.1f} s, +{rise / MB:.0f} MB "
                f"(from +{(before - program.base) / MB:.0f})")
        wrong = []
        if rise > ALLOWED:
            wrong.append(f"more than {ALLOWED / MB:.0f} MB")
        if 500 in codes:
            wrong.append("an error of the server's")
        if program.process.poll() is not None:
            wrong.append(f"it ended with {program.process.returncode}")
        elif not program.answers("/v1/completions", b'{"prompt":"Once","max_tokens":2}'):
            wrong.append("it does not answer afterwards")
        if VERBOSE or wrong:
            print(what, "; ".join(wrong).upper(), flush=True)
        self.failures += [f"{what}: {one}" for one in wrong]
        return program.process.poll() is None

    def all(self, chosen, mixes):
        for (title, method, path, content_type, make), ways in chosen:
            for size in sorted({size for size, _ in ways}):
                request = (method, path, content_type, make(SIZES[size]))
                for count in sorted({count for other, count in ways if other == size}):
                    if not self.send(f"{title}, {size} x {count}", [request] * count):
                        return self.failures
        for mix in mixes:
            requests = [(one[1], one[2], one[3], one[4](SIZES[size])) for one, size in mix]
            if not self.send("; ".join(f"{one[0]}, {size}" for one, size in mix), requests):
                break
        return self.failures


# Bodies that were worst: always asked.
ALWAYS = {
    "cloud": [("POST /v1/completions: 16 stops, n 16", "8 MB", 1), ("POST /v1/completions: schema of long texts", "8 MB", AT_ONCE),
              ("POST /v1/chat/completions: arguments of objects", "8 MB", AT_ONCE),
              ("POST /v1/models/demo/forward: all likeliest", "8 MB", AT_ONCE), ("POST /v1/embeddings: encoder: letters", "8 MB", AT_ONCE),
              ("POST /v1/sessions: objects", "8 MB", AT_ONCE), ("POST /tokenize: words", "64 MB", AT_ONCE)],
    "edge": [("POST /v1/responses: 16 stops, n 16", "8 MB", 1), ("POST /api/chat: arguments as text", "8 MB", AT_ONCE),
             ("POST /api/embed: long texts", "8 MB", AT_ONCE), ("PUT /split/cut: objects", "8 MB", AT_ONCE), ("POST /v1/completions: objects", "64 MB", AT_ONCE)],
}


def chosen_of(program, rest):
    """[(body, [(size, how many at once)])], and lists of bodies with sizes that are sent together."""
    every = [one for one in attacks(program) if rest.only is None or re.search(rest.only, one[0])]
    ways = [(size, count) for size in ([rest.size] if rest.size else SIZES) for count in (1, AT_ONCE)]
    ways_of = lambda one: [way for way in ways if one[1] != "GET" or way[0] == "8 MB"]
    drawn = random.Random(1)
    long = rest.all or bool(os.environ.get("SPLIT_LONG"))
    mixes = [[(drawn.choice(every), drawn.choice(ways)[0]) for _ in range(AT_ONCE)] for _ in range(40 if long else 1)]
    if long or rest.only is not None:
        return [(one, ways_of(one)) for one in every], mixes if long else []
    always = [(one, [(size, count)]) for title, size, count in ALWAYS[program] for one in every if one[0] == title]
    assert len(always) == len(ALWAYS[program]), "a body of ALWAYS is missing"
    # One of each route, in one way.
    drawn.shuffle(every)
    seen = {(one[1], one[2]) for one, _ in always}
    each = [one for one in every if (one[1], one[2]) not in seen and not seen.add((one[1], one[2]))]
    return always + [(one, [drawn.choice(ways_of(one))]) for one in each], mixes


def main():
    global VERBOSE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries")
    parser.add_argument("--only", help="titles with this expression in them")
    parser.add_argument("--program", choices=["cloud", "edge"])
    parser.add_argument("--size", choices=list(SIZES), help="bodies of this size alone")
    parser.add_argument("--all", action="store_true", help="every body, as with SPLIT_LONG=1")
    parser.add_argument("--verbose", action="store_true")
    rest = parser.parse_args()
    VERBOSE = rest.verbose
    folder = tempfile.mkdtemp()
    failures, programs = [], []
    began = time.monotonic()
    try:
        template = os.path.join(folder, "template.jinja")
        with open(template, "w") as out:
            out.write(TEMPLATE)
        machine = ["--device", "cpu", "--threads", "1", "--chat-template", template]
        budgets = ["--memory-budget", str(BUDGET), "--kv-budget", str(KV)]
        model = "demo=" + os.path.join(ROOT, "weights/demo")
        cloud = [rest.binaries + "/cloud_server", "--model", model, "--port", "0", "--blob-cache", folder + "/blobs", *machine]
        if rest.program != "edge":
            encoder = ["--model", "encoder=" + os.path.join(ROOT, "tests/golden/models/st-minilm")]
            programs.append(Program([*cloud, *encoder, *budgets], b""))
            failures += Run(programs[-1], "cloud_server").all(*chosen_of("cloud", rest))
        if rest.program != "cloud":
            programs.append(Program(cloud, b""))
            url = f"http://127.0.0.1:{programs[-1].port}"
            programs.append(Program([rest.binaries + "/edge_client", "--server", url, "--serve", "127.0.0.1:0", "--cut", "4",
                                     "--cache", folder + "/cache", *machine, *budgets], b""))
            failures += Run(programs[-1], "edge_client --serve").all(*chosen_of("edge", rest))
    finally:
        for program in reversed(programs):
            program.end()
        shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{len(failures)} failures, {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
