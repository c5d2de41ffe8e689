# For scenarios that change settings: everything a setting could stand in, in one text.

# settings: path and content of every attribute of disks, virtual memory, kernel, modules, interrupts and huge pages.
# Counters that run by themselves are left out.
settings() {
    find /sys/block/*/queue/ /sys/block/*/device/power/ /proc/sys/vm /proc/sys/kernel /proc/sys/fs /sys/module/*/parameters \
        /sys/kernel/mm /sys/devices/system/cpu/cpu*/power /sys/devices/system/clocksource /sys/bus/workqueue -type f \
        2>/dev/null | grep -v -e random/ -e stat_refresh -e drop_caches -e compact_memory -e /runtime_ -e '-nr$' -e -state \
        -e pty/nr -e _usage -e last_ -e ns_last_pid -e pages_ -e /stable_ -e full_scans -e general_profit -e autosuspend \
        -e tainted -e lru_gen_full | sort | while read -r path; do
        echo "$path = $(cat "$path" 2>/dev/null)"
    done
}
