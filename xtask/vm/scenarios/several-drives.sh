# Several controllers in one run: each does its share, and one that is pulled out does not stop the others
#: module nvme
#: device pcie-root-port,id=port1,slot=1,chassis=1
#: device pcie-root-port,id=port2,slot=2,chassis=2
#: device pcie-root-port,id=port3,slot=3,chassis=3
#: nvme a written bus=port1
#: nvme b written bus=port2
#: nvme c written bus=port3

one=/dev/$(disk a) two=/dev/$(disk b) three=/dev/$(disk c)
reads() { awk '{ print $1 }' "/sys/block/${1#/dev/}/stat"; }
of_target() { value "workloads.0.outcome.targets.$1.$2"; }

for engine in io_uring pvsync2; do
    before="$(reads "$one") $(reads "$two") $(reads "$three")"
    overdrive run "$one" "$two" "$three" --engine $engine --ramp-time 0s --runtime 600ms --json >/tmp/record.json 2>/tmp/notes
    equal "$engine: exit code" 0 "$?"
    load /tmp/record.json
    set -- $before
    for index in 0 1 2; do
        eval "name=\$$(echo one two three | cut -d' ' -f$((index + 1)))"
        at_least "$engine: $index did I/O" 10 "$(of_target $index read.ios)"
        equal "$engine: $index is called by its name" "$name" "$(of_target $index target)"
        equal "$engine: nothing failed on $index" 0 "$(of_target $index failures)"
        at_least "$engine: and the drive saw it" "$(of_target $index read.ios)" "$(($(reads "$name") - $1))"
        shift
    done
done

# busy DEVICE: waits until it has been reading for a while
busy() {
    was=$(reads "$1")
    wait_for 200 sh -c "[ \$(awk '{ print \$1 }' /sys/block/${1#/dev/}/stat) -gt $((was + 500)) ]"
}

# The middle one is pulled out under load; the others go on until somebody ends the run.
overdrive run "$one" "$two" "$three" --iodepth 8 --ramp-time 0s --runtime 300s --json >/tmp/record.json 2>/tmp/notes &
run=$!
busy "$two"
monitor device_del b
wait_for 200 test ! -e "/sys/block/${two#/dev/}"
busy "$one"
busy "$three"
kill -TERM $run
wait $run
equal "pulled out: exit code" 3 "$?"
load /tmp/record.json
equal "pulled out: status" failed "$(value status.state)"
contains "pulled out: reason" "the target is gone" "$(value status.reason)"
at_least "pulled out: its failures are counted" 1 "$(of_target 1 failures)"
at_least "pulled out: what it did is kept" 500 "$(of_target 1 read.ios)"
for index in 0 2; do
    equal "pulled out: nothing failed on $index" 0 "$(of_target $index failures)"
    at_least "pulled out: $index went on" 500 "$(of_target $index read.ios)"
done
