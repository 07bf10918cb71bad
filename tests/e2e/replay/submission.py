"""Submits the work when its time has come: jobs with sbatch as their users, pods with kubectl as theirs."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.e2e import kube, shell, slurm
from tests.e2e.replay.trace import Work

AT_A_TIME = 3
RUN_LABEL = "slurmbridge.dev/replay"


class Submission:
    """Threads that submit; a submission that fails ends the replay."""

    def __init__(self, run: str, jobs: Sequence[Work], pods: Sequence[Work]) -> None:
        self._run, self._image = run, kube.slurm_image()
        timed = [(work.at_s, work, self._sbatch) for work in jobs] + [(work.at_s, work, self._apply) for work in pods]
        self._due = sorted(timed, key=lambda entry: (entry[0], entry[1].name))
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self.submitted = 0
        self._thread = threading.Thread(target=self._submit_all, name="submission", daemon=True)

    def start(self) -> None:
        """Begin; time 0 of the trace is now."""
        self._thread.start()

    def stop(self) -> None:
        """Submit nothing more."""
        self._stopped.set()
        self._thread.join(timeout=90)

    def check(self) -> None:
        """Raise what a submission failed with."""
        if self._failure is not None:
            raise shell.CommandError(f"a submission failed: {self._failure}") from self._failure

    @property
    def done(self) -> bool:
        """Whether everything was submitted."""
        return self.submitted == len(self._due)

    def _submit_all(self) -> None:
        started = time.monotonic()
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for at_s, work, submit in self._due:
                if self._stopped.wait(max(0.0, started + at_s - time.monotonic())):
                    return
                pool.submit(self._guarded, submit, work)

    def _guarded(self, submit: Callable[[Work], None], work: Work) -> None:
        try:
            submit(work)
        except BaseException as error:  # noqa: BLE001 - told to the main thread, which ends the replay with it
            self._failure = error
            self._stopped.set()
        else:
            with self._lock:
                self.submitted += 1

    def _sbatch(self, work: Work) -> None:
        """Let each run of the script leave one line: the witness that no scheduler writes."""
        script = f"echo {work.name} >> replay-{self._run}.ran; exec sleep {work.run_s}"
        options = f"--job-name={work.name} --account={work.tenant.team} --gres=gpu:{work.gpus} --output=/dev/null"
        slurm.sbatch(work.tenant.user, options, script)

    def _apply(self, work: Work) -> None:
        pod = kube.pod(
            work.name,
            gpus=work.gpus,
            command=["sleep", str(work.run_s)],
            namespace=work.tenant.team,
            product=work.product,
            image=self._image,
        )
        pod["metadata"]["labels"] = {RUN_LABEL: self._run}
        kube.kubectl("create", "-f", "-", user=work.tenant.user, text=json.dumps(pod))
