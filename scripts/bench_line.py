"""Built programs of this tree on a simulated line, for the benchmarks beside it."""
import os, subprocess, sys, threading

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def program(name, *arguments, **options):
    return subprocess.Popen([os.path.join(root, "build/bin", name), *arguments], text=True, **options)


def begin(name, *arguments):
    """Starts a server on any port and returns it with that port, once it says which."""
    port = () if "--serve" in arguments else ("--port", "0")  # an edge has it there
    server = program(name, *port, *arguments, stderr=subprocess.PIPE)
    for line in server.stderr:
        at = line.find("http://127.0.0.1:")
        at = at + 17 if at >= 0 else line.find("127.0.0.1:") + 10
        if at >= 10:
            digits = line[at:].split()[0].rstrip("/,;)")
            if digits.isdigit():
                threading.Thread(target=server.stderr.read, daemon=True).start()
                return server, digits
    sys.exit(f"{name} did not start")


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]
