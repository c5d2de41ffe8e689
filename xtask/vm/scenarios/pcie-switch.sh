# Two drives behind a PCIe switch and one beside it: the way to each is found
#: module nvme
#: device pcie-root-port,id=port1,slot=1,chassis=1
#: device pcie-root-port,id=port2,slot=2,chassis=2
#: device x3130-upstream,id=up,bus=port1
#: device xio3130-downstream,id=down1,bus=up,slot=3,chassis=3
#: device xio3130-downstream,id=down2,bus=up,slot=4,chassis=4
#: nvme a written bus=down1
#: nvme b written bus=down2
#: nvme c written bus=port2

evaluate "/dev/$(disk b)"
equal "the evaluation ends well" 0 "$code"
equal "it is the second drive behind the switch" b "$(value target.serial)"
equal "its address" 0000:04:00.0 "$(value target.layers.2.name)"
equal "its link" "2.5 GT/s" "$(fact pcie.0000:04:00.0.link.speed)"
equal "the port above it is the switch's" "Port 0000:02:01.0 width" \
    "$(value "$(where target.layers id pcie.0000:04:00.0.parent.width).label")"
equal "rule pcie-link-speed" ok "$(finding pcie-link-speed)"
equal "rule pcie-link-width" ok "$(finding pcie-link-width)"

overdrive run "/dev/$(disk c)" --runtime 200ms --json >/tmp/record.json 2>/tmp/notes
equal "the drive beside the switch is measured" 0 "$?"
load /tmp/record.json
equal "it hangs on a root port" "Port 0000:00:02.0 width" \
    "$(value "$(where target.layers id "pcie.$(value target.layers.2.name).parent.width").label")"

# One lane of 2.5 GT/s above two drives: a quarter of a gigabyte a second for both.
overdrive topology --json >/tmp/record.json 2>/tmp/notes
equal "the topology is read" 0 "$?"
load /tmp/record.json
equal "three drives" 3 "$(grep -c '^vertices\.[0-9]*\.kind drive' /tmp/flat)"
upstream=$(where vertices kind switch_upstream)
equal "two of them share the link above the switch" 2 "$(value "$upstream.drives")"
equal "which is too slow for both" true "$(value "$upstream.saturated")"
equal "it gives first" "$(value "$upstream.id")" "$(value saturated.0)"
at_least "it carries a quarter of a gigabyte" 200000000 "$(value "$upstream.now_bytes_per_s")"
equal "one drive's link is not the limit" false "$(value "$(where vertices id 0000:04:00.0).saturated")"
contains "the text says so" "First" "$(overdrive topology 2>&1)"

# QEMU's drives can do 2.5 GT/s and one lane, so a link of theirs cannot train down. A drive that could do more is had by
# laying its figures over the attributes; the port above it can do 16 GT/s and 32 lanes by itself.
address=$(basename "$(readlink -f "/sys/block/$(disk c)/device/device")")
for attribute in max_link_speed=16.0_GT/s_PCIe max_link_width=4; do
    echo "${attribute#*=}" | tr _ ' ' >"/tmp/${attribute%%=*}"
    mount --bind "/tmp/${attribute%%=*}" "/sys/bus/pci/devices/$address/${attribute%%=*}"
done
overdrive audit --json --target "/dev/$(disk c)" >/tmp/record.json 2>/tmp/notes
load /tmp/record.json
equal "a link that trained down: rule pcie-link-speed" problem "$(finding pcie-link-speed)"
equal "a link that lost lanes: rule pcie-link-width" problem "$(finding pcie-link-width)"
contains "and says what both ends could do" "2.5 GT/s, and both ends could do 16" \
    "$(value "$(where findings rule pcie-link-speed).reason")"
overdrive topology --json >/tmp/record.json 2>/tmp/notes
load /tmp/record.json
equal "the topology names it" true "$(value "$(where vertices id "$address").downgraded")"
equal "and no other drive" false "$(value "$(where vertices id 0000:04:00.0).downgraded")"
