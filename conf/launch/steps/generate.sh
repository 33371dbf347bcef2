# The data set; files that are there already are kept.
on_ranks %{generate_nodes} "$ranks_per_node" generate "${arguments[@]}" output.progress=false || exit
