# Two memory nodes with a drive on each: facts and workers follow the drive
#: cpus 4
#: nodes 2
#: memory 768M
#: module nvme
#: device pxb-pcie,id=host1,bus_nr=0x40,numa_node=1
#: device pcie-root-port,id=port0,bus=pcie.0,slot=1,chassis=1
#: device pcie-root-port,id=port1,bus=host1,slot=2,chassis=2
#: nvme node0 written bus=port0
#: nvme node1 written bus=port1

far=$(disk node1)
controller=${far%n1}
evaluate "/dev/$far"
equal "the evaluation ends well" 0 "$code"
equal "two nodes are seen" 2 "$(fact numa.nodes)"
equal "the CPUs of the second" 2-3 "$(fact numa.node1.cpus)"
address=$(value target.layers.2.name)
equal "the controller's node" 1 "$(fact "nvme.$controller.numa_node")"
equal "the CPUs near it" 2-3 "$(fact "pcie.$address.local_cpus")"
equal "rule numa-device-node" ok "$(finding numa-device-node)"
equal "rule numa-app-local" advice "$(finding numa-app-local)"
equal "rule numa-balancing" advice "$(finding numa-balancing)"

# Where a single worker ran, by the time the CPUs spent meanwhile.
busy() { awk '/^cpu[0-9]/ { print $1, $2 + $4 }' /proc/stat; }
busy >/tmp/before
overdrive run "/dev/$far" --runtime 2s >/dev/null 2>&1
busy >/tmp/after
busiest=$(paste /tmp/before /tmp/after | awk '$4 - $2 > most { most = $4 - $2; name = $1 } END { print name }')
equal "the worker ran near the drive" yes "$(case $busiest in cpu2 | cpu3) echo yes ;; *) echo "$busiest" ;; esac)"

overdrive topology --json >/tmp/record.json 2>/tmp/notes
equal "the topology is read" 0 "$?"
load /tmp/record.json
equal "the far drive hangs on a bridge of the second node" node1 \
    "$(value "$(where vertices id pci0000:40).above")"
contains "which has its CPUs" "CPUs 2-3" "$(value "$(where vertices id node1).remark")"
