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

# pinned: the CPUs that threads of the run are held to, one for each
pinned() { cat /proc/"$runner"/task/*/status 2>/dev/null | awk '/^Cpus_allowed_list/ && $2 ~ /^[0-9]+$/ { print $2 }'; }
is_pinned() { [ -n "$(pinned)" ]; }
overdrive run "/dev/$far" --runtime 300s >/dev/null 2>&1 &
runner=$!
wait_for 200 is_pinned
equal "the worker runs near the drive" yes "$(case $(pinned) in 2 | 3) echo yes ;; *) pinned ;; esac)"
kill -INT "$runner"
wait "$runner"

overdrive topology --json >/tmp/record.json 2>/tmp/notes
equal "the topology is read" 0 "$?"
load /tmp/record.json
equal "the far drive hangs on a bridge of the second node" node1 \
    "$(value "$(where vertices id pci0000:40).above")"
contains "which has its CPUs" "CPUs 2-3" "$(value "$(where vertices id node1).remark")"
