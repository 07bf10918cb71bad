"""How quick the gateway and the reflectors are on a real API server: `python -m tests.bench.kube_speed [PODS]`."""

import statistics
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bridge.kube import port
from bridge.kube.gateway import KubeGateway
from bridge.kube.stores import ReflectedStores
from tests import kubebox
from tests.kubewait import wait

NS = "bench"
WRITERS = 8


def main(pods: int) -> None:
    """Print one line for each figure."""
    with kubebox.KubeBox() as box:
        gateway = box.gateway()
        gateway.create(port.NAMESPACES, {"metadata": {"name": NS}})
        with ThreadPoolExecutor(WRITERS) as pool:
            begun = time.monotonic()
            list(pool.map(lambda i: gateway.create(port.PODS, kubebox.pod(f"p{i}", gpus=1), namespace=NS), range(pods)))
            say(f"create, {WRITERS} threads", pods / (time.monotonic() - begun), "pods/s")
        listed(gateway, pods)
        latencies(gateway)


def listed(gateway: KubeGateway, pods: int) -> None:
    """Time a whole list, its CPU, and what it keeps in memory."""
    tracemalloc.start()
    kept = gateway.list(port.PODS, namespace=NS)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept.items) == pods
    say(f"list of {pods} in memory", size / 1e6, "MB")
    begun, cpu = time.monotonic(), time.process_time()
    gateway.list(port.PODS, namespace=NS)
    say(f"list of {pods}", time.monotonic() - begun, "s")
    say(f"list of {pods}, our CPU", time.process_time() - cpu, "s")


def latencies(gateway: KubeGateway) -> None:
    """Time from a write's answer to the store, and the write itself."""
    stores = ReflectedStores(gateway, [port.PODS], lambda: None)
    begun = time.monotonic()
    stores.start()
    stores.wait(60)
    say("reflector synced", time.monotonic() - begun, "s")
    writes, seen = [], []
    for number in range(100):
        begun = time.monotonic()
        made = gateway.create(port.PODS, kubebox.pod(f"late{number}"), namespace=NS)
        answered = time.monotonic()
        wait("it is seen", partial(has, stores, made["metadata"]["uid"]))
        writes.append(answered - begun)
        seen.append(time.monotonic() - answered)
    stores.stop()
    say("create, p50", statistics.median(writes) * 1000, "ms")
    say("watch after the answer, p50 (looked every 10 ms)", statistics.median(seen) * 1000, "ms")
    say("watch after the answer, max", max(seen) * 1000, "ms")


def has(stores: ReflectedStores, uid: str) -> bool:
    """Return whether one of the last pods is this one."""
    return any(pod["metadata"]["uid"] == uid for pod in stores.items(port.PODS)[-5:])


def say(what: str, value: float, unit: str) -> None:
    """Print a figure."""
    sys.stdout.write(f"{what:55} {value:10.2f} {unit}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
