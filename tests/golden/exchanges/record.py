#!/usr/bin/env python3
"""record.py BIN_DIR

Writes the *.json here: what cloud_server in BIN_DIR answers to requests, and what edge_client in BIN_DIR asks it on the
way to a text. Values that differ from run to run are zeros in them (VARIES here and in exchanges.h).
"""
import hashlib
import http.client
import http.server
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..", "..")
TENSORS = "application/octet-stream"
SESSION = "0" * 32
KEPT_HEADERS = {"Accept-Ranges", "Allow", "Cache-Control", "Content-Range", "Content-Type", "ETag", "Retry-After",
                "Split-Have"}
VARIES = [(rb'"id":"[0-9a-f]{32}"', b'"id":"' + SESSION.encode() + b'"'),
          (rb'"id":"cmpl-[^"]*"', b'"id":""'),
          (rb'"created":[0-9]+', b'"created":0'),
          (rb'"(queue|compute)_ms":[-+.0-9e]+', rb'"\1_ms":0')]


def bytes_as_json(name, body):
    try:
        return {name: body.decode()} if body else {}
    except UnicodeDecodeError:
        return {name + "_hex": body.hex()}


class Recording:
    """The exchanges of one file, each asked of the server at `port`."""

    def __init__(self, port, longest):
        self.port, self.longest, self.exchanges = port, longest, []

    def ask(self, method, path, body=b"", type="", accept="", range="", hidden=None, **notes):
        headers = {k: v for k, v in (("Content-Type", type), ("Accept", accept), ("Range", range)) if v}
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        answer = reply.read()
        if "/files/" not in path and "/blobs/" not in path or self.longest < 1 << 20:
            shown = answer
            for pattern, zeros in VARIES:
                shown = re.sub(pattern, zeros, shown)
            request = {"method": method, "path": re.sub("(?<=/sessions/)[0-9a-f]{32}", SESSION, path), **headers}
            request.update({"hidden": hidden} if hidden else bytes_as_json("body", body))
            kept = {k: v for k, v in reply.getheaders() if k in KEPT_HEADERS}
            said = bytes_as_json("body", shown)
            if len(shown) > self.longest:
                said = {"sha256": hashlib.sha256(shown).hexdigest()}
            self.exchanges.append({"request": request, "status": reply.status, "headers": kept, **said, **notes})
        return reply, answer

    def write(self, name, **more):
        with open(os.path.join(HERE, name + ".json"), "w") as file:
            lines = ",\n".join(json.dumps(exchange) for exchange in self.exchanges)
            start = json.dumps({**more, "exchanges": []})[:-2]
            file.write(start + "\n" + lines + "\n]}\n")


def hidden(rows, channels):
    header = json.dumps({"hidden": {"dtype": "F32", "shape": [rows, channels],
                                    "data_offsets": [0, 4 * rows * channels]}}).encode()
    values = [((i * 37) % 101 - 50) / 64 for i in range(rows * channels)]
    return struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(values)}f", *values)


