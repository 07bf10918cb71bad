"""Serving and stopping, and the text that Prometheus reads."""

import socket

import httpx
import pytest

from bridge.api import app, metrics, server
from tests.unit import platform_sample as sample


def test_a_server_answers_until_it_is_stopped_and_frees_its_port() -> None:
    application = app.create_app(sample.source(), sample.authenticator())
    serving = server.serve(application, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{serving.port}/healthz"
    assert httpx.get(url, trust_env=False).status_code == 200
    serving.stop()
    assert not serving.thread.is_alive()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    again = server.serve(application, "127.0.0.1", serving.port)
    again.stop()


def test_a_taken_port_is_told_in_one_sentence() -> None:
    application = app.create_app(sample.source(), sample.authenticator())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(server.ServerError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*; free the port"):
            server.serve(application, "127.0.0.1", port)


def test_metrics_have_one_type_each_and_escape_their_labels() -> None:
    source = sample.source()
    row = source.queue_rows[0].model_copy(update={"team": 'a"b\\c\nd'})
    text = metrics.render(source.status(), source.nodes(), source.quota(), [row])
    assert 'team="a\\"b\\\\c\\nd"' in text
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert 'slurmbridge_system_up{system="slurm",name="main"} 1\n' in text
    assert "slurmbridge_cycle_seconds 0.012\n" in text
    assert 'slurmbridge_node_gpus{node="g2",flavor="h100",column="pods"} 4\n' in text
    assert 'slurmbridge_quota_limit_gpus{team="nlp"' not in text  # no limit is no sample, not a zero
