# on_ranks NODES RANKS_PER_NODE WORDS...: the program as ranks of so many nodes
on_ranks() {
  local on=$1 each=$2
  shift 2
  each_node "$each"
  next_port
  # Where the ranks meet with dist.backend=torch; Horovod asks MPI.
  mpiexec -n "$((on * each))" "${each_node[@]}" \
    env "MASTER_ADDR=$(hosts | head -n 1)" "MASTER_PORT=$port" "${program[@]}" "$@"
}
