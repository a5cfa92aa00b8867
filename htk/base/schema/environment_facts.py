"""Facts on the job around a recording, which a profile's metadata may hold: an allow-list.

Nothing else of the environment is written by `htk.capture`, or believed when a file is read.
"""

ENVIRONMENT_KEY = "htk_environment"  # of a profile's metadata
MOST_LENGTH = 200  # characters of a value

# The fact, and the variables that may hold it; the first that is set counts.
FACTS: dict[str, tuple[str, ...]] = {
    "slurm_job_id": ("SLURM_JOB_ID",),
    "slurm_job_name": ("SLURM_JOB_NAME",),
    "slurm_array_job_id": ("SLURM_ARRAY_JOB_ID",),
    "slurm_array_task_id": ("SLURM_ARRAY_TASK_ID",),
    "slurm_partition": ("SLURM_JOB_PARTITION",),
    "slurm_cluster": ("SLURM_CLUSTER_NAME",),
    "slurm_nodes": ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
    "slurm_tasks": ("SLURM_NTASKS",),
    "slurm_restarts": ("SLURM_RESTART_COUNT",),
    "kubernetes_pod": ("POD_NAME",),
    "kubernetes_namespace": ("POD_NAMESPACE",),
    "kubernetes_node": ("NODE_NAME",),
    "kubernetes_job_index": ("JOB_COMPLETION_INDEX",),
    "torchrun_id": ("TORCHELASTIC_RUN_ID",),
    "torchrun_restarts": ("TORCHELASTIC_RESTART_COUNT",),
    "git_commit": ("GIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA"),
    "git_branch": ("GIT_BRANCH", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME"),
}
