#!/usr/bin/env python3
"""bench_plan.py [--models DIR,...] [--lines RTT:RATE,...] [--rounds N] [--json FILE] [EDGE_CLIENT FLAGS...]: how
well a plan foresees what a token takes, and what its pick costs, between two built programs of this machine.

For each model, line and load it asks for a plan (--plan --measure), runs a text at every place, and compares: first
as measured (fresh), then with what those texts taught (taught). error: |foreseen - taken| / taken of a token's time;
regret: the time of 64 tokens at the picked place over that at the best one, less 1. Loaded: another text runs on the
cloud all the while. Both programs compute on one thread."""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, threading

from bench_line import begin, percentile, program, root

TOKENS = 64


class Texts:
    """Texts and plans of one edge at one server, as JSON."""

    def __init__(self, port, cache, flags):
        self.common = ["--server", f"http://127.0.0.1:{port}", "--cache", cache, "--json", "--quiet", "--device", "cpu",
                       "--threads", "1", "--draft", "off", *flags]

    def ask(self, *flags):
        run = program("edge_client", *self.common, *flags, stdout=subprocess.PIPE)
        out = run.communicate()[0]
        if run.returncode != 0:
            sys.exit(f"edge_client {' '.join(flags)}: exit code {run.returncode}")
        return json.loads(out)

    def plan(self):
        """As soon as the cloud has measured itself."""
        while True:
            plan = self.ask("--plan", "--measure")
            if plan["cloud"]:
                return plan

    def text(self, cut):
        ids = ",".join(str(i * 7 + 1) for i in range(32))
        head = [] if cut == "cloud" else ["--head", "edge"]
        got = self.ask("--cut", str(cut), *head, "--prompt-ids", ids, "--max-tokens", str(TOKENS), "--ignore-eos")
        return got["receipt"]["plan"]


class Load:
    """Texts that run on the cloud until it is stopped."""

    def __init__(self, port):
        self.ends = False
        self.thread = threading.Thread(target=self.run, args=(port,))
        self.thread.start()

    def run(self, port):
        while not self.ends:
            program("edge_client", "--server", f"http://127.0.0.1:{port}", "--cut", "cloud", "--prompt-ids", "1,2,3",
                    "--max-tokens", "200", "--ignore-eos", "--quiet", stdout=subprocess.DEVNULL).wait()

    def stop(self):
        self.ends = True
        self.thread.join()


def cuts_of(plan):
    """The ends, and some cuts between them."""
    layers = len(plan["cuts"]) - 2
    return ["cloud"] + sorted({0, 1, layers // 2, layers})


def taken_at(texts, cuts, rounds):
    """What was taken at each place, in rounds over all of them: the median of each figure."""
    actual = {cut: [] for cut in cuts}
    for _ in range(rounds):
        for cut in cuts:
            actual[cut].append(texts.text(cut)["actual"])
    return {cut: {name: statistics.median(one[name] for one in all) for name in ("token_ms", "first_token_ms")}
            for cut, all in actual.items()}


def compare(plan, actual):
    """The errors by place, and the regret."""
    foreseen = {place["cut"]: place["token_ms"] for place in plan["cuts"]}
    errors = {cut: abs(foreseen[cut] - took["token_ms"]) / took["token_ms"] for cut, took in actual.items()}
    whole = {cut: took["first_token_ms"] + (TOKENS - 1) * took["token_ms"] for cut, took in actual.items()}
    picked = plan["pick"]["cut"]
    if picked not in whole:
        return errors, foreseen, None
    return errors, foreseen, whole[picked] / min(whole.values()) - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=os.path.join(root, "weights/demo"))
    parser.add_argument("--lines", default="0:0,2:300,30:50", help="ms:Mbit/s, 0 for no bound")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--loads", default="idle,loaded")
    parser.add_argument("--json")
    asked, flags = parser.parse_known_args()
    all = {"fresh": [], "taught": []}
    regrets = {"fresh": [], "taught": []}
    for model in asked.models.split(","):
        links = []
        cloud, direct = begin("cloud_server", "--model", model, "--threads", "1", "--device", "cpu")
        try:
            with tempfile.TemporaryDirectory() as cache:
                Texts(direct, cache, flags).text(0)  # brings the weights
                for line in asked.lines.split(","):
                    rtt, rate = line.split(":")
                    bound = [] if float(rate) == 0 else ["--rate", f"{rate}Mbit"]
                    link, port = begin("split_link", "--to", f"127.0.0.1:{direct}", "--rtt", f"{rtt}ms", *bound)
                    links.append(link)
                    for load in asked.loads.split(","):
                        busy = Load(direct) if load == "loaded" else None
                        try:
                            shutil.rmtree(os.path.join(cache, "plans"), ignore_errors=True)
                            texts = Texts(port, cache, flags)
                            for kind in ("fresh", "taught"):
                                plan = texts.plan()
                                actual = taken_at(texts, cuts_of(plan), asked.rounds)
                                errors, foreseen, regret = compare(plan, actual)
                                all[kind] += errors.values()
                                if regret is not None:
                                    regrets[kind].append(regret)
                                places = "  ".join(f"{cut}: {foreseen[cut]:.2f}/{actual[cut]['token_ms']:.2f}"
                                                   for cut in actual)
                                print(f"{os.path.basename(model)} {rtt} ms {rate} Mbit/s {load} {kind}: "
                                      f"error {statistics.median(errors.values()):.3f} max {max(errors.values()):.3f}, "
                                      f"pick {plan['pick']['cut']} regret {regret:.3f}; {places}", flush=True)
                        finally:
                            if busy:
                                busy.stop()
                    link.terminate()
        finally:
            for one in [cloud, *links]:
                one.terminate()
    for kind in all:
        print(f"{kind}: error median {statistics.median(all[kind]):.3f}, p90 {percentile(all[kind], 0.9):.3f}, max "
              f"{max(all[kind]):.3f}; regret median {statistics.median(regrets[kind]):.3f}, max {max(regrets[kind]):.3f}")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"planner_error_median": statistics.median(all["taught"]),
                       "planner_regret_max": max(regrets["taught"])}, file)


main()
