# With two poll queues io_uring polls, preadv2 is ignored, and the record says which
#: module nvme poll_queues=2
#: device pcie-root-port,id=port1,slot=1
#: nvme a written bus=port1

# interrupts: how many completions the drive has announced so far
interrupts() { awk '/nvme0q[1-9]/ { sum += $2 + $3 } END { print sum + 0 }' /proc/interrupts; }

equal "the driver made poll queues" 1 "$(cat /sys/block/nvme0n1/queue/io_poll)"
evaluate /dev/nvme0n1
equal "the evaluation ends well" 0 "$code"
for id in randread-4k-pvsync2-hipri-1x1 randread-4k-io_uring-hipri-1x1; do
    equal "$id asks to poll" true "$(workload $id job.polled)"
    at_least "$id did I/O" 10 "$(workload $id outcome.ios)"
done
equal "randread-4k-io_uring-1x1 does not poll" false "$(workload randread-4k-io_uring-1x1 job.polled)"
contains "IOPOLL was granted" "IOPOLL " "$(features randread-4k-io_uring-hipri-1x1)"
contains "RWF_HIPRI was used" "RWF_HIPRI " "$(features randread-4k-pvsync2-hipri-1x1)"
equal "rule nvme-poll-queues" ok "$(finding nvme-poll-queues)"
equal "poll queues asked for" 2 "$(fact nvme.nvme0.poll_queues)"
equal "poll queues in use" 2 "$(fact nvme.nvme0.poll_contexts)"

# What the record says, the interrupt counters confirm. preadv2 has ignored the wish to poll since about 5.19.
polls() {
    before=$(interrupts)
    overdrive run /dev/nvme0n1 --engine "$1" --hipri --runtime 200ms --json >/tmp/record.json 2>/tmp/notes
    code=$?
    announced=$(($(interrupts) - before))
    load /tmp/record.json
    ios=$(value workloads.0.outcome.ios)
    warnings=$(grep 'verdict.warnings' /tmp/flat)
    equal "$1 --hipri ends well" 0 "$code"
}
polls io_uring
at_least "io_uring polls: $ios I/Os, $announced interrupts" $((announced * 10)) "$ios"
equal "and nothing else is said" "" "$(echo "$warnings" | grep 'slept until each interrupt')"
polls pvsync2
at_least "pvsync2 does not: $ios I/Os, $announced interrupts" "$ios" "$announced"
contains "and the record says so" "slept until each interrupt" "$warnings"
