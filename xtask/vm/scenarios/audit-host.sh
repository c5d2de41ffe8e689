# The audit of a host that is set up badly: each fault made on a real kernel, and each is found by its rule
#: cpus 4
#: nodes 2
#: module nvme poll_queues=1
#: device pxb-pcie,id=host1,bus_nr=0x40,numa_node=1
#: device pcie-root-port,id=port1,bus=host1,slot=1,chassis=1
#: nvme a written bus=port1
#: boot elevator=deadline rcu_nocb=0-3 nvme_poll_queues=4 nvme.io_poll=1 scsi_mod.use_blk_mq=1 lockdown=integrity

drive=/dev/$(disk a)
controller=$(basename "${drive%n1}")

# audit: its findings are loaded
audit() {
    overdrive audit --json --target "$drive" "$@" >/tmp/record.json 2>/tmp/notes
    load /tmp/record.json
}

# reason RULE: why it says what it says
reason() {
    at=$(where findings rule "$1")
    [ -n "$at" ] && value "$at.reason"
}

mount -t tracefs none /sys/kernel/tracing 2>/dev/null
audit --profile memory
equal "no rule panics, and each is answered" "" "$(grep -i panic /tmp/notes)"
equal "no tracer at first" ok "$(finding block-trace-leftovers)"
equal "never throttled at first" ok "$(finding cgroup-cpu-throttled)"

# Words of the command line that do nothing. The kernel names those that it does not know at all.
equal "rule boot-unknown-parameters" advice "$(finding boot-unknown-parameters)"
for word in elevator rcu_nocb nvme_poll_queues nvme.io_poll scsi_mod.use_blk_mq; do
    contains "it names $word" "$word: " "$(reason boot-unknown-parameters)"
done
unknown=$(dmesg | grep -o 'Unknown kernel command line parameters .*')
for word in rcu_nocb nvme_poll_queues; do contains "the kernel does not know $word" "$word=" "$unknown"; done
check "the scheduler did not follow elevator=" grep -q '\[none\]' "/sys/block/$(basename "$drive")/queue/scheduler"
check "the driver's poll queues did not follow" grep -q '^1$' /sys/module/nvme/parameters/poll_queues
equal "rule cpu-rcu-nocbs knows the misprint" problem "$(finding cpu-rcu-nocbs)"

# Lockdown, and what it refuses to root.
mount -t securityfs none /sys/kernel/security
audit
contains "rule boot-lockdown" "integrity: " "$(reason boot-lockdown)"
check "configuration space is not written under it" sh -c \
    '! printf "\000" | dd of=/sys/class/nvme/'"$controller"'/device/config bs=1 seek=12 count=1 conv=notrunc 2>/dev/null'

# Options for the driver that it does not run with.
mkdir -p /etc/modprobe.d
echo 'options nvme poll_queues=1' >/etc/modprobe.d/nvme.conf
audit
equal "rule boot-nvme-module-params: in force" ok "$(finding boot-nvme-module-params)"
echo 'options nvme poll_queues=3' >/etc/modprobe.d/nvme.conf
audit
equal "rule boot-nvme-module-params: not in force" advice "$(finding boot-nvme-module-params)"
contains "with both figures" "poll_queues=3 is configured, and the driver runs with 1" "$(reason boot-nvme-module-params)"

# A tracer that was left on.
echo 'p:left vfs_read' >/sys/kernel/tracing/kprobe_events
audit
equal "rule block-trace-leftovers: a probe" advice "$(finding block-trace-leftovers)"
echo >/sys/kernel/tracing/kprobe_events
audit
equal "rule block-trace-leftovers: none" ok "$(finding block-trace-leftovers)"

# A quota that stops the group, and a cpuset without the drive's node.
echo "+cpu +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/held
echo "5000 100000" >/sys/fs/cgroup/held/cpu.max
echo 0-1 >/sys/fs/cgroup/held/cpuset.cpus
echo 0 >/sys/fs/cgroup/held/cpuset.mems
sh -c 'echo $$ >/sys/fs/cgroup/held/cgroup.procs; i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done'
check "the kernel counts the pauses" sh -c \
    '[ "$(awk "/^nr_throttled/ { print \$2 }" /sys/fs/cgroup/held/cpu.stat)" -gt 0 ]'
echo "max 100000" >/sys/fs/cgroup/held/cpu.max
(
    sh -c 'echo $$ >/sys/fs/cgroup/held/cgroup.procs; exec overdrive audit --json --target "$0"' "$drive" \
        >/tmp/record.json 2>/tmp/notes
)
load /tmp/record.json
equal "rule cgroup-cpu-throttled" advice "$(finding cgroup-cpu-throttled)"
equal "the drive is on the second node" 1 "$(cat "/sys/class/nvme/$controller/numa_node" 2>/dev/null ||
    cat "/sys/class/nvme/$controller/device/numa_node")"
equal "rule cgroup-cpuset-local: only the first node's memory" advice "$(finding cgroup-cpuset-local)"
echo 0-1 >/sys/fs/cgroup/held/cpuset.mems
echo 0-3 >/sys/fs/cgroup/held/cpuset.cpus
sh -c 'echo $$ >/sys/fs/cgroup/held/cgroup.procs; exec overdrive audit --json --target "$0"' "$drive" \
    >/tmp/record.json 2>/tmp/notes
load /tmp/record.json
equal "rule cgroup-cpuset-local: both nodes' memory" ok "$(finding cgroup-cpuset-local)"

# Build options: this guest has no file of them until one is laid there.
equal "build options are not known here" null "$(value "$(where facts id kernel.config).value")"
mkdir -p /boot
echo CONFIG_RCU_NOCB_CPU=y >"/boot/config-$(uname -r)"
audit
contains "build options are read" "CONFIG_RCU_NOCB_CPU=y" "$(value "$(where facts id kernel.config).value")"
