# A drive that was never written is reported as such
#: module nvme
#: nvme blank
#: nvme half

evaluate "/dev/$(disk blank)"
equal "the evaluation ends well" 0 "$code"
equal "how it was found out" sampled "$(value preconditioning.kind)"
equal "all of it" 100.0 "$(value preconditioning.never_written_percent)"
contains "what that means" "never written" "$(value preconditioning.note)"

dd if=/dev/urandom of="/dev/$(disk half)" bs=1M count=32 oflag=direct 2>/dev/null
evaluate "/dev/$(disk half)"
equal "half of it" 50.0 "$(value preconditioning.never_written_percent)"
