# What scenarios are written with: waiting, checking, and reading a record.
#
# A check prints one line, `ok WHAT` or `not ok WHAT`, and the scenario fails when one of them failed or none was made.

checks=0
failures=0

# pass WHAT; fail WHAT [DETAIL]
pass() {
    checks=$((checks + 1))
    echo "ok $1"
}

fail() {
    checks=$((checks + 1))
    failures=$((failures + 1))
    echo "not ok $1${2:+: $2}"
}

# check WHAT COMMAND...: the command succeeds
check() {
    what=$1
    shift
    if "$@" >/tmp/check.out 2>&1; then pass "$what"; else fail "$what" "$(tail -n 3 /tmp/check.out)"; fi
}

# equal WHAT WANTED FOUND
equal() {
    if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "wanted '$2', found '$3'"; fi
}

# contains WHAT PIECE TEXT
contains() {
    case $3 in
    *"$2"*) pass "$1" ;;
    *) fail "$1" "'$2' is not in '$3'" ;;
    esac
}

# at_least WHAT LEAST FOUND: whole numbers
at_least() {
    if [ "${3:-0}" -ge "$2" ] 2>/dev/null; then pass "$1"; else fail "$1" "wanted at least $2, found '$3'"; fi
}

finish() {
    if [ "$checks" = 0 ]; then fail "a scenario checks something"; fi
    echo "$checks checks, $failures failed"
    [ "$failures" = 0 ]
}

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
    tries=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ]; then
            fail "within the time: $*"
            return 1
        fi
        usleep 100000
    done
}

# monitor COMMAND...: QEMU's monitor does this; the host reads the line and passes it on
monitor() { echo "@monitor $*"; }

# evaluate ARGUMENTS...: a short evaluation. Afterwards $code is its exit code, /tmp/notes what it said, and the record is
# loaded.
evaluate() {
    overdrive evaluate "$@" --quick --runtime 150ms --out /tmp/out --json >/tmp/record.json 2>/tmp/notes
    code=$?
    load /tmp/record.json
}

# load FILE: a record as lines of `path value` in /tmp/flat, such as `workloads.0.job.engine pvsync2`
load() { awk -f /record.awk "$1" >/tmp/flat; }

# value PATH: one value of the record
value() { awk -v key="$1" '$1 == key { sub(/^[^ ]* /, ""); print; exit }' /tmp/flat; }

# where LIST FIELD VALUE: the path of the entry of a list whose field has that value
where() {
    awk -v list="$1" -v field="$2" -v wanted="$3" '
        index($1, list ".") == 1 {
            text = $0
            sub(/^[^ ]* /, "", text)
            key = $1
            if (text == wanted && sub("\\." field "$", "", key) && key ~ /\.[0-9]+$/) { print key; exit }
        }' /tmp/flat
}

# workload ID FIELD: workload randread-4k-pvsync2-1x1 outcome.ios
workload() {
    at=$(where workloads id "$1")
    [ -n "$at" ] && value "$at.$2"
}

# finding RULE: its status
finding() {
    at=$(where findings rule "$1")
    [ -n "$at" ] && value "$at.status"
}

# fact ID: the value of a fact of the host or of what lies below the target
fact() {
    at=$(where host.facts id "$1")
    [ -n "$at" ] || at=$(where target.layers id "$1")
    [ -n "$at" ] && value "$at.value"
}

# features WORKLOAD: what the kernel granted, in one line
features() {
    at=$(where workloads id "$1")
    [ -n "$at" ] && awk -v key="$at.granted." 'index($1, key) == 1 { sub(/^[^ ]* /, ""); print }' /tmp/flat | tr '\n' ' '
}

# notes: the record's notes
notes() { awk 'index($1, "notes.") == 1 { sub(/^[^ ]* /, ""); print }' /tmp/flat; }

# disk SERIAL: the name of a drive's disk. Controllers are numbered as they answer, in an order of their own.
disk() {
    for serial in /sys/block/nvme*/device/serial; do
        if [ "$(tr -d ' ' <"$serial")" = "$1" ]; then
            serial=${serial#/sys/block/}
            echo "${serial%%/*}"
        fi
    done
}

# writes DISK: how many writes the kernel has sent to it
writes() { awk '{ print $5 }' "/sys/block/$1/stat"; }
