# NVMe commands through io_uring: on the character device, polled, with consent only, and until the drive is pulled
#: module nvme poll_queues=2
#: module ext4
#: module crc32c_generic
#: device pcie-root-port,id=port1,slot=1,chassis=1
#: device pcie-root-port,id=port2,slot=2,chassis=2
#: device pcie-root-port,id=port3,slot=3,chassis=3
#: nvme a written bus=port1
#: nvme b written bus=port2
#: nvme big written bus=port3 logical_block_size=4096 physical_block_size=4096

first=$(disk a) second=$(disk b) big=$(disk big)
generic() { echo "/dev/ng${1#nvme}"; }

# commands WHAT ARGUMENTS...: a run that ends well; its record is loaded
commands() {
    what=$1
    shift
    overdrive run "$@" --ramp-time 0s --runtime "${runtime:-300ms}" --json >/tmp/record.json 2>/tmp/notes
    equal "$what: exit code" 0 "$?"
    load /tmp/record.json
    equal "$what: engine" io_uring_cmd "$(value workloads.0.job.engine)"
    at_least "$what: I/Os" 10 "$(value workloads.0.outcome.ios)"
    equal "$what: no errors" "" "$(grep 'outcome.errors.0' /tmp/flat)"
}

granted() { awk 'index($1, "workloads.0.granted.") == 1 { printf "%s ", $2 $3 $4 }' /tmp/flat; }

# refused WHAT REASON ARGUMENTS...
refused() {
    what=$1 reason=$2
    shift 2
    overdrive run "$@" --runtime 200ms --json >/tmp/stdout 2>/tmp/notes
    equal "$what: exit code" 2 "$?"
    contains "$what: reason" "$reason" "$(cat /tmp/notes)"
}

interrupts() { awk '/nvme[0-9]q[1-9]/ { sum += $2 + $3 } END { print sum + 0 }' /proc/interrupts; }

commands "interrupts" "$(generic "$first")" --iodepth 8
contains "interrupts: DEFER_TASKRUN" "DEFER_TASKRUN" "$(granted)"
reads=$(awk '{ print $1 }' "/sys/block/$first/stat")
before=$(interrupts)
commands "polled" "$(generic "$first")" --iodepth 8 --hipri
contains "polled: IOPOLL" "IOPOLL" "$(granted)"
at_least "polled: $(value workloads.0.outcome.ios) I/Os, $(($(interrupts) - before)) interrupts" \
    $((($(interrupts) - before) * 10)) "$(value workloads.0.outcome.ios)"
equal "the block layer counted none of them" "$reads" "$(awk '{ print $1 }' "/sys/block/$first/stat")"
commands "two controllers in one run" "$(generic "$first")" "$(generic "$second")" --iodepth 4
at_least "two controllers: the second did I/O" 10 "$(value workloads.0.outcome.targets.1.read.ios)"
commands "blocks of 4096 bytes" "$(generic "$big")" --iodepth 4

refused "half a block" "multiples of 4096 bytes" "$(generic "$big")" --bs 512
refused "another engine" "takes NVMe commands only" "$(generic "$first")" --engine libaio
refused "a block device" "wants an NVMe character device" "/dev/$first" --engine uring-cmd
refused "a controller" "character device of an" "/dev/${first%n1}"
refused "another name" "does not name the target" "$(generic "$first")" --write-to "/dev/$first" --rw randwrite
refused "writes without consent" "write-to" "$(generic "$first")" --rw randwrite
mke2fs "/dev/$second" >/dev/null
refused "a file system" "ext" "$(generic "$second")" --write-to "$(generic "$second")" --rw randwrite
mount -t ext4 "/dev/$second" /mnt || mount -t ext2 "/dev/$second" /mnt
refused "a mounted drive, insisting" "is mounted on /mnt" "$(generic "$second")" --write-to "$(generic "$second")" --wipe --rw randwrite
umount /mnt

# What commands write, the block device reads back: every block once, however long it takes.
runtime=200s
commands "writes" "$(generic "$first")" --write-to "$(generic "$first")" --rw randwrite --random-map --iodepth 8 \
    --verify write --size 16m --seed 9 --bs 16k --number-ios 1024
equal "writes: read back as written" 0 "$(value workloads.0.outcome.verified.failures)"
overdrive run "/dev/$first" --rw randread --random-map --verify read --size 16m --seed 9 --bs 16k --number-ios 1024 \
    --runtime 200s --json >/tmp/record.json 2>/tmp/notes
load /tmp/record.json
at_least "the block device sees them" 10 "$(value workloads.0.outcome.verified.blocks)"
equal "the block device finds no other" 0 "$(value workloads.0.outcome.verified.failures)"

rm -f /tmp/code
before=$(interrupts)
# The block layer counts none of them: it has been reading for a while when interrupts have come.
is_busy() { [ "$(interrupts)" -gt $((before + 200)) ]; }
(
    overdrive run "$(generic "$first")" --iodepth 8 --ramp-time 0s --runtime 300s --json >/tmp/record.json 2>/tmp/notes
    echo $? >/tmp/code
) &
wait_for 200 is_busy
monitor device_del a
wait_for 200 test -s /tmp/code
equal "unplugged: exit code" 3 "$(cat /tmp/code)"
load /tmp/record.json
contains "unplugged: reason" "the target is gone" "$(value status.reason)"
at_least "unplugged: errors are counted" 1 "$(value workloads.0.outcome.errors.0.count)"
at_least "unplugged: what was measured is kept" 10 "$(value workloads.0.outcome.ios)"
