# Classes of Redis servers hold their limits in control groups of version 2, by the kernel's own counters
#: kernels 6.12
#: memory 640M
#: limit 500s
#: module nvme
#: nvme a size=384M
#: program redis-server

drive=/dev/$(disk a)
groups=/sys/fs/cgroup
echo +memory >$groups/cgroup.subtree_control
mkswap "$drive" >/dev/null
swapon "$drive"
check "the drive is swap" grep -q nvme /proc/swaps

# Little load: the processor is emulated. What counts here is memory.
load="--value-size 2048 --records 4000 --rate 20 --objective max=300s --warmup 1s --iterations 1"

# What was left behind: groups and servers.
left() {
    find $groups -name 'overdrive-*'
    pidof redis-server
}

# density ARGUMENTS...: afterwards $code is its exit code, /tmp/notes what it said, and the record is loaded
density() {
    # shellcheck disable=SC2086 # a list of arguments
    overdrive density $load --runtime 3s "$@" --json >/tmp/record.json 2>/tmp/notes
    code=$?
    load /tmp/record.json
}

# Reads limit and use of each class several times a second, once it has a limit.
watch() {
    while :; do
        for class in $groups/overdrive-density-swap-*/gold $groups/overdrive-density-swap-*/silver \
            $groups/overdrive-density-swap-*/bronze; do
            limit=$(cat "$class/memory.max" 2>/dev/null)
            used=$(cat "$class/memory.current" 2>/dev/null)
            case $limit in "" | max) ;; *) echo "${class##*/} $limit ${used:-0}" ;; esac
        done
        usleep 200000
    done
}

watch >/tmp/watched &
watcher=$!
density --backing swap --dram 256MiB --classes gold:1,silver:2,bronze:4 --instances 6
kill $watcher
equal "six servers of three classes: exit code" 0 "$code"
[ "$code" = 0 ] || cat /tmp/notes
# What is above a coming limit is paged out before it: what counts is the time from there on.
for class in gold silver bronze; do
    awk -v class=$class '$1 == class && ($3 <= $2 || held) { held = 1; print $3 - $2 }' /tmp/watched >/tmp/held
    at_least "$class: looked at while it kept its limit" 3 "$(wc -l </tmp/held)"
    # The kernel may exceed a limit by pages that it cannot do without.
    equal "$class: never above it again" "" "$(awk '$1 > 262144' /tmp/held)"
done
group=backings.0.trials.0.measured.classes
limit() { value "$group.$1.group.limit_bytes"; }
gold=$(limit 0) silver=$(limit 1) bronze=$(limit 2)
at_least "gold has a limit" 1 "$gold"
# Limits are whole pages.
at_least "silver has half of it" $((gold / 2 - 8192)) "$silver"
at_least "and no more" "$silver" $((gold / 2 + 8192))
at_least "bronze has a quarter" $((gold / 4 - 8192)) "$bronze"
at_least "and no more" "$bronze" $((gold / 4 + 8192))
equal "the kernel holds the same limit" "$bronze" "$(awk '$1 == "bronze" { print $2; exit }' /tmp/watched)"
at_least "most of bronze is in swap" "$bronze" "$(value $group.2.group.swap_bytes)"
equal "nobody was killed" "0 0 0" \
    "$(value $group.0.group.oom_kills) $(value $group.1.group.oom_kills) $(value $group.2.group.oom_kills)"
equal "all were answered" 0 "$(value backings.0.trials.0.measured.instances.5.errors)"
equal "nothing is left" "" "$(left)"

density --backing dram --dram 48MiB --max 8
equal "on DRAM alone: exit code" 0 "$code"
at_least "some fit" 1 "$(value backings.0.held)"
case $(value backings.0.edge) in
*memory* | *DRAM*) pass "memory is what ends it" ;;
*) fail "memory is what ends it" "$(value backings.0.edge)" ;;
esac
equal "nothing is left after that" "" "$(left)"

# shellcheck disable=SC2086 # a list of arguments
overdrive density $load --backing swap --dram 256MiB --classes gold:1,bronze:4 --instances 2 --runtime 100s \
    >/dev/null 2>&1 &
run=$!
wait_for 60 sh -c "cat $groups/overdrive-density-swap-*/bronze/1/cgroup.procs | grep -q ."
kill -9 $run
wait_for 20 sh -c '! pidof redis-server'
at_least "a kill leaves groups" 1 "$(find $groups -name 'overdrive-*' | wc -l)"
check "--stale removes them" overdrive density --stale
equal "and nothing is left" "" "$(left)"
equal "nor a folder" "" "$(ls -d /tmp/overdrive-density-* 2>/dev/null)"
