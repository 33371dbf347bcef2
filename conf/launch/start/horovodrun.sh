# on_ranks NODES RANKS_PER_NODE WORDS...: the program as ranks of so many nodes, which Horovod reaches by ssh
on_ranks() {
  local on=$1 each=$2 where=localhost:$2
  shift 2
  if [ "$on" -gt 1 ]; then
    where=$(hosts | head -n "$on" | sed "s/\$/:$each/" | paste -sd, -)
  fi
  "${environment[@]}" "$python" -m horovod.runner.launch -np "$((on * each))" -H "$where" "${program[@]}" "$@"
}
