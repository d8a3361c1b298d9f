#!/usr/bin/env python3
"""bench_moves.py [--moves N] [--rtt MS] [--rows N] [--json FILE] [EDGE_CLIENT FLAGS...]: how long a text waits for
the token behind a move of its cut, over a simulated line between two built programs on this machine; prints the
median and the 99th percentile, for each kind of move too."""
import argparse, json, random, subprocess, sys, tempfile

from bench_line import begin, percentile, program


def schedule(layers, tokens, every):
    """A random cut every few tokens, none of them twice in a row."""
    places = [str(cut) for cut in range(layers + 1)] + ["cloud"]
    cut = random.choice(places)
    moves = [f"0:{cut}"]
    for at in range(every, tokens, every):
        cut = random.choice([place for place in places if place != cut])
        moves.append(f"{at}:{cut}")
    return ",".join(moves)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--rtt", type=float, default=50, help="ms")
    parser.add_argument("--rows", type=int, default=384,
                        help="of the prompt; the bundled model has 512 in all")
    parser.add_argument("--json")
    asked, flags = parser.parse_known_args()
    random.seed(1)
    pauses = {}
    cloud, port = begin("cloud_server")
    link, port = begin("split_link", "--to", f"127.0.0.1:{port}", "--rtt", f"{asked.rtt}ms")
    try:
        with tempfile.TemporaryDirectory() as cache:
            while sum(map(len, pauses.values())) < asked.moves:
                ids = ",".join(str(random.randrange(1, 500)) for _ in range(asked.rows))
                text = program("edge_client", "--server", f"http://127.0.0.1:{port}", "--cache", cache, "--json",
                               "--quiet", "--prompt-ids", ids, "--moves", schedule(8, 120, 12), "--max-tokens", "120",
                               "--ignore-eos", "--draft", "off", *flags, stdout=subprocess.PIPE)
                out = text.communicate()[0]
                if text.returncode != 0:
                    sys.exit(f"edge_client: exit code {text.returncode}")
                for move in json.loads(out)["receipt"]["moves"]:
                    kind = "to the cloud" if move["to"] == "cloud" else "here alone" if move["to"] == 0 else \
                        "from the cloud" if move["from"] == "cloud" else \
                        "up" if move["to"] > move["from"] else "down"
                    pauses.setdefault(kind, []).append(move["pause_ms"])
    finally:
        link.terminate()
        cloud.terminate()
    every = [pause for kind in pauses.values() for pause in kind]
    for kind, values in sorted(pauses.items()) + [("all", every)]:
        print(f"{kind:16} {len(values):4} moves, next token after {percentile(values, 0.5):6.1f} ms, "
              f"p99 {percentile(values, 0.99):6.1f} ms")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"resplit_pause_p99_ms": percentile(every, 0.99)}, file)


main()
