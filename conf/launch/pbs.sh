#!/bin/bash
# A job of dlio_torch for PBS. Submit it with: qsub %{script}
#PBS -S /bin/bash
#PBS -N %{job}
#PBS -l select=%{nodes}:ncpus=%{cpus_per_node}:mpiprocs=%{ranks_per_node}%{chunk}
#PBS -l place=scatter
#PBS -l walltime=%{time}
#PBS -q %{queue}
#PBS -A %{account}
#PBS -j oe
#PBS -r y
#PBS %{directives}

job_id=${PBS_JOBID%%.*}
restarted=${DLIO_TORCH_RESTARTED:-0}
submit=qsub

# hosts: the nodes of the job, one a line; this script runs on the first
hosts() {
  awk '!seen[$0]++' "$PBS_NODEFILE"
}

# on_nodes WORDS...: a command once on each node
on_nodes() {
  if [ "$nodes" -eq 1 ]; then
    "$@"
  else
    each_node 1
    mpiexec -n "$nodes" "${each_node[@]}" "$@"
  fi
}

# watch_time: SIGUSR1 for this shell before the time is up, of which PBS itself gives no notice
watch_time() {
  { sleep %{watch_s} && kill -USR1 "$$"; } &
}

# again: this job another time, which counts how often
again() {
  qsub -v "DLIO_TORCH_RESTARTED=$((restarted + 1))" "$script"
}

%{common}

%{start}

%{steps}
