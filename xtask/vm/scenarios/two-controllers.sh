# Two controllers: only the one that was named is touched, and the facts are that one's
#: module nvme
#: device pcie-root-port,id=port1,slot=1,chassis=1
#: device pcie-root-port,id=port2,slot=2,chassis=2
#: nvme first written bus=port1
#: nvme second written bus=port2 size=96M

reads() { awk '{ print $1 }' "/sys/block/$1/stat"; }

named=$(disk second) other=$(disk first)
before=$(reads "$other")
evaluate "/dev/$named" --write-to "/dev/$named"
equal "the evaluation ends well" 0 "$code"
equal "the target is the second drive" second "$(value target.serial)"
equal "all of it" $((96 << 20)) "$(value target.size_bytes)"
equal "its controller is described" live "$(fact "nvme.${named%n1}.state")"
equal "the other is not" "" "$(fact "nvme.${other%n1}.state")"
equal "the other was not read" "$before" "$(reads "$other")"
equal "the other was not written" 0 "$(writes "$other")"
at_least "the named one was" 100 "$(writes "$named")"
