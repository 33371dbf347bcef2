# Resumes the study of an earlier job, if there is one.
if [ -f %{study} ]; then
  words=(%{verb} --resume "$result" %{flags})
else
  words=(%{verb} "${arguments[@]}" output=%{result} %{flags})
fi

# runs: how many the study has recorded
runs() {
  cat %{trials} 2>/dev/null | wc -l
}

before=$(runs)
child=
out_of_time=
end_child() {
  signalled=yes
  if [ -n "$child" ]; then
    kill -TERM "$child" 2>/dev/null
  fi
}
trap 'out_of_time=yes; end_child' USR1
trap end_child TERM
set -m # else a child in the background, and all that it starts, would be deaf to interrupts
watch_time
timer=$!
"${program[@]}" "${words[@]}" &
child=$!
if [ -n "$out_of_time" ]; then
  end_child
fi
while :; do
  signalled=
  wait "$child"
  code=$?
  [ -n "$signalled" ] || break # else it was perhaps a signal that ended the wait, and not the study
done
if [ -n "$timer" ]; then
  kill -- "-$timer" 2>/dev/null
fi

if [ -n "$out_of_time" ] && [ "$code" -ne 0 ]; then
  go_on="$submit $(printf %q "$script")"
  if [ "$(runs)" -eq "$before" ]; then
    echo "dlio_torch: error: no run ended in the time of this job; take a longer time=, then go on with: $go_on"
  elif [ "$restarted" -ge %{restarts} ]; then
    echo "dlio_torch: error: started again as often as restarts=%{restarts} allows; go on with: $go_on"
  elif again; then
    echo "dlio_torch: the time is up; the study goes on in another job"
  else
    echo "dlio_torch: error: the job could not be started again; go on with: $go_on"
  fi
fi
exit "$code"
