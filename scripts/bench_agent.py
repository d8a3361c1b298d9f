#!/usr/bin/env python3
"""bench_agent.py [--model DIR] [--cut K|cloud] [--turns N] [--prompt-cache on|off] [--json FILE]: an agent's session against
a cloud, or against an edge at a cut, of built programs of this tree.

Each turn sends all before it again, as agents do: a header that is new with each request, a system prompt, 30 tools with
nested schemas, calls and their results. The date, new with each turn, stands at the front of the system prompt, at its
end, or in the last message. For each turn: rows of the prompt that were computed, rows from the cache, and ms until the
first token. Without --model it is a small one of random weights, made on the spot."""
import argparse, json, os, random, shutil, subprocess, sys, tempfile, time, urllib.request

from bench_line import begin, root

PLACES = ("front", "end", "last message")
WORDS = "read write list find file line path text test build run name value count first last open close fast small".split()


def schema(draw, depth):
    """An object with members, some of which are objects and lists of them."""
    members = {}
    for name in draw.sample(WORDS, 2):
        kind = draw.choice(["string", "integer", "object", "array"] if depth > 0 else ["string", "integer"])
        members[name] = {"type": kind}
        if kind == "object":
            members[name] = schema(draw, depth - 1)
        if kind == "array":
            members[name]["items"] = schema(draw, 0)
    return {"type": "object", "properties": members, "required": sorted(members)[:2]}


def session(turns, place):
    """The bodies of its requests: the same ones each time."""
    draw = random.Random(7)
    tools = [{"name": f"{draw.choice(WORDS)}_{at}", "description": " ".join(draw.sample(WORDS, 2)),
              "input_schema": schema(draw, 1)} for at in range(30)]
    words = " ".join(draw.choice(WORDS) for _ in range(120))
    messages = []
    for turn in range(turns):
        date = f"It is {turn:02}:{draw.randrange(60):02} on the first day. "
        if turn > 0:
            use = {"type": "tool_use", "id": f"call_{turn}", "name": tools[turn % 30]["name"],
                   "input": {name: draw.choice(WORDS) for name in draw.sample(WORDS, 2)}}
            messages.append({"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]})
        said = " ".join(draw.choice(WORDS) for _ in range(25))
        result = {"type": "tool_result", "tool_use_id": f"call_{turn}", "content": said}
        messages.append({"role": "user", "content": [result if turn > 0 else {"type": "text", "text": said}]})
        now = list(messages)
        if place == "last message":
            now[-1] = {"role": "user", "content": now[-1]["content"] + [{"type": "text", "text": date}]}
        told = {"front": date + words, "end": words + date}.get(place, words)
        header = f"x-anthropic-billing-header: version=1; cch={draw.getrandbits(32):08x};"
        yield {"model": "agent", "max_tokens": 4, "stream": True, "tools": tools, "messages": now,
               "system": [{"type": "text", "text": header}, {"type": "text", "text": told}]}


def ask(port, body):
    """Rows computed, rows from the cache, and ms until the first token."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/messages", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    start, first, usage = time.monotonic(), None, None
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            if event["type"] == "error":
                sys.exit(f"the server says: {event['error']['message']}")
            if event["type"] == "message_start":
                first = (time.monotonic() - start) * 1e3
            usage = event.get("usage", usage)
    return {"computed": usage["input_tokens"], "cached": usage["cache_read_input_tokens"], "first_token_ms": round(first, 1)}


def small_model(folder):
    """A chat model of random weights, with a tokenizer of the tests and their template."""
    models = os.path.join(root, "tests/golden/models")
    subprocess.run([sys.executable, os.path.join(root, "scripts/make_random_model.py"), "--arch", "llama", "--size", "agent",
                    "--tokenizer", os.path.join(models, "tokenizers/bpe-qwen2"), "--out", folder],
                   check=True, stdout=subprocess.DEVNULL)
    shutil.copyfile(os.path.join(models, "chat/qwen2.jinja"), os.path.join(folder, "chat_template.jinja"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--cut", default="none", help="of an edge; none: the cloud itself is asked")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--prompt-cache", default="on")
    parser.add_argument("--threads", default="0")
    parser.add_argument("--context", default="16384")
    parser.add_argument("--json")
    asked = parser.parse_args()
    all = []
    with tempfile.TemporaryDirectory() as folder:
        model = asked.model or os.path.join(folder, "model")
        if not asked.model:
            small_model(model)
        print(f"{'the date':14}{'turn':>5}{'computed':>10}{'cached':>8}{'first token':>13}")
        for place in PLACES:
            servers = []
            try:
                common = ("--threads", asked.threads, "--context", asked.context)
                cloud, port = begin("cloud_server", "--model", f"agent={model}", "--prompt-cache", asked.prompt_cache, *common)
                servers.append(cloud)
                if asked.cut != "none":
                    edge, port = begin("edge_client", "--server", f"http://127.0.0.1:{port}", "--serve", "127.0.0.1:0",
                                       "--cut", asked.cut, "--cache", folder, *common)
                    servers.append(edge)
                while True:
                    try:
                        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz")
                        break
                    except OSError:
                        time.sleep(0.05)
                for turn, body in enumerate(session(asked.turns, place)):
                    one = ask(port, body)
                    all.append({"date": place, "turn": turn + 1, **one})
                    print(f"{place:14}{turn + 1:5}{one['computed']:10}{one['cached']:8}{one['first_token_ms']:10} ms",
                          flush=True)
            finally:
                for server in servers:
                    server.terminate()
                for server in servers:
                    server.wait()  # it writes into the folder until then
    for place in PLACES:
        rows = [one for one in all if one["date"] == place]
        computed = sum(one["computed"] for one in rows)
        last = rows[-1]["computed"] + rows[-1]["cached"]
        print(f"{place}: {computed} rows computed, {computed / last:.2f} x the last turn's prompt of {last}")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(all, file, indent=1)


main()
