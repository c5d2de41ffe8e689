# Killed at any moment of applying or undoing: one undo afterwards brings everything back
#: module nvme
#: nvme a written
#: limit 900s

mkdir -p /etc /var/lib
. /tune.sh

journal=/var/lib/overdrive/journal.jsonl
before=$(settings)

# lines: how many lines the journal has
lines() { if [ -f $journal ]; then wc -l <$journal; else echo 0; fi; }

# killed_after N COMMAND...: the command is killed as soon as the journal has N lines more, or is let end
killed_after() {
    until=$(($(lines) + $1))
    shift
    "$@" >/tmp/out 2>&1 &
    victim=$!
    while kill -0 $victim 2>/dev/null && [ "$(lines)" -lt $until ]; do :; done
    kill -9 $victim 2>/dev/null
    wait $victim
}

cut_short=0
for after in 1 2 3 5 8 12; do
    killed_after $after overdrive tune apply --class B --target /dev/nvme0n1 --persist
    if ! grep -q 'takes it back' /tmp/out; then cut_short=$((cut_short + 1)); fi
    # The undo is killed too, every second time.
    if [ $((after % 2)) = 0 ]; then killed_after 2 overdrive tune undo --all; fi
    overdrive tune undo --all >/tmp/undone 2>&1
    equal "killed after $after lines: undo ends well" 0 "$?"
    equal "killed after $after lines: every setting is as before" "$before" "$(settings)"
    equal "killed after $after lines: no file stays" "" "$(find /etc -name '*overdrive*')"
done
at_least "some were really cut short" 3 $cut_short
