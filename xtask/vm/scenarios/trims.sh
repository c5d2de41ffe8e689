# Trims reach a drive as discards, only with consent, and what was trimmed is gone
#: module nvme
#: module null_blk nr_devices=1 gb=1 memory_backed=1 discard=1
#: nvme a written

drive=/dev/nvme0n1

# discards DISK: how many the kernel has sent to it, and sectors
discards() { awk '{ print $12 }' "/sys/block/$1/stat"; }
sectors() { awk '{ print $14 }' "/sys/block/$1/stat"; }

# trim TARGET ENGINE: a hundred blocks of 64 KiB, each once
trim() {
    overdrive run "$1" --write-to "$1" --rw randtrim --random-map --bs 64k --size 16MiB --number-ios 100 --ramp-time 0s \
        --runtime 60s --engine "$2" --json >/tmp/record.json 2>/tmp/notes
    code=$?
    load /tmp/record.json
}

at_least "the drive takes discards" 1 "$(cat /sys/block/nvme0n1/queue/discard_max_bytes)"
overdrive run $drive --rw randtrim --bs 64k --runtime 1s >/tmp/stdout 2>/tmp/notes
equal "without consent: exit code" 2 "$?"
contains "without consent: the way to give it" "--write-to" "$(cat /tmp/notes)"
equal "without consent: nothing was trimmed" 0 "$(discards nvme0n1)"

for engine in pvsync2 psync io_uring; do
    before=$(discards nvme0n1) sectors_before=$(sectors nvme0n1)
    trim $drive $engine
    case $engine-$(uname -r) in
    io_uring-6.1.*)
        equal "$engine before 6.12: it does not claim to have trimmed" "" "$(workload randtrim-65536-io_uring-1x1 outcome.trim.ios)"
        contains "$engine before 6.12: the cause is named" EOPNOTSUPP "$(cat /tmp/notes /tmp/record.json)"
        continue
        ;;
    esac
    equal "$engine: exit code" 0 "$code"
    equal "$engine: the record has every trim" 100 "$(workload randtrim-65536-$engine-1x1 outcome.trim.ios)"
    equal "$engine: the drive got every trim" 100 "$(($(discards nvme0n1) - before))"
    equal "$engine: of its whole length" 12800 "$(($(sectors nvme0n1) - sectors_before))"
done

# What was given up reads as zeroes where the device forgets it.
disk=nullb0
if [ "$(cat /sys/block/$disk/queue/discard_max_bytes 2>/dev/null || echo 0)" -gt 0 ]; then
    ones() { dd if=/dev/$disk bs=1M count=16 iflag=direct 2>/dev/null | tr -d '\0' | wc -c; }
    yes | dd of=/dev/$disk bs=1M count=16 iflag=fullblock oflag=direct 2>/dev/null
    equal "the device remembers what is written" 16777216 "$(ones)"
    trim /dev/$disk pvsync2
    equal "a hundred blocks of 64 KiB are gone" $((16777216 - 100 * 65536)) "$(ones)"
fi
