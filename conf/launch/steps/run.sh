# A job that is started again has left something: of a finished run nothing is to be done, an unfinished one is put aside.
if [ -f %{finished} ]; then
  echo "dlio_torch: the run in $result is finished"
  exit 0
elif [ -n "$(ls -A "$result" 2>/dev/null)" ]; then
  number=1
  while [ -e "$result.unfinished.$number" ]; do
    number=$((number + 1))
  done
  mv "$result" "$result.unfinished.$number" || exit 3
  echo "dlio_torch: what an earlier start left is in $result.unfinished.$number"
fi

%{generate}

%{copy}

on_ranks "$nodes" "$ranks_per_node" %{ranks_verb} "${arguments[@]}" output.dir=%{result} output.progress=false
exit
