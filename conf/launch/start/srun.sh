# on_ranks NODES RANKS_PER_NODE WORDS...: the program as ranks of so many nodes
on_ranks() {
  local on=$1 each=$2
  shift 2
  srun --nodes="$on" --ntasks="$((on * each))" --ntasks-per-node="$each" --cpus-per-task="$cpus_per_rank" \
    --kill-on-bad-exit=1 "${program[@]}" "$@"
}
