# Swap on an NVMe namespace: set up, paged to under a budget, refused where it must be, and taken away without a trace
#: memory 640M
#: limit 900s
#: module nvme
#: module ext4
#: module crc32c_generic
#: nvme a size=320M
#: nvme b size=64M

drive=/dev/$(disk a)
other=/dev/$(disk b)
echo +memory >/sys/fs/cgroup/cgroup.subtree_control

# trace FILE: everything that swap could have touched, byte by byte; what moves by itself is left out
trace() {
    find /proc/sys /sys/block /sys/kernel/mm /sys/module/*/parameters -type f 2>/dev/null |
        grep -v -e '/random/' -e '-nr$' -e '-state$' -e ns_last_pid -e '/stat$' -e inflight -e '/stats/' \
            -e stat_refresh -e drop_caches -e compact_memory -e khugepaged -e '/ksm/' -e tainted | sort |
        xargs grep -s "" >"$1"
    cat /proc/swaps >>"$1"
    find /sys/fs/cgroup -type d >>"$1"
    for each in "$drive" "$other"; do dd if="$each" bs=4096 count=1 2>/dev/null | md5sum >>"$1"; done
}

# unchanged WHAT: the machine is as it was before
unchanged() {
    trace /tmp/after
    if cmp -s /tmp/before /tmp/after; then
        pass "$1"
    else
        fail "$1" "$(diff /tmp/before /tmp/after | grep '^[-+][^-+]' | head -n 6)"
    fi
}

# swap WORDS...: afterwards $code is its exit code, /tmp/said what it printed
swap() {
    overdrive swap "$@" >/tmp/said 2>&1
    code=$?
}

refused() {
    what=$1 reason=$2
    shift 2
    swap on "$@"
    equal "$what: exit code" 2 "$code"
    contains "$what: reason" "$reason" "$(cat /tmp/said)"
    unchanged "$what: nothing was changed"
}

paged="page --backing swap --set 64MiB --dram 24MiB --warmup-max 1s --json"

trace /tmp/before
at_least "the trace covers the machine" 400 "$(wc -l </tmp/before)"
echo 3 >/proc/sys/vm/swappiness
trace /tmp/after
check "and sees a changed setting" sh -c '! cmp -s /tmp/before /tmp/after'
echo 60 >/proc/sys/vm/swappiness

refused "a drive that is not named again" "wanted --write-to" --device "$drive"
refused "another drive named" "names none of the devices" --device "$drive" --write-to "$other"
mke2fs "$other" >/dev/null
trace /tmp/before
refused "a drive with data" "ext" --device "$other" --write-to "$other"
mkdir -p /mnt
mount -t ext4 "$other" /mnt || mount -t ext2 "$other" /mnt
# The file system may write its own first page at any moment: only the refusal is looked at.
swap on --device "$other" --write-to "$other"
equal "a mounted drive: exit code" 2 "$code"
contains "a mounted drive: reason" "is mounted on /mnt" "$(cat /tmp/said)"
umount /mnt
trace /tmp/before

# Hundredths of a second since boot.
clock() { cut -d ' ' -f 1 /proc/uptime | tr -d .; }
started=$(clock)
swap on --device "$drive" --write-to "$drive" --even-if-busy
took=$(($(clock) - started))
equal "swap goes on" 0 "$code"
equal "the area is on, with priority 10" 10 "$(awk -v area="$drive" '$1 == area { print $5 }' /proc/swaps)"
equal "page-cluster is set" 0 "$(cat /proc/sys/vm/page-cluster)"
equal "swappiness is set" 100 "$(cat /proc/sys/vm/swappiness)"
equal "MGLRU is on" 0x0007 "$(cat /sys/kernel/mm/lru_gen/enabled)"
equal "the scheduler is none" "[none]" "$(grep -o '\[none\]' "/sys/block/${drive#/dev/}/queue/scheduler")"
refused_twice=$(overdrive swap on --device "$drive" --write-to "$drive" 2>&1)
contains "a second time is refused" "is swap space" "$refused_twice"

# shellcheck disable=SC2086 # words
overdrive $paged --runtime 1s >/tmp/record.json 2>/tmp/notes
equal "paging runs" 0 "$?"
load /tmp/record.json
at_least "pages went in and out of the drive" 100 "$(value cells.0.kernel.swap_ins)"
contains "under a group of version 2" "budget 24 MiB" "$(cat /tmp/record.json)"

# shellcheck disable=SC2086
overdrive $paged --runtime 300s >/dev/null 2>&1 &
runner=$!
wait_for 200 sh -c '[ "$(awk "/nvme/ { print \$4 }" /proc/swaps)" -gt 30000 ]'
swap off
equal "off is refused while a group has no room" 2 "$code"
contains "and says how much is missing" "are missing" "$(cat /tmp/said)"
check "the area is still on" grep -q "^$drive " /proc/swaps
kill -INT "$runner"
wait "$runner"
swap status --interval 200ms
contains "status shows the area" "$drive" "$(cat /tmp/said)"
contains "status tells the wear" "times the drive" "$(cat /tmp/said)"

# shellcheck disable=SC2086
overdrive $paged --runtime 300s >/dev/null 2>&1 &
runner=$!
wait_for 200 sh -c 'ls -d /sys/fs/cgroup/overdrive-page-*'
kill -9 "$runner"
wait "$runner" 2>/dev/null
wait_for 200 sh -c '! pidof overdrive'
swap off --stale
equal "what a killed run left is swept" 0 "$code"
contains "and named" "overdrive-page-" "$(cat /tmp/said)"
check "the area of swap on is not stale" grep -q "^$drive " /proc/swaps

swap off
equal "off ends well" 0 "$code"
unchanged "off leaves no trace"
swap off
equal "nothing is left to turn off" 0 "$code"

# What is wished for in place of the rules, among it what a new scheduler would set by itself.
queue=/sys/block/${drive#/dev/}/queue
swap on --device "$drive" --write-to "$drive" --even-if-busy --nomerges 1 --max-sectors 64 --nr-requests 128 --zswap off
equal "with wishes it goes on" 0 "$code"
equal "as wished" "1 64 128 [none] N" "$(cat "$queue/nomerges") $(cat "$queue/max_sectors_kb") $(cat "$queue/nr_requests") \
$(grep -o '\[none\]' "$queue/scheduler") $(cat /sys/module/zswap/parameters/enabled)"
swap off
unchanged "and off takes them back"

# The kernel says of an area what it tells the drive: D of what may be discarded, c for what becomes free.
told_of() { dmesg | grep "Adding .* swap on $drive" | tail -n 1 | sed 's/.* //'; }
swap on --device "$drive" --write-to "$drive" --areas-only --free-first
equal "with free stretches first it goes on" 0 "$code"
contains "and the drive is told of what becomes free" "Dc" "$(told_of)"
# shellcheck disable=SC2086 # words
overdrive $paged --runtime 1s >/dev/null 2>&1
equal "paging runs on it" 0 "$?"
swap off
unchanged "and off leaves no trace of it"
swap on --device "$drive" --write-to "$drive" --areas-only
contains "otherwise it is told once" "Ds" "$(told_of)"
swap off
refused "more than the drive takes" "more than the disk takes in one request" --device "$drive" --write-to "$drive" \
    --max-sectors 1000000

# Killed at any moment, off mends it. The last third of the time is when things are changed.
for moment in 9 10 11 12 13 14; do
    overdrive swap on --device "$drive" --write-to "$drive" --even-if-busy >/dev/null 2>&1 &
    runner=$!
    usleep $((took * 10000 * moment / 15))
    kill -9 "$runner" 2>/dev/null
    wait "$runner" 2>/dev/null
    state=$(grep -c nvme /proc/swaps)
    swap off
    unchanged "killed at moment $moment (areas on: $state), off leaves no trace"
done
