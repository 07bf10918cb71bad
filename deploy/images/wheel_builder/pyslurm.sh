#!/bin/sh
# pyslurm.sh VERSION OUT: builds a wheel of pyslurm against this container's libslurm into OUT.
# The published source refuses any Slurm but the one it was written for; its version file is all that says so.
#
# Job and Node get a few members more, which the published ones lack: `record` (fields as slurmctld sent them: the state
# with all of its flags, GPU requests of every spelling, the GPUs handed out on each node) and, for Job, `change` and
# `kill`, which take the id of a single array task, as "12_3".
set -eu
version=$1 out=$2
slurm_version=$(dpkg-query -W -f '${Version}' libslurm-dev | sed 's/^\([0-9]*\)\.0*\([0-9]*\)\..*/\1.\2.0/')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >job_members <<'EOF'
    @property
    def record(self):
        """dict: Fields as slurmctld sent them, with NO_VAL and INFINITE as the numbers they are."""
        p = self.ptr
        return {
            "account": cstr.to_unicode(p.account),
            "admin_comment": cstr.to_unicode(p.admin_comment),
            "array_job_id": p.array_job_id,
            "array_max_tasks": p.array_max_tasks,
            "array_task_id": p.array_task_id,
            "array_task_str": cstr.to_unicode(p.array_task_str),
            "batch_flag": p.batch_flag,
            "comment": cstr.to_unicode(p.comment),
            "dependency": cstr.to_unicode(p.dependency),
            "eligible_time": p.eligible_time,
            "end_time": p.end_time,
            "exit_code": p.exit_code,
            "features": cstr.to_unicode(p.features),
            "gres_detail": [cstr.to_unicode(p.gres_detail_str[i]) for i in range(p.gres_detail_cnt)],
            "het_job_id": p.het_job_id,
            "het_job_offset": p.het_job_offset,
            "job_id": p.step_id.job_id,
            "job_state": p.job_state,
            "name": cstr.to_unicode(p.name),
            "nice": p.nice,
            "nodes": cstr.to_unicode(p.nodes),
            "num_cpus": p.num_cpus,
            "num_nodes": p.num_nodes,
            "num_tasks": p.num_tasks,
            "partition": cstr.to_unicode(p.partition),
            "priority": p.priority,
            "req_nodes": cstr.to_unicode(p.req_nodes),
            "requeue": p.requeue,
            "restart_cnt": p.restart_cnt,
            "shared": p.shared,
            "sluid": p.step_id.sluid,
            "start_time": p.start_time,
            "state_reason": cstr.to_unicode(slurm_job_state_reason_string(p.state_reason)),
            "std_out": self.standard_output,
            "submit_line": cstr.to_unicode(p.submit_line),
            "submit_time": p.submit_time,
            "time_limit": p.time_limit,
            "tres_alloc": cstr.to_unicode(p.tres_alloc_str),
            "tres_per_job": cstr.to_unicode(p.tres_per_job),
            "tres_per_node": cstr.to_unicode(p.tres_per_node),
            "tres_per_socket": cstr.to_unicode(p.tres_per_socket),
            "tres_per_task": cstr.to_unicode(p.tres_per_task),
            "tres_req": cstr.to_unicode(p.tres_req_str),
            "user_id": p.user_id,
            "user_name": cstr.to_unicode(p.user_name),
            "work_dir": cstr.to_unicode(p.work_dir),
        }

    @staticmethod
    def change(job_id, priority=None, nodes=None, begin_time=None, requeue=None, admin_comment=None):
        """Change one record (12) or one array task ("12_3"); `nodes` are required, and no others."""
        cdef:
            slurm.job_desc_msg_t *desc = <slurm.job_desc_msg_t*>try_xmalloc(sizeof(slurm.job_desc_msg_t))
            slurm.job_array_resp_msg_t *answer = NULL
            uint32_t i
            int code = 0
        if not desc:
            raise MemoryError("xmalloc failed for job_desc_msg_t")
        slurm.slurm_init_job_desc_msg(desc)
        try:
            if isinstance(job_id, int):
                desc.step_id.job_id = job_id
            else:
                cstr.fmalloc(&desc.job_id_str, job_id)
            if priority is not None:
                desc.priority = priority
            if nodes is not None:
                cstr.fmalloc(&desc.req_nodes, ",".join(nodes))
                desc.min_nodes = desc.max_nodes = len(nodes)
            if begin_time is not None:
                desc.begin_time = begin_time
            if requeue is not None:
                desc.requeue = requeue
            if admin_comment is not None:
                cstr.fmalloc(&desc.admin_comment, admin_comment)
            verify_rpc(slurm.slurm_update_job2(desc, &answer))
            if answer:
                for i in range(answer.job_array_count):
                    code = code or answer.error_code[i]
                slurm.slurm_free_job_array_resp(answer)
            if code:
                raise RPCError(code)
        finally:
            slurm.slurm_free_job_desc_msg(desc)

    @staticmethod
    def kill(job_id, signal, batch=False):
        """Signal one job or one array task: its steps, or its batch shell only (SIGKILL ends all of it)."""
        flags = slurm.KILL_JOB_BATCH if batch else 0
        verify_rpc(slurm.slurm_kill_job2(job_id, signal, flags, NULL))

EOF

cat >node_members <<'EOF'
    @property
    def record(self):
        """dict: Fields as slurmctld sent them."""
        p = self.info
        return {
            "address": cstr.to_unicode(p.node_addr),
            "cpus": p.cpus,
            "features": cstr.to_unicode(p.features),
            "gres": cstr.to_unicode(p.gres),
            "gres_used": cstr.to_unicode(p.gres_used),
            "name": cstr.to_unicode(p.name),
            "node_state": p.node_state,
            "real_memory": p.real_memory,
            "reason": cstr.to_unicode(p.reason),
            "reason_time": p.reason_time,
            "reason_uid": p.reason_uid,
            "slurmd_start_time": p.slurmd_start_time,
            "alloc_cpus": p.alloc_cpus,
        }

EOF

python3 -m venv venv
venv/bin/pip install "cython<3.2" "setuptools<81" wheel packaging
venv/bin/pip download --no-deps --no-build-isolation --no-binary pyslurm "pyslurm==$version"
tar -xf pyslurm-*.tar.gz
cd "pyslurm-$version"
sed -i "s/^__version__ *=.*/__version__ = \"$slurm_version\"/" pyslurm/version.py
# Each goes in front of the first line after its class.
sed -i -e '/^cdef _threads_per_core/{e cat ../job_members' -e '}' pyslurm/core/job/job.pyx
sed -i -e '/^def _node_state_from_str/{e cat ../node_members' -e '}' pyslurm/core/node.pyx
grep -q 'def record' pyslurm/core/job/job.pyx && grep -q 'def record' pyslurm/core/node.pyx
export SLURM_LIB_DIR=/usr/lib/x86_64-linux-gnu SLURM_INCLUDE_DIR=/usr/include
../venv/bin/pip wheel --no-build-isolation --no-deps --wheel-dir "$out" .
