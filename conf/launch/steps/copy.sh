# One copy of the data set on each node, gone when the job ends.
local_root=%{local}/dlio_torch.$job_id
trap 'on_nodes rm -rf "$local_root"' EXIT
on_nodes bash -c 'rm -rf "$2" && mkdir -p "$2" && cp -R "$1" "$2"' copy %{data} "$local_root" || exit 3
echo "dlio_torch: the data set was copied to $local_root on $nodes node(s)"
arguments+=(%{local_key}="$local_root"%{local_below})
