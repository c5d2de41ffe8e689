# The audit on real NVMe drivers: what the controllers say by ioctl, two of them, as root and as nobody
#: module nvme
#: device pcie-root-port,id=port1,slot=1,chassis=1
#: device pcie-root-port,id=port2,slot=2,chassis=2
#: nvme first written bus=port1
#: nvme second written bus=port2 logical_block_size=4096 physical_block_size=4096

# audit ARGUMENTS...: its findings and facts are loaded, $code is its exit code
audit() {
    overdrive audit --json "$@" >/tmp/record.json 2>/tmp/notes
    code=$?
    load /tmp/record.json
}

# audited ID: the value of a fact
audited() {
    at=$(where facts id "$1")
    [ -n "$at" ] && value "$at.value"
}

for serial in first second; do
    name=$(disk $serial)
    controller=${name%n1}
    audit --target "/dev/$name"
    at_least "$serial: every rule is answered" 160 "$(grep -c '^findings\.[0-9]*\.rule ' /tmp/flat)"
    equal "$serial: its serial number" $serial "$(audited "nvme.$controller.serial")"
    contains "$serial: the model by sysfs" "QEMU NVMe Ctrl" "$(audited "nvme.$controller.model")"
    # By ioctl: identity, formats, health, features.
    contains "$serial: power states" "W" "$(audited "nvme.$controller.power_states")"
    contains "$serial: temperature" "°C" "$(audited "nvme.$controller.temperature")"
    contains "$serial: health" "%" "$(audited "nvme.$controller.health")"
    contains "$serial: queues granted" "and" "$(audited "nvme.$controller.queues_granted")"
    contains "$serial: its block format" "$(cat "/sys/block/$name/queue/logical_block_size")" \
        "$(audited "nvme.$controller.formats")"
    equal "$serial: rule nvme-smart-critical" ok "$(finding nvme-smart-critical)"
    equal "$serial: rule nvme-poll-queues" advice "$(finding nvme-poll-queues)"
    equal "$serial: no poll queue" 0 "$(audited "nvme.$controller.poll_contexts")"
    equal "$serial: queue interrupts are managed" ok "$(finding irq-nvme-managed)"
    check "$serial: nothing panicked" test "$code" -le 1
done

# As nobody: what is readable is judged, the rest says that it needs root.
name=$(disk first)
chmod 755 /bin/overdrive
mkdir -p /etc
echo 'nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
su nobody -c "overdrive audit --json --target /dev/$name" >/tmp/record.json 2>/tmp/notes
code=$?
load /tmp/record.json
check "nobody: it ends with a judgement" test "$code" -le 1
at_least "nobody: every rule is answered" 160 "$(grep -c '^findings\.[0-9]*\.rule ' /tmp/flat)"
equal "nobody: the health log is not readable" unknown "$(finding nvme-smart-critical)"
at=$(where findings rule nvme-smart-critical)
contains "nobody: and the reason says so" "needs root" "$(value "$at.reason")"
