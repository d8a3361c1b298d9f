"""four_threads.py SERVER CACHE: four threads of a Python program ask one edge, and print the one text that they all got."""
import ctypes
import json
import sys
import threading

sc = ctypes.CDLL("libsplitcompute.so.0")
sc.sc_open.restype = sc.sc_ask.restype = ctypes.c_void_p
sc.sc_next.restype = ctypes.c_char_p
sc.sc_ask.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
sc.sc_next.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
sc.sc_free.argtypes = sc.sc_close.argtypes = [ctypes.c_void_p]

error = ctypes.create_string_buffer(256)
edge = sc.sc_open(json.dumps({"server": sys.argv[1], "cache": sys.argv[2], "cut": 3, "device": "cpu", "threads": 1}).encode(), error, len(error))
if not edge:
    sys.exit(error.value.decode())
texts = []


def ask(stream):
    body = json.dumps({"prompt": "The king", "max_tokens": 32, "temperature": 0, "ignore_eos": True, "stream": stream}).encode()
    for _ in range(3):
        answer, text = sc.sc_ask(edge, b"POST", b"/v1/completions", body, len(body)), ""
        while (event := sc.sc_next(answer, None)) is not None:
            told = json.loads(event)
            text += told["choices"][0]["text"] if "choices" in told else event.decode()
        sc.sc_free(answer)
        texts.append(text)


threads = [threading.Thread(target=ask, args=(i % 2 == 0,)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sc.sc_close(edge)
if len(texts) != 12 or len(set(texts)) != 1:
    sys.exit(f"{len(texts)} texts: {set(texts)}")
print(texts[0], end="")
