# Instructions per I/O, kernel included: Overdrive beside fio on null_blk, with interrupts and polled
#: kernels 6.12
#: cpus 1
#: memory 1024M
#: counted
#: program fio
#: boot tsc=reliable clocksource=tsc mitigations=off
#: limit 500s
#: module null_blk nr_devices=1 gb=4 irqmode=1 completion_nsec=0 submit_queues=1 poll_queues=1 hw_queue_depth=256

# The clock counts one nanosecond for each instruction, so on one CPU that is always busy the time of an I/O is the number of
# its instructions. The device does nothing and answers at once; the softirq and the polling are the kernel's own.

target=/dev/nullb0
equal "the clock is the processor's" tsc "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"

# ours NAME ARGUMENTS...: instructions per I/O of a run
ours() {
    overdrive run $target --size 1GiB --ramp-time 20ms --runtime 200ms --json "$@" >/tmp/record.json 2>/tmp/notes
    load /tmp/record.json
    value workloads.0.outcome.iops | awk '{ printf "%.0f", 1e9 / $1 }'
}

# fios NAME ARGUMENTS...: the same of fio
fios() {
    fio --name=b --filename=$target --size=1g --rw=randread --bs=4k --direct=1 --thread --norandommap --randrepeat=0 \
        --time_based --ramp_time=20ms --runtime=200ms --output-format=terse --terse-version=3 "$@" 2>/tmp/notes |
        awk -F';' '{ printf "%.0f", 1e9 / $8 }'
}

# bar NAME OURS FIOS
bar() {
    echo "    $1: overdrive $2, fio $3 instructions per I/O"
    awk -v name="$1" -v ours="$2" -v fios="$3" 'BEGIN {
        ratio = fios > 0 ? ours / fios : 99
        verdict = ours > 0 && ratio <= 0.8 ? "ok" : "short"
        printf "bar instructions-%s-vs-fio %.3f <= 0.80 %s\n", name, ratio, verdict
        exit verdict == "ok" ? 0 : 1
    }'
}

# measured NAME: a figure that is none is a failure; a bar that is short is shown
measured() {
    check "$1: both tools ran" test "${2:-0}" -gt 100 -a "${3:-0}" -gt 100
    bar "$1" "${2:-0}" "${3:-0}"
}

# The first programs meet a kernel that still ends its own start: a run of each goes unmeasured.
ours --iodepth 32 >/dev/null
fios --ioengine=io_uring --iodepth=32 >/dev/null

measured io_uring-qd32 "$(ours --iodepth 32)" "$(fios --ioengine=io_uring --iodepth=32)"
measured io_uring-qd32-best "$(ours --iodepth 32)" "$(fios --ioengine=io_uring --iodepth=32 --fixedbufs --registerfiles)"
measured io_uring-qd32-polled "$(ours --iodepth 32 --hipri)" \
    "$(fios --ioengine=io_uring --iodepth=32 --hipri --fixedbufs --registerfiles)"
measured io_uring-qd1 "$(ours --iodepth 1)" "$(fios --ioengine=io_uring --iodepth=1 --fixedbufs --registerfiles)"
measured pvsync2 "$(ours --engine pvsync2)" "$(fios --ioengine=pvsync2)"
measured pvsync2-hipri "$(ours --engine pvsync2 --hipri)" "$(fios --ioengine=pvsync2 --hipri)"
