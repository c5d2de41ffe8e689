# A drive that goes away under load ends the run in good order, and what was measured is kept
#: module nvme poll_queues=1
#: device pcie-root-port,id=port1,slot=1,chassis=1
#: device pcie-root-port,id=port2,slot=2,chassis=2
#: device pcie-root-port,id=port3,slot=3,chassis=3
#: device pcie-root-port,id=port4,slot=4,chassis=4
#: limit 900s
#: nvme a written bus=port1
#: nvme b written bus=port2
#: nvme c written bus=port3
#: nvme d written bus=port4

# start ARGUMENTS...: overdrive in the background
start() {
    rm -f /tmp/code
    (
        overdrive "$@" --json >/tmp/record.json 2>/tmp/notes
        echo $? >/tmp/code
    ) &
}

# ended WHAT: it ended soon, as it should, and its record is loaded
ended() {
    wait_for 200 test -s /tmp/code
    equal "$1: exit code" 3 "$(cat /tmp/code)"
    load /tmp/record.json
    equal "$1: status" failed "$(value status.state)"
    contains "$1: reason" "the target is gone" "$(value status.reason)"
    at_least "$1: what was measured is kept" 10 "$(value workloads.0.outcome.ios)"
}

# busy DISK: waits until it has been reading for a while
busy() {
    was=$(awk '{ print $1 }' "/sys/block/$1/stat")
    wait_for 200 sh -c "[ \$(awk '{ print \$1 }' /sys/block/$1/stat) -gt $((was + 500)) ]"
}

first=$(disk a)
start run "/dev/$first" --iodepth 16 --ramp-time 0s --runtime 300s
busy "$first"
echo 1 >"/sys/block/$first/device/device/remove"
ended "removed through sysfs, io_uring"
check "the drive is gone" test ! -e "/sys/block/$first"

start run "/dev/$(disk b)" --engine pvsync2 --ramp-time 0s --runtime 300s
busy "$(disk b)"
monitor device_del b
ended "unplugged, pvsync2"

start run "/dev/$(disk c)" --iodepth 4 --hipri --ramp-time 0s --runtime 300s
busy "$(disk c)"
monitor device_del c
ended "unplugged, io_uring that polls"

start evaluate "/dev/$(disk d)" --quick --runtime 300ms --out /tmp/out
wait_for 200 grep -q '^\[ 3/' /tmp/notes
monitor device_del d
ended "unplugged during an evaluation"
check "the report was written" test -s /tmp/out/report.html
