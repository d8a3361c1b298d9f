"""Reads compose.yaml and scripts/cluster/kubernetes.yaml as an engine would before it acts: kinds and their needed fields,
names that must meet, nothing misspelt among the fields used. Exit 1 with one line for each thing that is wrong."""
import re
import sys

import yaml

KINDS = {"Deployment": "apps/v1", "Service": "v1", "PodDisruptionBudget": "policy/v1", "Ingress": "networking.k8s.io/v1"}
SPEC = {  # the fields of each spec, from the Kubernetes API reference (1.25)
    "Deployment": {"replicas", "selector", "strategy", "template"},
    "Service": {"selector", "ports", "type", "clusterIP"},
    "PodDisruptionBudget": {"minAvailable", "maxUnavailable", "selector"},
    "Ingress": {"ingressClassName", "rules", "tls", "defaultBackend"},
}
POD = {"terminationGracePeriodSeconds", "automountServiceAccountToken", "securityContext", "containers", "volumes"}
CONTAINER = {"name", "image", "args", "ports", "securityContext", "resources", "livenessProbe", "readinessProbe", "volumeMounts"}
wrong = []


def expect(true, message):
    if not true:
        wrong.append(message)


def known(fields, allowed, where):
    for field in sorted(set(fields) - allowed):
        wrong.append(f"{where}: unknown field {field}")


def seconds(args, flag, default):
    return int(args[args.index(flag) + 1]) if flag in args else default


with open("scripts/cluster/kubernetes.yaml") as file:
    documents = {document["kind"]: document for document in yaml.safe_load_all(file)}
expect(set(documents) == set(KINDS), f"kubernetes.yaml: kinds {sorted(documents)}, expected {sorted(KINDS)}")
for kind, document in documents.items():
    known(document, {"apiVersion", "kind", "metadata", "spec"}, kind)
    expect(document["apiVersion"] == KINDS[kind], f"{kind}: apiVersion {document['apiVersion']}, expected {KINDS[kind]}")
    expect(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"]), f"{kind}: name")
    known(document["spec"], SPEC[kind], f"{kind}.spec")

deployment = documents["Deployment"]["spec"]
labels = deployment["template"]["metadata"]["labels"].items()
for kind, selector in (("Deployment", deployment["selector"]["matchLabels"]), ("Service", documents["Service"]["spec"]["selector"]),
                       ("PodDisruptionBudget", documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])):
    expect(selector.items() <= labels, f"{kind}: selector {selector} matches no pod")
expect(documents["PodDisruptionBudget"]["spec"]["minAvailable"] < deployment["replicas"], "PodDisruptionBudget: no pod may ever go")

pod = deployment["template"]["spec"]
known(pod, POD, "pod")
(container,) = pod["containers"]
known(container, CONTAINER, "container")
ports = {port["name"]: port["containerPort"] for port in container["ports"]}
for probe in ("livenessProbe", "readinessProbe"):
    expect(container[probe]["httpGet"]["port"] in ports, f"{probe}: no such port")
expect(pod["terminationGracePeriodSeconds"] > seconds(container["args"], "--shutdown-timeout", 10), "pod: killed before it has shut down")
volumes = {volume["name"] for volume in pod["volumes"]}
expect({mount["name"] for mount in container["volumeMounts"]} <= volumes, "container: mounts a volume that is not there")
(service_port,) = documents["Service"]["spec"]["ports"]
expect(service_port["targetPort"] in ports, "Service: targetPort is none of the pod's")
for rule in documents["Ingress"]["spec"]["rules"]:
    for path in rule["http"]["paths"]:
        service = path["backend"]["service"]
        expect(service["name"] == documents["Service"]["metadata"]["name"], "Ingress: no such service")
        expect(service["port"]["name"] == service_port["name"], "Ingress: no such port of the service")

with open("compose.yaml") as file:
    compose = yaml.safe_load(file)
for name, service in compose["services"].items():
    expect("image" in service, f"compose.yaml: {name} has no image")
    for other in service.get("depends_on", {}):
        expect(other in compose["services"], f"compose.yaml: {name} depends on {other}, which is not there")

print("\n".join(wrong) if wrong else "kubernetes.yaml, compose.yaml: nothing wrong found")
sys.exit(bool(wrong))
