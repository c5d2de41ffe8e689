# What tune applies is undone to the last byte of sysfs, whatever was made to stay, in any order
#: module nvme
#: nvme a written
#: nvme b

mkdir -p /etc /var/lib
. /tune.sh

before=$(settings)
overdrive tune plan --class B --target /dev/nvme0n1 >/tmp/plan 2>&1
equal "planning changes nothing" "$before" "$(settings)"
overdrive tune apply --class B --target /dev/nvme0n1 --persist >/tmp/applied 2>&1
check "something was applied" grep -q "done, and reads back so" /tmp/applied
check "files make it stay" test -s /etc/sysctl.d/90-overdrive-0001.conf
changed=$(settings)
check "the settings differ" test "$before" != "$changed"

# A further set on top, undone in the wrong order.
overdrive tune apply --class B --target /dev/nvme1n1 >/tmp/second 2>&1
check "a second set stands" grep -q "overdrive tune undo 2" /tmp/second
overdrive tune undo 1 >/tmp/undone 2>&1
equal "the first set is undone below it" 0 "$?"
overdrive tune undo 2 >>/tmp/undone 2>&1
equal "then the second" 0 "$?"
equal "every setting is as before" "$before" "$(settings)"
equal "no file stays" "" "$(find /etc -name '*overdrive*')"
overdrive tune undo >/tmp/again 2>&1
equal "there is nothing more to undo" 0 "$?"

# A disk that is swapped to is left alone unless insisted on.
mkswap /dev/nvme1n1 >/dev/null
swapon /dev/nvme1n1
echo 4096 >/sys/block/nvme1n1/queue/read_ahead_kb
overdrive tune apply --rules block-read-ahead,block-scheduler-none,block-nomerges --class B \
    --target /dev/nvme1n1 >/tmp/busy 2>&1
if grep -q 'is swapped to' /tmp/busy; then
    pass "a swap device is held back"
    overdrive tune apply --rules block-read-ahead,block-scheduler-none,block-nomerges --class B \
        --target /dev/nvme1n1 --even-if-busy --json >/tmp/insisted 2>&1
    check "--even-if-busy insists" grep -q '"is_good":true' /tmp/insisted
    overdrive tune undo >/dev/null 2>&1
else
    fail "a swap device is held back" "$(tail -n 3 /tmp/busy)"
fi
swapoff /dev/nvme1n1

# Somebody else's change is drift, and stays.
overdrive tune apply --class B --target /dev/nvme0n1 >/tmp/applied 2>&1
path=$(sed -n 's|^[AB-]* *\(/proc/sys/[^:]*\): .*|\1|p' /tmp/applied | head -n 1)
check "a sysctl was set" test -n "$path"
other=$(($(cat "$path") + 3))
echo "$other" >"$path"
overdrive tune undo >/tmp/drift 2>&1
equal "undo says so by its exit code" 1 "$?"
equal "what somebody else wrote stays" "$other" "$(cat "$path")"
