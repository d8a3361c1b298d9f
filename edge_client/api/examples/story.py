"""story.py SERVER: a story whose first word comes from the server, and which goes on here when the layers have come."""
import ctypes
import json
import sys

sc = ctypes.CDLL("libsplitcompute.so.0")
for name, result in {"open": ctypes.c_void_p, "ask": ctypes.c_void_p, "next": ctypes.c_char_p, "free": None, "close": None}.items():
    getattr(sc, "sc_" + name).restype = result
sc.sc_ask.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
sc.sc_next.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
sc.sc_free.argtypes = sc.sc_close.argtypes = [ctypes.c_void_p]


def ask(edge, method, path, body=None):
    """The answer's events, one after the other as they come."""
    text = b"" if body is None else json.dumps(body).encode()
    answer = sc.sc_ask(edge, method.encode(), path.encode(), text, len(text))
    while (event := sc.sc_next(answer, None)) is not None:
        yield json.loads(event)
    sc.sc_free(answer)


error = ctypes.create_string_buffer(256)
server = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
edge = sc.sc_open(json.dumps({"server": server, "goal": "offload", "retry-for": "5"}).encode(), error, len(error))
if not edge:
    sys.exit(error.value.decode())
told = False
body = {"prompt": "The king", "max_tokens": 400, "temperature": 0, "ignore_eos": True, "stream": True}
for event in ask(edge, "POST", "/v1/completions", body):
    if "error" in event:
        sys.exit(event["error"]["message"])
    print(event["choices"][0]["text"], end="", flush=True)
    stages = [] if told else next(ask(edge, "GET", "/split/status"))["stages"]
    if stages and all(stage["runs"] == "here" for stage in stages):
        told = print("\n[all layers are here: the server may stop]", file=sys.stderr) or True
sc.sc_close(edge)