def record_requests(port):
    """What a client can ask for, each thing once, and ways to be wrong."""
    recording = Recording(port, longest=400)

    def ask(method, path, body=None, **more):
        recording.ask(method, path, b"" if body is None else json.dumps(body).encode(),
                      "" if body is None else "application/json", **more)

    def tensors(path, rows, channels=96, **more):
        recording.ask("POST", path, hidden(rows, channels), TENSORS, hidden=[rows, channels], **more)

    ask("GET", "/v1/models")
    for model in ("demo", "rand-a"):
        path = "/v1/models/" + model
        for query in ("", "?format=q8_0&from=2&to=head", "?from=0&to=2", "?to=norm", "?format=f32&from=3&to=3"):
            ask("GET", path + query)
    for query in ("?from=4", "?from=-1", "?to=4", "?to=tail", "?from=2&to=1", "?format=q5_0", "?format=f32&format=f16", "?up=1"):
        ask("GET", "/v1/models/rand-a" + query)
    ask("GET", "/v1/models/none")
    for file in ("config.json", "vocab.json", "merges.txt", "none.json"):
        ask("GET", "/v1/models/demo/files/" + file)
    ask("GET", "/v1/models/rand-a/stages/norm")
    _, manifest = recording.ask("GET", "/v1/models/rand-a?format=f32&from=3&to=norm")
    blob = [s for s in json.loads(manifest)["stages"] if s["name"] == "norm"][0]["blobs"][0]["sha256"]
    ask("GET", "/v1/blobs/sha256/" + blob)
    ask("GET", "/v1/blobs/sha256/" + blob, range="bytes=3-9")
    ask("GET", "/v1/blobs/sha256/" + "1" * 64)

    session = "/v1/sessions/" + SESSION
    step = session + "/forward"
    ask("POST", "/v1/sessions", {"model": "rand-a", "cut": 1})
    for wrong in ({"model": "rand-a", "cut": 4}, {"model": "rand-a", "to": 4}, {"model": "rand-a", "from": 4, "to": 3},
                  {"model": "rand-a", "from": 2, "to": 1}, {"model": "rand-a", "to": 1, "cut": 1}, {"model": "rand-a"},
                  {"model": "none", "to": 1}, {"model": "rand-a", "to": 1, "up": 1}):
        ask("PUT", session, wrong)
    ask("PUT", "/v1/sessions/0", {"model": "rand-a", "to": 2})
    ask("GET", session)
    ask("POST", step, {"past": 0, "tokens": [1]})
    ask("PUT", session, {"model": "rand-a", "from": 0, "to": 2})
    ask("PUT", session, {"model": "rand-a", "from": 0, "to": 2})
    ask("PUT", session, {"model": "rand-a", "from": 0, "to": 3})
    ask("POST", step, {"past": 0, "tokens": [5, 9, 310], "phase": "prompt", "rows": "all"})
    ask("POST", step, {"past": 3, "tokens": [7]}, accept="application/json")
    ask("POST", step, {"past": 4, "tokens": [8, 2], "phase": "generate", "rows": "last"}, accept=TENSORS)
    ask("POST", step, {"past": 2, "tokens": [310], "phase": "generate"})
    ask("GET", session)
    for wrong in ({"past": 9, "tokens": [1]}, {"past": 0, "tokens": []}, {"past": 0, "tokens": [311]},
                  {"past": 0, "tokens": [-1]}, {"past": -1, "tokens": [1]}, {"tokens": [1]},
                  {"past": 0, "tokens": [1], "phase": "both"}, {"past": 0, "tokens": [1], "rows": "first"},
                  {"past": 0, "tokens": [1], "up": 1}, {"past": 3, "tokens": [1] * 62}, [1]):
        ask("POST", step, wrong)
    tensors(step + "?past=0", 1)
    ask("GET", session)
    ask("DELETE", session)
    ask("DELETE", session)
    ask("PUT", session, {"model": "rand-a", "from": 1, "to": 2})
    tensors(step + "?past=0", 3)
    tensors(step + "?past=3&phase=generate&rows=last", 2, accept="application/json")
    tensors(step + "?past=3&phase=generate", 1, accept=TENSORS)
    for wrong in ("", "?past=x", "?past=0&phase=both", "?past=0&rows=first", "?past=0&past=1", "?past=0&up=1", "?past=9"):
        tensors(step + wrong, 1)
    tensors(step + "?past=0", 65)
    tensors(step + "?past=0", 1, channels=95)
    ask("POST", step, {"past": 0, "tokens": [1]})
    ask("DELETE", session)

    forward = "/v1/models/rand-a/forward"
    for body in ({"tokens": [1, 2, 3]}, {"tokens": [1, 2, 3], "top": 3}, {"tokens": [1, 2, 3], "to": "head", "rows": "all", "top": 1},
                 {"tokens": [1, 2, 3], "to": "norm", "rows": "last"}, {"tokens": [1, 2, 3], "to": 0, "rows": [0, 2]},
                 {"tokens": [1, 2, 3], "from": 0, "to": 2}, {"tokens": []}, {"tokens": [311]}, {"tokens": [1], "from": 1},
                 {"tokens": [1], "from": 4}, {"tokens": [1], "to": 4}, {"tokens": [1], "to": "2"}, {"tokens": [1], "to": -1},
                 {"tokens": [1], "rows": "first"}, {"tokens": [1], "rows": [1]}, {"tokens": [1, 2], "rows": [1, 0]},
                 {"tokens": [1], "rows": []}, {"tokens": [1], "to": 1, "top": 1}, {"tokens": [1], "top": 312},
                 {"tokens": [1], "prompt": "a"}, {"prompt": "a"}, {"tokens": [1], "up": 1}):
        ask("POST", forward, body)
    ask("POST", "/v1/models/demo/forward", {"prompt": "Once upon", "top": 5})
    ask("POST", forward, {"tokens": [1, 2]}, accept=TENSORS)
    for query in ("", "?from=3", "?from=3&to=norm&rows=last", "?from=1&to=2&rows=0,2", "?from=1&to=1&rows=last", "?from=3&top=2"):
        tensors(forward + query, 3, accept="application/json")
    tensors(forward + "?from=3&rows=all", 3, accept=TENSORS)
    for wrong in ("?from=4", "?from=2&to=1", "?to=4", "?to=tail", "?rows=3", "?rows=1,0", "?rows=first", "?top=0", "?to=1&top=1", "?up=1"):
        tensors(forward + wrong, 3)

    text = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 6, "seed": 3}
    for more in ({}, {"temperature": 0, "logprobs": 2}, {"echo": True, "logprobs": 0}, {"n": 2, "stop": " a"},
                 {"stream": True}, {"stream": True, "return_token_ids": True, "logprobs": 1, "stream_options": {"include_usage": True}},
                 {"max_tokens": -1}, {"prompt": [8192]}, {"model": "none"}, {"up": 1}):
        ask("POST", "/v1/completions", {**text, **more})
    recording.write("requests")


