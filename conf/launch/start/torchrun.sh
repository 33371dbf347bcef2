# on_ranks NODES RANKS_PER_NODE WORDS...: the program as ranks of one node, or of all
on_ranks() {
  local on=$1 each=$2
  shift 2
  local torchrun=("${environment[@]}" "$python" -m torch.distributed.run --nproc-per-node="$each")
  if [ "$on" -eq 1 ]; then
    "${torchrun[@]}" --standalone -m dlio_torch "$@"
  else
    next_port
    on_nodes "${torchrun[@]}" --nnodes="$on" --rdzv-backend=c10d --rdzv-id="$job_id.$port" \
      --rdzv-endpoint="$(hosts | head -n 1):$port" -m dlio_torch "$@"
  fi
}
