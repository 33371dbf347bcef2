script=%{script}
result=%{result}
log=%{log}
nodes=%{nodes}
ranks_per_node=%{ranks_per_node}
cpus_per_rank=%{cpus_per_rank}
python=%{python}
arguments=(%{arguments})

mkdir -p "$(dirname "$log")" || exit 3
echo "dlio_torch: this job writes to $log"
exec >>"$log" 2>&1
echo "dlio_torch: job $job_id on $(hosts | paste -sd' ' -), restarts so far: $restarted"
cd %{cwd} || exit 3
. %{setup} || exit 3

# Named for every launcher alike: some hand all variables of this shell to other nodes, some none.
environment=(env "PATH=$PATH" ${LD_LIBRARY_PATH+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"})
environment+=("PYTHONPATH="%{pythonpath}"${PYTHONPATH:+:$PYTHONPATH}")
environment+=(%{variables})
program=("${environment[@]}" "$python" -m dlio_torch)

# each_node COUNT: mpiexec's option for so many processes on each node, which depends on the MPI
each_node() {
  case $(mpiexec --version 2>&1) in
    *"Open MPI"* | *OpenRTE* | *PRRTE*) each_node=(--map-by "ppr:$1:node") ;;
    *HYDRA* | *Intel*) each_node=(-ppn "$1") ;;
    *) each_node=(--ppn "$1") ;;
  esac
}

# next_port: one that depends on the job, another for each step of it
port=$((20000 + 10#${job_id//[!0-9]/} % 10000))
next_port() {
  port=$((port + 1))
}