def record_edge(port, binaries, name, arguments, lose_before_step=None):
    """What edge_client asks on its way to a text; its session is deleted before one of its steps."""
    recording = Recording(port, longest=1 << 20)
    steps = [0]

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.command == "POST" and "/sessions/" in self.path:
                if steps[0] == lose_before_step:
                    recording.ask("DELETE", self.path.removesuffix("/forward"), aside=True)
                steps[0] += 1
            reply, answer = recording.ask(self.command, self.path, body,
                                          *(self.headers.get(h, "") for h in ("Content-Type", "Accept", "Range")))
            self.send_response(reply.status)
            for header, value in reply.getheaders():
                if header in KEPT_HEADERS:
                    self.send_header(header, value)
            if reply.status != 204:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *_):
            pass

    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as cache:
        out = subprocess.run([os.path.join(binaries, "edge_client"), "--device=cpu", "--quiet", "--json", f"--cache={cache}",
                              f"--server=http://127.0.0.1:{proxy.server_address[1]}", *arguments],
                             check=True, capture_output=True).stdout
    proxy.shutdown()
    result = {k: v for k, v in json.loads(out).items() if k not in ("device", "receipt")}
    recording.write(name, arguments=arguments, result=result)


def main():
    binaries = sys.argv[1]
    with tempfile.TemporaryDirectory() as cache:
        server = subprocess.Popen(
            [os.path.join(binaries, "cloud_server"), "--port=0", "--device=cpu", "--profile=f32", f"--blob-cache={cache}",
             "--model", "demo=" + os.path.join(SOURCE, "weights", "demo"),
             "--model", "rand-a=" + os.path.join(SOURCE, "tests", "golden", "rand-a")], stderr=subprocess.PIPE, text=True)
        try:
            port = next(int(m[1]) for line in server.stderr if (m := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)))
            threading.Thread(target=server.stderr.read, daemon=True).start()
            toy = ["--model=rand-a", "--prompt-ids=5,9,310", "--temperature=0.8", "--seed=4", "--ignore-eos", "--max-tokens=5"]
            record_requests(port)
            record_edge(port, binaries, "edge-cut", toy + ["--cut=1"], lose_before_step=3)
            record_edge(port, binaries, "edge-head", toy + ["--cut=2", "--head=cloud", "--max-tokens=2"])
            record_edge(port, binaries, "edge-cloud", ["--model=demo", "--prompt=Once upon a time", "--seed=3", "--max-tokens=6",
                                                       "--cut=cloud", "--logprobs=1"])
            record_edge(port, binaries, "edge-embed", ["--model=rand-a", "--prompt-ids=5,9", "--embed", "--cut=cloud"])
        finally:
            server.terminate()
            server.wait()


main()
