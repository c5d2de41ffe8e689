# A drive is written to only when it is named again and free
#: module nvme
#: module ext4
#: module crc32c_generic
#: nvme a written

drive=/dev/nvme0n1
sum() { dd if=$drive bs=1M iflag=direct 2>/dev/null | md5sum; }

# refused WHAT REASON ARGUMENTS...: an evaluation is refused with this reason before anything is written
refused() {
    what=$1 reason=$2
    shift 2
    before=$(writes nvme0n1)
    overdrive evaluate $drive "$@" --quick --runtime 150ms --out /tmp/out >/tmp/stdout 2>/tmp/notes
    equal "$what: exit code" 2 "$?"
    contains "$what: reason" "$reason" "$(cat /tmp/notes)"
    equal "$what: nothing was written" "$before" "$(writes nvme0n1)"
}

original=$(sum)
evaluate $drive
equal "reading needs no consent" 0 "$code"
contains "what was left out is said" "workloads that write were left out" "$(notes)"
equal "no workload wrote" "" "$(workload randwrite-4k-io_uring-4x4 outcome.ios)"
equal "no write reached the drive" 0 "$(writes nvme0n1)"
equal "its content is as it was" "$original" "$(sum)"

refused "another name" "does not name the target" --write-to /dev/nvme0

mke2fs $drive >/dev/null
refused "a file system" "ext" --write-to $drive
mount -t ext4 $drive /mnt || mount -t ext2 $drive /mnt
check "the file system is mounted" grep -q " /mnt " /proc/mounts
refused "a mounted drive" "is mounted on /mnt" --write-to $drive
refused "a mounted drive, insisting" "is mounted on /mnt" --write-to $drive --wipe
umount /mnt

mkswap $drive >/dev/null
swapon $drive
check "the drive is swap space" grep -q nvme0n1 /proc/swaps
refused "swap space" "is swap space" --write-to $drive
refused "swap space, insisting" "is swap space" --write-to $drive --wipe
swapoff $drive

refused "a swap signature" "swap" --write-to $drive
evaluate $drive --write-to $drive --wipe
equal "--wipe insists" 0 "$code"
at_least "writes were measured" 10 "$(workload randwrite-4k-io_uring-4x4 outcome.write.ios)"
at_least "and reached the drive" 10 "$(workload randwrite-4k-io_uring-4x4 outcome.device_ios.writes)"
