"""Reads compose.yaml and scripts/cluster as an engine would before it acts: names that must meet, times that must fit, and metrics
that the programs have. (tests/cluster holds the manifests against Kubernetes' schemas.) Exit 1 with one line for each thing that is
wrong."""
import glob
import json
import re
import subprocess
import sys

import yaml

wrong = []


def expect(true, message):
    if not true:
        wrong.append(message)


def argument(args, flag, default):
    return int(args[args.index(flag) + 1]) if flag in args else default


with open("scripts/cluster/kubernetes.yaml", encoding="utf-8") as file:
    objects = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(file)}
pods = {name: each["spec"]["template"] for (kind, name), each in objects.items() if kind in ("Deployment", "StatefulSet")}
expect(set(pods) == {"splitcompute-cloud", "splitcompute-balancer"}, f"kubernetes.yaml: pods {sorted(pods)}")


def labels(name):
    """Of each of its pods."""
    if ("Deployment", name) in objects:
        return [pods[name]["metadata"]["labels"]]
    count = objects[("StatefulSet", name)]["spec"]["replicas"]
    return [pods[name]["metadata"]["labels"] | {"statefulset.kubernetes.io/pod-name": f"{name}-{at}"} for at in range(count)]


def selected(selector):
    """The names of what makes the pods that these labels select."""
    return [name for name in pods if any(selector.items() <= each.items() for each in labels(name))]


selectors = []
for (kind, name), each in objects.items():
    spec = each.get("spec", {})
    if kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        selectors.append((kind, name, spec["selector"]["matchLabels"]))
    if kind == "Service":
        selectors.append((kind, name, spec["selector"]))
    if kind == "NetworkPolicy":
        selectors.append((kind, name, spec["podSelector"]["matchLabels"]))
        selectors += [(kind, name, peer["podSelector"]["matchLabels"]) for rule in spec["ingress"] for peer in rule.get("from", [])
                      if "podSelector" in peer]
    if kind == "HorizontalPodAutoscaler":
        expect(("Deployment", spec["scaleTargetRef"]["name"]) in objects, f"{kind} {name}: no such Deployment")
        places = re.search(r"server-template replica (\d+)", open("scripts/cluster/haproxy.cfg", encoding="utf-8").read())
        expect(spec["maxReplicas"] <= int(places[1]), f"{kind} {name}: more replicas than haproxy.cfg has places for")
for kind, name, selector in selectors:
    expect(selected(selector), f"{kind} {name}: selects no pod")

for name, template in pods.items():
    pod = template["spec"]
    (container,) = pod["containers"]
    ports = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in container:
            expect(container[probe]["httpGet"]["port"] in ports, f"{name}: {probe}: no such port")
            expect(container[probe].get("timeoutSeconds", 1) >= 3, f"{name}: {probe}: gives up sooner than a busy node answers")
    args = container.get("args", [])
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][-1]) if "lifecycle" in container else 0
    drain = argument(args, "--drain-timeout", 0)
    expect(pod["terminationGracePeriodSeconds"] > wait + drain + argument(args, "--shutdown-timeout", 10),
           f"{name}: killed before it has shut down")
    expect(wait > 0 or drain > 10, f"{name}: ends before those who route to it know that it goes")
    volumes = {volume["name"] for volume in pod["volumes"]}
    expect({mount["name"] for mount in container["volumeMounts"]} <= volumes, f"{name}: mounts a volume that is not there")
    for value in [each.get("value", "") for each in container.get("env", [])]:
        service = re.fullmatch(r"(\S+)\.splitcompute\.svc\.cluster\.local:(\d+)", value)
        if service:
            ported = objects[("Service", service[1])]["spec"]["ports"]
            expect(int(service[2]) in [port["port"] for port in ported], f"{name}: {value}: no such port")
for (kind, name), each in objects.items():
    if kind == "Service":
        (maker,) = selected(each["spec"]["selector"])
        ports = {port["name"] for port in pods[maker]["spec"]["containers"][0]["ports"]}
        expect(all(port["targetPort"] in ports for port in each["spec"]["ports"]), f"Service {name}: targetPort is none of the pod's")

# A pod that drains is not ready, and its sessions are to find it.
expect(objects[("Service", "splitcompute-replicas")]["spec"].get("publishNotReadyAddresses") is True,
       "Service splitcompute-replicas: its name loses a pod that drains")

# Two balancers, each the other's peer: the Service that a balancer knows its peer by leads to that pod.
balancer = pods["splitcompute-balancer"]["spec"]["containers"][0]
values = {each["name"]: each.get("value") for each in balancer["env"]}
for at, peer in enumerate("ab"):
    name = values[f"PEER_{peer.upper()}"].partition(".")[0]
    expect(objects[("Service", name)]["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": f"splitcompute-balancer-{at}"},
           f"Service {name}: is not for peer {peer}")
    said = subprocess.run([*balancer["command"][:2], balancer["command"][2].replace("exec haproxy", "echo $PEER; :")],
                          env={"POD": f"splitcompute-balancer-{at}"}, stdout=subprocess.PIPE, text=True, check=True).stdout
    expect(said.strip() == peer, f"splitcompute-balancer-{at} takes itself for {said.strip()}, expected {peer}")
hears = [(rule["ports"], rule.get("from")) for rule in objects[("NetworkPolicy", "splitcompute-balancer")]["spec"]["ingress"]
         if {"port": "peers"} in rule["ports"]]
expect(hears == [([{"port": "peers"}], [{"podSelector": {"matchLabels": {"app": "splitcompute-balancer"}}}])],
       "NetworkPolicy splitcompute-balancer: others than balancers reach the port of peers")

with open("compose.yaml", encoding="utf-8") as file:
    compose = yaml.safe_load(file)
taken = {}
for name, service in compose["services"].items():
    expect("image" in service, f"compose.yaml: {name} has no image")
    expect(":" in service["image"], f"compose.yaml: {name}: an image without a tag is the latest")
    expect("healthcheck" in service, f"compose.yaml: {name} has the image's health check, on the cloud's port")
    for other in service.get("depends_on", {}):
        expect(other in compose["services"], f"compose.yaml: {name} depends on {other}, which is not there")
    for port in service.get("ports", []):
        # One profile's at a time.
        key = (tuple(service.get("profiles", [])), port.rsplit(":", 1)[0])
        expect(key not in taken, f"compose.yaml: {name} and {taken.get(key)} publish {port}")
        taken[key] = name

# Every metric that a panel or an alert names.
sources = "".join(open(path, encoding="utf-8").read() for folder in ("common/serve", "cloud_server", "edge_client/server")
                  for path in glob.glob(f"{folder}/**/*.cpp", recursive=True))
with open("scripts/cluster/grafana.json", encoding="utf-8") as file:
    dashboard = json.load(file)
expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
with open("scripts/cluster/alerts.yaml", encoding="utf-8") as file:
    expressions += [rule["expr"] for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]
expect(len(expressions) > 30, f"{len(expressions)} expressions of panels and alerts")
for expression in expressions:
    for metric in re.findall(r"\b(?:split|process)_[a-z_]+\b", expression):
        family = re.sub(r"_(bucket|sum|count)$", "", metric)
        expect(f'"{metric}"' in sources or f'"{family}"' in sources, f"no metric {metric}: {expression}")

print("\n".join(wrong) if wrong else "kubernetes.yaml, compose.yaml, grafana.json, alerts.yaml: nothing wrong found")
sys.exit(bool(wrong))
