#!/bin/bash
# A job of dlio_torch for Slurm. Submit it with: sbatch %{script}
#SBATCH --job-name=%{job}
#SBATCH --nodes=%{nodes}
#SBATCH --ntasks-per-node=%{ranks_per_node}
#SBATCH --cpus-per-task=%{cpus_per_rank}
#SBATCH --gpus-per-node=%{gpus_per_node}
#SBATCH --mem=%{memory_mib}M
#SBATCH --time=%{time}
#SBATCH --partition=%{partition}
#SBATCH --account=%{account}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@%{grace_s}
#SBATCH %{directives}

job_id=$SLURM_JOB_ID
restarted=${SLURM_RESTART_COUNT:-0}
submit=sbatch

# hosts: the nodes of the job, one a line; this script runs on the first
hosts() {
  scontrol show hostnames "$SLURM_JOB_NODELIST"
}

# on_nodes WORDS...: a command once on each node
on_nodes() {
  if [ "$nodes" -eq 1 ]; then
    "$@"
  else
    srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
      --cpus-per-task="$((ranks_per_node * cpus_per_rank))" --kill-on-bad-exit=1 "$@"
  fi
}

# watch_time: SIGUSR1 for this shell before the time is up; --signal above does it
watch_time() { :; }

# again: this job another time
again() {
  scontrol requeue "$job_id"
}

%{common}

%{start}

%{steps}
