# Rules about drives, each with its condition made true and false on a real driver: wear, room, swap
#: memory 640M
#: module nvme
#: module ext4
#: module crc32c_generic
#: device pcie-root-port,id=port1,slot=1,chassis=1
#: device pcie-root-port,id=port2,slot=2,chassis=2
#: nvme a size=64M bus=port1
#: nvme b size=96M bus=port2

drive=/dev/$(disk a)
other=/dev/$(disk b)

# says RULE STATUS TARGET WHAT: the audit of the target gives the rule this status
says() {
    overdrive audit --json --target "$3" >/tmp/record.json 2>/tmp/notes
    load /tmp/record.json
    equal "rule $1: $4" "$2" "$(finding "$1")"
}

reason() { value "$(where findings rule "$1").reason"; }

# Fresh flash, and then flash that was written twice over.
says bench-preconditioned advice "$drive" "never written"
for _ in 1 2; do dd if=/dev/zero of="$drive" bs=1M oflag=direct 2>/dev/null; done
dd if=/dev/zero of="$drive" bs=1M count=4 oflag=direct 2>/dev/null
says bench-preconditioned ok "$drive" "written twice over"

# A file system with room, with little, with next to none, and with room again.
mke2fs -m 0 "$other" >/dev/null 2>&1
mkdir -p /mnt
mount -t ext4 "$other" /mnt || mount -t ext2 "$other" /mnt
dd if=/dev/zero of=/mnt/file bs=1M count=4 2>/dev/null

# fill PERCENT: until so much is left
fill() {
    # shellcheck disable=SC2046 # two words
    set -- "$1" $(df -k /mnt | awk 'END { print $2, $4 }')
    dd if=/dev/zero bs=1024 count=$(($3 - $2 * $1 / 100)) 2>/dev/null >>/mnt/filling
    sync
}
says space-free ok /mnt/file "room"
fill 6
says space-free advice /mnt/file "little room"
fill 1
says space-free problem /mnt/file "next to none"
rm /mnt/filling
says space-free ok /mnt/file "room again"

# Swap in a file on the drive, and on another drive.
dd if=/dev/zero of=/mnt/swap bs=1M count=16 2>/dev/null
mkswap /mnt/swap >/dev/null
check "a file is swapped to" swapon /mnt/swap
says swap-shared-device advice /mnt/file "swap is beside it"
contains "and names the area" "/mnt/swap is on it" "$(reason swap-shared-device)"
says swap-shared-device ok "$drive" "swap is on another drive"
swapoff /mnt/swap
says swap-shared-device ok /mnt/file "no swap"
umount /mnt
