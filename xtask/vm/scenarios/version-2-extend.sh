# Memory extended by swap under a control group of version 2: room is kept ahead, nothing is lost, nothing stays behind
#: memory 640M
#: module nvme
#: module ext4
#: module crc32c_generic
#: nvme a size=320M

drive=/dev/$(disk a)
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mke2fs "$drive" >/dev/null
# busybox makes no file system with extents, without which no room is reserved: their bit beside that of directories with types.
printf '\102' | dd of="$drive" bs=1 seek=1120 conv=notrunc 2>/dev/null
mount -t ext4 "$drive" /mnt

# Strings of 4,000 characters that tell their place, looked through twice when all are there.
cat >/tmp/program.awk <<'END'
BEGIN {
    for (i = 0; i < count; i++) kept[i] = sprintf("%04000d", i)
    system("touch /tmp/filled; while [ ! -e /tmp/go ]; do usleep 50000; done")
    for (round = 0; round < 2; round++)
        for (i = 0; i < count; i++)
            if (kept[i] != sprintf("%04000d", i)) wrong++
    print count " strings, " wrong + 0 " wrong"
}
END

# run COUNT: a program with so many of them (24,000 are twice its budget) is started; $runner is who waits for it
run() {
    rm -f /tmp/filled /tmp/go
    overdrive extend --backend swap --dram 48MiB --store /mnt:128MiB --stats /tmp/stats.json -- \
        awk -v "count=$1" -f /tmp/program.awk >/tmp/result 2>/tmp/said &
    runner=$!
}

# now FIELD: of the only run, as status tells it
now() {
    overdrive extend status --json --interval 100ms >/tmp/status.json
    load /tmp/status.json
    value "swap_runs.0.$1"
}

# kept BYTES: whether so much room is kept
kept() { [ "$(now room_bytes)" -ge "$1" ]; }

# nothing_left WHEN
nothing_left() {
    equal "$1 no group is left" "" "$(ls -d /sys/fs/cgroup/overdrive-extend-* 2>/dev/null)"
    equal "$1 no swap area is on" 1 "$(wc -l </proc/swaps)"
    equal "$1 no file is left" "lost+found" "$(ls -A /mnt)"
    equal "$1 no note is left" "" "$(ls /var/lib/overdrive/swap-files)"
}

run 24000
wait_for 300 test -e /tmp/filled
wait_for 60 kept 524288
at_least "half of the program lies on the drive" 40000000 "$(now swapped_bytes)"
at_least "what is kept free was freed ahead" 524288 "$(now freed_ahead_bytes)"
check "its threads need not make all room themselves" sh -c '! grep -q "make room themselves" /tmp/said'
touch /tmp/go
wait "$runner"
equal "the program ends well" 0 $?
equal "with all that it kept" "24000 strings, 0 wrong" "$(cat /tmp/result)"
load /tmp/stats.json
# Most are read ahead, which no fault waits for.
at_least "pages came back from the drive" 20 "$(value swap.major_faults)"
at_least "while it ran room was made for them" 1000000 "$(value swap.freed_ahead_bytes)"
equal "nothing was killed for want of memory" 0 "$(value swap.oom_kills)"
nothing_left "afterwards"

run 24000
wait_for 300 test -e /tmp/filled
kill -9 "$runner"
wait "$runner" 2>/dev/null
overdrive extend --backend swap --dram 48MiB --store /mnt:128MiB -- true 2>/tmp/said
equal "after a killed run the next one works" 0 $?
# The program ends with who was killed; the shell that it waits for does not, until it is let.
check "which leaves alone what the program had started" grep -q . /sys/fs/cgroup/overdrive-extend-*/cgroup.procs
touch /tmp/go
wait_for 300 sh -c '! grep -q . /sys/fs/cgroup/overdrive-extend-*/cgroup.procs'
overdrive extend --backend swap --dram 48MiB --store /mnt:128MiB -- true 2>/tmp/said
nothing_left "after that"

run 48000
touch /tmp/go
wait "$runner"
equal "a program that fills swap as well is killed" 137 $?
contains "which is told" "a process of the program was killed by the kernel for want of memory" "$(cat /tmp/said)"
contains "with what would do" "wanted --store /mnt:256MiB or more" "$(cat /tmp/said)"
# Linux 6.1 keeps no record of how much was in swap at most.
if [ "$(uname -r | cut -d . -f 2)" -ge 5 ]; then
    contains "and why" "48 MiB of DRAM and 128 MiB of swap were full" "$(cat /tmp/said)"
fi
load /tmp/stats.json
equal "and counted" 1 "$(value swap.oom_kills)"
nothing_left "and then"

# service: a program in a group that is not Overdrive's is started, and waits in it
service() {
    rm -f /tmp/filled /tmp/go
    sh -c 'echo $$ >/sys/fs/cgroup/service/cgroup.procs; exec awk -v count=24000 -f /tmp/program.awk' >/tmp/result &
    service=$!
    wait_for 300 test -e /tmp/filled
}

# hold: who holds that group is $runner
hold() {
    rm -f /tmp/said
    overdrive extend hold --dram 48MiB --store /mnt:128MiB /sys/fs/cgroup/service 2>/tmp/said &
    runner=$!
    wait_for 300 grep -qs "it is held" /tmp/said
}

# of_service FILE
of_service() { cat "/sys/fs/cgroup/service/$1"; }

mkdir /sys/fs/cgroup/service
echo 16M >/sys/fs/cgroup/service/memory.swap.max
echo 400M >/sys/fs/cgroup/service/memory.high
service
hold
equal "a group of another's is held" 50331648 "$(of_service memory.max)"
equal "it may swap as much as the store takes" 134217728 "$(of_service memory.swap.max)"
equal "and is not held back besides" 419430400 "$(of_service memory.high)"
at_least "half of it lies on the drive" 40000000 "$(now swapped_bytes)"
kill -TERM "$runner"
wait "$runner"
equal "it is given back" 0 $?
equal "without a limit, as it was" max "$(of_service memory.max)"
equal "with its own limit on swap" 16777216 "$(of_service memory.swap.max)"
nothing_left "with the group given back"

hold
kill -9 "$runner"
wait "$runner" 2>/dev/null
equal "who is killed leaves the limit" 50331648 "$(of_service memory.max)"
contains "which the next run gives back" "gave back /sys/fs/cgroup/service" "$(overdrive swap off --stale)"
equal "as it was" max "$(of_service memory.max)"
touch /tmp/go
wait "$service"
equal "the service has lost nothing" "24000 strings, 0 wrong" "$(cat /tmp/result)"
rmdir /sys/fs/cgroup/service
overdrive extend --backend swap --dram 48MiB --store /mnt:128MiB -- true 2>/tmp/said
nothing_left "with the service ended"
