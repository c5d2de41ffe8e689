# A namespace as the store of extended memory: taken with consent, paged to by a program above its budget, its ends untouched
#: kernels 6.12
#: memory 640M
#: limit 600s
#: module nvme
#: nvme a size=512M

drive=/dev/$(disk a)
log=/tmp/said

# ends: a digest of the first and the last MiB
ends() {
    { dd if="$drive" bs=1M count=1; dd if="$drive" bs=1M skip=511; } 2>/dev/null | md5sum
}

# extend WORDS...: afterwards $code is its exit code, $log what it said
extend() {
    overdrive extend --backend pager --dram 64MiB --store "$drive" "$@" >$log 2>&1
    code=$?
}

# most NAME: the largest value of a counter among the run's processes
most() {
    awk -v name="\"$1\":" '$1 == name { value = $2 + 0; if (value > most) most = value } END { print most + 0 }' /tmp/stats.json
}

before=$(ends)
work="overdrive page --backing dram --set 112MiB --runtime 1s --warmup-max 1s --json"

extend -- overdrive --version
equal "without consent it is refused" 2 $code
contains "with the words that are missing" "wanted --write-to $drive" "$(cat $log)"

extend --write-to "$drive" --compress off --stats /tmp/stats.json -- $work
equal "a program above its budget runs" 0 $code
at_least "what was above it went to the namespace" 4096 "$(most written)"
at_least "and came back" 20 "$(most loads)"
equal "nothing was lost" 0 "$(most lost)"
equal "no read or write failed" 0 "$(most store_errors)"
equal "both ends of the namespace are as they were" "$before" "$(ends)"

extend --write-to "$drive" --encrypt --stats /tmp/stats.json -- $work
equal "the same with encryption" 0 $code
equal "loses nothing either" 0 "$(most lost)"

overdrive extend --quiet --backend pager --dram 64MiB --store "$drive" --write-to "$drive" -- overdrive page --backing dram \
    --set 1MiB --runtime 60s --json >/dev/null 2>&1 &
wait_for 60 sh -c "overdrive extend status --json | grep -q budget_bytes"
extend --write-to "$drive" -- overdrive --version
equal "a second run is refused while the first goes on" 2 $code
contains "and is told why" "held exclusively" "$(cat $log)"
kill %1
wait
