# Without poll queues nothing is polled; controller, link, queues and interrupts are known
#: module nvme
#: device pcie-root-port,id=port1,slot=1
#: nvme a written bus=port1

equal "the driver made no poll queues" 0 "$(cat /sys/block/nvme0n1/queue/io_poll)"
evaluate /dev/nvme0n1
equal "the evaluation ends well" 0 "$code"
equal "the record is complete" complete "$(value status.state)"
equal "no workload polls" "" "$(grep 'job.polled true' /tmp/flat)"
for id in randread-4k-pvsync2-1x1 randread-4k-io_uring-1x1 ramp-randread-4k-io_uring-8x16; do
    at_least "$id did I/O" 10 "$(workload $id outcome.ios)"
done
equal "the device counted every byte" "$(workload randread-4k-io_uring-1x1 outcome.moved_bytes)" \
    "$(workload randread-4k-io_uring-1x1 outcome.device_ios.read_bytes)"

equal "controller: model" "QEMU NVMe Ctrl" "$(value target.model)"
equal "controller: serial number" a "$(value target.serial)"
equal "controller: state" live "$(fact nvme.nvme0.state)"
equal "controller: transport" pcie "$(fact nvme.nvme0.transport)"
equal "controller: a queue a CPU and the admin queue" 3 "$(fact nvme.nvme0.queue_count)"
equal "controller: no poll queues asked for" 0 "$(fact nvme.nvme0.poll_queues)"
equal "controller: none in use" 0 "$(fact nvme.nvme0.poll_contexts)"
equal "link: speed" "2.5 GT/s" "$(fact pcie.0000:01:00.0.link.speed)"
equal "link: width" x1 "$(fact pcie.0000:01:00.0.link.width)"
equal "link: bandwidth" "0.25 GB/s" "$(fact pcie.0000:01:00.0.bandwidth)"
equal "queues: one a CPU" "2, at most 1 CPUs each" "$(fact disk.nvme0n1.hardware_queues)"
equal "interrupts: where each goes" "nvme0q1 on CPU 0, nvme0q2 on CPU 1" "$(fact pcie.0000:01:00.0.interrupts)"
equal "scheduler" "none (of none mq-deadline)" "$(fact disk.nvme0n1.scheduler)"

equal "rule nvme-state-live" ok "$(finding nvme-state-live)"
equal "rule nvme-queues-granted" ok "$(finding nvme-queues-granted)"
equal "rule nvme-poll-queues" advice "$(finding nvme-poll-queues)"
equal "rule pcie-link-speed" ok "$(finding pcie-link-speed)"
equal "rule block-scheduler-none" ok "$(finding block-scheduler-none)"
equal "rule irq-completion-cpu" ok "$(finding irq-completion-cpu)"
equal "rule numa-device-node" not_applicable "$(finding numa-device-node)"
contains "a link that carries more than it can is not called the limit" "is not true" \
    "$(grep -E 'verdict.because' /tmp/flat)"

# Polling without poll queues never polls, whatever the kernel answers: it is refused before anything starts.
for engine in io_uring pvsync2; do
    overdrive run /dev/nvme0n1 --hipri --engine $engine --runtime 200ms --json >/tmp/record.json 2>/tmp/notes
    equal "$engine: the wish to poll is refused" 2 "$?"
    contains "$engine: with its cause" "poll queues" "$(cat /tmp/notes)"
done
