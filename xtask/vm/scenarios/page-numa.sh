# Two memory nodes: overdrive page --numa keeps each set to its node's CPUs and memory, on DRAM and on swap
#: cpus 4
#: nodes 2
#: memory 768M
#: module nvme
#: device pxb-pcie,id=host1,bus_nr=0x40,numa_node=1
#: device pcie-root-port,id=port1,bus=host1,slot=1,chassis=1
#: nvme a size=192M bus=port1

echo +memory >/sys/fs/cgroup/cgroup.subtree_control

# anonymous NODE: MiB of programs' memory there
anonymous() { awk '/AnonPages:/ { print int($4 / 1024) }' "/sys/devices/system/node/node$1/meminfo"; }

# least NODE MIB: whether so much lies there
least() { [ "$(anonymous "$1")" -ge "$2" ]; }

# busy FIRST LAST: hundredths of a second that these CPUs spent for programs
busy() { awk -v first="$1" -v last="$2" '/^cpu[0-9]/ { n = substr($1, 4); if (n >= first && n <= last) sum += $2 } END { print sum }' /proc/stat; }

# node CELL NODE FIELD: one node's part of a cell
node() { value "$(where "cells.$1.nodes" node "$2").$3"; }

before=$(($(anonymous 0) + $(anonymous 1)))
near=$(busy 0 1) far=$(busy 2 3)
overdrive page --numa --backing dram --set 128MiB --threads 2 --runtime 300s --json >/tmp/record.json 2>/tmp/notes &
runner=$!
wait_for 200 least 0 60
wait_for 200 least 1 60
at_least "half of the set lies on the first node" 60 "$(anonymous 0)"
at_least "the other half on the second" 60 "$(anonymous 1)"
at_least "and little else anywhere" "$(($(anonymous 0) + $(anonymous 1) - 32))" "$((before + 128))"
# Asked to stop, it answers with what it has measured by then.
sleep 3
kill -INT "$runner"
wait "$runner"
equal "it ends when it is asked to" 130 "$?"
at_least "the first node's CPUs worked" 20 "$(($(busy 0 1) - near))"
at_least "the second node's too" 20 "$(($(busy 2 3) - far))"

overdrive page --numa --backing dram --set 64MiB --threads 1,3 --runtime 1s --json >/tmp/record.json 2>/tmp/notes
equal "DRAM: it runs" 0 "$?"
load /tmp/record.json
equal "one thread is on one node" "0 1" "$(value cells.0.nodes.0.node) $(value cells.0.nodes.0.threads)"
equal "and on no other" "" "$(value cells.0.nodes.1.node)"
equal "of three threads two are on the first node" 2 "$(node 1 0 threads)"
equal "and one on the second" 1 "$(node 1 1 threads)"
for each in 0 1; do
    rate=$(node 1 $each pages_per_s)
    at_least "node $each gave pages" 100 "${rate%.*}"
done

mkswap "/dev/$(disk a)" >/dev/null
swapon "/dev/$(disk a)"
overdrive page --numa --backing swap --set 64MiB --dram 32MiB --threads 2 --runtime 2s --warmup-max 2s --json \
    >/tmp/record.json 2>/tmp/notes
equal "swap: it runs under one budget for both nodes" 0 "$?"
load /tmp/record.json
at_least "pages went in and out of the drive" 100 "$(value cells.0.kernel.swap_ins)"
for each in 0 1; do
    rate=$(node 0 $each pages_per_s)
    at_least "swap: node $each gave pages" 10 "${rate%.*}"
done
equal "no group is left" "" "$(ls -d /sys/fs/cgroup/overdrive-page-* 2>/dev/null)"
swapoff "/dev/$(disk a)"
