"""A device plugin that offers fake GPUs to a real kubelet, over the real device plugin protocol (v1beta1)."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from deploy.images.fake_gpu import device_files, inventory
from deploy.images.fake_gpu import device_plugin_pb2 as protocol  # type: ignore[attr-defined]  # made from the .proto

RESOURCE = os.environ.get("RESOURCE", "nvidia.com/gpu")
STATE_FILE = Path(os.environ.get("STATE_FILE", "/var/lib/fake-gpu/state.json"))
DEVICE_DIRECTORY = Path(os.environ.get("DEVICE_DIRECTORY", "/host/dev"))
SOCKET_DIRECTORY = Path("/var/lib/kubelet/device-plugins")
OWN_SOCKET = SOCKET_DIRECTORY / "fake-gpu.sock"
KUBELET_SOCKET = SOCKET_DIRECTORY / "kubelet.sock"

POLL_S = 0.1
REGISTER_TIMEOUT_S = 5.0


def log(event: str, **fields: object) -> None:
    """Print one constant event with its fields."""
    print(event, *(f"{key}={value}" for key, value in fields.items()), file=sys.stderr, flush=True)


class Hardware:
    """The last state of the node's devices that could be read."""

    def __init__(self) -> None:
        self._state = inventory.State()
        self._complaint = ""

    def read(self) -> inventory.State:
        """Return what is installed now; a file that cannot be understood leaves what was known."""
        try:
            self._state = inventory.parse(STATE_FILE.read_text())
        except FileNotFoundError:
            self._state = inventory.State()
        except (OSError, inventory.StateError) as error:
            if str(error) != self._complaint:
                log("state_not_understood", file=STATE_FILE, error=error)
            self._complaint = str(error)
        else:
            self._complaint = ""
        return self._state


class Plugin:
    """What the kubelet calls."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    def options(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        """Tell the kubelet that we like to choose which devices a container gets."""
        return protocol.Options(get_preferred_allocation_available=True)

    def list_and_watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Send all devices, and again after each change, for as long as the kubelet listens."""
        sent: list[tuple[str, bool]] | None = None
        while context.is_active():
            devices = self._hardware.read().devices()
            if devices != sent:
                sent = devices
                log("devices", count=len(devices), unhealthy=[name for name, healthy in devices if not healthy])
                yield protocol.ListAndWatchResponse(
                    devices=[
                        protocol.Device(ID=name, health="Healthy" if healthy else "Unhealthy")
                        for name, healthy in devices
                    ]
                )
            time.sleep(POLL_S)

    def preferred_allocation(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Choose devices for each container."""
        answers = [
            protocol.ContainerPreferredAllocationResponse(
                device_ids=inventory.prefer(
                    wanted.available_device_ids, wanted.must_include_device_ids, wanted.allocation_size
                )
            )
            for wanted in request.container_requests
        ]
        return protocol.PreferredAllocationResponse(container_responses=answers)

    def allocate(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Hand the device files to each container."""
        return protocol.AllocateResponse(
            container_responses=[self._allocation(wanted.device_ids) for wanted in request.container_requests]
        )

    def _allocation(self, device_ids: list[str]) -> Any:
        numbers = inventory.indexes(device_ids)
        for number in numbers:
            device_files.ensure(DEVICE_DIRECTORY, number)
        log("allocated", devices=numbers)
        files = [f"/dev/nvidia{number}" for number in numbers]
        return protocol.ContainerAllocateResponse(
            envs={"NVIDIA_VISIBLE_DEVICES": ",".join(map(str, numbers))},
            devices=[protocol.DeviceSpec(container_path=path, host_path=path, permissions="rw") for path in files],
        )

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the service as gRPC serves it."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": _method(unary, self.options, protocol.Empty),
                "ListAndWatch": _method(stream, self.list_and_watch, protocol.Empty),
                "GetPreferredAllocation": _method(
                    unary, self.preferred_allocation, protocol.PreferredAllocationRequest
                ),
                "Allocate": _method(unary, self.allocate, protocol.AllocateRequest),
            },
        )


def _method(kind: Any, function: Any, request: Any) -> Any:
    return kind(
        function,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def serve(plugin: Plugin) -> grpc.Server:
    """Listen on our own socket."""
    OWN_SOCKET.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((plugin.handlers(),))
    server.add_insecure_port(f"unix://{OWN_SOCKET}")
    server.start()
    return server


def register() -> None:
    """Tell the kubelet where we listen and what we offer."""
    request = protocol.RegisterRequest(
        version="v1beta1",
        endpoint=OWN_SOCKET.name,
        resource_name=RESOURCE,
        options=protocol.Options(get_preferred_allocation_available=True),
    )
    with grpc.insecure_channel(f"unix://{KUBELET_SOCKET}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=protocol.RegisterRequest.SerializeToString,
            response_deserializer=protocol.Empty.FromString,
        )
        call(request, timeout=REGISTER_TIMEOUT_S)


def sockets() -> tuple[int, int, int] | None:
    """Identify this life of the two sockets: a kubelet that restarts makes its own anew and removes ours."""
    try:
        kubelet, own = KUBELET_SOCKET.stat(), OWN_SOCKET.stat()
    except FileNotFoundError:
        return None
    return kubelet.st_ino, kubelet.st_ctime_ns, own.st_ino


def main() -> None:
    """Keep registered with whichever kubelet is there."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    hardware = Hardware()
    for number in range(hardware.read().count):
        device_files.ensure(DEVICE_DIRECTORY, number)
    server: grpc.Server | None = None
    registered: tuple[int, int, int] | None = None
    while True:
        if registered is None or sockets() != registered:
            if server:
                server.stop(grace=None).wait()
            server = serve(Plugin(hardware))
            registered = _try_register()
        time.sleep(POLL_S if registered else 1.0)


def _try_register() -> tuple[int, int, int] | None:
    try:
        register()
    except grpc.RpcError as error:
        log("register_failed", error=repr(error)[:200])
        return None
    log("registered", resource=RESOURCE)
    return sockets()


if __name__ == "__main__":
    main()
