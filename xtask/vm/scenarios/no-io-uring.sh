# io_uring switched off by sysctl: everything is measured with preadv2 and the cause is named
#: kernels 6.12
#: module nvme
#: nvme a written

sysctl -w kernel.io_uring_disabled=2 >/dev/null
evaluate /dev/nvme0n1
equal "the evaluation ends well" 0 "$code"
equal "no workload used io_uring" "" "$(grep 'job.engine io_uring' /tmp/flat)"
at_least "pvsync2 did I/O" 10 "$(workload randread-4k-pvsync2-1x1 outcome.ios)"
contains "the cause is named" "kernel.io_uring_disabled is 2" "$(notes)"
contains "and what was done" "pvsync2" "$(notes)"
equal "the self-test says so" false "$(value self_test.ring.available)"
equal "rule block-io-uring-allowed" problem "$(finding block-io-uring-allowed)"

overdrive run /dev/nvme0n1 --engine io_uring --runtime 100ms >/dev/null 2>/tmp/notes
equal "asked for by name it fails" 3 "$?"
contains "with the cause" "kernel.io_uring_disabled is 2" "$(cat /tmp/notes)"
